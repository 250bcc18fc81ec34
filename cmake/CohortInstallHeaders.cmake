# Part of the installation: copies the headers that programs include (`doors`), and those of Cohort's
# that these include in turn, from `source` to `destination`. What no public header needs is nobody
# else's business.
cmake_policy(VERSION 3.25)  # an installation runs with the oldest
set(waiting ${doors})
set(seen ${doors})
while(waiting)
  list(POP_FRONT waiting header)
  cmake_path(GET header PARENT_PATH folder)
  file(INSTALL "${source}/${header}" DESTINATION "${destination}/${folder}")
  file(STRINGS "${source}/${header}" lines REGEX "^#include \"cohort/")
  foreach(line IN LISTS lines)
    string(REGEX REPLACE "^#include \"([^\"]+)\".*" "\\1" target "${line}")
    if(NOT target IN_LIST seen)
      list(APPEND seen "${target}")
      list(APPEND waiting "${target}")
    endif()
  endforeach()
endwhile()

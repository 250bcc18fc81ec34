# Compiles wrong_calls.cc, which must fail, and looks for what it expects in the compiler's words.
#
#   cmake -DCOMPILER=... -DSOURCE_ROOT=... "-DINCLUDES=a;b" -P run.cmake
cmake_minimum_required(VERSION 3.25)

set(source "${CMAKE_CURRENT_LIST_DIR}/wrong_calls.cc")
list(TRANSFORM INCLUDES PREPEND "-isystem;")
execute_process(
  COMMAND "${COMPILER}" -std=c++20 -fsyntax-only -Wunused-value "-I${SOURCE_ROOT}" ${INCLUDES} "${source}"
  RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
if(result EQUAL 0)
  message(FATAL_ERROR "wrong_calls.cc compiles")
endif()

file(STRINGS "${source}" lines REGEX "// expect: ")
set(missing "")
foreach(line IN LISTS lines)
  string(REGEX REPLACE ".*// expect: " "" expected "${line}")
  string(FIND "${output}" "${expected}" at)
  if(at EQUAL -1)
    string(APPEND missing "\n  ${expected}")
  endif()
endforeach()
if(missing)
  message(FATAL_ERROR "the compiler does not say:${missing}\nbut\n${output}")
endif()

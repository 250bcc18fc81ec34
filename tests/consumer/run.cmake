# Installs a build of Cohort into a new folder, and builds and runs the project beside this file
# against it, as somebody would who knows only the installed files.
#
#   cmake -DBUILD=<build folder> -DGENERATOR=... -DCOMPILER=... -DLAUNCHER=... -DLIBTORCH=...
#         -DPYTHON=... -P run.cmake
cmake_minimum_required(VERSION 3.25)

function(run what)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE result OUTPUT_VARIABLE output
                  ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${what} failed (${result}):\n${output}")
  endif()
endfunction()

set(work "${BUILD}/tests/consumer/work")
file(REMOVE_RECURSE "${work}")
set(prefix "${work}/installed")
run("the installation" "${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${prefix}")

get_filename_component(source "${CMAKE_CURRENT_LIST_DIR}/../.." REALPATH)
# What no public header includes stays at home.
foreach(private cohort/runtime/wait_word.h cohort/collectives/transport.h cohort/rpc/security.h
        cohort/testing)
  if(EXISTS "${prefix}/include/${private}" OR NOT EXISTS "${source}/${private}")
    message(FATAL_ERROR "${private} was installed, or is no more")
  endif()
endforeach()

run("the check of installed headers" "${PYTHON}" -B "${source}/tests/consumer/headers.py"
  "${prefix}/include")

# An installed file that names the build or the source folder works on this machine only.
file(GLOB_RECURSE files "${prefix}/*.cmake" "${prefix}/*.h")
if(NOT files)
  message(FATAL_ERROR "nothing was installed into ${prefix}")
endif()
foreach(file IN LISTS files)
  file(READ "${file}" text)
  foreach(folder "${BUILD}" "${source}/" "${LIBTORCH}")
    string(FIND "${text}" "${folder}" at)
    if(NOT at EQUAL -1)
      message(FATAL_ERROR "${file} names ${folder}")
    endif()
  endforeach()
endforeach()

# Moved after the installation, because packages are.
file(RENAME "${prefix}" "${work}/moved")
run("the consumer's configuration" "${CMAKE_COMMAND}" -S "${CMAKE_CURRENT_LIST_DIR}/project"
  -B "${work}/build" -G "${GENERATOR}" "-DCMAKE_PREFIX_PATH=${work}/moved"
  "-DCMAKE_CXX_COMPILER=${COMPILER}" "-DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER}"
  "-DCOHORT_LIBTORCH=${LIBTORCH}")
run("the consumer's build" "${CMAKE_COMMAND}" --build "${work}/build")
run("the consumer" "${work}/build/consumer")
run("the consumer of one layer" "${work}/build/consumer_of_base")

run("the configuration of a strategy of one's own" "${CMAKE_COMMAND}"
  -S "${CMAKE_CURRENT_LIST_DIR}/own_strategy" -B "${work}/own_strategy" -G "${GENERATOR}"
  "-DCMAKE_PREFIX_PATH=${work}/moved" "-DCMAKE_CXX_COMPILER=${COMPILER}"
  "-DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER}" "-DCOHORT_LIBTORCH=${LIBTORCH}"
  "-DEXAMPLES=${source}/examples")
run("the build of a strategy of one's own" "${CMAKE_COMMAND}" --build "${work}/own_strategy")
run("the strategy of one's own" "${work}/own_strategy/local_sgd_strategy")

# What a new user copies first: the project on the guide's first page.
run("taking the guide's project" "${PYTHON}" -B "${source}/tests/docs/snippets.py" extract
  docs/guide/first_model.md "${work}/guide")
run("the configuration of the guide's project" "${CMAKE_COMMAND}" -S "${work}/guide"
  -B "${work}/guide/build" -G "${GENERATOR}" "-DCMAKE_PREFIX_PATH=${work}/moved"
  "-DCMAKE_CXX_COMPILER=${COMPILER}" "-DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER}"
  "-DCOHORT_LIBTORCH=${LIBTORCH}")
run("the build of the guide's project" "${CMAKE_COMMAND}" --build "${work}/guide/build")
run("the guide's project" "${work}/guide/build/first")
file(REMOVE_RECURSE "${work}")
message("installed, found, built and run")

# The kinds of targets that the tree is made of:
#
#   cohort_layer    one library per folder: cohort::<folder>
#   cohort_umbrella cohort::cohort, which links every layer and installs cohort/cohort.h
#   cohort_test     one test program, and one ctest entry, per folder
#   cohort_program  an example, a benchmark, an application
#   cohort_test_program  a program that tests start
#
# File lists stand in the folders' CMakeLists.txt, without globs: they are its table of contents.

include(GNUInstallDirs)
set_property(GLOBAL PROPERTY COHORT_LAYERS "")

# Of so many sources of a layer a unity build makes one unit, which is compiled again when one of them changes:
# nobody waits for that in a build with a sanitizer.
set(COHORT_UNIT_OF_LAYER 6)
if(COHORT_SANITIZER)
  set(COHORT_UNIT_OF_LAYER 12)
endif()

# Clang 14 takes the newest libstdc++ there is, and cannot evaluate the consteval functions of that of
# GCC 13 (Ubuntu 24.04) in <chrono>: as constexpr ones it can. Sets `out` to the options it needs.
function(cohort_clang_options out compiler)
  set(options "")
  set(probe -std=c++20 -fsyntax-only -include chrono -x c++ /dev/null)
  execute_process(COMMAND "${compiler}" ${probe} RESULT_VARIABLE refused OUTPUT_QUIET ERROR_QUIET)
  if(NOT refused EQUAL 0)
    set(options -Dconsteval=constexpr)
  endif()
  set(${out} "${options}" PARENT_SCOPE)
endfunction()

if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  cohort_clang_options(COHORT_CLANG_OPTIONS "${CMAKE_CXX_COMPILER}")
endif()

function(cohort_compile_settings target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wnon-virtual-dtor -Wshadow
    ${COHORT_CLANG_OPTIONS})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # GCC 12 at -O3 sees overflows in std::string's own code that are not there.
    target_compile_options(${target} PRIVATE
      "$<$<CONFIG:Release>:-Wno-stringop-overflow;-Wno-restrict;-Wno-array-bounds>")
  endif()
  # A tenth of GCC's time went into collecting what precompiled headers keep alive, again and again.
  target_compile_options(${target} PRIVATE
    $<$<COMPILE_LANG_AND_ID:CXX,GNU>:--param=ggc-min-heapsize=1000000>)
  if(COHORT_WERROR)
    target_compile_options(${target} PRIVATE
      $<IF:$<COMPILE_LANGUAGE:CUDA>,-Xcompiler=-Werror,-Werror>)
  endif()
  if(COHORT_SANITIZER)
    target_compile_options(${target} PRIVATE -fsanitize=${COHORT_SANITIZER} -fno-omit-frame-pointer)
    target_link_options(${target} PUBLIC -fsanitize=${COHORT_SANITIZER})
    if(COHORT_SANITIZER MATCHES "undefined")
      # LibTorch hides the type information of many classes, so `vptr` cannot look at them.
      target_compile_options(${target} PRIVATE -fno-sanitize-recover=undefined -fno-sanitize=vptr)
    endif()
    if(COHORT_SANITIZER MATCHES "thread")
      # A fence is invisible to ThreadSanitizer; what it then reports is listed in tools/tsan.supp.
      target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-tsan>)
    endif()
  endif()
endfunction()

# What compiles tests, and the programs that they start, in less time: the layers beneath them, which
# they are about, keep the build's own options. Further options, as -O1, are for a test that computes
# a lot itself.
function(cohort_test_settings target)
  if(COHORT_SANITIZER MATCHES "address")
    target_compile_options(${target} PRIVATE -O0 -fno-sanitize=undefined)
  elseif(NOT COHORT_SANITIZER)
    target_compile_options(${target} PRIVATE $<$<NOT:$<CONFIG:Debug>>:-O0> ${ARGN})
  endif()
  # In a fifth of the time of GNU's linker. Not what GCC compiles at -O3: of the parts of functions
  # that it sets apart as cold LLVM 14's linker loses where exceptions go.
  find_program(COHORT_LLD ld.lld)
  if(COHORT_LLD AND CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    target_link_options(${target} PRIVATE -fuse-ld=lld)
  endif()
endfunction()

# Lends one of four precompiled headers, each compiled once: `plain_test` (tests without LibTorch),
# `test` (tests with it), `whole_test` (what includes cohort/cohort.h, compiled as tests are),
# `tensor` (layers with LibTorch). The compiler wants equal -fPIC, -fsanitize and definitions on both
# sides; -Winvalid-pch, which CMake adds, says where they differ. The others have none of Cohort's own
# headers: what their inline functions use, GCC would instantiate in every unit, and every change of
# one would compile all units.
function(cohort_use_precompiled target kind)
  if(NOT COHORT_USE_PCH)
    return()
  endif()
  set(headers <algorithm> <functional> <map> <memory> <optional> <string> <vector>)
  if(kind MATCHES "test")
    list(PREPEND headers <gtest/gtest.h>)
  endif()
  if(NOT kind STREQUAL "plain_test")
    list(PREPEND headers <ATen/core/Tensor.h>)
  endif()
  if(kind STREQUAL "whole_test")
    list(APPEND headers <cohort/cohort.h>)
  endif()
  set(lender cohort_pch_${kind})
  if(NOT TARGET ${lender})
    set(source "${CMAKE_BINARY_DIR}/pch_${kind}.cc")
    if(NOT EXISTS "${source}")
      file(WRITE "${source}" "namespace cohort::internal { void pch_${kind}() {} }\n")
    endif()
    add_library(${lender} STATIC EXCLUDE_FROM_ALL "${source}")
    cohort_compile_settings(${lender})
    if(kind STREQUAL "whole_test")
      target_include_directories(${lender} PRIVATE "${PROJECT_SOURCE_DIR}")
    endif()
    if(kind STREQUAL "tensor")
      set_target_properties(${lender} PROPERTIES POSITION_INDEPENDENT_CODE ON)
    endif()
    target_link_libraries(${lender} PRIVATE LibTorch::torch Threads::Threads)
    if(kind MATCHES "test")
      cohort_test_settings(${lender})
      target_link_libraries(${lender} PRIVATE GTest::gtest)
    endif()
    target_precompile_headers(${lender} PRIVATE ${headers})
    # Clang would refuse a header that the compiler cache gives back after a checkout.
    target_compile_options(${lender} PRIVATE
      "$<$<CXX_COMPILER_ID:Clang>:SHELL:-Xclang -fno-pch-timestamp>")
  endif()
  target_precompile_headers(${target} REUSE_FROM ${lender})
endfunction()

# Whether a target, or a layer beneath it, uses LibTorch.
function(cohort_uses_torch out)
  set(${out} OFF PARENT_SCOPE)
  foreach(target ${ARGN})
    get_target_property(uses ${target} COHORT_USES_TORCH)
    if(uses)
      set(${out} ON PARENT_SCOPE)
    endif()
  endforeach()
endfunction()

# cohort_layer(NAME HEADERS... SOURCES... DEPS... [TORCH] [PRIVATE_DEPS...])
#
# HEADERS are what other folders include; those of them are installed that
# programs can reach (CohortInstallHeaders.cmake). TORCH: the folder uses tensors. DEPS name folders, PRIVATE_DEPS CMake targets of other projects. The folder
# `testing` serves the tests only: it is neither installed nor part of cohort::cohort.
function(cohort_layer name)
  cmake_parse_arguments(arg "TORCH" "" "HEADERS;SOURCES;DEPS;PRIVATE_DEPS" ${ARGN})
  set(target cohort_${name})
  list(TRANSFORM arg_DEPS PREPEND cohort_)
  cohort_uses_torch(torch ${arg_DEPS})
  if(arg_SOURCES)
    set(scope PUBLIC)
    add_library(${target} STATIC ${arg_SOURCES} ${arg_HEADERS})
    cohort_compile_settings(${target})
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON
      UNITY_BUILD ${COHORT_UNITY} UNITY_BUILD_BATCH_SIZE ${COHORT_UNIT_OF_LAYER})
    # Messages name sources by their place in the tree: one object for all checkouts.
    target_compile_options(${target} PRIVATE "-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=")
    if(arg_TORCH)
      cohort_use_precompiled(${target} tensor)
    endif()
  else()
    set(scope INTERFACE)
    add_library(${target} INTERFACE)
    target_compile_features(${target} INTERFACE cxx_std_20)
  endif()
  add_library(cohort::${name} ALIAS ${target})
  if(arg_TORCH OR torch)
    set_target_properties(${target} PROPERTIES COHORT_USES_TORCH ON)
  endif()
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
  target_include_directories(${target} ${scope}
    "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>" "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
  target_link_libraries(${target} ${scope} ${arg_DEPS} $<$<BOOL:${arg_TORCH}>:LibTorch::torch>)
  if(arg_PRIVATE_DEPS)
    target_link_libraries(${target} PRIVATE ${arg_PRIVATE_DEPS})
  endif()
  if(name STREQUAL "testing")
    return()
  endif()
  set_property(GLOBAL APPEND PROPERTY COHORT_LAYERS ${target})
endfunction()

# cohort_readers(SOURCES...)
#
# Sources of this folder's layer that read bytes from outside, which tests/fuzz compiles for itself. In
# every build they are objects apart from the layer's others, so that the linker can leave them out.
function(cohort_readers)
  list(TRANSFORM ARGN PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/")
  if(COHORT_UNITY)
    cmake_path(GET CMAKE_CURRENT_SOURCE_DIR FILENAME layer)
    set_source_files_properties(${ARGN} PROPERTIES HEADER_FILE_ONLY ON)
    cohort_unite(units "${layer}_readers" ${ARGN})
    set_source_files_properties(${units} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    target_sources(cohort_${layer} PRIVATE ${units})
  else()
    set(units ${ARGN})
  endif()
  set_property(GLOBAL APPEND PROPERTY COHORT_READERS ${units})
endfunction()

# Puts into `out` units that include the sources, six at a time. What they say is the same in every
# checkout, for the compiler cache.
function(cohort_unite out name)
  list(LENGTH ARGN count)
  math(EXPR last "(${count} - 1) / 6")
  set(units "")
  foreach(number RANGE ${last})
    math(EXPR begin "${number} * 6")
    list(SUBLIST ARGN ${begin} 6 some)
    set(content "")
    foreach(source IN LISTS some)
      cmake_path(RELATIVE_PATH source BASE_DIRECTORY "${PROJECT_SOURCE_DIR}")
      string(APPEND content "#include \"${source}\"\n")
    endforeach()
    set(unit "${CMAKE_CURRENT_BINARY_DIR}/${name}_${number}.cc")
    file(CONFIGURE OUTPUT "${unit}" CONTENT "${content}" @ONLY)
    list(APPEND units "${unit}")
  endforeach()
  set(${out} ${units} PARENT_SCOPE)
endfunction()

# To be called when all layers are there.
function(cohort_umbrella)
  get_property(layers GLOBAL PROPERTY COHORT_LAYERS)
  add_library(cohort_cohort INTERFACE)
  add_library(cohort::cohort ALIAS cohort_cohort)
  set_target_properties(cohort_cohort PROPERTIES EXPORT_NAME cohort COHORT_USES_TORCH ON)
  target_link_libraries(cohort_cohort INTERFACE ${layers})
  # Conv2D(32, (5, 3)), as Python writes it, compiles: its comma operator leaves the 3.
  target_compile_options(cohort_cohort INTERFACE -Wunused-value)
  add_custom_target(cohort_layers)  # builds what is installed
  add_dependencies(cohort_layers ${layers})
endfunction()

# Puts into `out` what is to be compiled of a test program's sources: eight X_test.cc or X_program.cc at
# a time make one unit (unite_tests.py), whose names may clash; the others are left to CMake.
function(cohort_unite_tests out name)
  set(tests ${ARGN})
  list(FILTER tests INCLUDE REGEX "_(test|program)\\.cc$")
  list(LENGTH tests count)
  if(count LESS 2)
    set(${out} ${ARGN} PARENT_SCOPE)
    return()
  endif()
  set(compiled ${ARGN})
  list(REMOVE_ITEM compiled ${tests})
  list(TRANSFORM tests PREPEND "${CMAKE_CURRENT_SOURCE_DIR}/")
  math(EXPR units "(${count} + 7) / 8")
  math(EXPR size "(${count} + ${units} - 1) / ${units}")
  math(EXPR last "(${count} - 1) / ${size}")
  set(script "${PROJECT_SOURCE_DIR}/cmake/unite_tests.py")
  foreach(unit RANGE ${last})
    math(EXPR begin "${unit} * ${size}")
    list(SUBLIST tests ${begin} ${size} some)
    set(united "${CMAKE_CURRENT_BINARY_DIR}/${name}_${unit}.cc")
    add_custom_command(OUTPUT "${united}"
      COMMAND Python3::Interpreter -B "${script}" "${PROJECT_SOURCE_DIR}" "${united}" ${some}
      DEPENDS ${some} "${script}" COMMENT "Uniting sources of ${name}" VERBATIM)
    set_source_files_properties("${united}" PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    list(APPEND compiled "${united}")
  endforeach()
  set(${out} ${compiled} PARENT_SCOPE)
endfunction()

# cohort_test(NAME SOURCES... DEPS... [COMPUTES] [LABELS...] [TIMEOUT seconds])
#
# The label `tsan` takes the test into the ThreadSanitizer run; `proof` is what crosses folders.
# COMPUTES: in the test's own sources, so they are optimised a little.
function(cohort_test name)
  if(NOT COHORT_BUILD_TESTS)
    return()
  endif()
  cmake_parse_arguments(arg "COMPUTES" "TIMEOUT" "SOURCES;DEPS;LABELS" ${ARGN})
  if(COHORT_SANITIZER MATCHES "thread" AND NOT "tsan" IN_LIST arg_LABELS)
    return()
  endif()
  # What crosses folders, most of it processes that wait for each other: the other builds run it.
  if(COHORT_SANITIZER MATCHES "address" AND "proof" IN_LIST arg_LABELS AND
     NOT COHORT_SANITIZE_PROOFS)
    return()
  endif()
  list(TRANSFORM arg_DEPS PREPEND cohort_)
  if(COHORT_UNITY)
    cohort_unite_tests(arg_SOURCES ${name} ${arg_SOURCES})
  endif()
  add_executable(${name} ${arg_SOURCES})
  cohort_compile_settings(${name})
  if(arg_COMPUTES AND NOT COHORT_SANITIZER)
    cohort_test_settings(${name} -O1)  # and no precompiled header, which is for one level
  else()
    cohort_test_settings(${name})
    cohort_uses_torch(torch ${arg_DEPS})
    if(torch)
      cohort_use_precompiled(${name} test)
    else()
      cohort_use_precompiled(${name} plain_test)
    endif()
  endif()
  target_link_libraries(${name} PRIVATE ${arg_DEPS} GTest::gtest GTest::gtest_main)
  if(NOT TARGET cohort_tests)
    add_custom_target(cohort_tests)  # and no programs that no test runs
  endif()
  add_dependencies(cohort_tests ${name})
  add_test(NAME ${name} COMMAND ${name})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 240)
  endif()
  if(COHORT_SANITIZER)
    math(EXPR arg_TIMEOUT "${arg_TIMEOUT} * 4")  # an instrumented test takes that much longer
  endif()
  # LibTorch's own threads must not burn the processors that replicas and other tests work on while
  # they wait; no result depends on it.
  # What may take longest starts first, or a processor would wait for it in the end (COST).
  set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT} COST ${arg_TIMEOUT}
    LABELS "unit;${arg_LABELS}"
    ENVIRONMENT "OMP_WAIT_POLICY=passive;${COHORT_SANITIZER_ENVIRONMENT}")
endfunction()

# cohort_program(NAME SOURCES... DEPS... [UNITED])
#
# DEPS cohort takes every layer. CLI11 reads the flags. UNITED: in a unity build its sources are
# compiled several at a time.
function(cohort_program name)
  cmake_parse_arguments(arg "UNITED" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  cohort_compile_settings(${name})
  if(arg_UNITED)
    set_target_properties(${name} PROPERTIES UNITY_BUILD ${COHORT_UNITY} UNITY_BUILD_BATCH_SIZE ${COHORT_UNIT_OF_LAYER})
  endif()
  list(TRANSFORM arg_DEPS PREPEND cohort_)
  target_link_libraries(${name} PRIVATE ${arg_DEPS} CLI11::CLI11)
endfunction()

# Compiles a program as tests are, with this precompiled header, which is why it uses GoogleTest, of
# which nothing is linked.
function(cohort_compile_as_test program kind)
  cohort_test_settings(${program})
  target_link_libraries(${program} PRIVATE GTest::gtest)
  cohort_use_precompiled(${program} ${kind})
endfunction()

# cohort_test_program(NAME SOURCES... DEPS...): a program that tests start.
function(cohort_test_program name)
  cmake_parse_arguments(arg "" "" "SOURCES;DEPS" ${ARGN})
  if(COHORT_UNITY)
    cohort_unite_tests(arg_SOURCES ${name} ${arg_SOURCES})
  endif()
  cohort_program(${name} SOURCES ${arg_SOURCES} DEPS ${arg_DEPS})
  cohort_compile_as_test(${name} test)
endfunction()

# cohort_test_starts(TEST MACRO PROGRAM [MACRO PROGRAM...])
#
# The test starts each PROGRAM, a target or one of test_programs (tests/test_program.h): its sources
# find the path in MACRO.
function(cohort_test_starts test)
  if(NOT TARGET ${test})
    return()
  endif()
  while(ARGN)
    list(POP_FRONT ARGN macro program)
    if(TARGET ${program})
      set(path "$<TARGET_FILE:${program}>")
    else()
      set(path "$<TARGET_FILE_DIR:test_programs>/${program}")
      set(program test_programs)
    endif()
    add_dependencies(${test} ${program})
    target_compile_definitions(${test} PRIVATE ${macro}="${path}")
  endwhile()
endfunction()

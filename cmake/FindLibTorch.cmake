# Finds LibTorch and defines LibTorch::torch (the CPU libraries and their headers).
#
# Looked at in this order: COHORT_LIBTORCH (CMake variable, then environment), the copy that
# tools/setup unpacked. Accepts an unpacked wheel folder, a LibTorch zip, or an installed torch
# package: whatever holds include/ATen/ATen.h and lib/libtorch_cpu.so.
#
# LibTorch's own TorchConfig.cmake is not used: its CUDA build refuses to load where no CUDA toolkit
# is installed.
#
# Also defines LibTorch::openmp, the OpenMP runtime that serves LibTorch's parallel regions: LLVM's
# libomp where it is installed (Debian: libomp5-14), for it can be told at run time how threads wait,
# and a process that links it finds its entry points before those of the libgomp beneath LibTorch.
# COHORT_OPENMP=gnu (variable) keeps libgomp; so does a LibTorch that does not bring libgomp.
#
# Sets LibTorch_FOUND, LibTorch_VERSION, LibTorch_ROOT_DIR, LibTorch_CUDA_FOUND and LibTorch_OPENMP
# (llvm or gnu). Nothing of it is cached, so that a
# changed COHORT_LIBTORCH takes effect at the next configure.

function(_libtorch_candidates out)
  if(COHORT_LIBTORCH)
    set(${out} "${COHORT_LIBTORCH}" PARENT_SCOPE)
    return()
  elseif(NOT "$ENV{COHORT_LIBTORCH}" STREQUAL "")
    set(${out} "$ENV{COHORT_LIBTORCH}" PARENT_SCOPE)
    return()
  endif()
  set(cache "$ENV{COHORT_CACHE}")
  if(NOT cache AND NOT "$ENV{XDG_CACHE_HOME}" STREQUAL "")
    set(cache "$ENV{XDG_CACHE_HOME}/cohort")
  elseif(NOT cache)
    set(cache "$ENV{HOME}/.cache/cohort")
  endif()
  file(GLOB found "${cache}/libtorch-*")
  list(SORT found COMPARE NATURAL ORDER DESCENDING)  # the newest first
  set(${out} "${found}" PARENT_SCOPE)
endfunction()

_libtorch_candidates(_libtorch_candidates)
set(LibTorch_ROOT_DIR "")
foreach(_libtorch_candidate IN LISTS _libtorch_candidates)
  foreach(_libtorch_suffix "" /torch /libtorch)
    set(_libtorch_root "${_libtorch_candidate}${_libtorch_suffix}")
    if(NOT LibTorch_ROOT_DIR AND EXISTS "${_libtorch_root}/include/ATen/ATen.h"
       AND EXISTS "${_libtorch_root}/lib/libtorch_cpu.so")
      file(REAL_PATH "${_libtorch_root}" LibTorch_ROOT_DIR)
    endif()
  endforeach()
endforeach()

set(LibTorch_VERSION "")
foreach(_libtorch_header torch/headeronly/version.h torch/csrc/api/include/torch/version.h)
  set(_libtorch_header "${LibTorch_ROOT_DIR}/include/${_libtorch_header}")
  if(LibTorch_ROOT_DIR AND NOT LibTorch_VERSION AND EXISTS "${_libtorch_header}")
    file(STRINGS "${_libtorch_header}" _libtorch_lines
         REGEX "#define TORCH_VERSION_(MAJOR|MINOR|PATCH) +[0-9]+")
    string(REGEX MATCHALL "[0-9]+" _libtorch_numbers "${_libtorch_lines}")
    list(JOIN _libtorch_numbers "." LibTorch_VERSION)
  endif()
endforeach()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch
  REQUIRED_VARS LibTorch_ROOT_DIR
  VERSION_VAR LibTorch_VERSION
  REASON_FAILURE_MESSAGE "run tools/setup, or set COHORT_LIBTORCH to a LibTorch folder")

if(LibTorch_FOUND AND NOT TARGET LibTorch::torch)
  # The wheel's include folder also carries protobuf, fmt and others that must not shadow the
  # system's: a folder of links in the build tree exposes only LibTorch's own.
  set(_libtorch_include "${CMAKE_BINARY_DIR}/libtorch_include")
  file(MAKE_DIRECTORY "${_libtorch_include}")
  foreach(_libtorch_part ATen c10 torch caffe2)
    file(CREATE_LINK "${LibTorch_ROOT_DIR}/include/${_libtorch_part}"
         "${_libtorch_include}/${_libtorch_part}" SYMBOLIC)
  endforeach()

  add_library(LibTorch::c10 SHARED IMPORTED GLOBAL)
  set_target_properties(LibTorch::c10 PROPERTIES
    IMPORTED_LOCATION "${LibTorch_ROOT_DIR}/lib/libc10.so")
  add_library(LibTorch::torch SHARED IMPORTED GLOBAL)
  set_target_properties(LibTorch::torch PROPERTIES
    IMPORTED_LOCATION "${LibTorch_ROOT_DIR}/lib/libtorch_cpu.so"
    INTERFACE_INCLUDE_DIRECTORIES
      "${_libtorch_include};${LibTorch_ROOT_DIR}/include/torch/csrc/api/include"
    INTERFACE_LINK_LIBRARIES LibTorch::c10
    # Names of indirect needs (the CUDA runtime) resolve by the library's own run path.
    INTERFACE_LINK_OPTIONS "LINKER:--allow-shlib-undefined")
endif()

# Its CUDA part, where it was unpacked: LibTorch::torch_cuda, for cohort/cuda alone.
set(LibTorch_CUDA_FOUND OFF)
if(LibTorch_FOUND AND EXISTS "${LibTorch_ROOT_DIR}/lib/libtorch_cuda.so")
  set(LibTorch_CUDA_FOUND ON)
endif()
if(LibTorch_CUDA_FOUND AND NOT TARGET LibTorch::torch_cuda)
  add_library(LibTorch::c10_cuda SHARED IMPORTED GLOBAL)
  set_target_properties(LibTorch::c10_cuda PROPERTIES
    IMPORTED_LOCATION "${LibTorch_ROOT_DIR}/lib/libc10_cuda.so")
  add_library(LibTorch::torch_cuda SHARED IMPORTED GLOBAL)
  set_target_properties(LibTorch::torch_cuda PROPERTIES
    IMPORTED_LOCATION "${LibTorch_ROOT_DIR}/lib/libtorch_cuda.so"
    INTERFACE_LINK_LIBRARIES "LibTorch::c10_cuda;LibTorch::torch")
endif()

set(LibTorch_OPENMP gnu)
if(LibTorch_FOUND AND NOT COHORT_OPENMP STREQUAL "gnu")
  file(GLOB _libtorch_gomp "${LibTorch_ROOT_DIR}/lib/libgomp*")
  find_library(_libtorch_omp NAMES libomp.so.5 omp PATH_SUFFIXES llvm-14/lib llvm/lib NO_CACHE)
  if(_libtorch_gomp AND _libtorch_omp)
    set(LibTorch_OPENMP llvm)
  endif()
endif()
if(LibTorch_FOUND AND NOT TARGET LibTorch::openmp)
  if(LibTorch_OPENMP STREQUAL "llvm")
    add_library(LibTorch::openmp SHARED IMPORTED GLOBAL)
    set_target_properties(LibTorch::openmp PROPERTIES IMPORTED_LOCATION "${_libtorch_omp}")
  else()
    add_library(LibTorch::openmp INTERFACE IMPORTED GLOBAL)
    set_target_properties(LibTorch::openmp PROPERTIES INTERFACE_LINK_LIBRARIES gomp)
  endif()
endif()

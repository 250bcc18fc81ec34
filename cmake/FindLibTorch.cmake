# Finds LibTorch and defines LibTorch::torch (the CPU libraries and headers).
#
# Looked at in this order: COHORT_LIBTORCH (CMake variable, then environment),
# the copy that tools/setup unpacked. Accepts an unpacked wheel folder, a
# LibTorch zip, or an installed torch package: whatever holds
# include/ATen/ATen.h and lib/libtorch_cpu.so.
#
# LibTorch's own TorchConfig.cmake is not used: its CUDA build refuses to load
# where no CUDA toolkit is installed.
if(NOT COHORT_LIBTORCH AND DEFINED ENV{COHORT_LIBTORCH})
  set(COHORT_LIBTORCH "$ENV{COHORT_LIBTORCH}")
endif()
set(_cohort_cache "$ENV{COHORT_CACHE}")
if(NOT _cohort_cache)
  set(_cohort_cache "$ENV{XDG_CACHE_HOME}")
  if(NOT _cohort_cache)
    set(_cohort_cache "$ENV{HOME}/.cache")
  endif()
  set(_cohort_cache "${_cohort_cache}/cohort")
endif()
file(GLOB _cohort_unpacked "${_cohort_cache}/libtorch-*")

find_path(LibTorch_ROOT_DIR include/ATen/ATen.h
  HINTS ${COHORT_LIBTORCH} ${_cohort_unpacked}
  PATH_SUFFIXES . torch libtorch NO_DEFAULT_PATH)
find_library(LibTorch_CPU_LIBRARY torch_cpu
  HINTS "${LibTorch_ROOT_DIR}/lib" NO_DEFAULT_PATH)
find_library(LibTorch_C10_LIBRARY c10
  HINTS "${LibTorch_ROOT_DIR}/lib" NO_DEFAULT_PATH)

if(LibTorch_ROOT_DIR AND EXISTS "${LibTorch_ROOT_DIR}/include/torch/headeronly/version.h")
  file(STRINGS "${LibTorch_ROOT_DIR}/include/torch/headeronly/version.h"
       _cohort_version REGEX "#define TORCH_VERSION ")
elseif(LibTorch_ROOT_DIR)
  file(STRINGS "${LibTorch_ROOT_DIR}/include/torch/csrc/api/include/torch/version.h"
       _cohort_version REGEX "#define TORCH_VERSION ")
endif()
string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" LibTorch_VERSION "${_cohort_version}")

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch
  REQUIRED_VARS LibTorch_CPU_LIBRARY LibTorch_C10_LIBRARY LibTorch_ROOT_DIR
  VERSION_VAR LibTorch_VERSION
  REASON_FAILURE_MESSAGE "run tools/setup, or set COHORT_LIBTORCH to a LibTorch folder")

if(LibTorch_FOUND AND NOT TARGET LibTorch::torch)
  add_library(LibTorch::c10 SHARED IMPORTED)
  set_target_properties(LibTorch::c10 PROPERTIES IMPORTED_LOCATION "${LibTorch_C10_LIBRARY}")
  add_library(LibTorch::torch SHARED IMPORTED)
  # The wheel's include folder also carries protobuf, fmt and others that must
  # not shadow the system's: a folder of links exposes only LibTorch's own.
  set(_cohort_include "${CMAKE_BINARY_DIR}/libtorch_include")
  file(MAKE_DIRECTORY "${_cohort_include}")
  foreach(_dir ATen c10 torch caffe2)
    file(CREATE_LINK "${LibTorch_ROOT_DIR}/include/${_dir}" "${_cohort_include}/${_dir}" SYMBOLIC)
  endforeach()
  set_target_properties(LibTorch::torch PROPERTIES
    IMPORTED_LOCATION "${LibTorch_CPU_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES
      "${_cohort_include};${LibTorch_ROOT_DIR}/include/torch/csrc/api/include"
    INTERFACE_LINK_LIBRARIES LibTorch::c10
    # Names of indirect needs (CUDA runtime) resolve by the library's own path.
    INTERFACE_LINK_OPTIONS "LINKER:--allow-shlib-undefined")
endif()
mark_as_advanced(LibTorch_ROOT_DIR LibTorch_CPU_LIBRARY LibTorch_C10_LIBRARY)

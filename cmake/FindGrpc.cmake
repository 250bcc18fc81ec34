# Finds gRPC for C++ and OpenSSL, and defines Grpc::grpc++, Grpc::ssl and Grpc::crypto. gRPC's headers
# use Abseil's mutex themselves.
#
# For the build and the installed package alike. The build wants the headers; a program that links an
# installed Cohort needs the shared libraries alone, without the development packages' links. gRPC's
# own gRPCConfig.cmake is not used: it asks for the development packages of all that is beneath it.
set(_grpc_variables "")
foreach(_grpc_part grpc++ grpc gpr crypto absl_synchronization ssl)
  string(MAKE_C_IDENTIFIER "Grpc_${_grpc_part}_LIBRARY" _grpc_variable)
  find_library(${_grpc_variable} NAMES ${_grpc_part})
  if(NOT ${_grpc_variable})
    # Without a link: the library's own file, which has a version in its name.
    foreach(_grpc_folder ${CMAKE_SYSTEM_LIBRARY_PATH} /usr/lib /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE})
      file(GLOB _grpc_found "${_grpc_folder}/lib${_grpc_part}.so.*")
      if(_grpc_found AND NOT ${_grpc_variable})
        list(SORT _grpc_found)
        list(GET _grpc_found 0 ${_grpc_variable})
      endif()
    endforeach()
  endif()
  mark_as_advanced(${_grpc_variable})
  list(APPEND _grpc_variables ${_grpc_variable})
endforeach()
set(_grpc_needed ${_grpc_variables})
if(Grpc_FIND_REQUIRED_headers)
  find_path(Grpc_INCLUDE_DIR grpcpp/generic/generic_stub.h)
  find_path(Grpc_openssl_INCLUDE_DIR openssl/hmac.h)
  mark_as_advanced(Grpc_INCLUDE_DIR Grpc_openssl_INCLUDE_DIR)
  list(APPEND _grpc_needed Grpc_INCLUDE_DIR Grpc_openssl_INCLUDE_DIR)
  if(Grpc_INCLUDE_DIR AND Grpc_openssl_INCLUDE_DIR)
    set(Grpc_headers_FOUND TRUE)
  endif()
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Grpc REQUIRED_VARS ${_grpc_needed} HANDLE_COMPONENTS
  REASON_FAILURE_MESSAGE "install gRPC for C++ and OpenSSL (Debian: libgrpc++-dev, libssl-dev)")

if(Grpc_FOUND AND NOT TARGET Grpc::grpc++)
  list(GET _grpc_variables 0 _grpc_main)
  list(GET _grpc_variables 1 _grpc_core)
  list(GET _grpc_variables 2 _grpc_base)
  list(GET _grpc_variables 3 _grpc_crypto)
  list(GET _grpc_variables 4 _grpc_mutex)
  list(GET _grpc_variables 5 _grpc_ssl)
  add_library(Grpc::grpc++ UNKNOWN IMPORTED GLOBAL)
  set_target_properties(Grpc::grpc++ PROPERTIES IMPORTED_LOCATION "${${_grpc_main}}"
    INTERFACE_LINK_LIBRARIES "${${_grpc_core}};${${_grpc_base}};${${_grpc_mutex}}")
  add_library(Grpc::crypto UNKNOWN IMPORTED GLOBAL)
  set_target_properties(Grpc::crypto PROPERTIES IMPORTED_LOCATION "${${_grpc_crypto}}")
  add_library(Grpc::ssl UNKNOWN IMPORTED GLOBAL)
  set_target_properties(Grpc::ssl PROPERTIES IMPORTED_LOCATION "${${_grpc_ssl}}"
    INTERFACE_LINK_LIBRARIES Grpc::crypto)
  if(Grpc_INCLUDE_DIR)
    set_target_properties(Grpc::grpc++ PROPERTIES
      INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${Grpc_INCLUDE_DIR}")
  endif()
endif()

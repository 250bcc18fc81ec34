# Finds HDF5 (serial, C, with its high-level library) and libzip, and defines Archives::hdf5 and
# Archives::zip.
#
# For the build and the installed package alike. The build wants the headers; a program that links an
# installed Cohort needs the shared libraries alone, without the development packages' links. CMake's
# own FindHDF5 asks for the compiler of C, libzip's package for programs.
set(_archives_variables "")
foreach(_archives_part hdf5 hdf5_hl zip)
  string(MAKE_C_IDENTIFIER "Archives_${_archives_part}_LIBRARY" _archives_variable)
  string(REPLACE "hdf5" "hdf5_serial" _archives_serial "${_archives_part}")  # Debian's name
  find_library(${_archives_variable} NAMES ${_archives_serial} ${_archives_part}
    PATH_SUFFIXES hdf5/serial)
  if(NOT ${_archives_variable})
    # Without a link: the library's own file, which has a version in its name.
    foreach(_archives_folder ${CMAKE_SYSTEM_LIBRARY_PATH} /usr/lib /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE})
      file(GLOB _archives_found "${_archives_folder}/lib${_archives_serial}.so.*")
      if(_archives_found AND NOT ${_archives_variable})
        list(SORT _archives_found)
        list(GET _archives_found 0 ${_archives_variable})
      endif()
    endforeach()
  endif()
  mark_as_advanced(${_archives_variable})
  list(APPEND _archives_variables ${_archives_variable})
endforeach()
set(_archives_needed ${_archives_variables})
if(Archives_FIND_REQUIRED_headers)
  find_path(Archives_hdf5_INCLUDE_DIR hdf5_hl.h PATH_SUFFIXES hdf5/serial)
  find_path(Archives_zip_INCLUDE_DIR zip.h)
  mark_as_advanced(Archives_hdf5_INCLUDE_DIR Archives_zip_INCLUDE_DIR)
  list(APPEND _archives_needed Archives_hdf5_INCLUDE_DIR Archives_zip_INCLUDE_DIR)
  if(Archives_hdf5_INCLUDE_DIR AND Archives_zip_INCLUDE_DIR)
    set(Archives_headers_FOUND TRUE)
  endif()
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Archives REQUIRED_VARS ${_archives_needed} HANDLE_COMPONENTS
  REASON_FAILURE_MESSAGE "install HDF5 and libzip (Debian: libhdf5-dev, libzip-dev)")

if(Archives_FOUND AND NOT TARGET Archives::hdf5)
  list(GET _archives_variables 0 _archives_hdf5)
  list(GET _archives_variables 1 _archives_hl)
  list(GET _archives_variables 2 _archives_zip)
  add_library(Archives::hdf5 UNKNOWN IMPORTED GLOBAL)
  set_target_properties(Archives::hdf5 PROPERTIES IMPORTED_LOCATION "${${_archives_hl}}"
    INTERFACE_LINK_LIBRARIES "${${_archives_hdf5}}")
  add_library(Archives::zip UNKNOWN IMPORTED GLOBAL)
  set_target_properties(Archives::zip PROPERTIES IMPORTED_LOCATION "${${_archives_zip}}")
  if(Archives_headers_FOUND)
    set_target_properties(Archives::hdf5 PROPERTIES
      INTERFACE_INCLUDE_DIRECTORIES "${Archives_hdf5_INCLUDE_DIR}")
    set_target_properties(Archives::zip PROPERTIES
      INTERFACE_INCLUDE_DIRECTORIES "${Archives_zip_INCLUDE_DIR}")
  endif()
endif()

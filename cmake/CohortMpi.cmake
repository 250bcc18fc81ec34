# Open MPI, by which kMpi carries messages: COHORT_HAS_MPI, COHORT_MPI_INCLUDE_DIR and
# COHORT_MPI_LIBRARY; COHORT_MPIEXEC starts the tests. The library is linked by its soname, so that
# an installed Cohort needs no development package, and takes later versions. Debian's folders of
# Open MPI come first: its mpi.h and libmpi.so may be another MPI's.
set(COHORT_HAS_MPI OFF)
if(COHORT_USE_MPI)
  find_path(COHORT_MPI_INCLUDE_DIR mpi.h
    HINTS /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/openmpi/include)
  find_library(COHORT_MPI_LINK NAMES mpi HINTS /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/openmpi/lib)
  find_program(COHORT_MPIEXEC NAMES mpirun.openmpi mpirun NAMES_PER_DIR)
  mark_as_advanced(COHORT_MPI_INCLUDE_DIR COHORT_MPI_LINK COHORT_MPIEXEC)
  if(COHORT_MPI_INCLUDE_DIR AND COHORT_MPI_LINK)
    set(COHORT_HAS_MPI ON)
    file(REAL_PATH "${COHORT_MPI_LINK}" COHORT_MPI_LIBRARY)
    string(REGEX REPLACE "(\\.so\\.[0-9]+)\\.[0-9.]+$" "\\1" by_soname "${COHORT_MPI_LIBRARY}")
    if(EXISTS "${by_soname}")
      set(COHORT_MPI_LIBRARY "${by_soname}")
    endif()
    message(STATUS "kMpi: by ${COHORT_MPI_LIBRARY}")
  else()
    message(STATUS "kMpi: left out, for no MPI was found (Debian: libopenmpi-dev)")
  endif()
else()
  message(STATUS "kMpi: left out, for COHORT_USE_MPI is off")
endif()

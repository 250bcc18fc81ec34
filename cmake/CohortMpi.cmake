# Open MPI, by which kMpi carries messages: COHORT_HAS_MPI, COHORT_MPI_INCLUDE_DIR and
# COHORT_MPI_LIBRARY; COHORT_MPIEXEC starts the tests. The library's own file is linked, so that an
# installed Cohort needs no development package.
set(COHORT_HAS_MPI OFF)
if(COHORT_USE_MPI)
  find_path(COHORT_MPI_INCLUDE_DIR mpi.h
    PATHS /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/openmpi/include)
  find_library(COHORT_MPI_LINK NAMES mpi PATHS /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/openmpi/lib)
  find_program(COHORT_MPIEXEC mpirun)
  mark_as_advanced(COHORT_MPI_INCLUDE_DIR COHORT_MPI_LINK COHORT_MPIEXEC)
  if(COHORT_MPI_INCLUDE_DIR AND COHORT_MPI_LINK)
    set(COHORT_HAS_MPI ON)
    file(REAL_PATH "${COHORT_MPI_LINK}" COHORT_MPI_LIBRARY)
    message(STATUS "kMpi: by ${COHORT_MPI_LIBRARY}")
  else()
    message(STATUS "kMpi: left out, for no MPI was found (Debian: libopenmpi-dev)")
  endif()
else()
  message(STATUS "kMpi: left out, for COHORT_USE_MPI is off")
endif()

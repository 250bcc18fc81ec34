# Install and export, so that find_package(cohort) works from another project.
include(CMakePackageConfigHelpers)

get_property(_cohort_layers GLOBAL PROPERTY COHORT_LAYERS)
install(TARGETS ${_cohort_layers} cohort_cohort EXPORT cohortTargets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})

install(CODE "
  set(source \"${PROJECT_SOURCE_DIR}\")
  set(destination \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_INCLUDEDIR}\")
  set(doors cohort/cohort.h cohort/keras/torch_module.h)
  include(\"${PROJECT_SOURCE_DIR}/cmake/CohortInstallHeaders.cmake\")")

set(_cohort_package "${CMAKE_INSTALL_LIBDIR}/cmake/cohort")
install(EXPORT cohortTargets NAMESPACE cohort:: DESTINATION ${_cohort_package})
configure_package_config_file(cmake/cohortConfig.cmake.in
  "${CMAKE_CURRENT_BINARY_DIR}/cohortConfig.cmake" INSTALL_DESTINATION ${_cohort_package})
write_basic_package_version_file("${CMAKE_CURRENT_BINARY_DIR}/cohortConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/cohortConfig.cmake"
              "${CMAKE_CURRENT_BINARY_DIR}/cohortConfigVersion.cmake"
              cmake/FindLibTorch.cmake
              cmake/FindArchives.cmake
              cmake/FindGrpc.cmake
        DESTINATION ${_cohort_package})
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

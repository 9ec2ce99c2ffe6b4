# The headers and the package: find_package(HipPagedAttention) gives hpa::hpa.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_DATADIR}/cmake/HipPagedAttention)  # a header-only package belongs to no architecture
configure_package_config_file(cmake/HipPagedAttentionConfig.cmake.in ${PROJECT_BINARY_DIR}/HipPagedAttentionConfig.cmake
  INSTALL_DESTINATION ${package_dir} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/HipPagedAttentionConfigVersion.cmake
  COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)

install(DIRECTORY include/hpa DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.hpp")
install(TARGETS hpa_hpa EXPORT HipPagedAttention INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT HipPagedAttention NAMESPACE hpa:: FILE HipPagedAttentionTargets.cmake DESTINATION ${package_dir})
install(FILES ${PROJECT_BINARY_DIR}/HipPagedAttentionConfig.cmake ${PROJECT_BINARY_DIR}/HipPagedAttentionConfigVersion.cmake
  DESTINATION ${package_dir})
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

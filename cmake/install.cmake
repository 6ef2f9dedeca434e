# install.cmake - what goes where, and how others find it: pkg-config and find_package.
include(CMakePackageConfigHelpers)

set(private_dir ${CMAKE_INSTALL_LIBDIR}/loam)
set(config_dir ${CMAKE_INSTALL_LIBDIR}/cmake/loam)

install(TARGETS loam-shared loam-static EXPORT loam-targets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS loam RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS loam-preload LIBRARY DESTINATION ${private_dir})
install(FILES ${PROJECT_SOURCE_DIR}/core/include/loam.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/policies DESTINATION ${CMAKE_INSTALL_DATADIR}/loam)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/examples/fleet
  DESTINATION ${CMAKE_INSTALL_DATADIR}/loam/examples)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/lua/loam/command/schema
  DESTINATION ${CMAKE_INSTALL_DATADIR}/loam)
install(FILES ${PROJECT_SOURCE_DIR}/lua/loam/command/loam.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${PROJECT_SOURCE_DIR}/lua/loam/command/loam.bash RENAME loam
  DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)

install(EXPORT loam-targets NAMESPACE loam:: DESTINATION ${config_dir})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/loamConfig.cmake.in
  ${PROJECT_BINARY_DIR}/loamConfig.cmake INSTALL_DESTINATION ${config_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/loamConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/loamConfig.cmake ${PROJECT_BINARY_DIR}/loamConfigVersion.cmake
  DESTINATION ${config_dir})

# The manifest is what the last installation from this build folder wrote.
if(NOT TARGET uninstall)
  add_custom_target(uninstall COMMAND ${CMAKE_COMMAND}
    -D MANIFEST=${PROJECT_BINARY_DIR}/install_manifest.txt
    -P ${PROJECT_SOURCE_DIR}/cmake/uninstall.cmake VERBATIM)
endif()

# The prefix is worked out from where the file lies, so that an installed tree can be moved.
string(REGEX REPLACE "[^/]+" ".." up "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
configure_file(${PROJECT_SOURCE_DIR}/cmake/loam.pc.in ${PROJECT_BINARY_DIR}/loam.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/loam.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

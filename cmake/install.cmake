# install.cmake - installs the files, and the files by which pkg-config and find_package find loam.
# A component is a Debian package (cmake/debian.cmake). `cmake --install` without a component
# installs all components except python.
include(CMakePackageConfigHelpers)

set(private_dir ${CMAKE_INSTALL_LIBDIR}/loam)
set(config_dir ${CMAKE_INSTALL_LIBDIR}/cmake/loam)

install(TARGETS loam-shared loam-static EXPORT loam-targets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library NAMELINK_COMPONENT development
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
install(FILES ${PROJECT_SOURCE_DIR}/core/include/loam.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
  COMPONENT development)

install(TARGETS loam RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT command)
install(TARGETS loam-preload LIBRARY DESTINATION ${private_dir} COMPONENT command)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/policies DESTINATION ${CMAKE_INSTALL_DATADIR}/loam
  COMPONENT command)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/examples/fleet
  DESTINATION ${CMAKE_INSTALL_DATADIR}/loam/examples COMPONENT command USE_SOURCE_PERMISSIONS)
install(CODE "set(installed ${CMAKE_INSTALL_DATADIR}/loam)"
  SCRIPT ${PROJECT_SOURCE_DIR}/cmake/links.cmake COMPONENT command)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/lua/loam/command/schema
  DESTINATION ${CMAKE_INSTALL_DATADIR}/loam COMPONENT command)
install(FILES ${PROJECT_SOURCE_DIR}/lua/loam/command/loam.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1
  COMPONENT command)
install(FILES ${PROJECT_SOURCE_DIR}/lua/loam/command/loam.bash RENAME loam
  DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT command)

install(EXPORT loam-targets NAMESPACE loam:: DESTINATION ${config_dir} COMPONENT development)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/loamConfig.cmake.in
  ${PROJECT_BINARY_DIR}/loamConfig.cmake INSTALL_DESTINATION ${config_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/loamConfigVersion.cmake
  COMPATIBILITY SameMajorVersion)
install(FILES ${PROJECT_BINARY_DIR}/loamConfig.cmake ${PROJECT_BINARY_DIR}/loamConfigVersion.cmake
  DESTINATION ${config_dir} COMPONENT development)

# The manifest lists the files of the last installation from this build folder.
if(NOT TARGET uninstall)
  add_custom_target(uninstall COMMAND ${CMAKE_COMMAND}
    -D MANIFEST=${PROJECT_BINARY_DIR}/install_manifest.txt
    -P ${PROJECT_SOURCE_DIR}/cmake/uninstall.cmake VERBATIM)
endif()

# pkg-config computes the prefix from the place of the file, so an installed tree can be moved.
string(REGEX REPLACE "[^/]+" ".." up "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
configure_file(${PROJECT_SOURCE_DIR}/cmake/loam.pc.in ${PROJECT_BINARY_DIR}/loam.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/loam.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
  COMPONENT development)

# Debian's Python looks for packages in this folder. The modules find libloam.so.1 as any program
# does, so the path to a library beside them is removed. The command is in Debian's package loam.
if(LOAM_PYTHON_BUILT)
  set(python_dir lib/python3/dist-packages)
  install(DIRECTORY ${PROJECT_BINARY_DIR}/python/loam DESTINATION ${python_dir} COMPONENT python
    EXCLUDE_FROM_ALL PATTERN "libloam.so*" EXCLUDE PATTERN "bin" EXCLUDE
    PATTERN "__pycache__" EXCLUDE)
  install(CODE "
    file(GLOB modules \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${python_dir}/loam/*.so\")
    foreach(module IN LISTS modules)
      file(RPATH_REMOVE FILE \${module})
      file(CHMOD \${module} PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
    endforeach()" COMPONENT python EXCLUDE_FROM_ALL)
endif()

if(PROJECT_IS_TOP_LEVEL)
  include(${PROJECT_SOURCE_DIR}/cmake/debian.cmake)
endif()

# debian.cmake - describes Debian's packages for CPack. cmake/debian/build makes them.
#
# libloam1       the library, for programs that are linked with it
# libloam-dev    the files with which a program is built: headers, static library, pkg-config, CMake
# loam           the command, the preload library, the policies, the manual page
# lua-loam       the module for LuaJIT
# python3-loam   the module for Debian's Python
#
# The folders of a multiarch system are chosen when the project is configured for the prefix /usr.
# With another prefix there are no packages.
if(NOT CMAKE_INSTALL_PREFIX STREQUAL "/usr" OR NOT EXISTS /etc/debian_version)
  return()
endif()

set(from ${PROJECT_SOURCE_DIR}/cmake/debian)
set(made ${PROJECT_BINARY_DIR}/debian)
set(library libloam${PROJECT_VERSION_MAJOR})
set(revision 0loam1) # of the packages; in their changelog too

set(CPACK_GENERATOR DEB)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_COMPONENTS_ALL library development command luajit)
if(LOAM_PYTHON_BUILT)
  list(APPEND CPACK_COMPONENTS_ALL python)
endif()
set(CPACK_PACKAGE_NAME loam)
set(CPACK_PACKAGE_VENDOR "loam authors")
set(CPACK_PACKAGE_CONTACT "loam authors <loam@users.noreply.github.com>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_OUTPUT_FILE_PREFIX ${made})
set(CPACK_PRE_BUILD_SCRIPTS ${from}/stage.cmake)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE ${revision})
set(CPACK_DEBIAN_PACKAGE_SOURCE loam)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR})
set(same "(= ${PROJECT_VERSION}-${revision})")

# package COMPONENT NAME SECTION DEPENDS SUMMARY TEXT - declares the package of a component. If
# DEPENDS is empty, CPack finds the dependencies from the libraries that the files are linked with.
function(package component name section depends summary text)
  string(TOUPPER ${component} key)
  set(CPACK_DEBIAN_${key}_PACKAGE_NAME ${name} PARENT_SCOPE)
  set(CPACK_DEBIAN_${key}_PACKAGE_SECTION ${section} PARENT_SCOPE)
  set(CPACK_DEBIAN_${key}_DESCRIPTION "${summary}\n${text}" PARENT_SCOPE)
  set(CPACK_DEBIAN_${key}_PACKAGE_DEPENDS "${depends}" PARENT_SCOPE)
  if(depends)
    set(CPACK_DEBIAN_${key}_PACKAGE_SHLIBDEPS OFF PARENT_SCOPE)
  else()
    set(CPACK_DEBIAN_${key}_PACKAGE_SHLIBDEPS ON PARENT_SCOPE)
  endif()
  file(MAKE_DIRECTORY ${made}/${name})
  configure_file(${from}/copyright ${made}/${name}/copyright COPYONLY)
  execute_process(COMMAND gzip -9nc ${from}/changelog OUTPUT_FILE ${made}/${name}/changelog.Debian.gz
    COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND gzip -9nc ${PROJECT_SOURCE_DIR}/core/CHANGELOG.md
    OUTPUT_FILE ${made}/${name}/changelog.gz COMMAND_ERROR_IS_FATAL ANY)
  install(DIRECTORY ${made}/${name}/ DESTINATION share/doc/${name} COMPONENT ${component}
    EXCLUDE_FROM_ALL)
endfunction()

set(what "loam decides, from the size and the tag of an allocation, which memory
it gets: alignment, NUMA node, huge pages, pinned or device memory, limits.
An operator writes these decisions as a policy in Lua; loam compiles it to
tables in C, and replaces it while programs run.

")
package(library ${library} libs "libc6 (>= 2.35)" "memory policies for running programs: library"
  "${what}This package has the library.")
package(development libloam-dev libdevel "${library} ${same}, libc6-dev"
  "memory policies for running programs: development files"
  "${what}This package has what programs are built with.")
package(command loam utils "" "memory policies for running programs: command"
  "${what}This package has the loam command. It also runs programs that were not\nbuilt for loam.")
package(luajit lua-loam interpreters "${library} ${same}, luajit"
  "memory policies for running programs: LuaJIT module"
  "${what}This package has the module for LuaJIT.")
set(CPACK_DEBIAN_LUAJIT_PACKAGE_ARCHITECTURE all)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_RECOMMENDS libluajit-5.1-2)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SUGGESTS libnuma1) # for strings of nodes in policies
set(CPACK_DEBIAN_COMMAND_PACKAGE_RECOMMENDS "libluajit-5.1-2, zlib1g") # `loam profile` uses zlib
# libmicrohttpd is for `loam metrics --listen`, libnuma for strings of nodes in policies.
set(CPACK_DEBIAN_COMMAND_PACKAGE_SUGGESTS "libmicrohttpd12, libnuma1")
set(CPACK_DEBIAN_LIBRARY_PACKAGE_CONTROL_EXTRA ${made}/symbols ${from}/shlibs ${from}/triggers)
configure_file(${from}/${library}.symbols ${made}/symbols COPYONLY)

# A module works with only one version of Python. It is compiled to byte code on the target machine.
if(LOAM_PYTHON_BUILT)
  execute_process(COMMAND ${LOAM_PYTHON} -c "import sys, numpy.core.multiarray as numpy
minor = sys.version_info.minor
abi = numpy._get_ndarray_c_version() & 0xffff
print(f'python3 (>= 3.{minor}~), python3 (<< 3.{minor + 1}), python3-numpy-abi{abi}')"
    OUTPUT_VARIABLE python OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  package(python python3-loam python "${library} ${same}, libc6 (>= 2.35), ${python}"
    "memory policies for running programs: Python module"
    "${what}This package has the module for Python.")
  set(CPACK_DEBIAN_PYTHON_PACKAGE_CONTROL_EXTRA ${from}/postinst ${from}/prerm)
endif()

include(CPack)

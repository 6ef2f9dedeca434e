# needs.cmake - finds the programs and libraries that the build needs, each with its Debian package.
find_package(Threads REQUIRED)

# Collects the names of missing things and of their packages, for one message that names all of
# them.
set(missing "")
set(packages "")
function(note_missing what package)
  string(APPEND missing "\n  ${what}")
  string(APPEND packages " ${package}")
  set(missing "${missing}" PARENT_SCOPE)
  set(packages "${packages}" PARENT_SCOPE)
endfunction()

# Finds a library by pkg-config. If pkg-config is missing, looks for the header, so that the message
# does not call an installed library missing.
macro(need_library prefix module header what package)
  if(PKG_CONFIG_FOUND)
    pkg_check_modules(${prefix} QUIET IMPORTED_TARGET ${module})
  else()
    find_path(${prefix}_HEADER ${header} PATH_SUFFIXES luajit-2.1)
    set(${prefix}_FOUND ${${prefix}_HEADER})
  endif()
  if(NOT ${prefix}_FOUND)
    note_missing(${what} ${package})
  endif()
endmacro()

find_package(PkgConfig QUIET)
if(NOT PKG_CONFIG_FOUND)
  note_missing("pkg-config" pkg-config)
endif()

# LuaJIT is opened at run time. The build needs its headers, and the program to compile lua/. The
# command is linked with LuaJIT if there is a static library.
need_library(LUAJIT luajit luajit.h "LuaJIT's headers" libluajit-5.1-dev)
find_library(LUAJIT_ARCHIVE libluajit-5.1.a HINTS ${LUAJIT_LIBRARY_DIRS})
find_program(LUAJIT luajit)
if(NOT LUAJIT)
  note_missing("the program luajit" luajit)
endif()

if(LOAM_TESTS)
  need_library(CMOCKA cmocka cmocka.h "cmocka, for the tests (or -DLOAM_TESTS=OFF)" libcmocka-dev)
  find_program(BUSTED busted)
  if(NOT BUSTED)
    note_missing("busted, for the tests (or -DLOAM_TESTS=OFF)" lua-busted)
  endif()
endif()

if(missing)
  message(FATAL_ERROR "The build of loam needs, and did not find:${missing}\n"
    "On Debian: apt-get install${packages}")
endif()

# The driver of a GPU is opened at run time. The build needs the header of its interface; the tests
# have such a header, which gives the same binary. A wheel is built with it too, because users of
# CuPy and PyTorch install wheels.
set(LOAM_CUDA_BUILT OFF)
if(LOAM_CUDA STREQUAL "OFF")
  message(STATUS "loam: no GPU support, as LOAM_CUDA is OFF")
else()
  set(found "LOAM_CUDA_INCLUDE")
  if(NOT LOAM_CUDA_INCLUDE)
    set(found "the CUDA Toolkit")
    find_path(LOAM_CUDA_TOOLKIT cuda.h HINTS ENV CUDA_HOME ENV CUDA_PATH
      PATHS /usr/local/cuda /opt/cuda PATH_SUFFIXES include NO_CMAKE_PATH)
    set(LOAM_CUDA_INCLUDE ${LOAM_CUDA_TOOLKIT})
    if(NOT LOAM_CUDA_TOOLKIT)
      set(LOAM_CUDA_INCLUDE "")
      if((LOAM_TESTS OR LOAM_WHEEL) AND EXISTS ${PROJECT_SOURCE_DIR}/tests/standin/cuda.h)
        set(found "the tests' own header")
        set(LOAM_CUDA_INCLUDE ${PROJECT_SOURCE_DIR}/tests/standin)
      endif()
    endif()
  endif()
  if(EXISTS "${LOAM_CUDA_INCLUDE}/cuda.h")
    set(LOAM_CUDA_BUILT ON)
    message(STATUS "loam: GPU support by ${found}: ${LOAM_CUDA_INCLUDE}/cuda.h")
  elseif(LOAM_CUDA STREQUAL "ON")
    message(FATAL_ERROR "cuda.h was not found: install a CUDA Toolkit (Debian: "
      "nvidia-cuda-dev), name its folder by LOAM_CUDA_INCLUDE, or set LOAM_CUDA to AUTO or OFF")
  else()
    message(STATUS "loam: no GPU support, as cuda.h was not found: install a CUDA Toolkit, or name "
      "its folder by LOAM_CUDA_INCLUDE")
  endif()
endif()

# options.cmake - how C is compiled: the dialect, the warnings, the sanitizers.
set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_CXX_STANDARD 17)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
# Two files may each have a static function with the same name.
set(CMAKE_UNITY_BUILD OFF)

# Release builds use -O2: CMake's default -O3 makes a sixth more code, and no request for memory
# faster. Other flags than CMake's default are those of a packager, and stay.
foreach(language C CXX)
  if(CMAKE_${language}_FLAGS_RELEASE STREQUAL "-O3 -DNDEBUG")
    set(CMAKE_${language}_FLAGS_RELEASE "-O2 -DNDEBUG")
  endif()
endforeach()

# The options of everything that is built here. Programs that use an installed loam need none of
# them.
add_library(loam-options INTERFACE)
# In another project loam has no warnings, because that project may make warnings errors.
if(PROJECT_IS_TOP_LEVEL OR LOAM_WERROR)
  target_compile_options(loam-options INTERFACE -Wall -Wextra -Wshadow -Wpointer-arith -Wundef -Wvla
    $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes -Wmissing-prototypes -Wwrite-strings>)
else()
  target_compile_options(loam-options INTERFACE -w)
endif()
# Without optimization GCC guesses whether a variable is initialized, so debug builds omit that
# warning. Each function has its own section, so that the linker can drop the functions that
# only tests call.
target_compile_options(loam-options INTERFACE -fno-strict-aliasing -ffunction-sections
  $<$<CONFIG:Debug>:-Og> $<$<CONFIG:Debug>:-Wno-maybe-uninitialized>)
# An optimized build calls nothing of libm; without --as-needed every process would load it.
target_link_options(loam-options INTERFACE LINKER:--as-needed LINKER:--gc-sections)
if(LOAM_WERROR)
  target_compile_options(loam-options INTERFACE -Werror)
endif()
target_compile_definitions(loam-options INTERFACE _GNU_SOURCE LOAM_CHECKS=${LOAM_CHECKS})

if(LOAM_SANITIZE STREQUAL "address")
  set(sanitize -fsanitize=address,undefined -fno-sanitize-recover=undefined)
elseif(LOAM_SANITIZE STREQUAL "thread")
  # GCC warns about every fence under this sanitizer, which does know the atomics around the fences.
  set(sanitize -fsanitize=thread -Wno-tsan)
elseif(LOAM_SANITIZE)
  message(FATAL_ERROR "LOAM_SANITIZE is \"${LOAM_SANITIZE}\": it may be address, thread or empty")
endif()
if(LOAM_SANITIZE)
  # A report needs the names of functions and the numbers of lines. -g1 has these, and a build takes a
  # fifth less time than with -g.
  target_compile_options(loam-options INTERFACE ${sanitize} -fno-omit-frame-pointer -O1 -g1)
  target_link_options(loam-options INTERFACE ${sanitize})
endif()

# options.cmake - how C is compiled here: the dialect, the warnings, the sanitizers.
set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_CXX_STANDARD 17)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
# Two files may each have a static function of one name.
set(CMAKE_UNITY_BUILD OFF)

# What everything built here is compiled with; an installed loam asks none of it of its hosts.
add_library(loam-options INTERFACE)
# Without the optimiser GCC guesses at what is initialised; release builds let it know. CMake's own
# choice for them, -O3, makes a sixth more code, and no request for memory faster. Each function has
# a section of its own, so that the linker leaves out those that only tests call.
target_compile_options(loam-options INTERFACE -Wall -Wextra -Wshadow -Wpointer-arith -Wundef
  -Wvla -fno-strict-aliasing
  $<$<CONFIG:Release>:-O2> -ffunction-sections
  $<$<CONFIG:Debug>:-Og> $<$<CONFIG:Debug>:-Wno-maybe-uninitialized>
  $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes -Wmissing-prototypes -Wwrite-strings>)
# What an optimised build does not call, libm, every process would load.
target_link_options(loam-options INTERFACE LINKER:--as-needed LINKER:--gc-sections)
if(LOAM_WERROR)
  target_compile_options(loam-options INTERFACE -Werror)
endif()
target_compile_definitions(loam-options INTERFACE _GNU_SOURCE LOAM_CHECKS=${LOAM_CHECKS})

if(LOAM_SANITIZE STREQUAL "address")
  set(sanitize -fsanitize=address,undefined -fno-sanitize-recover=undefined)
elseif(LOAM_SANITIZE STREQUAL "thread")
  # GCC warns of every fence under this sanitizer, which knows the atomics around them.
  set(sanitize -fsanitize=thread -Wno-tsan)
elseif(LOAM_SANITIZE)
  message(FATAL_ERROR "LOAM_SANITIZE is \"${LOAM_SANITIZE}\": it may be address, thread or empty")
endif()
if(LOAM_SANITIZE)
  target_compile_options(loam-options INTERFACE ${sanitize} -fno-omit-frame-pointer -O1 -g)
  target_link_options(loam-options INTERFACE ${sanitize})
endif()

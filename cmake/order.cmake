# order.cmake - the target loam-order: a library that links it has the functions that programs run in
# front of all others.
#
# The kernel maps up to 64 KiB of a library around each byte that a process touches. order.txt names
# the functions; tests/bench/order writes it. Parts of the compiler and the C library that each start
# runs too come with them. GNU ld is asked for its own script, and these functions become the
# beginning of .text there. Other linkers leave them where they are. tests/check/order.lua checks the
# order.
add_library(loam-order INTERFACE)
set(order ${CMAKE_CURRENT_LIST_DIR}/order.txt)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${order})
# The preload library is a module, libloam.so is shared: one script is for both, so if the flags of
# either choose another linker, that linker is asked.
separate_arguments(flags UNIX_COMMAND
  "${CMAKE_C_FLAGS} ${CMAKE_MODULE_LINKER_FLAGS} ${CMAKE_SHARED_LINKER_FLAGS}")
get_directory_property(options LINK_OPTIONS)
list(FILTER options EXCLUDE REGEX "[$]<|^(LINKER|SHELL):")
execute_process(COMMAND ${CMAKE_C_COMPILER} ${flags} ${options} -shared -Wl,-z,now -Wl,--verbose -x c /dev/null
  -o /dev/null OUTPUT_VARIABLE script ERROR_QUIET)
set(first "*(.text.unlikely ")
string(FIND "${script}" "${first}" found)
if(script MATCHES "GNU ld.*\n====+\n(.*)\n====+" AND found GREATER 0)
  set(script "${CMAKE_MATCH_1}")
  file(STRINGS ${order} functions REGEX "^[a-z]")
  list(TRANSFORM functions REPLACE "(.+)" "*(.text.\\1 .text.\\1.*)")
  list(PREPEND functions "*crtbegin*.o(.text)" "*libc_nonshared.a:*(.text)" "*(.text.startup.*)")
  list(JOIN functions "\n    " functions)
  string(REPLACE "${first}" "${functions}\n    ${first}" script "${script}")
  set(order ${CMAKE_CURRENT_BINARY_DIR}/order.ld)
  file(CONFIGURE OUTPUT ${order} CONTENT "${script}" @ONLY)
  target_link_options(loam-order INTERFACE LINKER:-T,${order})
  set_target_properties(loam-order PROPERTIES INTERFACE_LINK_DEPENDS ${order})
endif()

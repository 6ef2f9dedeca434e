# order.cmake - loam_order(TARGET): the functions that core/os/order.ld names stand before all other code
# of a library, in that order. GNU ld's own script is asked for and has them put into it; what has
# another linker stays as it is.
function(loam_order target)
  set(list ${PROJECT_SOURCE_DIR}/core/os/order.ld)
  set(script ${PROJECT_BINARY_DIR}/order/${target}.ld)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${list})
  execute_process(COMMAND ${CMAKE_C_COMPILER} -shared -Wl,-z,now -Wl,--verbose -x c /dev/null
    -o /dev/null OUTPUT_VARIABLE said ERROR_QUIET)
  set(first "*(.text.unlikely ")
  if(NOT said MATCHES "GNU ld.*\n====+\n(.*)\n====+" OR NOT LOAM_ORDER)
    return()
  endif()
  set(own "${CMAKE_MATCH_1}")
  file(READ ${list} functions)
  string(REPLACE "${first}" "${functions}${first}" ordered "${own}")
  # Constants last of what is only read, and apart: those of sources without a function that serves,
  # and before them unwinders' tables and Lua modules, would else be their neighbours.
  set(writable "  . = DATA_SEGMENT_ALIGN (")
  string(FIND "${ordered}" "${writable}" there)
  string(REGEX REPLACE "/\\* What starts.*" "" serving "${functions}")
  string(REGEX MATCHALL "\\*[a-z_0-9]+/[a-z_0-9/]+\\.c\\.o" serving "${serving}")
  list(APPEND serving "*pages/class.c.o") # what is inline looks up its tables
  list(JOIN serving " " serving)
  if(ordered MATCHES "\n( *\\.rodata  *: [^\n]*\n)" AND there GREATER 0)
    set(constants "${CMAKE_MATCH_1}")
    string(REPLACE "${constants}" "" ordered "${ordered}")
    set(others "EXCLUDE_FILE(${serving})")
    string(REPLACE "${writable}" "  loam_lua : { *(loam_lua) }
  .rodata.seldom : { *(${others} .rodata ${others} .rodata.*) }
  HIDDEN(lm_cold_code_rodata_end = .);
  . = ALIGN(0x10000);
${constants}${writable}" ordered "${ordered}")
  endif()
  file(CONFIGURE OUTPUT ${script} CONTENT "${ordered}" @ONLY)
  target_link_options(${target} PRIVATE -Wl,-T,${script})
  set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS ${script})
endfunction()

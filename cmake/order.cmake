# order.cmake - loam_order(TARGET): the functions that core/order.ld names stand before all other code
# of a library, in that order. GNU ld's own script is asked for and has them put into it; what has
# another linker stays as it is.
function(loam_order target)
  set(list ${PROJECT_SOURCE_DIR}/core/order.ld)
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
  file(CONFIGURE OUTPUT ${script} CONTENT "${ordered}" @ONLY)
  target_link_options(${target} PRIVATE -Wl,-T,${script})
  set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS ${script})
endfunction()

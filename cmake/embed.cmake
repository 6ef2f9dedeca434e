# embed.cmake - makes LOAM_EMBEDDED, a C file that holds every Lua module of the library, compiled.
set(embed ${LUAJIT} ${PROJECT_SOURCE_DIR}/cmake/embed.lua)
set(LOAM_EMBED_DIR ${PROJECT_BINARY_DIR}/embed)
set(modules "") # NAME=FILE
set(inputs ${PROJECT_SOURCE_DIR}/cmake/embed.lua)

# lua/loam/cli/run.lua is loam.cli.run.
file(GLOB_RECURSE files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/lua/*.lua)
foreach(file ${files})
  file(RELATIVE_PATH name ${PROJECT_SOURCE_DIR}/lua ${file})
  string(REGEX REPLACE "\\.lua$" "" name ${name})
  string(REPLACE "/" "." name ${name})
  list(APPEND modules ${name}=${file})
  list(APPEND inputs ${file})
endforeach()

# What two headers declare, as modules that return the text, for ffi.cdef: plan.h for the compiler
# of policies, loam.h for bindings/luajit alone.
function(add_declarations name header)
  set(text ${LOAM_EMBED_DIR}/${name}.i)
  set(output ${LOAM_EMBED_DIR}/loam/${name}.lua)
  add_custom_command(OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${LOAM_EMBED_DIR}/loam
    COMMAND ${CMAKE_C_COMPILER} -E -P -DLOAM_CDEF ${header} -o ${text}
    COMMAND ${embed} text ${output} ${text}
    DEPENDS ${header} ${PROJECT_SOURCE_DIR}/cmake/embed.lua
    COMMENT "Declarations of ${header}" VERBATIM)
  set(modules ${modules} loam.${name}=${output} PARENT_SCOPE)
  set(inputs ${inputs} ${output} PARENT_SCOPE)
endfunction()
add_declarations(cdef ${PROJECT_SOURCE_DIR}/core/include/loam.h)
list(POP_BACK modules)
add_declarations(plan_cdef ${PROJECT_SOURCE_DIR}/core/plan/plan.h)

# jit.vmdef names the opcodes of one exact LuaJIT, so it is taken from the one that compiles here;
# of what it has, that alone.
execute_process(COMMAND ${LUAJIT} -e
  "io.write((assert(package.searchpath('jit.vmdef', package.path))))"
  OUTPUT_VARIABLE vmdef RESULT_VARIABLE failed)
if(failed)
  message(FATAL_ERROR "jit/vmdef.lua was not found: apt-get install libluajit-5.1-common")
endif()
set(opcodes ${LOAM_EMBED_DIR}/jit/vmdef.lua)
add_custom_command(OUTPUT ${opcodes}
  COMMAND ${CMAKE_COMMAND} -E make_directory ${LOAM_EMBED_DIR}/jit
  COMMAND ${embed} opcodes ${opcodes}
  DEPENDS ${vmdef} ${PROJECT_SOURCE_DIR}/cmake/embed.lua
  COMMENT "Opcodes of LuaJIT" VERBATIM)
list(APPEND modules jit.vmdef=${opcodes})
list(APPEND inputs ${opcodes})

set(LOAM_EMBEDDED ${LOAM_EMBED_DIR}/embedded.c)
add_custom_command(OUTPUT ${LOAM_EMBEDDED}
  COMMAND ${embed} modules ${LOAM_EMBEDDED} ${modules}
  DEPENDS ${inputs}
  COMMENT "Compiling lua/" VERBATIM)

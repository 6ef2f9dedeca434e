# embed.cmake - compiles the Lua modules into two C files. LOAM_EMBEDDED contains the modules that
# load and inspect a policy: every product has it. LOAM_EMBEDDED_COMMAND contains the modules that
# only the `loam` command runs: no library has it.
set(embed ${LUAJIT} ${PROJECT_SOURCE_DIR}/cmake/embed.lua)
set(LOAM_EMBED_DIR ${PROJECT_BINARY_DIR}/embed)

# For each of the two sets: NAME=FILE of every module, and the files on which its C file depends.
set(library_modules "")
set(embed_inputs ${PROJECT_SOURCE_DIR}/cmake/embed.lua ${PROJECT_SOURCE_DIR}/cmake/bytecode.lua)
set(library_inputs ${embed_inputs})
set(command_modules "")
set(command_inputs ${embed_inputs})

# lua/loam/command/units.lua is the module loam.command.units. A JSON file becomes a module that
# returns the text of the file: loam.command.schema.check.
file(GLOB_RECURSE files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/lua/*.lua
  ${PROJECT_SOURCE_DIR}/lua/*.json)
foreach(file ${files})
  file(RELATIVE_PATH name ${PROJECT_SOURCE_DIR}/lua ${file})
  string(REGEX REPLACE "\\.(lua|json)$" "" name ${name})
  string(REPLACE "/" "." name ${name})
  set(owner library)
  if(name MATCHES "^loam\\.command(\\.|$)")
    set(owner command)
  endif()
  list(APPEND ${owner}_modules ${name}=${file})
  list(APPEND ${owner}_inputs ${file})
endforeach()

# Makes the Lua module loam.NAME, which returns the declarations of `header` for ffi.cdef. The
# further headers of the call are read before `header`, which may use their declarations. Sets
# `output` in the caller to the path of the module.
function(add_declarations name header)
  set(text ${LOAM_EMBED_DIR}/${name}.i)
  set(output ${LOAM_EMBED_DIR}/loam/${name}.lua)
  list(TRANSFORM ARGN PREPEND "-include;" OUTPUT_VARIABLE others)
  add_custom_command(OUTPUT ${output}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${LOAM_EMBED_DIR}/loam
    COMMAND ${CMAKE_C_COMPILER} -E -P -DLOAM_CDEF ${others} ${header} -o ${text}
    COMMAND ${embed} text ${output} ${text}
    DEPENDS ${header} ${ARGN} ${PROJECT_SOURCE_DIR}/cmake/embed.lua
    COMMENT "Declarations of ${header}" VERBATIM)
  set(output ${output} PARENT_SCOPE)
endfunction()
# The declarations of loam.h are installed with the Lua module (bindings/lua), and no product embeds
# them. They are an input of LOAM_EMBEDDED so that a build of the core makes them.
add_declarations(cdef ${PROJECT_SOURCE_DIR}/core/include/loam.h)
list(APPEND library_inputs ${output})
add_declarations(plan_cdef ${PROJECT_SOURCE_DIR}/core/plan/plan.h
  ${PROJECT_SOURCE_DIR}/core/plan/class_tree.h)
list(APPEND library_modules loam.plan_cdef=${output})
list(APPEND library_inputs ${output})

# jit.vmdef names the opcodes of exactly one version of LuaJIT, so the build takes it from the
# LuaJIT that compiles the modules. Only its opcodes are embedded.
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
list(APPEND library_modules jit.vmdef=${opcodes})
list(APPEND library_inputs ${opcodes})

set(embed_verb stripped)
if(CMAKE_BUILD_TYPE STREQUAL "Debug")
  set(embed_verb modules)
endif()
set(LOAM_EMBEDDED ${LOAM_EMBED_DIR}/embedded.c)
add_custom_command(OUTPUT ${LOAM_EMBEDDED}
  COMMAND ${CMAKE_COMMAND} -E make_directory ${LOAM_EMBED_DIR}
  COMMAND ${embed} ${embed_verb} ${LOAM_EMBEDDED} lm_embedded_modules ${library_modules}
  DEPENDS ${library_inputs}
  COMMENT "Compiling the Lua of the library" VERBATIM)
set(LOAM_EMBEDDED_COMMAND ${LOAM_EMBED_DIR}/embedded_command.c)
add_custom_command(OUTPUT ${LOAM_EMBEDDED_COMMAND}
  COMMAND ${CMAKE_COMMAND} -E make_directory ${LOAM_EMBED_DIR}
  COMMAND ${embed} ${embed_verb} ${LOAM_EMBEDDED_COMMAND} lm_command_modules ${command_modules}
  DEPENDS ${command_inputs}
  COMMENT "Compiling the Lua of the command" VERBATIM)

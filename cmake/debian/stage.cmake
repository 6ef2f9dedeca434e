# stage.cmake - puts the staged files of the packages into the form that Debian wants: compressed
# manual pages, no debug information, no executable libraries, one time for all files. CPack runs it.
set(root ${CPACK_TEMPORARY_INSTALL_DIRECTORY})

file(GLOB_RECURSE pages ${root}/*.1)
list(FILTER pages INCLUDE REGEX "/man/man1/")
foreach(page IN LISTS pages)
  execute_process(COMMAND gzip -9n ${page} COMMAND_ERROR_IS_FATAL ANY)
endforeach()

file(GLOB_RECURSE archives ${root}/*.a)
file(GLOB_RECURSE modules ${root}/*.cpython-*.so)
foreach(file IN LISTS archives)
  execute_process(COMMAND strip --strip-debug --remove-section=.comment --remove-section=.note ${file}
    COMMAND_ERROR_IS_FATAL ANY)
endforeach()
foreach(file IN LISTS modules)
  execute_process(COMMAND strip --strip-unneeded --remove-section=.comment --remove-section=.note
    ${file} COMMAND_ERROR_IS_FATAL ANY)
endforeach()

file(GLOB_RECURSE libraries ${root}/*.so ${root}/*.so.*)
foreach(file IN LISTS libraries)
  if(NOT IS_SYMLINK ${file})
    file(CHMOD ${file} PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
  endif()
endforeach()

if(DEFINED ENV{SOURCE_DATE_EPOCH})
  execute_process(COMMAND find ${root} -exec touch -h -d @$ENV{SOURCE_DATE_EPOCH} {} +
    COMMAND_ERROR_IS_FATAL ANY)
endif()

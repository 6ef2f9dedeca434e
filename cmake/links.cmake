# links.cmake - runs at an installation: removes the dead links from the installed manuals.
#
# The manuals about bindings, the core and tests are not installed. A link to one of them is replaced by its
# text and the path of the manual in the sources.
#   installed  the folder of policies and examples, below the prefix

file(GLOB_RECURSE manuals "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/${installed}/policies/*.md"
  "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/${installed}/examples/*.md")
foreach(manual IN LISTS manuals)
  file(READ "${manual}" was)
  string(REGEX REPLACE "\\[([^]]+)\\]\\((\\.\\./)+((bindings|core|tests)/[^)#]+)(#[^)]+)?\\)"
    "\\1 (\\3 in the sources of loam)" text "${was}")
  # With CMAKE_INSTALL_MODE, the installed files may be links to the sources, which must not change.
  if(NOT text STREQUAL was AND NOT IS_SYMLINK "${manual}")
    file(WRITE "${manual}" "${text}")
  endif()
endforeach()

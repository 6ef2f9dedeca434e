/* tags.h - the tag that a context has entered. */
#ifndef TAGS_H
#define TAGS_H

#include "binding.h"

/* Returns the name of the innermost tag of this context, or None; NULL with an exception set. */
PyObject *tags_current(void);

/* Adds what loam.tags needs to the module. */
int tags_add(PyObject *module);

#endif

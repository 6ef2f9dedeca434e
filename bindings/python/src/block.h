/* block.h - loam.Block and loam.Arena: counted memory as Python objects. */
#ifndef BLOCK_H
#define BLOCK_H

#include "binding.h"

/* Add the types to the module. They return -1 with an exception set. */
int block_add(PyObject *module);
int arena_add(PyObject *module);

#endif

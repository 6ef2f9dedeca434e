/* block.h - loam.Block: loam's counted blocks as Python objects. */
#ifndef BLOCK_H
#define BLOCK_H

#include "binding.h"

/* Adds the type to the module; -1 with an exception set. */
int block_add(PyObject *module);

#endif

/* block.h - loam.Block and loam.Arena: counted memory as Python objects. */
#ifndef BLOCK_H
#define BLOCK_H

#include "binding.h"

/* Add the types to the module. They return -1 with an exception set. */
int block_add(PyObject *module);
int arena_add(PyObject *module);

/* Gets the buffer of an object in any layout; its `readonly` says whether it may be written.
 * Returns it for block_over or block_buffer_end; NULL with an exception set. */
Py_buffer *block_buffer(PyObject *of);
void block_buffer_end(Py_buffer *view);

/* Makes a block over memory of a buffer, which ends with the block. Returns NULL with an exception
 * set; the buffer has ended then. */
loam_block *block_over(loam_site *site, Py_buffer *view, void *begin, size_t size);

/* Returns what pickle keeps of an object's buffer: from protocol 5 on a PickleBuffer, which pickle
 * need not copy; before, a bytes object. NULL with an exception set. */
PyObject *block_bytes(PyObject *of, PyObject *protocol);

#endif

/* binding.h - what the parts of the extension share. */
#ifndef BINDING_H
#define BINDING_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "loam.h"

/* Raises what loam.errors makes of a failure, with this thread's words. Always NULL. */
PyObject *binding_fail(loam_status status);

/* None where all is well. */
PyObject *binding_done(loam_status status);

/* A dictionary that takes what is put into it, NULL included: then it is dropped, and NULL. */
PyObject *binding_put(PyObject *dict, const char *key, PyObject *value);

/* UTF-8 where it is, else with the bytes escaped: file names are bytes. */
PyObject *binding_text(const char *text);

/* The site of a tag; without one, of the context's, or else of `otherwise`. NULL with an exception
 * set. */
loam_site *binding_site(const char *tag, const char *otherwise);

/* The parts, in order of the module's table: each a list of methods that ends in a zero. */
extern PyMethodDef policy_methods[], figures_methods[], events_methods[], nrt_methods[],
    device_methods[], entries_methods[], torch_methods[];

#endif

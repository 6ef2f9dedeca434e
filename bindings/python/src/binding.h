/* binding.h - helpers that all parts of the extension share. All of them need the interpreter's
 * lock, except binding_has_lock. */
#ifndef BINDING_H
#define BINDING_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <stdbool.h>
#include <stddef.h>
#include <structmember.h>

#include "loam.h"

/* The member of a type by which Python finds the weak references to its objects: the field `weak`
 * of their struct. The type's dealloc begins with PyObject_ClearWeakRefs. */
#define BINDING_WEAK(type) \
  { "__weaklistoffset__", T_PYSSIZET, offsetof(type, weak), READONLY, NULL }

/* Returns whether this thread holds the interpreter's lock, with the thread state that
 * PyGILState_Ensure would use. Any thread may call it, with the lock or without. PyGILState_Check
 * does not do: it returns 1 in every thread once the process has made a subinterpreter. */
bool binding_has_lock(void);

/* Raises the exception of loam.errors for a status, with the words of loam_error(). Always returns
 * NULL. */
PyObject *binding_fail(loam_status status);

/* Like binding_fail, with these words. Takes the reference to the str. A NULL str means that
 * an exception is set, which stays. */
PyObject *binding_fail_with(loam_status status, PyObject *text);

/* Returns None for LOAM_OK; otherwise like binding_fail. */
PyObject *binding_done(loam_status status);

/* Puts a value into a dictionary, takes the reference to the value and returns the dictionary.
 * If either is NULL or the call fails, drops the dictionary and returns NULL with the exception
 * set. */
PyObject *binding_put(PyObject *dict, const char *key, PyObject *value);

/* Returns a str. Bytes that are not UTF-8 are escaped, because file names may have any bytes. */
PyObject *binding_text(const char *text);

/* Returns the UTF-8 of a str, which lives as long as the str; NULL with an exception set, also for
 * an object that is no str, and for text with a NUL, which would end the text in C. */
const char *binding_utf8(PyObject *text);

/* The domain under which loam tells Python's tracemalloc of its memory: "loam" in ASCII. */
enum { BINDING_DOMAIN = 0x6c6f616d };

/* Tells tracemalloc that the memory of a block or an array takes `bytes` bytes, or has ended. A
 * second call for an owner replaces its number. Data of no bytes can have the address of other
 * data, so memory goes by its owner. Does nothing while tracemalloc does not trace. */
void binding_trace(const void *owner, size_t bytes);
void binding_untrace(const void *owner);

/* Returns 1 if the process runs under `loam run`, whose preload library then reports events. */
int binding_is_preloaded(void);

/* Returns the site of `tag`. A NULL `tag` means the tag of the current context or, if it has none,
 * `otherwise`. Returns NULL with an exception set. */
loam_site *binding_site(const char *tag, const char *otherwise);

/* Sets the handler of the current context, if it has one, as the thread's handler: the data of
 * blocks, arrays and arenas that are made before binding_handler_end come from it. Returns what
 * that function takes. No Python code that could switch tasks may run in between. */
const loam_handler *binding_handler_begin(void);
void binding_handler_end(const loam_handler *before);

/* Returns the handler of a capsule (NEP 49); NULL with TypeError set for another object, and with
 * ValueError for a capsule of another name. */
const loam_handler *binding_handler(PyObject *capsule);

/* The methods of the parts; each list ends in a zero. */
extern PyMethodDef policy_methods[], figures_methods[], events_methods[], nrt_methods[],
    device_methods[], entries_methods[], torch_methods[], hooks_methods[], handler_methods[],
    tags_methods[];

#endif

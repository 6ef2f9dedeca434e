/* entries.h - helpers for the C functions that libraries call. */
#ifndef ENTRIES_H
#define ENTRIES_H

#include "binding.h"

#define EXPORT __attribute__((visibility("default")))

/* Returns the site of the tag in force in this thread, or of the tag `otherwise`. */
loam_site *entries_site(const char *otherwise);

/* Stores the tag of this context and the tag in force everywhere (or None), for calls without the
 * interpreter's lock. Does nothing before entries_listen. On failure an exception is set. */
int entries_tell(PyObject *own, PyObject *all);
void entries_listen(void);

/* Allocates memory of the named device, whichever device is current: the library may not have
 * selected it in the driver yet. Returns NULL on failure; loam_error() says why. */
void *entries_allocate(loam_site *site, size_t size, int device, void *stream);

#endif

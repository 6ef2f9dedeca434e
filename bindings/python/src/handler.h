/* handler.h - handlers for NumPy that allocate from loam. */
#ifndef HANDLER_H
#define HANDLER_H

#include "binding.h"

enum { HANDLER_SITES = 1, HANDLER_TOUCH = 2 };

/* Makes a handler that allocates under a tag; NULL means "numpy.data". `flags` is a sum of
 * HANDLER_SITES (the site of each allocation is the Python function that made it) and HANDLER_TOUCH
 * (arrays fill their memory to the last byte). The handler lives as long as the process. Returns
 * NULL with an exception set. */
const loam_handler *handler_make(const char *tag, int flags);

/* Returns 1 if handler_make has made the handler, otherwise 0. */
int handler_is_ours(const loam_handler *handler);

#endif

/* handler.h - NumPy's handlers whose memory is loam's. */
#ifndef HANDLER_H
#define HANDLER_H

#include "binding.h"

enum { HANDLER_SITES = 1, HANDLER_TOUCH = 2 };

/* The handler of a tag's allocations; NULL is "numpy.data". `flags` are a sum of HANDLER_SITES,
 * each at the Python function that asks, and HANDLER_TOUCH, arrays that fill their memory to the
 * last byte. Lives as long as the process; NULL with an exception set. */
const loam_handler *handler_make(const char *tag, int flags);

/* Whether a handler is one of these. */
int handler_is_ours(const loam_handler *handler);

#endif

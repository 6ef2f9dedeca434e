/* error.h - the text of a thread's latest error, and events for the host's callback. */
#ifndef LM_ERROR_H
#define LM_ERROR_H

#include "loam.h"
#include "os/base.h"

/* Sets the text that loam_error() returns in this thread, and returns `status`, so a failure takes
 * one line: return lm_error(LOAM_EINVAL, "node %d: this machine has nodes %s", n, nodes); The
 * arguments may contain the old text. Text from LM_ERROR_SIZE bytes on is cut off. Without memory
 * for the thread's area the text is lost. */
LM_COLD loam_status lm_error(loam_status status, const char *format, ...) LM_PRINTF(2, 3);

/* Says that an argument with this name is NULL, and returns LOAM_EINVAL. */
LM_COLD loam_status lm_error_missing(const char *name);

/* Like lm_error, but returns NULL: for functions that return a pointer. */
LM_COLD void *lm_error_null(const char *format, ...) LM_PRINTF(1, 2);

/* Formats a message and calls the host's event callback (loam_on_event) with it. Returns false if
 * the host has set none. Holds no lock during the callback. The thread is not cancelled in it. */
bool lm_error_event(loam_event_kind kind, uint64_t generation, const void *pointer,
                    const char *format, ...) LM_PRINTF(4, 5);

/* Calls the host's event callback, if there is one, with an event whose message is ready. Unlike
 * lm_error_event it does not format, so a signal handler may call it. */
void lm_error_event_tell(const loam_event *event);

/* Writes `text` into `buffer` with quotes around it, every byte that is not printable ASCII as
 * \xHH, and a backslash before quotes and backslashes. Text that does not fit is cut and ends in
 * "...". NULL counts as "". `size` is at least 6. Returns `buffer`. */
const char *lm_error_quote(char *buffer, size_t size, const char *text);

#endif

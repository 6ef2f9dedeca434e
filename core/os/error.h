/* error.h - the last failure of a thread, in words; and events for people. */
#ifndef LM_ERROR_H
#define LM_ERROR_H

#include "loam.h"
#include "os/base.h"

/* Sets the words that loam_error() returns and passes `status` through, so that a failure is one
 * line: return lm_error(LOAM_EINVAL, "node %d: this machine has nodes %s", n, nodes); */
LM_COLD loam_status lm_error(loam_status status, const char *format, ...) LM_PRINTF(2, 3);

/* A NULL result with LOAM_ENOMEM's words, for the allocating paths. */
LM_COLD void *lm_error_null(const char *format, ...) LM_PRINTF(1, 2);

/* Tells the host's callback; holds no lock while it does. False if there is none. */
bool lm_error_event(loam_event_kind kind, uint64_t generation, const void *pointer,
                    const char *format, ...) LM_PRINTF(4, 5);

/* The same of ready words, and for signal handlers, which may not format. */
void lm_error_event_tell(const loam_event *event);

/* `text` with quotes around it and every byte that is not printable ASCII as \xHH, cut to fit. */
const char *lm_error_quote(char *buffer, size_t size, const char *text);

#endif

/* in_fork.h - how the slow calls of malloc's family begin, also while another thread forks.
 *
 * A slow call is a guarded section (os/fork_gate.h). If another thread forks for long, that fork
 * may wait for something that the caller of this call holds: the host's lock, or a file of the C
 * library. Then the call does without what loam's locks guard: spare memory serves it, or its free
 * is noted (os/spare.h). A call that can do neither waits for the fork.
 *
 * Each function returns in a guarded section, which the caller ends by lm_lock_allow_cancel, unless
 * it has done the call itself. */
#ifndef LM_IN_FORK_H
#define LM_IN_FORK_H

#include "device/request.h"
#include "os/lock.h"
#include "os/spare.h"

/* Does the frees that were noted while a thread forked. Does nothing in an inner guarded section
 * and in calls of a handler, because this function itself may have called its caller. */
void lm_in_fork_free_noted(void);

/* Begins a slow request. Returns the block that serves it; NULL: it is still to be served. */
void *lm_in_fork_begin(const lm_request *r);
/* Begins a slow free. Returns false if the block is free, or will be freed after the fork. */
bool lm_in_fork_begin_free(void *ptr, const lm_stream *on);
/* Begins a slow realloc. Returns false if the realloc is done, and *out is its result. */
bool lm_in_fork_begin_realloc(loam_site *site, void *ptr, size_t size, void **out);

#endif

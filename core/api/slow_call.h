/* slow_call.h - how a slow call of loam_malloc and its family begins. A call is slow if the thread
 * cache alone cannot serve it.
 *
 * A slow call is a guarded section (os/fork_gate.h). If another thread forks for long, that fork
 * may wait for something that the caller of this call holds: the host's lock, or a file of the C
 * library. Then the call does without what loam's locks guard: spare memory serves it, or its free
 * is noted (os/spare.h). A call that can do neither waits for the fork.
 *
 * The functions that begin a call return in a guarded section, which the caller ends by
 * lm_lock_allow_cancel, unless they have done the call themselves. */
#ifndef LM_SLOW_CALL_H
#define LM_SLOW_CALL_H

#include "device/request.h"
#include "os/lock.h"
#include "os/spare.h"

/* Begins a slow request. Returns the block that serves it; NULL: it is still to be served. */
void *lm_slow_call_begin(const lm_request *r);
/* Begins a slow free. Returns false if the block is free, or will be freed after the fork. */
bool lm_slow_call_begin_free(void *ptr, const lm_stream *on);
/* Begins a slow realloc of the block at `ptr`, which is not NULL. Returns false if it has done the
 * realloc; *out is then the result. */
bool lm_slow_call_begin_realloc(loam_site *site, void *ptr, size_t size, void **out);

/* Does what waits for a slow call. Starts loam from the environment if nothing has started it. Then
 * revives the service thread in a forked child, gives idle memory of devices back, obeys a policy
 * that was published, writes figures to the board, gives memory back under memory pressure, and
 * does the frees that were noted during a fork. Keeps errno. Any thread may call it, while not
 * active. */
void lm_slow_call_chores(void);

#endif

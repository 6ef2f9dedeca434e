/* forked_read.h - reads another process in a forked child, so that the command goes on when the
 * reading does not end.
 *
 * A process may have memory whose contents never come: a page that userfaultfd(2) is to fill, or a
 * mapped file of a FUSE or network filesystem that does not answer. A call of process_vm_readv(2)
 * or read(2) that meets such a page waits in the kernel, and only the end of the reader ends the
 * wait. A reading that crashes does no harm to the command either. */
#ifndef LM_FORKED_READ_H
#define LM_FORKED_READ_H

#include "loam.h"
#include "script/json.h"

/* A reading: writes its answer to `out`. Runs in a child that has a copy of the caller's memory and
 * one thread. `result` has LM_FORKED_READ_RESULT bytes, zeroed; the caller of lm_forked_read gets
 * them. */
typedef loam_status lm_forked_read_fn(const void *ctx, lm_json *out, void *result);
enum { LM_FORKED_READ_RESULT = 16 };

/* Runs a reading of the process `pid`, and appends its answer to `out`. Copies the
 * reading's `result` to `result`, unless that is NULL. Returns what the reading returns, with its
 * error words. LOAM_EIO: the reading took longer than `ms` milliseconds, was ended by a signal, or
 * no child could be made. */
loam_status lm_forked_read(lm_forked_read_fn *read, const void *ctx, int pid, int ms, lm_json *out,
                           void *result);

/* Returns the processor time of the command and of all readings that have ended, in
 * milliseconds. */
double lm_forked_read_cpu_ms(void);

#endif

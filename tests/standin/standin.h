/* standin.h - what a test asks of the stand-in libcuda.so.1, beside the driver's own functions.
 *
 * The stand-in is a CUDA driver without a GPU: device memory is host memory, work on streams is
 * copies, fills and what standin_write and standin_check put there. It is strict. What a program
 * may not do is a *violation*: it is said in a line to the file that STANDIN_LOG names (else to
 * stderr), counted, and makes the process exit with status 86.
 *
 * Environment, read by cuInit (and by standin_reset):
 *   STANDIN_DEVICES=1     devices; 0: cuInit returns CUDA_ERROR_NO_DEVICE
 *   STANDIN_MEMORY=1G     bytes of each device
 *   STANDIN_LOCKABLE=64M  bytes of the host that can be registered; absent: any
 *   STANDIN_NODES=0,1     NUMA node of each device; absent: 0
 *   STANDIN_NUMBERS=1,0   the machine's number of each device, as CUDA_VISIBLE_DEVICES chooses
 *                         them; absent: 0,1,2
 *   STANDIN_VERSION=13000 of the driver
 *   STANDIN_INIT=999      cuInit returns this
 *   STANDIN_LACKS=vmm,pools,managed,exports,peers   what the devices cannot
 *   STANDIN_DELAY=n       work on a stream completes no sooner than n driver calls after it was
 *                         put there, unless it is waited for
 *   STANDIN_FAIL=nth[:code[:function]]   the nth call, of that function if one is named, fails
 *                         with the code (2: out of memory)
 *   STANDIN_LOG=file      violations, and at exit the calls made and what was still live
 *   STANDIN_LEAKS=1       what is live at exit is a violation
 *   STANDIN_STRICT=1      so is a free that has to wait for work which uses the memory
 *
 * Violations are: a free of what is not live or of another kind, the end of a mapping or of a
 * registration that pending work still uses, a handle used after it was destroyed, two pieces of
 * work on the same bytes (one of them writing) that no event, stream or wait puts in order, work on
 * bytes that are not allocated, or of two registrations at once, a copy of reserved addresses where
 * no memory is mapped, memory gone while it is registered (seen when that ends, and at exit), a
 * call in a forked child, one that spoils the capture of a stream, a handle of another process
 * closed without a context of its device.
 *
 * Any thread. */
#ifndef STANDIN_H
#define STANDIN_H

#include <stdbool.h>
#include <stddef.h>

#include "cuda.h"

/* Everything as in a new process: contexts, memory and counts go, the environment is read again. */
void standin_reset(void);

unsigned standin_violations(void);
const char *standin_violation(void); /* the words of the last; "" */
void standin_forgive(void);          /* those so far were meant: the count is 0 again */

/* Holds work back until released: only what a call waits for completes. */
void standin_hold(void);
void standin_release(void);         /* all that is held completes */
bool standin_step(CUstream stream); /* the next of a stream, with all that it waits for */
unsigned standin_pending(CUstream stream);
void standin_delay(unsigned calls); /* as STANDIN_DELAY */

/* Kernels: one that writes bytes; one that violates if the bytes are others when it runs. */
CUresult standin_write(CUstream stream, CUdeviceptr at, int byte, size_t size);
CUresult standin_check(CUstream stream, CUdeviceptr at, int byte, size_t size);

/* From now on, the nth call (1: the next) of a function (NULL: of any) fails, and the times - 1
 * after it. A function's name is without suffix: "cuMemAlloc". nth 0: none fails. */
void standin_fail(const char *function, unsigned nth, unsigned times, CUresult code);
/* The next call of a function does this first, with no lock held: what another thread may do
 * meanwhile. NULL: none does. */
void standin_before(const char *function, void (*call)(void *ctx), void *ctx);
/* A sticky error: every call on a device's contexts returns this until they are destroyed. */
void standin_break(int device, CUresult code);

unsigned long standin_calls(const char *function); /* NULL: all */
void standin_limit(int device, size_t bytes);      /* memory of a device from now on */
size_t standin_used(int device);                   /* bytes of it in use */
void standin_lockable(size_t bytes);               /* STANDIN_LOCKABLE from now on; 0: any */
size_t standin_registered(void);                   /* bytes of the host that are */
unsigned standin_blocks(void);  /* live: of devices, managed, pinned, registered, mapped */
unsigned standin_handles(void); /* live streams, events, pools, pieces of memory to map, ranges */
void standin_version(int version);
/* cuMemFree and cuMemFreeHost of memory that pending work uses wait for the device, as the driver's
 * do. How many did; and whether that is a violation. */
unsigned standin_late_frees(void);
void standin_strict(bool strict);

#endif

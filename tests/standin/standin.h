/* standin.h - the functions by which a test controls the stand-in libcuda.so.1, beside the driver's
 * own functions.
 *
 * The stand-in is a CUDA driver without a GPU. Device memory is host memory. Work on streams is
 * copies, fills, and the kernels of standin_write and standin_check. The stand-in is strict: an
 * action that a program must not do is a *violation*. A violation is written as a line to the file
 * that STANDIN_LOG names (else to stderr), is counted, and makes the process exit with status 86.
 *
 * Environment, read by cuInit (and by standin_reset):
 *   STANDIN_DEVICES=1     number of devices; 0: cuInit returns CUDA_ERROR_NO_DEVICE
 *   STANDIN_MEMORY=1G     bytes of each device
 *   STANDIN_LOCKABLE=64M  bytes of host memory that can be registered; absent: no limit
 *   STANDIN_NODES=0,1     NUMA node of each device; absent: 0
 *   STANDIN_NUMBERS=1,0   number of each device in the machine, as CUDA_VISIBLE_DEVICES chooses
 *                         devices; absent: 0,1,2
 *   STANDIN_VERSION=13000 version of the driver
 *   STANDIN_INIT=999      cuInit returns this error
 *   STANDIN_LACKS=vmm,pools,managed,exports,peers   features that the devices lack
 *   STANDIN_DELAY=n       work on a stream completes at the earliest n driver calls after it was
 *                         put there, unless a call waits for it
 *   STANDIN_FAIL=nth[:code[:function]]   the nth call, of that function if one is named, fails
 *                         with the code (2: out of memory)
 *   STANDIN_LOG=file      file for violations and, at exit, the numbers of calls and live objects
 *   STANDIN_LEAKS=1       live objects at exit are a violation
 *   STANDIN_STRICT=1      a free that must wait for work that uses the memory is a violation
 *
 * Violations are:
 *   a free of memory that is not live, or of memory of another kind;
 *   the end of a mapping or a registration that pending work still uses;
 *   the use of a handle after it was destroyed;
 *   two pieces of work that use a common byte, one of which writes, if no event, stream or wait
 *     puts them in order;
 *   work on bytes that are not allocated, or that lie in two registrations;
 *   a copy at reserved addresses where no memory is mapped;
 *   memory that is unmapped while it is registered (found when the registration ends, and at exit);
 *   a call in a forked child;
 *   a call that spoils the capture of a stream;
 *   the closing of another process's handle without a context of its device.
 *
 * Any thread may call these functions. */
#ifndef STANDIN_H
#define STANDIN_H

#include <stdbool.h>
#include <stddef.h>

#include "cuda.h"

/* Puts the stand-in into the state of a new process. Contexts, memory and counts are gone, and the
 * environment is read again. */
void standin_reset(void);

unsigned standin_violations(void);
const char *standin_violation(void); /* the words of the last violation, or "" */
void standin_forgive(void);          /* sets the count of violations to 0 */

/* Holds work back until standin_release. Before that, only work that a call waits for completes. */
void standin_hold(void);
void standin_release(void);         /* lets the held work run */
bool standin_step(CUstream stream); /* completes the next work of a stream, and all that it needs */
unsigned standin_pending(CUstream stream);
void standin_delay(unsigned calls); /* sets STANDIN_DELAY */

/* Two kernels. standin_write writes bytes. standin_check violates if the bytes are not `byte` when
 * it runs. */
CUresult standin_write(CUstream stream, CUdeviceptr at, int byte, size_t size);
CUresult standin_check(CUstream stream, CUdeviceptr at, int byte, size_t size);

/* Makes the nth call (1: the next) of a function fail, and the times - 1 calls after it. A function
 * has its name without suffix, such as "cuMemAlloc"; NULL stands for any function. With nth 0, no
 * call fails. */
void standin_fail(const char *function, unsigned nth, unsigned times, CUresult code);
/* Makes the next call of a function first call `call`, with no lock held. So a test can do what
 * another thread may do at that moment. With NULL, nothing is called. */
void standin_call_before(const char *function, void (*call)(void *ctx), void *ctx);
/* Gives a device a sticky error: each call on its contexts returns `code` until they are
 * destroyed. */
void standin_break(int device, CUresult code);

unsigned long standin_calls(const char *function); /* NULL: of all functions */
void standin_limit(int device, size_t bytes);      /* sets the memory of a device */
size_t standin_used(int device);                   /* bytes in use */
void standin_lockable(size_t bytes);               /* sets STANDIN_LOCKABLE; 0: no limit */
size_t standin_registered(void);                   /* registered bytes of the host */
unsigned standin_blocks(void);  /* live blocks: of devices, managed, pinned, registered, mapped */
unsigned standin_handles(void); /* live streams, events, pools, address ranges, handles of memory */
void standin_version(int version);
/* cuMemFree and cuMemFreeHost of memory that pending work uses wait for the device, as the real
 * driver's do. standin_late_frees returns how many calls waited. standin_strict says whether such a
 * call is a violation. */
unsigned standin_late_frees(void);
void standin_strict(bool strict);

#endif

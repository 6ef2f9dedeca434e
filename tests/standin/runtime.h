/* runtime.h - a CUDA runtime on the stand-in for the driver, for programs that call cuda* and not
 * cu*: what its files share.
 *
 *   LD_PRELOAD=libstandin_runtime.so program
 *
 * The runtime proper, libcudart.so, speaks to the driver by tables that nobody has described, and
 * so not to a stand-in. These functions take its place where they are found first; what is missing
 * here is the runtime's own, which says that there is no driver. Errors have the driver's numbers,
 * which the runtime's are as well. Kernels cannot be launched: cudaErrorNotSupported. Structures
 * are those of CUDA 12. Any thread. */
#ifndef STANDIN_RUNTIME_H
#define STANDIN_RUNTIME_H

#include "names.h"

/* Who calls them has declared them. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

#define EXPORT __attribute__((visibility("default")))

enum { RUNTIME_VERSION = 12040 };

typedef CUresult cudaError_t;

/* Of the calling thread: its device's primary context is current, or one of the program's own. */
cudaError_t rt_ready(void);
cudaError_t rt_note(cudaError_t result); /* it is this thread's last error, if it is one */

/* Ends a function with the result of a call of the driver. */
#define ANSWER(call)                          \
  do {                                        \
    cudaError_t ready_ = rt_ready();          \
    return rt_note(ready_ ? ready_ : (call)); \
  } while (0)

#endif

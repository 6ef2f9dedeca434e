/* runtime.h - the declarations of a CUDA runtime on top of the stand-in driver. It serves programs
 * that call cuda* and not cu*.
 *
 *   LD_PRELOAD=libstandin_runtime.so program
 *
 * NVIDIA's runtime, libcudart.so, calls the driver by undocumented tables, which a stand-in cannot
 * provide. The functions here replace NVIDIA's if the dynamic linker finds them first. A function
 * that is missing here is NVIDIA's, which reports that there is no driver. Errors have the driver's
 * numbers, which are also the runtime's. A kernel launch returns cudaErrorNotSupported. Structures
 * are those of CUDA 12. Any thread may call these functions. */
#ifndef STANDIN_RUNTIME_H
#define STANDIN_RUNTIME_H

#include "names.h"

/* A program that calls these functions declares them itself. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

#define EXPORT __attribute__((visibility("default")))

enum { RUNTIME_VERSION = 12040 };

typedef CUresult cudaError_t;

/* Makes the primary context of the calling thread's device current, unless the program has made one
 * current. */
cudaError_t rt_ready(void);
cudaError_t rt_note(cudaError_t result); /* keeps an error as this thread's last one */

/* Ends a function with the result of a driver call. */
#define ANSWER(call)                          \
  do {                                        \
    cudaError_t ready_ = rt_ready();          \
    return rt_note(ready_ ? ready_ : (call)); \
  } while (0)

#endif

/* advice.c - madvise: a program that asks for huge pages gets none where the policy says
 * `huge = false`. NumPy asks for them for each large array. Any other advice is the kernel's. */
#define _GNU_SOURCE 1
#include "preload.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

PRELOAD_API int madvise(void *at, size_t size, int advice) {
  if (advice == MADV_HUGEPAGE && loam_forbids_huge(at)) return 0;
  return (int)syscall(SYS_madvise, at, size, advice);
}

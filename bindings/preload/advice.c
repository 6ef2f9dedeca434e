/* advice.c - madvise: a program that asks for huge pages gets none where the policy says
 * `huge = false`. NumPy asks for them for each large array. The kernel gets all other advice. */
#define _GNU_SOURCE 1
#include "preload.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Tells whether the range has a part of a block whose strategy forbids huge pages. It asks
 * once for each HUGE bytes, the size of a huge page: a block that is missed is smaller than one. */
static bool forbids_huge(const void *at, size_t size) {
  enum { HUGE = 2 << 20 };
  const char *byte = at;
  for (size_t offset = 0; offset < size; offset += HUGE)
    if (loam_forbids_huge(byte + offset)) return true;
  return size && loam_forbids_huge(byte + size - 1);
}

PRELOAD_API int madvise(void *at, size_t size, int advice) {
  if (advice == MADV_HUGEPAGE && forbids_huge(at, size)) return 0;
  return (int)syscall(SYS_madvise, at, size, advice);
}

/* pagemap.c - reads page tables by PAGEMAP_SCAN: pagemap.h. */
#include "os/pagemap.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "os/outcome.h"

/* The argument of the call. Headers before Linux 6.7 do not have it. */
typedef struct scan_argument {
  uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
  uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
} scan_argument;

#define SCAN _IOWR('f', 16, scan_argument)

/* Kernels before Linux 6.16 open the page table of a process that has ended. A scan would then use
 * a null pointer in the kernel, but a read finds nothing. */
static lm_descriptor open_living(const char *path) {
  uint64_t entry;
  lm_descriptor pagemap = lm_descriptor_keep(open(path, O_RDONLY | O_CLOEXEC));
  if (pagemap.fd < 0 || pread(pagemap.fd, &entry, sizeof entry, 0) == (ssize_t)sizeof entry)
    return pagemap;
  lm_descriptor_close(&pagemap);
  errno = ESRCH;
  return LM_DESCRIPTOR_NONE;
}

lm_descriptor lm_pagemap_open(int pid) {
  char path[32] = "/proc/self/pagemap";
  if (is_refused()) {
    errno = ENOMEM;
    return LM_DESCRIPTOR_NONE;
  }
  if (pid) snprintf(path, sizeof path, "/proc/%d/pagemap", pid);
  lm_sys_cancel_off();
  lm_descriptor pagemap = open_living(path);
  lm_sys_cancel_restore();
  return pagemap;
}

int lm_pagemap_scan(const lm_descriptor *pagemap, uintptr_t from, uintptr_t to,
                    lm_pagemap_visit *visit, void *ctx) {
  lm_pagemap_run run[512];
  int before = errno;
  scan_argument argument = {
    .size = sizeof argument,
    .start = from,
    .end = to,
    .vec = (uintptr_t)run,
    .vec_len = LM_COUNT(run),
    .category_anyof_mask = LM_PAGEMAP_PRESENT | LM_PAGEMAP_SWAPPED,
    .return_mask = LM_PAGEMAP_PRESENT | LM_PAGEMAP_SWAPPED | LM_PAGEMAP_ZERO | LM_PAGEMAP_HUGE,
  };
  lm_assert(from <= to && visit);
  if (!lm_descriptor_is_ours(pagemap)) return EBADF;
  while (argument.start < argument.end) {
    int n = ioctl(pagemap->fd, SCAN, &argument);
    if (n < 0) return outcome(n, before);
    for (int i = 0; i < n; i++) visit(ctx, &run[i]);
    if (argument.walk_end <= argument.start) return EIO;
    argument.start = argument.walk_end;
  }
  return 0;
}

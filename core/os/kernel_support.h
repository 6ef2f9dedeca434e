/* kernel_support.h - what the kernel, or a container's filter of calls, lets this process do with
 * its memory: tried on a page. */
#ifndef LM_KERNEL_SUPPORT_H
#define LM_KERNEL_SUPPORT_H

#include "os/base.h"

/* 0, or the errno of its refusal. */
typedef struct lm_kernel_support {
  int mbind;
  int move_pages;
  int prefault;  /* MADV_POPULATE_WRITE */
  int huge;      /* MADV_HUGEPAGE; EINVAL: a kernel without such pages */
  int give_back; /* MADV_DONTNEED */
  int lock;      /* mlock; also where no page more may be locked */
} lm_kernel_support;

/* False: there is no page to try it on. */
bool lm_kernel_support_probe(lm_kernel_support *out);

#endif

/* kernel_support.h - what the kernel, or a container's filter of system calls, lets this process do
 * with its memory, found by trying each call on one page. */
#ifndef LM_KERNEL_SUPPORT_H
#define LM_KERNEL_SUPPORT_H

#include "os/base.h"

/* For each call: 0 if it works, else the errno value with which it failed. */
typedef struct lm_kernel_support {
  int mbind;
  int move_pages;
  int prefault;  /* MADV_POPULATE_WRITE */
  int huge;      /* MADV_HUGEPAGE; EINVAL: the kernel has no transparent huge pages */
  int give_back; /* MADV_DONTNEED */
  int lock;      /* mlock; also fails where the process may lock no further page */
} lm_kernel_support;

/* Tries the calls and fills *out. Returns false if there is no memory for the page. Any thread may
 * call it; it takes about ten system calls. */
bool lm_kernel_support_probe(lm_kernel_support *out);

#endif

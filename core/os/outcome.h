/* outcome.h - how a port answers: what a call said as an errno, and refusals that tests want. */
#ifndef LM_OUTCOME_H
#define LM_OUTCOME_H

#include <errno.h>

#include "os/sys.h"

#if LOAM_CHECKS >= 1
#define is_refused() lm_sys_refuses(__func__)
#else
#define is_refused() false
#endif

/* The errno of a call that returned `result`, which leaves errno as `before`: this code runs inside
 * the host's free(), which must not change it. */
static inline int outcome(long result, int before) {
  if (result >= 0) return 0;
  int error = errno;
  errno = before;
  return error;
}

#endif

/* outcome.h - what the files of a port share: the result of a system call as an errno value, and
 * calls that tests make fail. */
#ifndef LM_OUTCOME_H
#define LM_OUTCOME_H

#include <errno.h>

#include "os/sys.h"

/* Whether a test wants this call of the enclosing function to fail: lm_sys_refuse. */
#if LOAM_CHECKS >= 1
#define is_refused() lm_sys_refuses(__func__)
#else
#define is_refused() false
#endif

/* Returns 0 if `result`, which a system call returned, is not negative, else the errno value of
 * that call. Sets errno back to `before`: the host's free() ends here too, and must not change
 * errno. */
static inline int outcome(long result, int before) {
  if (result >= 0) return 0;
  int error = errno;
  lm_assert(error > 0);
  errno = before;
  return error;
}

#endif

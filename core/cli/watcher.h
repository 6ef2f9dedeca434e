/* watcher.h - the process that works for a program tree beside it: it follows the policy file
 * (`loam run --watch`), reads the free memory of NUMA nodes and memory pressure for policies that
 * ask for them, raises the alarm when memory is short in the control group (os/pressure.h), and
 * gives back what processes that have died had of shared limits (heap/quota.h).
 *
 * The watcher is a process of its own, because a process of the tree is a guest: it has no thread,
 * no descriptor and no time for that. The watcher belongs to no process of the tree: it has its own
 * session, so it gets no signal of the program's terminal, and it keeps none of the program's
 * descriptors, so a pipe that the program writes to ends with the program. It ends when all
 * processes of the tree have ended. */
#ifndef LM_WATCHER_H
#define LM_WATCHER_H

#include "loam.h"
#include "os/base.h"

/* The task of a watcher. It keeps the free memory of NUMA nodes on the board (os/published.h) while
 * the live policy reads it, keeps memory pressure there, looks after the quotas while the live
 * policy shares limits, and follows the policy file if there is one. */
typedef struct lm_watcher_task {
  const char *board;  /* an absolute path */
  const char *policy; /* the absolute path of the file that is followed; NULL: none is */
  bool is_of_caller;  /* the caller will become the program; else the tree runs already */
} lm_watcher_task;

/* Starts a watcher. It is no child of the program that the caller becomes: wait(2) does not see it.
 * Where the policy on the board reads memory pressure, the figures are on the board when the
 * function returns. Fails with LOAM_EIO if no process can be made. */
loam_status lm_watcher_start(const lm_watcher_task *task);

#endif

/* watcher.h - the process that follows the policy file for a program tree: `loam run --watch`.
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

/* Starts the watcher of a policy file. `board` and `policy` are absolute paths. `hash` is the hash
 * of the policy's text that the programs of the tree start with; 0: none was accepted. The caller
 * then replaces itself by the program, of which the watcher is no child: wait(2) does not see it.
 * Fails with LOAM_EIO if no process can be made. */
loam_status lm_watcher_start(const char *board, const char *policy, uint64_t hash);

#endif

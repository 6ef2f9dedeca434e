/* namespaces.h - the boards of all processes that this process may look into.
 *
 * A program may have put its board into a folder that only its own environment names. As long as
 * the program lives, the board is among its mappings in /proc/PID/maps.
 *
 * A container has a root directory and process ids of its own, and a service of systemd may have a
 * /tmp of its own. Their boards lie where /proc/PID/root leads, which root may enter. */
#ifndef LM_NAMESPACES_H
#define LM_NAMESPACES_H

#include "loam.h"

/* Calls `write` as lm_board_each (service/board_read.h) does: for the boards of this process's own
 * mount namespace, and for root also for the boards of other mount namespaces. A process of another
 * PID namespace is shown with the id that it has here. If LOAM_CONTROL_DIR is set, looks only there
 * and into the usual folders; else also into each folder in which a living process has its board:
 * it reads the maps of all processes for that, at most every ten seconds. Returns 0, or an errno
 * value: without descriptors or memory, rows are missing. */
int lm_namespaces_boards(loam_write_fn write, void *ctx);

/* Returns the id that a process has in its own PID namespace; 0: /proc does not show the process.
 */
int lm_namespaces_inner_pid(int pid);

#endif

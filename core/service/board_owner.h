/* board_owner.h - tells whether the process that has a place on a board lives, from /proc and
 * without the help of that process. */
#ifndef LM_BOARD_OWNER_H
#define LM_BOARD_OWNER_H

#include "service/board_layout.h"

typedef enum lm_board_state {
  LM_BOARD_RUNNING,
  LM_BOARD_STOPPED, /* by a signal such as SIGSTOP, or by a debugger */
  LM_BOARD_GONE,    /* the process has ended, or has become a program without loam or another one */
  LM_BOARD_UNKNOWN, /* it is in another PID namespace, where its id means nothing here; or its PID
                        namespace or the caller's is not known (no /proc) */
} lm_board_state;

typedef struct lm_board_life {
  lm_board_state state;
  bool has_uid;
  unsigned uid, real_uid; /* effective and real user of a living process, if has_uid */
} lm_board_life;

/* Makes the owner word of a process that takes a place now. */
uint64_t lm_board_owner_now(int pid);
/* Returns the inode number of the caller's PID namespace; 0: it is not known. */
uint64_t lm_board_own_namespace(void);
/* Writes the kernel's boot id, or "" where it is not known. */
void lm_board_boot_id(char *buffer, size_t size);
/* Tells whether a process has ended, and its parent has not waited for it yet. Such a process has
 * no memory any more. */
bool lm_board_owner_has_ended(int pid);
/* Says how the owner of a place is. `owner` comes from the process `figures`, or from the maker of
 * a board; `figures` is NULL for the maker. `pid_namespace` is the PID namespace of the owner. */
lm_board_life lm_board_look(uint64_t owner, uint64_t pid_namespace,
                            const lm_board_figures *figures);

#endif

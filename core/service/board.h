/* board.h - this process's place on the board of its program tree.
 *
 * A process that opens a control socket also has a place on a board: the board that the environment
 * names, else one of its own in the folder of the socket. Its forked children take places on the
 * board that they have mapped already. README.md of core has the layout's reasons.
 *
 * A failure never harms the process: it then has no place, which is counted or reported. */
#ifndef LM_BOARD_H
#define LM_BOARD_H

#include "loam.h"
#include "os/base.h"

/* Takes a place and writes the present figures there. If the process has a place, only writes.
 * `dir` is the absolute path of the folder of sockets. LOAM_EIO if no board can be made. With no
 * lock held. */
loam_status lm_board_start(const char *dir);
/* Writes the present figures. Does nothing without a place. Any thread; the load lock of policy.c
 * may be held, and no other lock. */
void lm_board_write(void);
/* Like lm_board_write, but at most four times a second, so that it may be called often. */
void lm_board_refresh(void);
/* Says that this process ends, or that loam stops in it. Removes the board's file if no other
 * process of the tree has a place. With no lock held. */
void lm_board_end(void);
/* Returns whether the law in board.c holds. With no lock held. */
bool lm_board_is_valid(void);

#endif

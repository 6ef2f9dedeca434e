/* board.h - this process's place on the board of its program tree.
 *
 * A process that opens a control socket also has a place on a board: the board that the environment
 * names, else one of its own in the folder of the socket. A guest (loam_config.guest) has a place
 * on the board that the environment names; if that board is for another policy, or none is named,
 * the guest makes a board where LOAM_POLICY is set. Its forked children take places on the board
 * that they have mapped already. README.md of core has the layout's reasons.
 *
 * A failure does no harm to the process: it then has no place, which is counted or reported. One
 * thing does: a user who makes the file of an own board shorter ends the processes on it (SIGBUS).
 */
#ifndef LM_BOARD_H
#define LM_BOARD_H

#include "loam.h"
#include "os/base.h"
#include "service/board_layout.h"

/* Takes a place and writes the present figures there. If the process has a place, only writes.
 * `dir` is the absolute path of the folder of sockets. LOAM_EIO if no board can be made. With no
 * lock held. */
loam_status lm_board_start(const char *dir);
/* Maps the board that the environment names, if there is one. If the board is for the policy that
 * LOAM_POLICY names, the process follows the board from now on: it obeys the images that are
 * published there. Takes no place. With no lock held. */
void lm_board_follow(void);
/* Makes a board in the folder `dir` for the processes whose LOAM_POLICY names the file `policy`, an
 * absolute path. Maps none of it. Writes the path of the board into `path`, which has PATH_MAX
 * bytes. Removes boards of ended processes from the folder. LOAM_EIO; LOAM_EINVAL
 * if the path of the policy is too long for a board. */
loam_status lm_board_make(const char *dir, const char *policy, char *path);
/* Takes a place on the board that lm_board_follow has mapped, and writes the present figures there.
 * A process that follows no board makes one in the folder `dir` and follows it, if LOAM_POLICY is
 * set; a `dir` of NULL forbids that. The programs that this process starts find the board by
 * LOAM_BOARD. Called once for each start of loam, with no lock held. LOAM_EIO if the board cannot
 * be made: the process then has no place. */
loam_status lm_board_join(const char *dir);
/* The news and the two halves of the images of the board that this process follows; NULL: it
 * follows none. Both stay mapped until lm_board_end. */
const lm_board_news *lm_board_news_now(void);
const char *lm_board_halves(void);
/* Returns what is wished of this process (lm_board_place.sample_wish); 0: nothing, or the process
 * has no place on a board that it follows. Under the load lock of policy.c. */
uint64_t lm_board_sample_wish(void);
/* Writes the present figures. Does nothing without a place. Any thread; the load lock of policy.c
 * may be held, and no other lock. */
void lm_board_write(void);
/* Like lm_board_write, but at most four times a second, so that it may be called often. */
void lm_board_refresh(void);
/* Like lm_board_refresh, for a slow request of a process that follows the board and has no service
 * thread; else does nothing. Makes system calls for memory alone. With no lock held. */
void lm_board_refresh_calmly(void);
/* Says that this process ends, or that loam stops in it. Removes the board's file if no other
 * process of the tree has a place. With no lock held. */
void lm_board_end(void);
/* Returns whether the law in board.c holds. With no lock held. */
bool lm_board_is_valid(void);

#endif

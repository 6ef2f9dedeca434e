/* board_share.h - bounds what a reader of boards does for each user.
 *
 * A user can write any number of boards, full of rows, and the reader may be root. So the rows of
 * one user may have so many bytes, and reading them may take so long; what goes beyond that is left
 * out. A folder that is seen again, as in each mount namespace with the same /tmp, is not read
 * again. */
#ifndef LM_BOARD_SHARE_H
#define LM_BOARD_SHARE_H

#include <sys/stat.h>

#include "os/base.h"

enum {
  LM_BOARD_SHARE_BYTES = 8 << 20, /* of the rows of a user: those of thousands of processes */
  LM_BOARD_SHARE_MS = 2000,       /* for reading the boards of a user */
  LM_BOARD_SHARES = 256,          /* users with a share; further ones have one share together */
  LM_BOARD_FOLDERS = 4096,        /* folders that are known again */
};

/* What has been read of a user so far. */
typedef struct lm_board_share {
  unsigned uid;
  int root; /* a process in whose container user 0 is not the caller's; 0: any other user */
  size_t bytes;
  int64_t ns;
  bool is_told; /* a row says that boards of the user are left out */
} lm_board_share;

/* The shares of one list of boards; all zeros before the first folder.
 * Law: users <= LM_BOARD_SHARES and folders <= LM_BOARD_FOLDERS. */
typedef struct lm_board_shares {
  lm_board_share user[LM_BOARD_SHARES];
  struct {
    dev_t device;
    ino_t inode;
  } folder[LM_BOARD_FOLDERS];
  uint32_t users, folders;
} lm_board_shares;

/* Notes a folder. Returns whether it was not noted before. A folder for which there is no room is
 * always new. */
bool lm_board_shares_note(lm_board_shares *shares, const struct stat *folder);
/* Returns the share of a user. `root` is the process below whose root directory the boards are; 0:
 * the caller's own. User 0 of a container has a share of its own in each. */
lm_board_share *lm_board_shares_of(lm_board_shares *shares, unsigned uid, int root);

bool lm_board_shares_is_valid(const lm_board_shares *shares);

#endif

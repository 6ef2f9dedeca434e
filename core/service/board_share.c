/* board_share.c - see board_share.h. */
#include "service/board_share.h"

bool lm_board_shares_is_valid(const lm_board_shares *shares) {
  return shares->users <= LM_BOARD_SHARES && shares->folders <= LM_BOARD_FOLDERS;
}

bool lm_board_shares_note(lm_board_shares *shares, const struct stat *folder) {
  lm_assert(lm_board_shares_is_valid(shares));
  for (uint32_t i = 0; i < shares->folders; i++)
    if (shares->folder[i].device == folder->st_dev && shares->folder[i].inode == folder->st_ino)
      return false;
  if (shares->folders == LM_BOARD_FOLDERS) return true;
  shares->folder[shares->folders].device = folder->st_dev;
  shares->folder[shares->folders++].inode = folder->st_ino;
  return true;
}

lm_board_share *lm_board_shares_of(lm_board_shares *shares, unsigned uid, int root) {
  lm_assert(lm_board_shares_is_valid(shares));
  if (uid) root = 0;
  for (uint32_t i = 0; i < shares->users; i++)
    if (shares->user[i].uid == uid && shares->user[i].root == root) return &shares->user[i];
  if (shares->users == LM_BOARD_SHARES) return &shares->user[LM_BOARD_SHARES - 1];
  lm_board_share *share = &shares->user[shares->users++];
  *share = (lm_board_share){ .uid = uid, .root = root };
  return share;
}

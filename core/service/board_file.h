/* board_file.h - the files of boards: makes them, and opens and maps those of other processes. */
#ifndef LM_BOARD_FILE_H
#define LM_BOARD_FILE_H

#include <limits.h>

#include "loam.h"
#include "service/board_layout.h"

/* The variable that tells a program the path of the board of its tree. `loam run` sets it for its
 * program, and a process that makes its own board sets it for the programs that it will start. */
#define LM_BOARD_VARIABLE "LOAM_BOARD"

/* Makes a board in the folder `dir`, which is made if it is missing, and maps it. Writes the path
 * of the file into `path`, which has PATH_MAX bytes. No descriptor stays open. On failure returns
 * LOAM_EIO, with error words. */
loam_status lm_board_file_make(const char *dir, char *path, lm_board **out);
/* Maps the board at `path`. NULL: there is no file, or it is no board of the effective user that
 * this version of loam knows. The caller can read the news of the board and cannot write them. */
lm_board *lm_board_file_map(const char *path);
/* Like lm_board_file_map, for the board that the environment names. Copies its path into `path`,
 * which has PATH_MAX bytes. NULL also if the environment names no board. */
lm_board *lm_board_file_inherited(char *path);
/* Names a board, and the absolute path of the policy that it is for, to the programs that this
 * process will start: sets LOAM_BOARD and LOAM_POLICY in the environment. A start of loam calls it,
 * while the process has one thread. If there is no memory, the environment does not change. */
void lm_board_file_bequeath(const char *path, const char *policy);
/* Lets this process follow the board at `path`: maps the first page of the news over lm_published,
 * and returns a mapping of both halves, LM_BOARD_HALF * 2 bytes, which the caller ends. The caller
 * also calls lm_published_unmap. NULL: nothing is mapped, because there is no memory, or the file
 * cannot be opened any more. */
const char *lm_board_file_follow(const char *path);
/* Opens a board of the effective user for reading and writing. Returns a descriptor, or -1 with
 * error words. */
int lm_board_file_open(const char *path);
/* Ends the mapping of a board. NULL does nothing. */
void lm_board_file_unmap(lm_board *board);

/* Returns whether `head` is the head of a board of this version and of the present boot. If this
 * process or the maker of the board does not know its boot id, only the version counts. */
bool lm_board_file_is_ours(const lm_board_head *head);

#endif

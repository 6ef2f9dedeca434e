/* board_read.h - reads the boards of this user, and for root those of all users.
 *
 * A reader never maps a board: another user could make the file shorter, and the reader would die
 * by SIGBUS. It copies parts of the file by pread(2), and trusts nothing that it finds there. */
#ifndef LM_BOARD_READ_H
#define LM_BOARD_READ_H

#include "loam.h"
#include "os/base.h"

/* Folders that were visited, each by its device and its inode. Zeroed, it is empty. Folders that
 * have no room here are visited again under each of their paths. */
enum { LM_BOARD_VISITED = 4096 };
typedef struct lm_board_visited {
  unsigned count;
  struct {
    uint64_t device, inode;
  } folder[LM_BOARD_VISITED];
} lm_board_visited;

/* Who reads boards, and what for. */
typedef struct lm_board_reader {
  loam_write_fn write; /* gets a row: one JSON object for a process */
  void *ctx;           /* for `write` */
  /* Returns the process id, as the caller sees it, of the process that has the id `pid` in another
   * PID namespace; 0: the caller cannot see that process; -1: the process has ended. NULL: the
   * caller sees no such process. */
  int (*find_pid)(uint64_t pid_namespace, int pid);
  /* Further folders with boards, `folder_count` of them. */
  const char *const *folders;
  unsigned folder_count;
  /* A folder in it is passed over, and other folders are added: one folder may have several paths,
   * and many mount namespaces may have it. NULL: a folder with two paths gives its rows twice. */
  lm_board_visited *visited;
  int *error; /* becomes 0, or an errno value: without descriptors or memory there are no rows */
} lm_board_reader;

/* Calls `write` once for each process on a board that the effective user may see, in the usual
 * folders (lm_control_dir; for root those of all users) and in `folders`. Its row has the
 * keys of the socket's `status`, and `state`, `ended_at`, `announced`, `uid`, `since_ms`,
 * `updated_at`, `limits`, `limits_left_out`, `strategies`, `strategies_left_out`,
 * `classes_left_out`, `tags`, `tags_left_out`, `folder`; of a process that follows the board also
 * `board` and `published`, `latest` if an image was published, `before` if there was one before it,
 * and `pressure` if a watcher has looked. A board of another version of loam has one row instead,
 * with the keys `other_version` (the name of its file) and `folder`, as long as a process has it
 * open; its file stays until the next boot. Removes boards of the effective user whose processes
 * have all ended. Makes no call to any of these processes. */
void lm_board_each(const lm_board_reader *reader);
/* Like lm_board_each, for the boards that lie below the root directory of the process `pid`, which
 * is in another mount namespace: a container, or a service with a private /tmp. Removes no board.
 * For root. */
void lm_board_each_below(const lm_board_reader *reader, int pid);
/* Removes the boards of a folder whose processes have all ended. A board with a process that was
 * killed stays for ten minutes after this was first noticed. With no lock of memory held. */
void lm_board_clean(const char *dir);
/* Returns the process id of a living process on the board that `fd` has open for reading; 0: none
 * lives; -1: there may be one that the caller cannot see, in another PID namespace. The maker of
 * the board counts as a process on it. The board must be one of the effective user. */
int lm_board_find_living(int fd);

/* Copies the image of the policy text with this hash from the board at `path` into lm_metadata
 * memory, which the caller frees. A board keeps the last two images. Returns LOAM_EIO if the file
 * is no board of the effective user (for root: of any user), or if it has no such image. */
loam_status lm_board_read_image(const char *path, uint64_t text_hash, void **bytes, size_t *size);

#endif

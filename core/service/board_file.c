/* board_file.c - makes and opens the files of boards.
 *
 * A store to a mapped file kills the process by SIGBUS if the file has no room for the page and the
 * filesystem has none left. So each page of a board gets its room before the first store: the head,
 * the news, the places and the first slots here, every other page by can_write (board.c). Room
 * stays room only if stores change the file in place: lm_sys_file_keep_in_place. Only the user of a
 * board can make its file shorter. */
#include "service/board_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "os/error.h"
#include "os/sys_file.h"
#include "pages/metadata.h"
#include "service/board_owner.h"
#include "service/control_socket.h"

/* Slots that get room when the board is made. A kernel before 5.14 cannot say whether a page can be
 * written (madvise MADV_POPULATE_WRITE), so there a board has no other slots. */
enum { PREPARED = 1, PREPARED_BLINDLY = 16 };

/* Tries to open a board while another process has a lease on it: 100 ms in all. */
enum { OPEN_TRIES = 100, OPEN_NAP_NS = 1000000 };

/* A board may take so much of the address space that a limit (RLIMIT_AS) leaves to a process: one
 * part in so many. */
enum { SPACE_SHARE = 16 };

/* Bytes that hold the name of a variable of loam, the sign = and a NUL. */
enum { NAME_ROOM = 16 };

bool lm_board_file_is_ours(const lm_board_head *head) {
  char own[sizeof head->boot_id];
  lm_board_boot_id(own, sizeof own);
  return !memcmp(head->magic, LM_BOARD_MAGIC, sizeof LM_BOARD_MAGIC) &&
         head->version == LM_BOARD_VERSION && head->places == LM_BOARD_PLACES &&
         (!own[0] || !head->boot_id[0] || !strncmp(head->boot_id, own, sizeof own));
}

static loam_status fail(const char *path, int error) {
  return lm_error(LOAM_EIO, "board: %s: %s", path, strerrordesc_np(error));
}

/* Fills the head; the magic comes last, so a process that dies here leaves no board. */
static void begin(lm_board *board, uint64_t maker, uint32_t prepared) {
  lm_board_head *head = &board->head;
  head->version = LM_BOARD_VERSION;
  head->places = LM_BOARD_PLACES;
  head->prepared = prepared;
  head->maker = maker;
  head->pid_namespace = lm_board_own_namespace();
  lm_board_boot_id(head->boot_id, sizeof head->boot_id);
  atomic_thread_fence(memory_order_release);
  memcpy(head->magic, LM_BOARD_MAGIC, sizeof LM_BOARD_MAGIC);
}

/* Tells whether a limit on address space leaves room for a board. If not, the program needs that
 * address space for its own memory. */
static bool has_space(void) {
  size_t used, limit = lm_sys_address_limit();
  if (limit == SIZE_MAX) return true;
  if (lm_sys_address_space(&used) || used > limit) return false;
  return (limit - used) / SPACE_SHARE >= LM_BOARD_FILE;
}

/* Maps a board. Returns 0 or an errno. */
static int attach(int fd, lm_board **out) {
  void *at = NULL;
  if (!has_space()) return ENOMEM;
  int error = lm_sys_file_attach(fd, 0, sizeof(lm_board), true, &at);
  if (error) return error;
  (void)lm_sys_file_scattered(at, sizeof(lm_board)); /* without it, stores are only slower */
  *out = at;
  return 0;
}

/* Opens a board. O_NONBLOCK: the path may name a pipe. With it, open fails with EWOULDBLOCK while
 * the watcher (cli/watcher.c) or a reader (board_read.c) has a lease on the board, which each gives
 * up after a moment. */
static int open_board(const char *path, int access) {
  int fd = -1;
  for (int i = 0; i < OPEN_TRIES; i++) {
    fd = open(path, access | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd >= 0 || errno != EWOULDBLOCK) break;
    lm_sys_sleep(OPEN_NAP_NS);
  }
  return fd;
}

/* Opens a board for reading alone: a mapping of this descriptor can never become writable. */
static int open_to_read(const char *path) { return open_board(path, O_RDONLY); }

/* Takes from this process the right to write the news of a board that it has mapped. Returns 0 or
 * an errno. */
static int protect_news(const char *path, lm_board *board) {
  int fd = open_to_read(path);
  if (fd < 0) return errno;
  int error = lm_sys_file_cover(fd, offsetof(lm_board, news), &board->news, sizeof board->news);
  lm_sys_file_close(fd);
  return error;
}

const char *lm_board_file_follow(const char *path) {
  void *halves = NULL;
  int before = errno, fd = open_to_read(path);
  if (fd < 0) {
    errno = before;
    return NULL;
  }
  int error = lm_sys_file_attach(fd, LM_BOARD_HALVES_AT, 2 * LM_BOARD_HALF, false, &halves);
  if (!error) (void)lm_sys_file_scattered(halves, 2 * LM_BOARD_HALF);
  if (!error) error = lm_published_map(fd, offsetof(lm_board, news));
  lm_sys_file_close(fd);
  if (!error) return halves;
  if (halves) lm_sys_unmap(halves, 2 * LM_BOARD_HALF);
  return NULL;
}

/* Gives a new file its length and the room of its first pages, and maps it. Returns 0 or an
 * errno. */
static int set_up(int fd, uint64_t maker, lm_board **out) {
  lm_board *board = NULL;
  uint32_t prepared = PREPARED;
  int error = lm_sys_file_resize(fd, LM_BOARD_FILE);
  if (!error)
    error = lm_sys_file_allocate(fd, 0, LM_BOARD_INDEX + PREPARED * sizeof(lm_board_slot));
  if (!error) error = attach(fd, &board);
  if (error) return error;
  if (lm_sys_prefault(board, LM_BOARD_PAGE) == EINVAL &&
      !lm_sys_file_allocate(fd, LM_BOARD_INDEX, PREPARED_BLINDLY * sizeof(lm_board_slot)))
    prepared = PREPARED_BLINDLY;
  begin(board, maker, prepared);
  *out = board;
  return 0;
}

loam_status lm_board_file_make(const char *dir, char *path, lm_board **out) {
  uint64_t maker = lm_board_owner_now(getpid());
  lm_assert(*dir);
  if (!has_space())
    return lm_error(LOAM_EIO,
                    "a board takes %zu MiB of address space, more than a %dth of what the limit "
                    "(ulimit -v) leaves",
                    LM_BOARD_FILE / LM_MIB, SPACE_SHARE);
  loam_status status = lm_control_socket_folder(dir);
  if (status != LOAM_OK) return status;
  /* Containers may share the folder, and their first processes have one id. */
  int n = snprintf(path, PATH_MAX, "%s/%d-%llx-%llx.board", dir, getpid(),
                   (unsigned long long)lm_board_since_ms(maker),
                   (unsigned long long)lm_board_own_namespace());
  if (n < 0 || n >= PATH_MAX) return fail(dir, ENAMETOOLONG);
  int fd = open(path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return fail(path, errno);
  lm_sys_file_keep_in_place(fd);
  int error = set_up(fd, maker, out);
  lm_sys_file_close(fd);
  if (!error) return LOAM_OK;
  unlink(path);
  return fail(path, error);
}

/* Tells whether the file is one that only this user can have written. */
static bool is_own_file(int fd) {
  struct stat st;
  return !fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_uid == geteuid() && st.st_nlink == 1 &&
         !(st.st_mode & 077) && st.st_size == (off_t)LM_BOARD_FILE;
}

lm_board *lm_board_file_inherited(char *path) {
  const char *named = lm_sys_getenv(LM_BOARD_VARIABLE);
  if (!named || *named != '/' || strlen(named) >= PATH_MAX) return NULL;
  strcpy(path, named);
  return lm_board_file_map(path);
}

lm_board *lm_board_file_map(const char *path) {
  lm_board *board = NULL;
  int before = errno, fd = open_board(path, O_RDWR);
  if (fd >= 0 && is_own_file(fd)) (void)attach(fd, &board);
  if (fd >= 0) lm_sys_file_close(fd);
  errno = before;
  if (!board) return NULL;
  bool is_sound = lm_board_file_is_ours(&board->head) && !protect_news(path, board);
  errno = before;
  if (is_sound) return board;
  lm_board_file_unmap(board);
  return NULL;
}

/* Tells whether an entry of the environment has this name. */
static bool has_name(const char *entry, const char *name) {
  size_t length = strlen(name);
  return !strncmp(entry, name, length) && entry[length] == '=';
}

/* setenv is not called, because this may be the malloc of a setenv that holds the lock of the
 * environment, and because some programs (bash) define a setenv that is not ready yet. The memory
 * is never freed: the program owns its environment. */
void lm_board_file_bequeath(const char *path, const char *policy) {
  enum { ADDED = 2 };
  size_t n = 0, kept = 0, room = strlen(path) + strlen(policy) + 2 * NAME_ROOM;
  while (environ[n]) n++;
  char **made = lm_metadata_alloc((n + ADDED + 1) * sizeof *made + room);
  if (!made) return;
  char *words = (char *)(made + n + ADDED + 1);
  for (size_t i = 0; i < n; i++)
    if (!has_name(environ[i], LM_BOARD_VARIABLE) && !has_name(environ[i], "LOAM_POLICY"))
      made[kept++] = environ[i];
  made[kept++] = words;
  words += snprintf(words, room, LM_BOARD_VARIABLE "=%s", path) + 1;
  made[kept++] = words;
  snprintf(words, room - (size_t)(words - made[kept - 2]), "LOAM_POLICY=%s", policy);
  made[kept] = NULL;
  environ = made;
}

/* Says who may change a board. A path of /proc leads into another mount namespace: a service with a
 * private /tmp has its own. Only root finds boards there from outside. */
static void fail_owner(const char *path, unsigned uid) {
  char inside[96] = "";
  int pid = 0, end = 0;
  (void)!sscanf(path, "/proc/%d/root/%n", &pid, &end);
  if (end)
    snprintf(inside, sizeof inside,
             " in the mount namespace of the program, by nsenter -t %d -m -S %u", pid, uid);
  (void)lm_error(LOAM_EIO, "board: %s: only user %u may change it: run the command as that user%s",
                 path, uid, inside);
}

/* Says why an open file is no board that this user may write. */
static void fail_foreign(int fd, const char *path) {
  struct stat st;
  if (!fstat(fd, &st) && st.st_uid != geteuid()) fail_owner(path, (unsigned)st.st_uid);
  else (void)lm_error(LOAM_EIO, "board: %s: it is no board of this version of loam", path);
}

int lm_board_file_open(const char *path) {
  int fd = open_board(path, O_RDWR);
  lm_board_head head;
  if (fd < 0) {
    (void)fail(path, errno);
    return -1;
  }
  if (is_own_file(fd) && pread(fd, &head, sizeof head, 0) == (ssize_t)sizeof head &&
      lm_board_file_is_ours(&head))
    return fd;
  fail_foreign(fd, path);
  lm_sys_file_close(fd);
  return -1;
}

void lm_board_file_unmap(lm_board *board) {
  if (board) lm_sys_unmap(board, sizeof *board);
}

/* quota_file.c - the file with the quotas of a user. */
#include "service/quota_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "heap/strategy.h"
#include "os/error.h"
#include "os/sys_file.h"
#include "os/text.h"
#include "os/thread.h"
#include "plan/site.h"
#include "service/board.h"
#include "service/board_owner.h"
#include "service/control_client.h"
#include "service/control_socket.h"
#include "service/policy.h"

_Static_assert(LM_QUOTA_PID == LM_BOARD_PID && LM_QUOTA_ENDED == LM_BOARD_ENDED &&
                   (int)LM_QUOTA_MS_SHIFT == (int)LM_BOARD_MS_SHIFT,
               "the word of a holder is the owner word of a board");

/* Bytes of a path, and of the reason in an event. The folder of the boards has a path of at most
 * LM_CONTROL_PATH bytes. A start may run on a small stack, so both are short. */
enum { ROOM = LM_CONTROL_PATH + 20, WORDS = 512, BOOT_ID = sizeof((lm_quota_head *)0)->boot_id };

/* The load lock of policy.c guards these. */
static char own_folder[LM_CONTROL_PATH]; /* "": there is none */
static bool may_make = true;
static bool has_started;          /* `own_folder` is the folder that the start has chosen */
static LM_SPARSE char why[WORDS]; /* why the table cannot be used; "": no reason is known */
static lm_quota_self self;
static bool is_described; /* all fields of `self` are known */

static loam_status fail(const char *path, int error) {
  return lm_error(LOAM_EIO, "shared limits: %s: %s", path, strerrordesc_np(error));
}

/* ---- The file ----------------------------------------------------------------------------- */

/* Tells whether the file has the size of a table, and only this user can have written it. */
static bool is_own_file(const struct stat *st) {
  return S_ISREG(st->st_mode) && st->st_uid == geteuid() && !(st->st_mode & 077) &&
         st->st_size == (off_t)sizeof(lm_quota_table);
}

/* Returns 0 if the file is a table that this process may use, EINVAL if it is not, and the errno of
 * a call that failed. */
static int check_table(int fd, const char *boot_id) {
  struct stat st;
  lm_quota_head head;
  if (fstat(fd, &st)) return errno;
  if (!is_own_file(&st)) return EINVAL;
  ssize_t n = pread(fd, &head, sizeof head, 0);
  if (n < 0) return errno;
  bool is_good = n == (ssize_t)sizeof head && lm_quota_is_sound(&head) && *boot_id &&
                 !strncmp(head.boot_id, boot_id, sizeof head.boot_id);
  return is_good ? 0 : EINVAL;
}

/* Opens the table at `path`, and follows no link. `boot_id` is the id of the present boot. Returns
 * a descriptor; -1 with errno: can_replace says what the errno means. */
static int open_table(const char *path, const char *boot_id) {
  int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  int error = fd < 0 ? errno : check_table(fd, boot_id);
  if (!error) return fd;
  if (fd >= 0) lm_sys_file_close(fd);
  errno = error;
  return -1;
}

/* Tells whether open_table has failed because there is no table: nothing, a link, a socket, or a
 * file that is no table. After other errors there may be a table which other processes use. */
static bool can_replace(int error) {
  return error == ENOENT || error == ELOOP || error == ENXIO || error == EINVAL;
}

/* Gives a new file its room and its head. Returns 0 or an errno. */
static int fill_file(int fd, const char *boot_id) {
  lm_quota_head head = { .magic = LM_QUOTA_MAGIC,
                         .version = LM_QUOTA_VERSION,
                         .rows = LM_QUOTAS,
                         .holders = LM_QUOTA_HOLDERS };
  snprintf(head.boot_id, sizeof head.boot_id, "%s", boot_id);
  lm_sys_file_keep_in_place(fd);
  int error = lm_sys_file_resize(fd, sizeof(lm_quota_table));
  if (!error) error = lm_sys_file_allocate(fd, 0, sizeof(lm_quota_table));
  if (!error && pwrite(fd, &head, sizeof head, 0) != (ssize_t)sizeof head) error = EIO;
  return error;
}

/* Makes the file whole under another name, and then gives it its name. So whoever finds the file
 * finds all of it, and what stood under the name is replaced and not followed. */
static loam_status put_file(const char *path, const char *boot_id) {
  char made[ROOM];
  if (snprintf(made, sizeof made, "%s.new", path) >= (int)sizeof made)
    return fail(path, ENAMETOOLONG);
  (void)unlink(made);
  int fd = open(made, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return fail(made, errno);
  int error = fchmod(fd, 0600) ? errno : 0; /* the umask may have cleared bits */
  if (!error) error = fill_file(fd, boot_id);
  lm_sys_file_close(fd);
  if (!error && rename(made, path)) error = errno;
  if (!error) return LOAM_OK;
  (void)unlink(made);
  return fail(path, error);
}

/* Makes the file unless another process has made it by now. */
static loam_status make_locked(const char *path, const char *boot_id) {
  int fd = open_table(path, boot_id);
  if (fd < 0) return can_replace(errno) ? put_file(path, boot_id) : fail(path, errno);
  lm_sys_file_close(fd);
  return LOAM_OK;
}

/* Makes the file while it holds the lock on the folder. Without the lock, a process could replace
 * the table that another process has just made. So a file system without such locks gets none. Any
 * user who may read the folder can keep it locked, so the wait has an end. */
static loam_status make_in(const char *folder, const char *path, const char *boot_id) {
  enum { LOCK_MS = 2000 };
  int lock = lm_control_lock(folder, LOCK_MS);
  if (lock < 0)
    return lm_error(LOAM_EIO, "shared limits: %s cannot be locked: %s", folder,
                    errno == EWOULDBLOCK ? "another process keeps it locked"
                                         : strerrordesc_np(errno));
  loam_status status = make_locked(path, boot_id);
  lm_control_unlock(lock);
  return status;
}

static loam_status path_in(const char *folder, char *path, size_t size) {
  size_t n = lm_text_put(path, size, folder, "/" LM_QUOTA_FILE, NULL);
  return n >= size ? fail(folder, ENAMETOOLONG) : LOAM_OK;
}

loam_status lm_quota_file_make(const char *folder) {
  char path[ROOM], boot_id[BOOT_ID];
  loam_status status = path_in(folder, path, sizeof path);
  if (status != LOAM_OK) return status;
  lm_board_boot_id(boot_id, sizeof boot_id);
  if (!*boot_id)
    return lm_error(LOAM_EIO, "shared limits: /proc/sys/kernel/random/boot_id cannot be read");
  int fd = open_table(path, boot_id);
  if (fd >= 0) {
    lm_sys_file_close(fd);
    return LOAM_OK;
  }
  if (!can_replace(errno)) return fail(path, errno);
  status = lm_control_socket_folder(folder);
  return status == LOAM_OK ? make_in(folder, path, boot_id) : status;
}

/* ---- Mapping ------------------------------------------------------------------------------ */

/* Maps the table at `path`. If `boot_id` is NULL, the function reads the boot id from the kernel.
 * Returns 0 or an errno. */
static int map(const char *path, const char *boot_id, lm_quota_table **out) {
  char now[BOOT_ID];
  void *at = NULL;
  if (!boot_id) lm_board_boot_id(now, sizeof now);
  int fd = open_table(path, boot_id ? boot_id : now);
  if (fd < 0) return errno;
  int error = lm_sys_file_attach(fd, 0, sizeof(lm_quota_table), true, &at);
  lm_sys_file_close(fd);
  if (error) return error;
  (void)lm_sys_file_scattered(at, sizeof(lm_quota_table));
  *out = at;
  return 0;
}

lm_quota_table *lm_quota_file_map(const char *folder) {
  char path[ROOM];
  lm_quota_table *table = NULL;
  int before = errno;
  if (path_in(folder, path, sizeof path) == LOAM_OK) (void)map(path, NULL, &table);
  errno = before;
  return table;
}

void lm_quota_file_unmap(lm_quota_table *table) {
  if (table) lm_sys_unmap(table, sizeof *table);
}

/* A child whose parent is in another PID namespace sees 0 as its parent's id; its own id then means
 * nothing to other processes. */
static void fork_child(void) {
  if (!lm_quota_mapped) return;
  self.owner = lm_board_owner_now(getpid());
  if (!getppid()) self.pid_namespace = 0;
  lm_quota_fork_child(&self);
}

void lm_quota_file_describe(uint64_t pid_namespace, uint64_t exe_device, uint64_t exe_inode) {
  if (is_described) return;
  self.pid_namespace = pid_namespace;
  self.exe_device = exe_device;
  self.exe_inode = exe_inode;
  is_described = true;
  if (self.owner) lm_quota_describe(&self);
}

static void describe(void) {
  struct stat program;
  if (is_described) return;
  if (stat("/proc/self/exe", &program)) program = (struct stat){ 0 };
  lm_quota_file_describe(lm_board_own_namespace(), program.st_dev, program.st_ino);
}

/* Gives this process the table. The namespace is needed here if a holder has the id of this
 * process. */
static void attach(lm_quota_table *table) {
  static const lm_thread_hooks hooks = { .fork_child = fork_child };
  static bool is_registered;
  if (lm_quota_has_pid(table, getpid())) describe();
  self.owner = lm_board_owner_now(getpid());
  lm_quota_attach(table, &self);
  if (!is_registered) lm_thread_add_hooks(&hooks);
  is_registered = true;
}

/* Makes the file if it is missing and this process may make files. Then maps the table, and gives
 * it to this process. */
static loam_status open_in(const char *folder, const char *boot_id) {
  char path[ROOM];
  lm_quota_table *table = NULL;
  loam_status status = path_in(folder, path, sizeof path);
  if (status != LOAM_OK) return status;
  int error = map(path, boot_id, &table);
  if (error && may_make) {
    status = lm_quota_file_make(folder);
    if (status != LOAM_OK) return status;
    error = map(path, NULL, &table);
  }
  if (error) return fail(path, error);
  attach(table);
  return LOAM_OK;
}

static void open_or_note(const char *folder, const char *boot_id) {
  int before = errno;
  why[0] = 0;
  if (open_in(folder, boot_id) != LOAM_OK) snprintf(why, sizeof why, "%s", loam_error());
  errno = before;
}

/* Finds out in which folder this process looks for the file, or notes why there is none. */
static void find_folder(const char *folder) {
  int before = errno;
  why[0] = own_folder[0] = 0;
  if (!may_make)
    snprintf(why, sizeof why, "LOAM_CONTROL=0 allows no file in which processes could share it");
  else if (lm_control_dir(folder, own_folder, sizeof own_folder) != LOAM_OK) {
    own_folder[0] = 0;
    snprintf(why, sizeof why, "%s", loam_error());
  }
  errno = before;
}

void lm_quota_file_start(const char *folder, bool is_allowed) {
  lm_policy_begin();
  may_make = is_allowed;
  has_started = true;
  find_folder(folder);
  lm_policy_end();
}

void lm_quota_file_follow(const char *path, const char *boot_id) {
  char folder[ROOM];
  const char *end = strrchr(path, '/');
  if (!end || end == path || lm_quota_mapped) return;
  size_t length = (size_t)(end - path);
  if (length >= sizeof folder) return;
  memcpy(folder, path, length);
  folder[length] = 0;
  open_or_note(folder, boot_id);
}

/* ---- Policies ----------------------------------------------------------------------------- */

static void open_for_policy(void) {
  if (lm_quota_mapped || lm_board_halves()) return;
  if (!has_started) find_folder(NULL);
  if (own_folder[0]) open_or_note(own_folder, NULL);
}

void lm_quota_file_bind(void) {
  if (!lm_strategy_lacks_quota()) return;
  open_for_policy();
  describe();
  if (!lm_strategy_bind_quotas() || !lm_quota_mapped) return;
  snprintf(why, sizeof why,
           "the table of shared limits is full: it has room for %d limits and %d processes",
           LM_QUOTAS, LM_QUOTA_HOLDERS);
}

void lm_quota_file_tell(void) {
  static _Atomic uint64_t told;
  char words[sizeof why];
  if (!lm_strategy_lacks_quota() || !lm_policy_try_begin()) return;
  bool is_first = lm_site_generation_first(&told);
  snprintf(words, sizeof words, "%s", why[0] ? why : "there is no table of shared limits");
  lm_policy_end();
  if (!is_first) return;
  lm_error_event(LOAM_EVENT_ENVIRONMENT, atomic_load(&lm_site_generation), NULL,
                 "a shared limit counts this process alone: %s", words);
}

/* ---- The dead ----------------------------------------------------------------------------- */

static bool is_gone(const lm_quota_holder *h, uint64_t owner) {
  lm_board_figures program = { .exe_device = atomic_load(&h->exe_device),
                               .exe_inode = atomic_load(&h->exe_inode) };
  return lm_board_look(owner, atomic_load(&h->pid_namespace), &program).state == LM_BOARD_GONE;
}

void lm_quota_file_bury(lm_quota_table *table) {
  uint32_t taken = atomic_load(&table->head.taken);
  for (uint32_t i = 0; i < taken && i < LM_QUOTA_HOLDERS; i++) {
    uint64_t owner = atomic_load(&table->holder[i].owner);
    if (lm_quota_counts(owner) && is_gone(&table->holder[i], owner)) lm_quota_bury(table, i, owner);
  }
}

void lm_quota_file_look(lm_quota_table *table, uint32_t *refusals) {
  uint32_t now = atomic_load(&table->head.refusals);
  if (now == *refusals) return;
  *refusals = now;
  lm_quota_file_bury(table);
}

/* Runs when the process ends by exit or by the return of main. */
__attribute__((destructor)) static void end(void) { lm_quota_end(); }

/* policy_file.c - reads the file of a policy: whole, at rest, within bounds, and safe from other
 * users.
 *
 * A policy decides what memory a process gets, so a user who can change a policy file can harm the
 * process that follows it. Such a file must therefore belong to the effective user or to root, and
 * no other user may be able to write it. Owner and mode are read from the descriptor that the text
 * is read from: no other file can come between the check and the text. The folder of the file has
 * to pass the same check, because a user who can write a folder can replace the files in it. Where
 * the path is a symbolic link, each link up to the file is checked with its folder. Folders further
 * up are not checked: a user who can write one of those can only choose among files that root or
 * the effective user has written. */
#include "script/policy_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "heap/pool.h"
#include "os/descriptor.h"
#include "os/error.h"
#include "os/hash.h"
#include "plan/policy_image.h"

#define SOURCE_MAX LM_MIB
enum { TRIES = 5, PAUSE_MS = 20 };

uint64_t lm_policy_file_hash(const char *text, size_t length) {
  return lm_hash_bytes(text, length);
}

const char *lm_policy_file_absolute(const char *path, char *buffer, size_t size) {
  if (*path == '/' || !getcwd(buffer, size)) return path;
  size_t n = strlen(buffer);
  if (n + 1 + strlen(path) >= size) return path;
  snprintf(buffer + n, size - n, "/%s", path);
  return buffer;
}

/* LOAM_EIO with the words of errno. */
static loam_status fail_errno(const char *path) {
  return lm_error(LOAM_EIO, "%s: %s", path, strerrordesc_np(errno));
}

/* Returns the most bytes that a file may have: an image is larger than the text that it holds. */
static size_t max_size(int fd) {
  char start[sizeof(lm_policy_image_frame)];
  ssize_t n = pread(fd, start, sizeof start, 0);
  return n > 0 && lm_policy_image_is(start, (size_t)n) ? LM_POLICY_IMAGE_MAX : SOURCE_MAX;
}

/* Refuses a file that is not a regular file, or that has too many bytes. */
static loam_status check_kind(const char *path, int fd, const struct stat *st) {
  if (S_ISDIR(st->st_mode))
    return lm_error(LOAM_EIO, "%s: is a directory, not a policy file", path);
  if (!S_ISREG(st->st_mode)) return lm_error(LOAM_EIO, "%s: is not a regular file", path);
  if ((size_t)st->st_size > max_size(fd))
    return lm_error(LOAM_EIO, "%s: has %lld bytes, a policy has at most %zu", path,
                    (long long)st->st_size, max_size(fd));
  return LOAM_OK;
}

/* ---- who can change it ---- */

#define ACL "system.posix_acl_access"

/* Tells whether the effective user is presumably the only member of the group of a file or folder.
 * Many systems give each user a group of the user's number and a umask of 002, so that all files of
 * that user are writable by that group. Root is left out, because group 0 may have other members. A
 * file with an access control list is left out, too (`acl_size` is the size of the list): its group
 * bits stand for all users and groups of the list. */
static bool has_private_group(const struct stat *st, ssize_t acl_size) {
  uid_t user = geteuid();
  return user != 0 && st->st_uid == user && st->st_gid == user && getegid() == st->st_gid &&
         acl_size <= 0;
}

static bool others_can_write(const struct stat *st, ssize_t acl_size) {
  bool group = st->st_mode & S_IWGRP && !has_private_group(st, acl_size);
  return group || st->st_mode & S_IWOTH;
}

/* Tells whether the effective user or root owns a file, folder or link. */
static bool is_owner_trusted(const struct stat *st) {
  return st->st_uid == geteuid() || st->st_uid == 0;
}

static loam_status fail_owner(const char *path, const char *what, const struct stat *st) {
  return lm_error(
      LOAM_EIO,
      "%s: this %s belongs to user %u (mode %04o), who could change the policy; it must "
      "belong to root or to user %u, who runs this process: chown %s%u %s",
      path, what, (unsigned)st->st_uid, (unsigned)st->st_mode & 07777, (unsigned)geteuid(),
      S_ISLNK(st->st_mode) ? "-h " : "", (unsigned)geteuid(), path);
}

static loam_status fail_mode(const char *path, const char *what, const struct stat *st) {
  return lm_error(LOAM_EIO,
                  "%s: this %s of user %u has mode %04o: others can write it, and so change the "
                  "policy: chmod go-w %s",
                  path, what, (unsigned)st->st_uid, (unsigned)st->st_mode & 07777, path);
}

/* Refuses a file that other users can change. `fd` is the file's. */
static loam_status check_file(const char *path, int fd, const struct stat *st) {
  if (!is_owner_trusted(st)) return fail_owner(path, "policy file", st);
  if (others_can_write(st, fgetxattr(fd, ACL, NULL, 0))) return fail_mode(path, "policy file", st);
  return LOAM_OK;
}

/* Through a read-only mount no user can write a folder, whatever its mode is. Kubernetes mounts a
 * ConfigMap read-only and gives its folder mode 0777. */
static bool is_read_only(const char *folder) {
  struct statvfs fs;
  return !statvfs(folder, &fs) && fs.f_flag & ST_RDONLY;
}

/* In a folder with the sticky bit, such as /tmp, only the owner of a file, the owner of the folder
 * and root can rename or remove the file. */
static loam_status check_folder(const char *folder) {
  struct stat st;
  if (stat(folder, &st)) return fail_errno(folder);
  if (!is_owner_trusted(&st)) return fail_owner(folder, "folder of a policy file", &st);
  if (st.st_mode & S_ISVTX || is_read_only(folder)) return LOAM_OK;
  if (others_can_write(&st, getxattr(folder, ACL, NULL, 0)))
    return fail_mode(folder, "folder of a policy file", &st);
  return LOAM_OK;
}

/* Checks the folder that contains the last name of the path. Changes the path and restores it. */
static loam_status check_folder_of(char *path) {
  lm_assert(*path);
  char *slash = strrchr(path, '/');
  if (!slash) return check_folder(".");
  if (slash == path) return check_folder("/");
  *slash = 0;
  loam_status status = check_folder(path);
  *slash = '/';
  return status;
}

/* Replaces the path of a symbolic link by the path that the link names. False, with errno: the link
 * cannot be read, or the new path is too long. */
static bool follow_link(char path[PATH_MAX]) {
  char target[PATH_MAX];
  ssize_t n = readlink(path, target, sizeof target - 1);
  const char *slash = strrchr(path, '/');
  if (n < 0) return false;
  target[n] = 0;
  lm_assert(n < PATH_MAX);
  size_t at = slash && *target != '/' ? (size_t)(slash + 1 - path) : 0;
  errno = ENAMETOOLONG;
  if (at + (size_t)n >= PATH_MAX) return false;
  memcpy(path + at, target, (size_t)n + 1);
  return true;
}

/* Checks each folder and each symbolic link on the way from the path to the file. A link has an
 * owner of its own: in /tmp a stranger may have put it there. */
static loam_status check_way(const char *given) {
  enum { LINKS = 40 }; /* the kernel follows no more */
  char path[PATH_MAX];
  struct stat st;
  if (lm_policy_file_absolute(given, path, sizeof path) == given) strcpy(path, given);
  for (int i = 0; i <= LINKS; i++) {
    loam_status status = check_folder_of(path);
    if (status != LOAM_OK) return status;
    if (lstat(path, &st)) return fail_errno(path);
    if (!S_ISLNK(st.st_mode)) return LOAM_OK;
    if (!is_owner_trusted(&st)) return fail_owner(path, "link to a policy file", &st);
    if (!follow_link(path)) return fail_errno(path);
  }
  errno = ELOOP;
  return fail_errno(given);
}

/* Tells whether a file that is read for this purpose must be safe from other users. */
static bool must_be_safe(lm_reading reading) {
  return reading == LM_READ_TO_FOLLOW || (reading == LM_READ_TO_LOAD && geteuid() == 0);
}

/* ---- its text ---- */

/* Reads up to `size` bytes, to the end of the file. Returns how many; -1 with errno. */
static ssize_t read_whole(int fd, char *text, size_t size) {
  size_t length = 0;
  while (length < size) {
    ssize_t n = read(fd, text + length, size - length);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return -1;
    if (n == 0) break;
    length += (size_t)n;
  }
  return (ssize_t)length;
}

/* Tells whether a file has the size and the times that it had. */
static bool is_same(const struct stat *a, const struct stat *b) {
  return a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
         a->st_mtim.tv_nsec == b->st_mtim.tv_nsec && a->st_ctim.tv_sec == b->st_ctim.tv_sec &&
         a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

/* One attempt to read a policy file. */
typedef struct attempt {
  const char *path;
  bool is_checked; /* refuse a file that other users can change */
  char *text;      /* the result; NULL: the file changed during the read */
  size_t length;
} attempt;

/* Reads the open file `fd`. LOAM_OK with a->text NULL: the file changed during the read. */
static loam_status read_open(attempt *a, int fd) {
  struct stat before, after;
  lm_assert(fd >= 0 && !a->text);
  if (fstat(fd, &before)) return fail_errno(a->path);
  loam_status status = check_kind(a->path, fd, &before);
  if (status == LOAM_OK && a->is_checked) status = check_file(a->path, fd, &before);
  if (status == LOAM_OK && a->is_checked) status = check_way(a->path);
  if (status != LOAM_OK) return status;
  size_t room = (size_t)before.st_size + 1; /* one byte more shows that the file grew */
  char *buffer = lm_metadata_alloc(room + 1);
  if (!buffer) return lm_error(LOAM_ENOMEM, "%s: no memory to read it", a->path);
  ssize_t n = read_whole(fd, buffer, room);
  if (n < 0 || fstat(fd, &after)) {
    status = fail_errno(a->path);
  } else if (n == before.st_size && is_same(&before, &after)) {
    buffer[n] = 0;
    a->text = buffer;
    a->length = (size_t)n;
    return LOAM_OK;
  }
  lm_metadata_free(buffer);
  return status;
}

loam_status lm_policy_file_read(const char *path, lm_reading reading, char **text, size_t *length) {
  attempt a = { .path = path, .is_checked = must_be_safe(reading) };
  size_t n = strlen(path);
  if (!n) return lm_error(LOAM_EIO, "the path of the policy is empty");
  if (n >= PATH_MAX) /* else the message would hold the path alone, and no reason */
    return lm_error(LOAM_EIO, "%.40s...: a path of %zu bytes, at most %d are possible", path, n,
                    PATH_MAX - 1);
  for (int i = 0; i < TRIES; i++) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); /* a FIFO must not block */
    lm_descriptor file = lm_descriptor_keep(fd);
    if (file.fd < 0) return fail_errno(path);
    loam_status status = read_open(&a, file.fd);
    lm_descriptor_close(&file);
    if (status != LOAM_OK) return status;
    if (a.text) {
      *text = a.text;
      *length = a.length;
      return status;
    }
    nanosleep(&(struct timespec){ .tv_nsec = PAUSE_MS * 1000000 }, NULL);
  }
  return lm_error(LOAM_EIO, "%s: kept changing while it was read", path);
}

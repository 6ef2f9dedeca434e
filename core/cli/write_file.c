/* write_file.c - writes a whole file: under a temporary name, which is then renamed. */
#include "cli/write_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "os/error.h"
#include "os/sys.h"

/* LOAM_EIO with the words of errno. */
static loam_status fail_errno(const char *path) {
  return lm_error(LOAM_EIO, "%s: %s", path, strerrordesc_np(errno));
}

bool lm_write_all(int fd, const void *bytes, size_t size) {
  for (const char *at = bytes; size;) {
    ssize_t n = write(fd, at, size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    at += n;
    size -= (size_t)n;
  }
  return true;
}

loam_status lm_write_output(const char *bytes, size_t size) {
  return lm_write_all(STDOUT_FILENO, bytes, size) ? LOAM_OK : fail_errno("standard output");
}

/* Writes the bytes to a pipe or a device. */
static loam_status write_into(const char *path, const char *bytes, size_t size) {
  int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return fail_errno(path);
  int error = lm_write_all(fd, bytes, size) ? 0 : errno;
  if (close(fd) && !error) error = errno;
  errno = error;
  return error ? fail_errno(path) : LOAM_OK;
}

/* Gives a new file the group, the access rights and the owner of the old one, as far as the process
 * may set them. If the group stays another one, it gets no rights. Some filesystems have none of
 * these. */
static void keep_rights(int fd, const struct stat *old) {
  bool has_group = !fchown(fd, (uid_t)-1, old->st_gid);
  (void)fchmod(fd, old->st_mode & (has_group ? 0777 : 0707));
  (void)!fchown(fd, old->st_uid, (gid_t)-1);
}

/* Opens the folder of a file, and sets *base to the file's name in it. Returns a descriptor; -1
 * with errno. */
static int open_folder(const char *file, const char **base) {
  char folder[PATH_MAX] = ".";
  const char *slash = strrchr(file, '/');
  *base = slash ? slash + 1 : file;
  size_t length = (size_t)(*base - file);
  if (length >= sizeof folder) {
    errno = ENAMETOOLONG;
    return -1;
  }
  if (length) snprintf(folder, sizeof folder, "%.*s", (int)length, file);
  return open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

/* Makes a temporary file for the file `base`, and writes its name to `name`. The name has the time
 * too: in containers, commands may have one process id. Returns a descriptor; -1 with errno. */
static int open_temporary(int folder, const char *base, mode_t mode, char name[NAME_MAX + 1]) {
  int length = snprintf(name, NAME_MAX + 1, "%s.%d-%lld.tmp", base, (int)getpid(),
                        (long long)lm_sys_clock_ns());
  if (length <= NAME_MAX)
    return openat(folder, name, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, mode);
  errno = ENAMETOOLONG;
  return -1;
}

/* Writes a temporary file and waits until the disk has it, then gives it the name `base`. Each step
 * is in the open folder, so another user who swaps links or folders makes no file get the rights of
 * another one. Returns false with errno. */
static bool replace_in(int folder, const char *base, const char *bytes, size_t size) {
  struct stat old;
  char name[NAME_MAX + 1];
  bool is_old = !fstatat(folder, base, &old, AT_SYMLINK_NOFOLLOW) && S_ISREG(old.st_mode);
  int fd = open_temporary(folder, base, is_old ? 0600 : 0666, name);
  if (fd < 0) return false;
  bool is_written = lm_write_all(fd, bytes, size);
  if (is_old) keep_rights(fd, &old);
  is_written = is_written && !fsync(fd);
  is_written = !close(fd) && is_written && !renameat(folder, name, folder, base);
  int error = errno;
  if (!is_written) unlinkat(folder, name, 0);
  errno = error;
  return is_written;
}

/* `path` is the name that the user gave for `file`. */
static loam_status replace(const char *path, const char *file, const char *bytes, size_t size) {
  const char *base;
  int folder = open_folder(file, &base);
  if (folder < 0) return fail_errno(path);
  loam_status status = replace_in(folder, base, bytes, size) ? LOAM_OK : fail_errno(path);
  close(folder);
  return status;
}

loam_status lm_write_file(const char *path, const char *bytes, size_t size) {
  struct stat st;
  char real[PATH_MAX];
  lm_assert(path && (bytes || !size));
  if (stat(path, &st)) return replace(path, path, bytes, size);
  if (!S_ISREG(st.st_mode)) return write_into(path, bytes, size);
  return replace(path, realpath(path, real) ? real : path, bytes, size);
}

/* Makes a temporary file beside `file`, as replace does, and removes it. */
static loam_status try_beside(const char *path, const char *file) {
  const char *base;
  char name[NAME_MAX + 1];
  int folder = open_folder(file, &base);
  if (folder < 0) return fail_errno(path);
  int fd = open_temporary(folder, base, 0600, name);
  loam_status status = fd < 0 ? fail_errno(path) : LOAM_OK;
  if (fd >= 0) {
    close(fd);
    unlinkat(folder, name, 0);
  }
  close(folder);
  return status;
}

loam_status lm_write_file_try(const char *path) {
  struct stat st;
  char real[PATH_MAX];
  lm_assert(path);
  if (stat(path, &st)) return try_beside(path, path);
  if (S_ISREG(st.st_mode)) return try_beside(path, realpath(path, real) ? real : path);
  errno = EISDIR;
  return S_ISDIR(st.st_mode) || access(path, W_OK) ? fail_errno(path) : LOAM_OK;
}

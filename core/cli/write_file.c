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

/* Writes all bytes. Returns false with errno. */
static bool write_whole(int fd, const char *bytes, size_t size) {
  while (size > 0) {
    ssize_t n = write(fd, bytes, size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    bytes += n;
    size -= (size_t)n;
  }
  return true;
}

loam_status lm_write_output(const char *bytes, size_t size) {
  return write_whole(STDOUT_FILENO, bytes, size) ? LOAM_OK : fail_errno("standard output");
}

/* Writes the bytes to a pipe or a device. */
static loam_status write_into(const char *path, const char *bytes, size_t size) {
  int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return fail_errno(path);
  int error = write_whole(fd, bytes, size) ? 0 : errno;
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
  if (fchown(fd, old->st_uid, (gid_t)-1)) return;
}

/* Writes a temporary file and waits until the disk has it, then gives it the name `file`. `path` is
 * the name that the user gave. `old` is the file that is replaced; NULL: there is none. The name of
 * the temporary file has the time too: in containers, commands may have one process id. */
static loam_status replace(const char *path, const char *file, const struct stat *old,
                           const char *bytes, size_t size) {
  char name[PATH_MAX];
  int length = snprintf(name, sizeof name, "%s.%d-%lld.tmp", file, (int)getpid(),
                        (long long)lm_sys_clock_ns());
  if (length >= (int)sizeof name) errno = ENAMETOOLONG;
  int fd = length < (int)sizeof name
               ? open(name, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, old ? 0600 : 0666)
               : -1;
  if (fd < 0) return fail_errno(path);
  bool is_written = write_whole(fd, bytes, size);
  if (old) keep_rights(fd, old);
  is_written = is_written && !fsync(fd);
  is_written = !close(fd) && is_written && !rename(name, file);
  loam_status status = is_written ? LOAM_OK : fail_errno(path);
  if (!is_written) unlink(name);
  return status;
}

loam_status lm_write_file(const char *path, const char *bytes, size_t size) {
  struct stat st;
  char real[PATH_MAX];
  lm_assert(path && (bytes || !size));
  if (stat(path, &st)) return replace(path, path, NULL, bytes, size);
  if (!S_ISREG(st.st_mode)) return write_into(path, bytes, size);
  return replace(path, realpath(path, real) ? real : path, &st, bytes, size);
}

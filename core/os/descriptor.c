/* descriptor.c - file descriptors of loam in the host's table. */
#define _GNU_SOURCE 1
#include "os/descriptor.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "os/sys.h"

/* The lowest number for loam's descriptors. It is below 1024, which select(2) and most limits need,
 * and not higher than that, because the table of a process is as long as its highest number and
 * fork copies it. */
enum { FIRST_NUMBER = 960 };

/* Returns FIRST_NUMBER, or three quarters of a limit that is too low for it. */
static int first_number(void) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur > FIRST_NUMBER + 64) return FIRST_NUMBER;
  return (int)(limit.rlim_cur - limit.rlim_cur / 4);
}

static lm_descriptor lost(void) {
  errno = EBADF;
  return LM_DESCRIPTOR_NONE;
}

/* Returns whether the file has no inode of its own: its mode then names no type of file. */
static bool is_anonymous(const struct stat *st) { return !(st->st_mode & S_IFMT); }

/* Marks a file of loam that has no inode of its own, and keeps errno. Returns the mark; 0: the file
 * cannot be marked. */
static int mark(int fd) {
  int before = errno;
  fcntl(fd, F_SETSIG, SIGRTMAX);
  int signal_of = fcntl(fd, F_GETSIG);
  errno = before;
  return signal_of > 0 ? signal_of : 0;
}

lm_descriptor lm_descriptor_keep_here(int fd) {
  struct stat st;
  if (fd < 0) return LM_DESCRIPTOR_NONE;
  if (fstat(fd, &st)) return lost();
  return (lm_descriptor){ fd, st.st_dev, st.st_ino, is_anonymous(&st) ? mark(fd) : 0 };
}

/* Another thread of the host may replace the low number at any moment: before the copy, then the
 * copy is not loam's and is closed; or after it, then the low number is left alone. */
static lm_descriptor move_up(int fd) {
  int before = errno;
  lm_descriptor low = lm_descriptor_keep_here(fd), high = low;
  if (low.fd < 0) return low;
  high.fd = fcntl(fd, F_DUPFD_CLOEXEC, first_number());
  errno = before;
  if (high.fd < 0) return low;
  if (lm_descriptor_is_ours(&low)) close(fd);
  if (lm_descriptor_is_ours(&high)) return high;
  close(high.fd);
  return lost();
}

lm_descriptor lm_descriptor_keep(int fd) {
  if (fd < 0) return LM_DESCRIPTOR_NONE;
  lm_sys_cancel_off();
  lm_descriptor kept = move_up(fd);
  lm_sys_cancel_restore();
  lm_assert(lm_descriptor_is_valid(&kept));
  return kept;
}

bool lm_descriptor_is_ours(const lm_descriptor *descriptor) {
  lm_assert(descriptor && lm_descriptor_is_valid(descriptor));
  struct stat st;
  int before = errno;
  bool is_same = descriptor->fd >= 0 && !fstat(descriptor->fd, &st) &&
                 st.st_dev == descriptor->device && st.st_ino == descriptor->inode;
  if (is_same && descriptor->mark) is_same = fcntl(descriptor->fd, F_GETSIG) == descriptor->mark;
  errno = before;
  return is_same;
}

void lm_descriptor_close(lm_descriptor *descriptor) {
  lm_assert(descriptor && lm_descriptor_is_valid(descriptor));
  lm_sys_cancel_off();
  if (lm_descriptor_is_ours(descriptor)) close(descriptor->fd);
  lm_sys_cancel_restore();
  *descriptor = LM_DESCRIPTOR_NONE;
}

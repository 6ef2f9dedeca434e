/* descriptor.c - a descriptor of ours in the host's table. */
#define _GNU_SOURCE 1
#include "os/descriptor.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "os/sys.h"

/* Below what select(2) can hold and most limits allow; the table of a process is as long as its
 * highest number, and is copied by fork. */
enum { PLACE_FROM = 960 };

static int high_place(void) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur > PLACE_FROM + 64) return PLACE_FROM;
  return (int)(limit.rlim_cur - limit.rlim_cur / 4);
}

static lm_descriptor lost(void) {
  errno = EBADF;
  return LM_DESCRIPTOR_NONE;
}

lm_descriptor lm_descriptor_keep_here(int fd) {
  struct stat st;
  if (fd < 0) return LM_DESCRIPTOR_NONE;
  return fstat(fd, &st) ? lost() : (lm_descriptor){ fd, st.st_dev, st.st_ino };
}

/* Another thread of the host's may at any moment put its own at the low number: then that is its
 * own, and a copy of it is none of ours. */
static lm_descriptor keep(int fd) {
  int before = errno;
  lm_descriptor low = lm_descriptor_keep_here(fd), high = low;
  if (low.fd < 0) return low;
  high.fd = fcntl(fd, F_DUPFD_CLOEXEC, high_place());
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
  lm_descriptor kept = keep(fd);
  lm_sys_cancel_restore();
  return kept;
}

bool lm_descriptor_is_ours(const lm_descriptor *descriptor) {
  struct stat st;
  return descriptor->fd >= 0 && !fstat(descriptor->fd, &st) && st.st_dev == descriptor->device &&
         st.st_ino == descriptor->inode;
}

void lm_descriptor_close(lm_descriptor *descriptor) {
  lm_sys_cancel_off();
  if (lm_descriptor_is_ours(descriptor)) close(descriptor->fd);
  lm_sys_cancel_restore();
  *descriptor = LM_DESCRIPTOR_NONE;
}

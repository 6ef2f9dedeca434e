/* sys_file.c - files as memory, for Linux. */
#define _GNU_SOURCE 1
#include "os/sys_file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "os/outcome.h"
#include "os/poison.h"
#include "os/sys.h"

/* Returns the result of an open: sets *out to `fd`, or returns the errno value if `fd` is -1. */
static int opened(int fd, int before, int *out) {
  if (fd < 0) return outcome(fd, before);
  *out = fd;
  return 0;
}

int lm_sys_file_memfd(int *out) {
  if (is_refused()) return ENOMEM;
  int before = errno, fd = memfd_create("loam", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd >= 0) (void)fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK);
  return opened(fd, before, out);
}

/* Opens a file and removes its name: for filesystems that cannot make a file without a name. */
static int open_briefly(const char *dir) {
  char path[4096];
  int n = snprintf(path, sizeof path, "%s/.loam-XXXXXX", dir);
  if (n < 0 || (size_t)n >= sizeof path) {
    errno = ENAMETOOLONG;
    return -1;
  }
  int fd = mkostemp(path, O_CLOEXEC);
  if (fd >= 0) unlink(path);
  return fd;
}

void lm_sys_file_keep_in_place(int fd) {
  int flags, before = errno;
  if (!ioctl(fd, FS_IOC_GETFLAGS, &flags)) {
    flags |= FS_NOCOW_FL;
    (void)ioctl(fd, FS_IOC_SETFLAGS, &flags);
  }
  errno = before;
}

int lm_sys_file_unnamed(const char *dir, int *out) {
  if (is_refused()) return ENOSPC;
  lm_sys_cancel_off();
  int before = errno, fd = open(dir, O_TMPFILE | O_RDWR | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR)) fd = open_briefly(dir);
  if (fd >= 0) lm_sys_file_keep_in_place(fd);
  int error = opened(fd, before, out);
  errno = before;
  lm_sys_cancel_restore();
  return error;
}

/* Returns whether the process may not make a file so long. loam tests this first, because the
 * kernel would send SIGXFSZ, which ends the process. */
static bool is_too_long(uint64_t length) {
  struct rlimit limit;
  if (length > INT64_MAX) return true;
  return !getrlimit(RLIMIT_FSIZE, &limit) && limit.rlim_cur != RLIM_INFINITY &&
         length > limit.rlim_cur;
}

int lm_sys_file_resize(int fd, uint64_t length) {
  if (is_refused()) return ENOSPC;
  if (is_too_long(length)) return EFBIG;
  int before = errno;
  return outcome(ftruncate(fd, (off_t)length), before);
}

/* Allocates in steps: a signal that interrupts a call undoes what that call has done so far. */
int lm_sys_file_allocate(int fd, uint64_t offset, uint64_t size) {
  const uint64_t step = 16 * LM_MIB;
  lm_assert(fd >= 0 && offset % LM_PAGE == 0);
  if (is_refused()) return ENOSPC;
  if (is_too_long(offset + size)) return EFBIG;
  int before = errno, error = 0;
  lm_sys_cancel_off();
  for (uint64_t done = 0; done < size && !error;) {
    uint64_t some = size - done < step ? size - done : step;
    error = outcome(fallocate(fd, 0, (off_t)(offset + done), (off_t)some), before);
    if (!error) done += some;
    else if (error == EINTR) error = 0;
  }
  lm_sys_cancel_restore();
  return error;
}

int lm_sys_file_deallocate(int fd, uint64_t offset, uint64_t size) {
  if (is_refused()) return EOPNOTSUPP;
  int before = errno;
  lm_assert(fd >= 0 && offset % LM_PAGE == 0);
  return outcome(
      fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)size),
      before);
}

/* A range of a file that is open. */
typedef struct part {
  int fd;
  uint64_t offset;
  size_t size;
} part;

static int map(const part *of, void *at, int access, int flags, void **out) {
  int before = errno;
  lm_assert(of->fd >= 0 && of->size && of->offset % LM_PAGE == 0);
  void *p = mmap(at, of->size, access, flags, of->fd, (off_t)of->offset);
  if (p == MAP_FAILED) return outcome(-1, before);
  *out = p;
  return 0;
}

int lm_sys_file_map(int fd, uint64_t offset, void *at, size_t size, bool private) {
  if (is_refused()) return ENOMEM;
  void *same;
  int kind = private ? MAP_PRIVATE | MAP_NORESERVE : MAP_SHARED;
  part of = { fd, offset, size };
  lm_assert(at && (uintptr_t)at % LM_PAGE == 0);
  return map(&of, at, PROT_READ | PROT_WRITE, kind | MAP_FIXED, &same);
}

int lm_sys_file_copy(void *at, size_t size) {
  enum { PIECE = 4 << 20, KIND = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED };
  void *copy;
  size_t most = size < PIECE ? size : PIECE;
  lm_assert((uintptr_t)at % LM_PAGE == 0 && size % LM_PAGE == 0);
  int before = errno, error = lm_sys_map(most, &copy);
  if (error) return error;
  lm_unpoison(at, size);
  for (size_t done = 0, piece; !error && done < size; done += piece) {
    char *to = (char *)at + done;
    piece = size - done < most ? size - done : most;
    memcpy(copy, to, piece);
    bool is_mapped = mmap(to, piece, PROT_READ | PROT_WRITE, KIND, -1, 0) != MAP_FAILED;
    error = outcome(is_mapped ? 0 : -1, before);
    if (is_mapped) memcpy(to, copy, piece);
  }
  lm_sys_unmap(copy, most);
  return error;
}

/* With an old size of 0, mremap(2) maps a shared page once more, and refuses a private one. */
bool lm_sys_file_is_shared(void *page) {
  int before = errno;
  void *same = mremap(page, 0, LM_PAGE, MREMAP_MAYMOVE);
  errno = before;
  if (same != MAP_FAILED) lm_sys_unmap(same, LM_PAGE);
  return same != MAP_FAILED;
}

int lm_sys_file_attach(int fd, uint64_t offset, size_t size, bool writable, void **out) {
  if (is_refused()) return ENOMEM;
  int access = writable ? PROT_READ | PROT_WRITE : PROT_READ;
  part of = { fd, offset, size };
  return map(&of, NULL, access, MAP_SHARED, out);
}

int lm_sys_file_cover(int fd, uint64_t offset, void *at, size_t size) {
  if (is_refused()) return ENOMEM;
  void *same;
  part of = { fd, offset, size };
  lm_assert(at && (uintptr_t)at % LM_PAGE == 0);
  int error = map(&of, at, PROT_READ, MAP_SHARED | MAP_FIXED, &same);
  if (!error) (void)lm_sys_file_scattered(at, size); /* without it, a touch is only slower */
  return error;
}

int lm_sys_file_uncover(void *at, size_t size) {
  if (is_refused()) return ENOMEM;
  int before = errno;
  int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
  void *p = mmap(at, size, PROT_READ | PROT_WRITE, flags, -1, 0);
  return p == MAP_FAILED ? outcome(-1, before) : 0;
}

int lm_sys_file_scattered(void *at, size_t size) {
  if (is_refused()) return ENOMEM;
  int before = errno;
  return outcome(madvise(at, size, MADV_RANDOM), before);
}

int lm_sys_file_punch(void *at, size_t size) {
  if (is_refused()) return ENOMEM;
  int before = errno;
  lm_assert((uintptr_t)at % LM_PAGE == 0);
  return outcome(madvise(at, size, MADV_REMOVE), before);
}

int lm_sys_file_append(const char *path, const void *bytes, size_t size) {
  enum { FLAGS = O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY | O_NONBLOCK };
  int before = errno, error = 0;
  struct stat now;
  if (is_refused()) return EIO;
  lm_sys_cancel_off();
  int fd = open(path, FLAGS, 0600);
  bool is_open = fd >= 0 && !fstat(fd, &now);
  bool fits = is_open && !is_too_long((uint64_t)now.st_size + size);
  ssize_t written = fits ? write(fd, bytes, size) : -1;
  if (is_open && !fits) error = EFBIG;
  else if (written < 0) error = errno;
  else if ((size_t)written != size) error = EIO;
  if (fd >= 0) close(fd);
  lm_sys_cancel_restore();
  errno = before;
  return error;
}

/* Moves all bytes between memory and a file, by pwrite(2) or pread(2). */
static int move_bytes(const part *of, char *bytes, bool writes) {
  int before = errno, error = 0;
  lm_assert(of->fd >= 0);
  lm_sys_cancel_off();
  for (size_t done = 0; done < of->size && !error;) {
    off_t from = (off_t)(of->offset + done);
    ssize_t n = writes ? pwrite(of->fd, bytes + done, of->size - done, from)
                       : pread(of->fd, bytes + done, of->size - done, from);
    if (n > 0) done += (size_t)n;
    else if (n == 0) error = EIO;
    else if (errno != EINTR) error = errno;
  }
  lm_sys_cancel_restore();
  errno = before;
  return error;
}

int lm_sys_file_write(int fd, uint64_t offset, const void *bytes, size_t size) {
  if (is_refused()) return ENOSPC;
  if (is_too_long(offset + size)) return EFBIG;
  return move_bytes(&(part){ fd, offset, size }, (char *)(uintptr_t)bytes, true);
}

int lm_sys_file_read(int fd, uint64_t offset, void *bytes, size_t size) {
  if (is_refused()) return EIO;
  return move_bytes(&(part){ fd, offset, size }, bytes, false);
}

void lm_sys_file_close(int fd) {
  int before = errno;
  lm_sys_cancel_off();
  lm_assert(fd >= 0);
  close(fd);
  lm_sys_cancel_restore();
  errno = before;
}

int lm_sys_file_reopen(int fd, int *out) {
  char path[32];
  if (is_refused()) return EMFILE;
  int before = errno;
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  lm_sys_cancel_off();
  int error = opened(open(path, O_RDWR | O_CLOEXEC), before, out);
  lm_sys_cancel_restore();
  return error;
}

/* The lock belongs to the open file description (F_OFD_SETLK), not to the process: it ends with the
 * last copy of the descriptor, also if that copy is in a forked child. */
int lm_sys_file_lock(int fd, uint64_t offset, uint64_t size) {
  if (is_refused()) return ENOMEM;
  int before = errno;
  struct flock lock = { .l_type = F_RDLCK, .l_start = (off_t)offset, .l_len = (off_t)size };
  return outcome(fcntl(fd, F_OFD_SETLK, &lock), before);
}

int lm_sys_file_is_locked(int fd, uint64_t offset, uint64_t size, bool *out) {
  if (is_refused()) return ENOMEM;
  int before = errno;
  struct flock lock = { .l_type = F_WRLCK, .l_start = (off_t)offset, .l_len = (off_t)size };
  int error = outcome(fcntl(fd, F_OFD_GETLK, &lock), before);
  if (!error) *out = lock.l_type != F_UNLCK;
  return error;
}

/* ---- Filesystems */

typedef struct magic {
  unsigned long number;
  const char *name;
  bool is_memory, is_remote;
} magic;

/* The numbers of statfs(2), from linux/magic.h. */
static const magic magics[] = {
  { 0x01021994, "tmpfs", true, false },
  { 0x858458f6, "ramfs", true, false },
  { 0x958458f6, "hugetlbfs", true, false },
  { 0xef53, "ext4", false, false },
  { 0x58465342, "xfs", false, false },
  { 0x9123683e, "btrfs", false, false },
  { 0xf2f52010, "f2fs", false, false },
  { 0x2fc12fc1, "zfs", false, false },
  { 0x794c7630, "overlayfs", false, false },
  { 0xca451a4e, "bcachefs", false, false },
  { 0x4d44, "vfat", false, false },
  { 0x2011bab0, "exfat", false, false },
  { 0x6969, "nfs", false, true },
  { 0xff534d42, "cifs", false, true },
  { 0xfe534d42, "smb2", false, true },
  { 0x01021997, "9p", false, true },
  { 0x00c36400, "ceph", false, true },
  { 0x65735546, "fuse", false, true },
};

int lm_sys_filesystem(const char *dir, lm_filesystem *out) {
  struct statfs st;
  lm_assert(dir && out);
  if (is_refused()) return ENOMEM;
  int before = errno, error = outcome(statfs(dir, &st), before);
  if (error) return error;
  *out = (lm_filesystem){ .free = (uint64_t)st.f_bavail * (uint64_t)st.f_bsize };
  unsigned long number = (uint32_t)st.f_type;
  snprintf(out->name, sizeof out->name, "type %#lx", number);
  for (size_t i = 0; i < LM_COUNT(magics); i++) {
    if (magics[i].number != number) continue;
    snprintf(out->name, sizeof out->name, "%s", magics[i].name);
    out->is_memory = magics[i].is_memory;
    out->is_remote = magics[i].is_remote;
  }
  return 0;
}

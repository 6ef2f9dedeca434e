/* source.c - reads the file of a policy: whole, at rest, and within bounds. */
#include "script/source.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "heap/pool.h"
#include "os/descriptor.h"
#include "os/error.h"

#define SOURCE_MAX LM_MIB
enum { TRIES = 5, PAUSE_MS = 20 };

uint64_t lm_policy_hash(const char *text, size_t length) {
  uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
  for (size_t i = 0; i < length; i++) hash = (hash ^ (unsigned char)text[i]) * 0x100000001b3u;
  return hash;
}

const char *lm_policy_absolute(const char *path, char *buffer, size_t size) {
  if (*path == '/' || !getcwd(buffer, size)) return path;
  size_t n = strlen(buffer);
  if (n + 1 + strlen(path) >= size) return path;
  snprintf(buffer + n, size - n, "/%s", path);
  return buffer;
}

static loam_status fail_errno(const char *path) {
  return lm_fail(LOAM_EIO, "%s: %s", path, strerrordesc_np(errno));
}

static loam_status check(const char *path, const struct stat *st) {
  if (S_ISDIR(st->st_mode)) return lm_fail(LOAM_EIO, "%s: is a directory, not a policy file", path);
  if (!S_ISREG(st->st_mode)) return lm_fail(LOAM_EIO, "%s: is not a regular file", path);
  if ((size_t)st->st_size > SOURCE_MAX)
    return lm_fail(LOAM_EIO, "%s: has %lld bytes, a policy has at most %zu", path,
                   (long long)st->st_size, SOURCE_MAX);
  return LOAM_OK;
}

/* Up to `size` bytes; -1 with errno. */
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

static bool is_same(const struct stat *a, const struct stat *b) {
  return a->st_size == b->st_size && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
         a->st_mtim.tv_nsec == b->st_mtim.tv_nsec && a->st_ctim.tv_sec == b->st_ctim.tv_sec &&
         a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

/* *steady: whether the file stayed as it was all the while; else there is no text. */
static loam_status read_open(const char *path, int fd, char **text, size_t *length, bool *steady) {
  struct stat before, after;
  if (fstat(fd, &before)) return fail_errno(path);
  loam_status status = check(path, &before);
  if (status != LOAM_OK) return status;
  size_t room = (size_t)before.st_size + 1; /* one more shows that it grew */
  char *buffer = lm_own_alloc(room + 1);
  if (!buffer) return lm_fail(LOAM_ENOMEM, "%s: no memory to read it", path);
  ssize_t n = read_whole(fd, buffer, room);
  if (n < 0 || fstat(fd, &after)) {
    status = fail_errno(path);
  } else if (n == before.st_size && is_same(&before, &after)) {
    buffer[n] = 0;
    *text = buffer;
    *length = (size_t)n;
    *steady = true;
    return LOAM_OK;
  }
  lm_own_free(buffer);
  return status;
}

loam_status lm_policy_read(const char *path, char **text, size_t *length) {
  size_t n = strlen(path);
  if (n >= PATH_MAX) /* the words would be all path, and no reason */
    return lm_fail(LOAM_EIO, "%.40s...: a path of %zu bytes, at most %d are possible", path, n,
                   PATH_MAX - 1);
  for (int i = 0; i < TRIES; i++) {
    bool steady = false;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); /* a FIFO must not block */
    lm_descriptor file = lm_descriptor_keep(fd);
    if (file.fd < 0) return fail_errno(path);
    loam_status status = read_open(path, file.fd, text, length, &steady);
    lm_descriptor_close(&file);
    if (status != LOAM_OK || steady) return status;
    nanosleep(&(struct timespec){ .tv_nsec = PAUSE_MS * 1000000 }, NULL);
  }
  return lm_fail(LOAM_EIO, "%s: kept changing while it was read", path);
}

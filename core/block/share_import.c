/* share_import.c - blocks of shared memory that other processes own: the side of who opens them. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "heap/share_export.h"
#include "os/error.h"
#include "os/sys_file.h"
#include "service/control.h"
#include "service/control_client.h"

enum { TIMEOUT_MS = 5000, ANSWER = 1024 };

loam_status loam_share_get(const void *ptr, loam_share *out) {
  if (!out) return lm_error(LOAM_EINVAL, "loam_share_get: out is NULL");
  if (!lm_control_is_open())
    return lm_error(LOAM_ESTATE, "this process has no control socket, by which others would open "
                                 "the block: start it with `control` 1");
  return lm_share_export_key(ptr, out);
}

static loam_status refused(const loam_share *share, char *answer) {
  const char *words = lm_control_error_words(answer);
  if (words) return lm_error(LOAM_EBADPTR, "a block of process %d: %s", (int)share->pid, words);
  return lm_error(LOAM_EIO, "process %d does not know of shared blocks", (int)share->pid);
}

/* What is mapped beyond the end of a file would kill who touches it. */
static bool is_in_file(int fd, const loam_share *share) {
  struct stat st;
  return !fstat(fd, &st) && S_ISREG(st.st_mode) && (uint64_t)st.st_size >= share->offset &&
         (uint64_t)st.st_size - share->offset >= share->size;
}

static loam_status fetch(const loam_share *share, int *fd) {
  char line[80], answer[ANSWER];
  snprintf(line, sizeof line, "share %" PRIx64 " %" PRIx64, share->key, share->offset);
  lm_control_request request = { (int)share->pid, line, TIMEOUT_MS };
  loam_status status = lm_control_fetch(&request, answer, sizeof answer, fd);
  if (status != LOAM_OK) return status;
  if (*fd < 0) return refused(share, answer);
  if (is_in_file(*fd, share)) return LOAM_OK;
  lm_sys_file_close(*fd);
  return lm_error(LOAM_EINVAL, "a handle of process %d: its block is not of %" PRIu64 " bytes",
                  (int)share->pid, share->size);
}

static void unmap(void *ptr, size_t size, void *ctx) {
  (void)ctx;
  lm_sys_unmap(ptr, size);
}

static loam_status check(const loam_share *share, int flags) {
  if (!share) return lm_error(LOAM_EINVAL, "loam_share_open: the handle is NULL");
  if (flags & ~LOAM_SHARE_READONLY)
    return lm_error(LOAM_EINVAL, "loam_share_open: flags %d: LOAM_SHARE_READONLY is known", flags);
  bool in_pages = share->size % LM_PAGE == 0 && share->offset % LM_PAGE == 0;
  if (share->pid > 0 && share->pid <= INT32_MAX && in_pages && share->size &&
      share->size <= LM_SIZE_MAX)
    return LOAM_OK;
  return lm_error(LOAM_EINVAL,
                  "no handle of a shared block: process %" PRId64 ", %" PRIu64 " bytes", share->pid,
                  share->size);
}

/* The mapping keeps the description, and so the lock, once the descriptor is closed. */
loam_block *loam_share_open(loam_site *site, const loam_share *share, int flags) {
  int fd = -1;
  void *at;
  if (check(share, flags) != LOAM_OK || fetch(share, &fd) != LOAM_OK) return NULL;
  bool writable = !(flags & LOAM_SHARE_READONLY);
  int error = lm_sys_file_attach(fd, share->offset, share->size, writable, &at);
  lm_sys_file_close(fd);
  if (error)
    return lm_error_null("a block of process %d, %" PRIu64 " bytes: %s", (int)share->pid,
                         share->size, strerrordesc_np(error));
  loam_block *block = loam_block_wrap(site, at, share->size, unmap, NULL);
  if (!block) lm_sys_unmap(at, share->size);
  return block;
}

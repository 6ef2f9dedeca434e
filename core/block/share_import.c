/* share_import.c - opens blocks of shared memory that belong to other processes.
 *
 * A handle (loam_share) names a process and a block of that process. This side requests the block's
 * file descriptor over the control socket of the owner and maps the file. The owner's side is
 * heap/share_export.c. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "block/block.h"
#include "heap/share_export.h"
#include "os/error.h"
#include "os/sys_file.h"
#include "service/control.h"
#include "service/control_client.h"

/* How long to wait for the owner's answer, and the bytes of the longest answer. */
enum { TIMEOUT_MS = 5000, ANSWER = 1024 };

loam_status loam_share_get(const void *ptr, loam_share *out) {
  if (!out) return lm_error(LOAM_EINVAL, "loam_share_get: out is NULL");
  if (!lm_control_is_open())
    return lm_error(LOAM_ESTATE, "this process has no control socket, by which others would open "
                                 "the block: start it with `control` 1, or by "
                                 "`loam run --service`");
  return lm_share_export_key(ptr, out);
}

/* Reports that the owner has sent no descriptor. `answer` is the text that it has sent. */
static loam_status fail_refused(const loam_share *share, char *answer) {
  const char *words = lm_control_error_words(answer);
  if (words) return lm_error(LOAM_EBADPTR, "a block of process %d: %s", (int)share->pid, words);
  return lm_error(LOAM_EIO, "process %d does not know of shared blocks", (int)share->pid);
}

/* Returns whether the block that the handle describes lies in the file. Mapping bytes beyond the
 * end of a file succeeds, but touching them kills the process (SIGBUS). */
static bool is_in_file(int fd, const loam_share *share) {
  struct stat st;
  return !fstat(fd, &st) && S_ISREG(st.st_mode) && (uint64_t)st.st_size >= share->offset &&
         (uint64_t)st.st_size - share->offset >= share->size;
}

/* Requests the descriptor of the block's file from its owner. The caller closes *fd. Fails with
 * LOAM_EBADPTR if the owner says that the block no longer exists, LOAM_EINVAL if the file is too
 * short for the handle, and LOAM_EIO if the owner does not answer. */
static loam_status fetch(const loam_share *share, int *fd) {
  lm_assert(share->pid > 0 && *fd < 0);
  char line[80], answer[ANSWER];
  snprintf(line, sizeof line, "share %" PRIx64 " %" PRIx64, share->key, share->offset);
  lm_control_request request = { (int)share->pid, line, TIMEOUT_MS };
  loam_status status = lm_control_fetch(&request, answer, sizeof answer, fd);
  if (status != LOAM_OK) return status;
  if (*fd < 0) return fail_refused(share, answer);
  if (is_in_file(*fd, share)) return LOAM_OK;
  lm_sys_file_close(*fd);
  return lm_error(LOAM_EINVAL,
                  "a handle of process %d: its file is too short for a block of %" PRIu64 " bytes",
                  (int)share->pid, share->size);
}

/* The destructor of an opened block. */
static void unmap(void *ptr, size_t size, void *ctx) {
  (void)ctx;
  lm_sys_unmap(ptr, size);
}

/* Checks the host's arguments. A handle comes from another process, so every field is checked. */
static loam_status check_handle(const loam_share *share, int flags) {
  if (!share) return lm_error(LOAM_EINVAL, "loam_share_open: the handle is NULL");
  if (flags & ~LOAM_SHARE_READONLY)
    return lm_error(LOAM_EINVAL, "loam_share_open: flags %d: the only flag is LOAM_SHARE_READONLY",
                    flags);
  bool in_pages = share->size % LM_PAGE == 0 && share->offset % LM_PAGE == 0;
  if (share->pid > 0 && share->pid <= INT32_MAX && in_pages && share->size &&
      share->size <= LM_SIZE_MAX)
    return LOAM_OK;
  return lm_error(LOAM_EINVAL,
                  "no handle of a shared block: process %" PRId64 ", %" PRIu64 " bytes", share->pid,
                  share->size);
}

/* The descriptor can be closed after mapping: the mapping keeps the open file description alive,
 * and with it the file lock that tells the owner that the block is in use. */
loam_block *loam_share_open(loam_site *site, const loam_share *share, int flags) {
  int fd = -1;
  void *at;
  if (check_handle(share, flags) != LOAM_OK || fetch(share, &fd) != LOAM_OK) return NULL;
  bool writable = !(flags & LOAM_SHARE_READONLY);
  int error = lm_sys_file_attach(fd, share->offset, share->size, writable, &at);
  lm_sys_file_close(fd);
  if (error)
    return lm_error_null("a block of process %d, %" PRIu64 " bytes: %s", (int)share->pid,
                         share->size, strerrordesc_np(error));
  loam_block *block = loam_block_wrap(site, at, share->size, unmap, NULL);
  if (block) block->is_readonly = !writable;
  else lm_sys_unmap(at, share->size);
  return block;
}

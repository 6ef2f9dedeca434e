/* backing.c - the file that holds a pool's memory. */
#include "pages/backing.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "os/sys_file.h"

void lm_backing_init(lm_backing *b, const char *dir) {
  lm_assert(!b->is_open && !b->lost);
  b->dir = dir;
  /* Where the memory that processes may commit is limited, pages of a file in memory are counted
   * when they are touched, and a touch that is over the limit ends the process. So such memory is
   * taken before it is touched. */
  b->reserves = dir || lm_sys_is_commit_limited();
  b->file = LM_DESCRIPTOR_NONE;
}

void lm_backing_finish(lm_backing *b) { lm_descriptor_close(&b->file); }

/* Notes an errno for lm_backing_why. Returns whether there is an error. */
static bool note_failure(lm_backing *b, int error) {
  if (error) atomic_store_explicit(&b->error, error, memory_order_relaxed);
  return error != 0;
}

/* Returns an errno if a file in this folder would not do: its filesystem is memory itself, or on a
 * server. A policy is refused for that when it is loaded. But the folder may have changed since,
 * and a policy with an `or_else` is loaded all the same, so this is checked for every file. */
static int check_folder(const char *dir, lm_filesystem *out) {
  int error = lm_sys_filesystem(dir, out);
  return error ? error : out->is_memory ? EMEDIUMTYPE : out->is_remote ? EREMOTE : 0;
}

static int open_in(const char *dir, int *fd) {
  lm_filesystem fs;
  int error = check_folder(dir, &fs);
  return error ? error : lm_sys_file_unnamed(dir, fd);
}

/* Opens a file if there is none, or the host has closed it. False: the system refuses. */
static bool ensure_open(lm_backing *b) {
  if (lm_descriptor_is_ours(&b->file)) return true;
  int fd = -1;
  int error = b->dir ? open_in(b->dir, &fd) : lm_sys_file_memfd(&fd);
  if (note_failure(b, error)) return false;
  b->file = lm_descriptor_keep(fd);
  if (b->file.fd < 0) return !note_failure(b, EMFILE);
  b->length = 0;
  b->lost = b->is_open;
  b->is_open = true;
  lm_assert(lm_backing_is_valid(b));
  return true;
}

bool lm_backing_map(lm_backing *b, void *at, size_t size) {
  lm_assert(lm_map_owns(at) && (uintptr_t)at % LM_PAGE == 0 && size % LM_PAGE == 0);
  uint64_t offset = lm_backing_offset(at), end = offset + size;
  if (!ensure_open(b)) return false;
  if (end > b->length) {
    if (note_failure(b, lm_sys_file_resize(b->file.fd, end))) return false;
    b->length = end;
  }
  return !note_failure(b, lm_sys_file_map(b->file.fd, offset, at, size, false));
}

bool lm_backing_reserve(lm_backing *b, void *at, size_t size) {
  lm_assert(lm_backing_offset(at) + size <= b->length);
  return !b->reserves ||
         !note_failure(b, lm_sys_file_allocate(b->file.fd, lm_backing_offset(at), size));
}

/* EACCES: the place is a private mapping of the file of a forked child's parent. Nothing may be
 * removed from that file, and the private pages go when the place is unmapped. EINVAL: it is a copy
 * of such a place. */
bool lm_backing_punch(const lm_backing *b, void *at, size_t size, bool locked) {
  lm_assert(b && lm_map_owns(at) && size > 0);
  (void)b;
  if (locked && lm_sys_munlock(at, size)) return false;
  int error = lm_sys_file_punch(at, size);
  bool is_inherited = error == EACCES || error == EINVAL;
  if (error && !is_inherited && locked) (void)lm_sys_mlock(at, size);
  return !error || is_inherited;
}

bool lm_backing_is_held(const lm_backing *b, void *at, size_t size) {
  bool held = true;
  if (!b->lost && lm_descriptor_is_ours(&b->file))
    (void)lm_sys_file_is_locked(b->file.fd, lm_backing_offset(at), size, &held);
  return held;
}

/* A limit on data (RLIMIT_DATA) counts private memory and no shared memory, so it may refuse both
 * the private mapping and the copy. */
bool lm_backing_inherit(const lm_backing *b, void *at, size_t size) {
  bool is_there = !b->lost && lm_descriptor_is_ours(&b->file);
  if (is_there && !lm_sys_file_map(b->file.fd, lm_backing_offset(at), at, size, true)) return true;
  (void)lm_sys_make_readable(at, size); /* the part that is copied becomes writable again */
  return !lm_sys_file_copy(at, size);
}

void lm_backing_fork_child(lm_backing *b) {
  lm_descriptor_close(&b->file);
  b->is_open = b->lost = false;
}

bool lm_backing_is_valid(const lm_backing *b) {
  if (!b->is_open) return b->file.fd < 0 && !b->lost;
  return b->length % LM_PAGE == 0;
}

/* ---- Words */

/* Makes an unnamed file, and tries on it what lm_backing_reserve and lm_backing_punch do. */
static const char *try_folder(const char *dir, char *words, size_t size) {
  int fd = -1, error = lm_sys_file_unnamed(dir, &fd);
  if (error) {
    snprintf(words, size, "no file can be made there: %s", strerrordesc_np(error));
    return words;
  }
  void *at;
  error = lm_sys_file_allocate(fd, 0, LM_SLOT);
  if (!error) error = lm_sys_file_attach(fd, 0, LM_SLOT, true, &at);
  if (!error) {
    error = lm_sys_file_punch(at, LM_SLOT);
    lm_sys_unmap(at, LM_SLOT);
  }
  lm_sys_file_close(fd);
  if (!error) return NULL;
  snprintf(words, size, "its filesystem cannot reserve room and give it back: %s",
           strerrordesc_np(error));
  return words;
}

const char *lm_backing_refusal(const char *dir, char *words, size_t size) {
  lm_filesystem fs;
  lm_assert(dir && words && size > 0);
  int error = check_folder(dir, &fs);
  if (!error) return try_folder(dir, words, size);
  if (error == EMEDIUMTYPE) snprintf(words, size, "it is on %s, which is memory itself", fs.name);
  else if (error == EREMOTE)
    snprintf(words, size, "it is on %s: a touch of memory must not wait for a server", fs.name);
  else snprintf(words, size, "%s", strerrordesc_np(error));
  return words;
}

const char *lm_backing_why(const lm_backing *b) {
  switch (atomic_load_explicit(&b->error, memory_order_relaxed)) {
    case 0: return "it has no memory";
    case ENOSPC: return b->dir ? "no space is left on its filesystem" : "it has no memory";
    case EDQUOT: return "the disk quota of this user is exceeded";
    case EFBIG: return "the largest size of a file (ulimit -f) is exceeded";
    case ENOENT: return "its folder is not there any more";
    case EACCES: return "its folder cannot be written any more";
    case EROFS: return "its filesystem is read-only";
    case EMEDIUMTYPE: return "its folder is in memory itself";
    case EREMOTE: return "its folder is on a server, which a touch of memory must not wait for";
    case EOPNOTSUPP: return "its filesystem cannot reserve room";
    case EMFILE:
    case ENFILE: return "no descriptor is left for its file";
    default: return b->dir ? "its file could not be used" : "it has no memory";
  }
}

/* remote.h - copies memory of another process, with process_vm_readv(2).
 *
 * The other process need not help. It may prevent a copy by prctl(PR_SET_DUMPABLE), except a copy
 * by root. It may also have memory whose contents never come (userfaultfd, a file of FUSE): a call
 * that meets such memory waits until the reader is killed (cli/forked_read.h). What is copied may
 * be any bytes: the process may be hostile, and may write while it is read. */
#ifndef LM_REMOTE_H
#define LM_REMOTE_H

#include "loam.h"
#include "os/base.h"

/* A process that is read. */
typedef struct lm_remote {
  int pid;
  /* By lm_sys_clock_ns: no copy begins later, so no loop over tables goes on. */
  int64_t deadline_ns;
  bool is_late; /* a read failed for that reason */
} lm_remote;

/* A range of the process, and where its copy goes. */
typedef struct lm_remote_part {
  uintptr_t from;
  void *to;
  size_t size;
} lm_remote_part;

enum { LM_REMOTE_PARTS = 512 }; /* the most parts of one call */

/* Copies all parts, in their order. False: a part could not be read; copies may be incomplete. */
bool lm_remote_read_parts(lm_remote *remote, const lm_remote_part *part, size_t n);
/* Copies one range. */
bool lm_remote_read(lm_remote *remote, uintptr_t from, void *to, size_t size);
/* Copies a text of at most `size` - 1 bytes and terminates it. Bytes that cannot be read end it. */
void lm_remote_text(lm_remote *remote, uintptr_t from, char *to, size_t size);

/* A note of an ELF file that is mapped in the process. The texts are copies. */
typedef struct lm_remote_note {
  uint32_t type;
  const char *name; /* of `name_size` bytes, with its terminator */
  size_t name_size;
  uintptr_t at;     /* where the process has the contents */
  const char *desc; /* the contents, of `size` bytes */
  size_t size;
} lm_remote_note;
typedef bool lm_remote_note_fn(void *ctx, const lm_remote_note *note);
/* Calls `visit` for the notes of the ELF file that is mapped from `at` on, if it is one, until
 * `visit` returns false. Returns false, with errno, if the memory at `at` cannot be read. */
bool lm_remote_each_note(lm_remote *remote, uintptr_t at, lm_remote_note_fn *visit, void *ctx);

/* Finds where the process has its lm_outside (engine/outside.h) of a loam that has started. On
 * failure the error words name the reason: LOAM_EIO if the kernel refuses or the process is gone,
 * LOAM_ESTATE if the process has no such structure. */
loam_status lm_remote_find(lm_remote *remote, uintptr_t *out);

#endif

/* sys_file.h - files as memory: what is asked of the operating system for it. The contract is that
 * of sys.h; offsets and sizes are multiples of a page. */
#ifndef LM_SYS_FILE_H
#define LM_SYS_FILE_H

#include "os/sys.h"

/* A file in memory that has no name; nobody can make it shorter. */
int lm_sys_file_memfd(int *out);
/* A file in a folder that has no name there, so that nothing of it outlives its last user. */
int lm_sys_file_unnamed(const char *dir, int *out);
/* Makes it `length` bytes long; EFBIG, and no signal, where the process may not. */
int lm_sys_file_resize(int fd, uint64_t length);
/* Sees to it that a part of it has its memory or room on the disk: a touch will not find that there
 * is none, and kill the process. ENOSPC where there is not; part of it may have been had then. */
int lm_sys_file_allocate(int fd, uint64_t offset, uint64_t size);
/* Puts a part of it at a place in a reservation: as all see it, or `private`: the stores of this
 * process are seen by itself alone. */
int lm_sys_file_map(int fd, uint64_t offset, void *at, size_t size, bool private);
/* A part of it wherever there is room; ended by lm_sys_unmap. */
int lm_sys_file_attach(int fd, uint64_t offset, size_t size, bool writable, void **out);
/* Gives back the memory, and the room on the disk, of what is mapped at a place: all who look see
 * zeros. EINVAL for what is locked, EACCES for what is mapped privately. */
int lm_sys_file_punch(void *at, size_t size);
void lm_sys_file_close(int fd);

/* The same file, opened once more: such a one has locks of its own. Needs /proc. */
int lm_sys_file_reopen(int fd, int *out);
/* Says that a part is in use, until the descriptor, and each copy of it, is closed. */
int lm_sys_file_lock(int fd, uint64_t offset, uint64_t size);
/* Whether it is in use by any that is opened apart from this one. */
int lm_sys_file_is_locked(int fd, uint64_t offset, uint64_t size, bool *out);

typedef struct lm_filesystem {
  char name[16];  /* "ext4"; a number where it is not known */
  bool is_memory; /* what is on it is in memory */
  bool is_remote; /* a server has it: it can go away */
  uint64_t free;  /* bytes that this user may take */
} lm_filesystem;

int lm_sys_filesystem(const char *dir, lm_filesystem *out);

#endif

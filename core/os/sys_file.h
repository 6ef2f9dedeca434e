/* sys_file.h - what loam asks of the operating system about files: files that are mapped as memory,
 * and reads, writes and locks of files. The contract of sys.h holds. Offsets and sizes are
 * multiples of a page, but not those of bytes that are written or read. */
#ifndef LM_SYS_FILE_H
#define LM_SYS_FILE_H

#include "os/sys.h"

/* Opens a file in memory (memfd) that has no name. No process can make it shorter. */
int lm_sys_file_memfd(int *out);

/* Opens a new file in the folder `dir`. The file has no name there, so it ends with its last
 * user. */
int lm_sys_file_unnamed(const char *dir, int *out);

/* Makes the file `length` bytes long. EFBIG, and no signal, if the process may not write such a
 * long file. */
int lm_sys_file_resize(int fd, uint64_t length);

/* Turns copy-on-write off for a file that is empty. A filesystem with copy-on-write (btrfs) writes
 * changed data to a new place, so each write needs new room, although the file has room. On
 * filesystems without that flag the function does nothing. */
void lm_sys_file_keep_in_place(int fd);

/* Gives memory, or room on the disk, to part of a file, so that a later touch cannot fail and kill
 * the process. ENOSPC if there is not enough; part of the range may have room then. */
int lm_sys_file_allocate(int fd, uint64_t offset, uint64_t size);

/* Takes memory, or room on the disk, from part of a file again, and leaves its length. EOPNOTSUPP
 * if the filesystem cannot. */
int lm_sys_file_deallocate(int fd, uint64_t offset, uint64_t size);

/* Maps part of a file at a place in a reservation, readable and writable. If `private` is true, no
 * other process sees the stores of this process there. */
int lm_sys_file_map(int fd, uint64_t offset, void *at, size_t size, bool private);
/* Puts private memory with equal contents, which can be written, in place of a mapping that can be
 * read. If the call fails, the mapping is as before, or its first part is private memory. */
int lm_sys_file_copy(void *at, size_t size);
/* Returns whether other processes may see the stores of this process to a page; false also if the
 * kernel has no mapping left to find that out. */
bool lm_sys_file_is_shared(void *page);

/* Maps part of a file, shared, at a place that the kernel chooses. lm_sys_unmap ends the
 * mapping. */
int lm_sys_file_attach(int fd, uint64_t offset, size_t size, bool writable, void **out);

/* Maps part of a file, shared and readable only, in place of memory that the process has mapped.
 * The mapping is read as after lm_sys_file_scattered. If `fd` is open for reading alone, nothing in
 * the process can make the mapping writable. After a failure the memory is as before. */
int lm_sys_file_cover(int fd, uint64_t offset, void *at, size_t size);
/* Replaces a mapping of lm_sys_file_cover by fresh, readable, writable, zeroed memory. */
int lm_sys_file_uncover(void *at, size_t size);

/* Tells the kernel that the mapped pages of a file are touched in no order, so that it reads only
 * the page that is touched. In a long sparse file on ext4, it would otherwise fill megabytes at a
 * first touch, which takes milliseconds. */
int lm_sys_file_scattered(void *at, size_t size);

/* Gives back the memory, and the room on the disk, of the part of a file that is mapped here: every
 * process then reads zeros there. EINVAL for locked pages, EACCES for a private mapping. */
int lm_sys_file_punch(void *at, size_t size);

/* Appends bytes to the file at a path, which is made, for its owner alone, if there is none. A link
 * at the path is not followed. EIO if only a part of the bytes was written. */
int lm_sys_file_append(const char *path, const void *bytes, size_t size);

/* Write all bytes to the file from `offset` on, or read that many bytes. EIO if the file ends
 * before; EFBIG, and no signal, if RLIMIT_FSIZE forbids to write there. */
int lm_sys_file_write(int fd, uint64_t offset, const void *bytes, size_t size);
int lm_sys_file_read(int fd, uint64_t offset, void *bytes, size_t size);

/* Closes the descriptor. */
void lm_sys_file_close(int fd);

/* Opens the same file again. The new descriptor has locks of its own. Needs /proc. */
int lm_sys_file_reopen(int fd, int *out);

/* Locks part of a file, for reading, until the descriptor and all its copies are closed. The lock
 * says that this part is in use. */
int lm_sys_file_lock(int fd, uint64_t offset, uint64_t size);

/* Sets *out to whether a descriptor that was opened separately from this one has locked the
 * part. */
int lm_sys_file_is_locked(int fd, uint64_t offset, uint64_t size, bool *out);

typedef struct lm_filesystem {
  char name[16];  /* "ext4"; "type 0x..." where loam does not know the filesystem */
  bool is_memory; /* its files are in memory */
  bool is_remote; /* its files are on a server, which can become unreachable */
  uint64_t free;  /* bytes that this user may still take */
} lm_filesystem;

/* Describes the filesystem of a folder. */
int lm_sys_filesystem(const char *dir, lm_filesystem *out);

#endif

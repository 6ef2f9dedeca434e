/* write_file.h - writes a whole file for the command. */
#ifndef LM_WRITE_FILE_H
#define LM_WRITE_FILE_H

#include "loam.h"
#include "os/base.h"

/* Writes `size` bytes to the file at `path`. A regular file is replaced in one step: readers see
 * the old bytes or the new ones, a failure leaves the old file, and the new one has the owner, the
 * group and the access rights of the old one, as far as the process may set them. If `path` is a
 * symbolic link to a file, the function replaces that file and keeps the link. It writes the bytes
 * into a pipe or a device without replacing it. LOAM_EIO: the error words name the path and the
 * reason. */
loam_status lm_write_file(const char *path, const char *bytes, size_t size);
/* Finds out, before a long wait, whether lm_write_file can write the file. A regular file is tried
 * by a temporary file in its folder, which is removed. LOAM_EIO: it cannot; the error words are
 * those of lm_write_file. */
loam_status lm_write_file_try(const char *path);
/* Writes all bytes to a descriptor. Returns false with errno. Signal handlers may call it. */
bool lm_write_all(int fd, const void *bytes, size_t size);
/* Writes the bytes to standard output. LOAM_EIO, with words. */
loam_status lm_write_output(const char *bytes, size_t size);

#endif

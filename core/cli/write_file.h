/* write_file.h - writes a whole file for the command. */
#ifndef LM_WRITE_FILE_H
#define LM_WRITE_FILE_H

#include "loam.h"
#include "os/base.h"

/* Writes `size` bytes to the file at `path`. A regular file is replaced in one step: readers see the
 * old bytes or the new ones, and a failure leaves the old file. Where a symbolic link leads to a
 * file, that file is replaced. A pipe or a device gets the bytes, and stays what it is. LOAM_EIO:
 * the error words name the path and the reason. */
loam_status lm_write_file(const char *path, const char *bytes, size_t size);

#endif

/* compile.c - writes the policy image of a policy file into a file. */
#include "cli/compile.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "os/error.h"
#include "pages/metadata.h"
#include "script/policy_file.h"
#include "script/policy_open.h"
#include "service/policy.h"

/* LOAM_EIO with the words of errno. */
static loam_status fail_errno(const char *path) {
  return lm_error(LOAM_EIO, "%s: %s", path, strerrordesc_np(errno));
}

/* Writes all bytes and waits until the disk has them. Returns false with errno. */
static bool write_whole(int fd, const char *bytes, size_t size) {
  while (size > 0) {
    ssize_t n = write(fd, bytes, size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    bytes += n;
    size -= (size_t)n;
  }
  return !fsync(fd);
}

/* Writes a file under a temporary name and renames it. */
static loam_status write_file(const char *file, const char *bytes, size_t size) {
  char name[PATH_MAX];
  int length = snprintf(name, sizeof name, "%s.%d.tmp", file, (int)getpid());
  if (length >= (int)sizeof name) errno = ENAMETOOLONG;
  int fd = length < (int)sizeof name ? open(name, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666)
                                     : -1;
  if (fd < 0) return fail_errno(file);
  bool is_written = write_whole(fd, bytes, size);
  is_written = !close(fd) && is_written && !rename(name, file);
  loam_status status = is_written ? LOAM_OK : fail_errno(file);
  if (!is_written) unlink(name);
  return status;
}

/* Opens the image, as every reader of the file will, and writes it into the file. The bytes are
 * freed. */
static loam_status check_and_write(const char *file, void *bytes, size_t size, lm_compiled *out) {
  lm_policy_image *image;
  loam_status status = lm_policy_image_open(bytes, size, false, &image);
  if (status != LOAM_OK) {
    lm_metadata_free(bytes);
    return status;
  }
  *out = (lm_compiled){ size, lm_policy_image_plans(image) };
  status = write_file(file, bytes, size);
  lm_policy_image_close(image);
  return status;
}

loam_status lm_compile(const char *path, const char *file, lm_compiled *out) {
  char *contents;
  size_t length, size;
  void *bytes;
  lm_assert(path && file && out);
  loam_status status = lm_policy_file_read(path, LM_READ_TO_LOAD, &contents, &length);
  if (status != LOAM_OK) return status;
  lm_script_source source = { path, contents, length, lm_policy_limits(), .is_host = false };
  status = lm_policy_open_text(path, &source.text, &source.length);
  if (status == LOAM_OK) status = lm_script_compile(&source, false, &bytes, &size);
  if (status == LOAM_OK) status = check_and_write(file, bytes, size, out);
  lm_metadata_free(contents);
  return status;
}

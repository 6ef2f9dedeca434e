/* compile.c - writes the policy image of a policy file into a file. */
#include "cli/compile.h"

#include <sys/stat.h>

#include "cli/write_file.h"
#include "os/error.h"
#include "pages/metadata.h"
#include "script/policy_file.h"
#include "script/policy_open.h"
#include "service/policy.h"

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
  status = file ? lm_write_file(file, bytes, size) : lm_write_output(bytes, size);
  lm_policy_image_close(image);
  return status;
}

/* Tells whether two paths lead to one file. */
static bool is_one_file(const char *a, const char *b) {
  struct stat first, second;
  return !stat(a, &first) && !stat(b, &second) && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

loam_status lm_compile(const char *path, const char *file, lm_compiled *out) {
  char *contents;
  size_t length, size;
  void *bytes;
  lm_assert(path && out);
  loam_status status = lm_policy_file_read(path, LM_READ_TO_LOAD, &contents, &length);
  if (status != LOAM_OK) return status;
  lm_script_source source = { path, contents, length, lm_policy_limits(), .is_host = false };
  status = lm_policy_open_text(path, &source.text, &source.length);
  bool is_text = source.text == contents;
  if (status == LOAM_OK && is_text && file && is_one_file(path, file))
    status = lm_error(LOAM_EIO, "%s: the image would replace the policy: name another file", file);
  if (status == LOAM_OK) status = lm_script_compile(&source, false, &bytes, &size);
  if (status == LOAM_OK) status = check_and_write(file, bytes, size, out);
  lm_metadata_free(contents);
  return status;
}

/* image_cache.c - keeps images of policies in files. */
#include "cli/image_cache.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "os/sys.h"
#include "pages/metadata.h"
#include "script/policy_file.h"
#include "service/control_client.h"
#include "service/control_socket.h"

/* Writes the path of the place of a text with this hash. Makes the folder. Returns false if the
 * user wants no folder, or if other users can write it. */
static bool find_place(uint64_t hash, char path[PATH_MAX]) {
  char dir[LM_CONTROL_PATH];
  const char *control = lm_sys_getenv("LOAM_CONTROL");
  if (control && !strcmp(control, "0")) return false;
  if (lm_control_dir(NULL, dir, sizeof dir) || lm_control_socket_folder(dir)) return false;
  snprintf(path, PATH_MAX, "%s/kept-%u.image", dir, (unsigned)(hash % LM_IMAGE_CACHE_PLACES));
  return true;
}

/* Returns whether a file was written after the file of this command got its place. The time of that
 * is st_ctim: a package sets st_mtim to the time when it was built. */
static bool is_newer_than_command(const char *path) {
  struct stat kept, command;
  if (stat(path, &kept) || stat("/proc/self/exe", &command)) return false;
  if (kept.st_mtim.tv_sec != command.st_ctim.tv_sec)
    return kept.st_mtim.tv_sec > command.st_ctim.tv_sec;
  return kept.st_mtim.tv_nsec > command.st_ctim.tv_nsec;
}

static bool has_text(const void *bytes, size_t size, const char *text, size_t length) {
  const char *kept;
  size_t kept_length;
  return lm_policy_image_text(bytes, size, &kept, &kept_length) == LOAM_OK &&
         kept_length == length && !memcmp(kept, text, length);
}

bool lm_image_cache_find(const char *text, size_t length, lm_policy_image **out) {
  char path[PATH_MAX], *bytes;
  size_t size;
  lm_assert(text && out);
  if (!find_place(lm_policy_file_hash(text, length), path) || !is_newer_than_command(path))
    return false;
  if (lm_policy_file_read(path, LM_READ_TO_FOLLOW, &bytes, &size) != LOAM_OK) return false;
  if (has_text(bytes, size, text, length) &&
      lm_policy_image_open(bytes, size, false, out) == LOAM_OK)
    return true;
  lm_metadata_free(bytes);
  return false;
}

/* Writes in place, without a second name: the checksum of an image finds one that is not whole. */
void lm_image_cache_put(const lm_policy_image *image) {
  char path[PATH_MAX];
  size_t size;
  const void *bytes = lm_policy_image_bytes(image, &size);
  if (lm_policy_image_asks_about_machine(image) || size > LM_IMAGE_CACHE_BYTES_MAX ||
      !find_place(lm_policy_image_hash(image), path))
    return;
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
  if (fd < 0) return;
  if (write(fd, bytes, size) != (ssize_t)size) unlink(path);
  close(fd);
}

/* vet.c - checks a policy for a program that the command is about to start. */
#include "cli/vet.h"

#include <stdio.h>

#include "cli/image_cache.h"
#include "cli/publisher.h"
#include "pages/metadata.h"
#include "script/policy_file.h"
#include "script/policy_open.h"
#include "service/policy.h"

/* Returns the needs of a policy: a program without them obeys late, or reads old figures. */
static lm_vet_needs needs_of(const lm_policy_image *image) {
  uint32_t reads = lm_policy_image_reads(image);
  return (lm_vet_needs){ .moves_memory = lm_policy_image_applies_live(image),
                         .reads_devices = reads & 1u << LM_IN_DEVICE_FREE,
                         .needs_watcher = lm_publisher_needs_watcher(
                             reads, lm_policy_image_shares(image)) };
}

/* Opens a policy, or the image of an equal text that was kept. Keeps the image of a new text. */
static loam_status open_once(const lm_script_source *source, lm_policy_image **out) {
  lm_policy_opened opened;
  bool is_text = !lm_policy_image_is(source->text, source->length);
  if (is_text && lm_image_cache_find(source->text, source->length, out)) return LOAM_OK;
  loam_status status = lm_policy_open(source, false, &opened);
  if (status != LOAM_OK) return status;
  if (is_text) lm_image_cache_put(opened.image);
  *out = opened.image;
  return LOAM_OK;
}

/* Writes the value of LOAM_VETTED for a policy's text or image, which is in the file `path`. */
static loam_status write_vetted(const char *path, const lm_script_source *source,
                                const lm_policy_image *image, char vetted[LM_VET_SIZE]) {
  char carried[LM_IMAGE_TEXT_SIZE];
  const char *policy = source->text;
  size_t size, length = source->length;
  const void *bytes = lm_policy_image_bytes(image, &size);
  if (!lm_image_text_write(bytes, size, carried)) *carried = 0; /* it would be too long */
  loam_status status = lm_policy_open_text(path, &policy, &length);
  if (status == LOAM_OK)
    snprintf(vetted, LM_VET_SIZE, "%016llx%s%s",
             (unsigned long long)lm_policy_file_hash(policy, length), *carried ? ":" : "", carried);
  return status;
}

loam_status lm_vet(const char *path, char vetted[LM_VET_SIZE], lm_vet_needs *needs,
                   lm_policy_image **image) {
  char *text;
  size_t length;
  lm_policy_image *opened = NULL;
  lm_assert(path);
  loam_status status = lm_policy_file_read(path, LM_READ_TO_LOAD, &text, &length);
  if (status != LOAM_OK) return status;
  lm_script_source source = { path, text, length, lm_policy_limits(), .is_host = false };
  status = open_once(&source, &opened);
  if (status == LOAM_OK) {
    *needs = needs_of(opened);
    status = write_vetted(path, &source, opened, vetted);
  }
  lm_metadata_free(text);
  if (status == LOAM_OK && image) *image = opened;
  else lm_policy_image_close(opened);
  return status;
}

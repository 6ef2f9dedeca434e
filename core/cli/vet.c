/* vet.c - checks a policy for a program that the command is about to start. */
#include "cli/vet.h"

#include <stdio.h>

#include "cli/kept.h"
#include "pages/metadata.h"
#include "script/policy_file.h"
#include "script/policy_open.h"
#include "service/policy.h"

/* Returns the needs of a policy: a program without them obeys late, or reads old figures. */
static lm_vet_needs needs_of(const lm_policy_image *image) {
  uint32_t reads = lm_policy_image_reads(image);
  return (lm_vet_needs){ .moves_memory = lm_policy_image_applies_live(image),
                         .reads_devices = reads & 1u << LM_IN_DEVICE_FREE,
                         .reads_nodes = reads & 1u << LM_IN_NODE_FREE,
                         .reads_pressure = reads & 1u << LM_IN_PRESSURE,
                         .shares_limits = lm_policy_image_shares(image) };
}

/* Writes what the caller of lm_vet_text gets of an image, and closes the image. */
static void take_results(lm_policy_image *image, char carried[LM_IMAGE_TEXT_SIZE],
                         lm_vet_needs *needs) {
  size_t size;
  const void *bytes = lm_policy_image_bytes(image, &size);
  *needs = needs_of(image);
  if (!lm_image_text_write(bytes, size, carried)) *carried = 0;
  lm_policy_image_close(image);
}

loam_status lm_vet_text(const lm_script_source *source, char carried[LM_IMAGE_TEXT_SIZE],
                        lm_vet_needs *needs) {
  lm_policy_opened opened;
  lm_assert(!source->is_host);
  loam_status status = lm_policy_open(source, false, &opened);
  if (status == LOAM_OK) take_results(opened.image, carried, needs);
  return status;
}

/* Like lm_vet_text, but uses the image of an equal text that was kept, or keeps the image. */
static loam_status vet_once(const lm_script_source *source, char carried[LM_IMAGE_TEXT_SIZE],
                            lm_vet_needs *needs) {
  lm_policy_opened opened;
  if (lm_policy_image_is(source->text, source->length)) return lm_vet_text(source, carried, needs);
  if (!lm_kept_find(source->text, source->length, &opened.image)) {
    loam_status status = lm_policy_open(source, false, &opened);
    if (status != LOAM_OK) return status;
    lm_kept_put(opened.image);
  }
  take_results(opened.image, carried, needs);
  return LOAM_OK;
}

loam_status lm_vet(const char *path, char vetted[LM_VET_SIZE], lm_vet_needs *needs) {
  char *text, carried[LM_IMAGE_TEXT_SIZE];
  size_t length;
  lm_assert(path);
  loam_status status = lm_policy_file_read(path, LM_READ_TO_LOAD, &text, &length);
  if (status != LOAM_OK) return status;
  status = vet_once(&(lm_script_source){ path, text, length, lm_policy_limits(), false }, carried,
                    needs);
  const char *policy = text;
  if (status == LOAM_OK) status = lm_policy_open_text(path, &policy, &length);
  if (status == LOAM_OK)
    snprintf(vetted, LM_VET_SIZE, "%016llx%s%s",
             (unsigned long long)lm_policy_file_hash(policy, length), *carried ? ":" : "", carried);
  lm_metadata_free(text);
  return status;
}

/* vet.c - checks a policy for a program that the command is about to start. */
#include "cli/vet.h"

#include <stdio.h>

#include "cli/plan_text_write.h"
#include "pages/metadata.h"
#include "plan/policy_image.h"
#include "script/policy_file.h"
#include "service/policy.h"

/* Writes the policy's only plan as text, if it has only one and that can be carried; else "". */
static void carry(const lm_policy_image *image, char carried[LM_PLAN_TEXT_SIZE]) {
  const lm_plan *only = lm_policy_image_only_plan(image);
  if (!only || !lm_plan_text_write(only, lm_policy_image_name(image),
                                   lm_policy_image_applies_live(image), carried))
    *carried = 0;
}

loam_status lm_vet_text(const lm_script_source *source, char carried[LM_PLAN_TEXT_SIZE]) {
  void *bytes;
  size_t size;
  lm_policy_image *image;
  lm_assert(!source->is_host);
  loam_status status = lm_script_compile(source, false, &bytes, &size);
  if (status != LOAM_OK) return status;
  status = lm_policy_image_open(bytes, size, false, &image);
  if (status == LOAM_OK) carry(image, carried);
  else lm_metadata_free(bytes);
  lm_policy_image_close(image);
  return status;
}

loam_status lm_vet(const char *path, char vetted[LM_VET_SIZE]) {
  char *text, carried[LM_PLAN_TEXT_SIZE];
  size_t length;
  lm_assert(path);
  loam_status status = lm_policy_file_read(path, LM_READ_TO_LOAD, &text, &length);
  if (status != LOAM_OK) return status;
  status = lm_vet_text(&(lm_script_source){ path, text, length, lm_policy_limits(), false },
                       carried);
  if (status == LOAM_OK)
    snprintf(vetted, LM_VET_SIZE, "%016llx%s%s",
             (unsigned long long)lm_policy_file_hash(text, length), *carried ? ":" : "", carried);
  lm_metadata_free(text);
  return status;
}

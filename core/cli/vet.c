/* vet.c - checks a policy for a program that the command is about to start. */
#include "cli/vet.h"

#include <stdio.h>

#include "cli/plan_text_write.h"
#include "pages/metadata.h"
#include "script/policy_file.h"
#include "service/policy.h"

/* Runs the policy's tests and compiles the empty tag, which shows whether there is only
 * one plan. */
static loam_status check(lm_script *script, char carried[LM_PLAN_TEXT_SIZE]) {
  const lm_plan *plan;
  loam_status status = lm_script_vet(script);
  if (status == LOAM_OK) status = lm_script_plan(script, &(loam_where){ .tag = "" }, &plan);
  if (status != LOAM_OK) return status;
  const lm_plan *only = lm_script_only_plan(script);
  if (!only ||
      !lm_plan_text_write(only, lm_script_name(script), lm_script_applies_live(script), carried))
    *carried = 0;
  return LOAM_OK;
}

loam_status lm_vet_text(const lm_script_source *source, char carried[LM_PLAN_TEXT_SIZE]) {
  lm_script *script;
  lm_assert(!source->is_host);
  loam_status status = lm_script_open(source, &script);
  if (status == LOAM_OK) status = check(script, carried);
  lm_script_close(script);
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

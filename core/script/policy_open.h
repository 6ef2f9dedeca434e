/* policy_open.h - opens the policy in a policy file. The file has the text of a policy, which is
 * compiled, or a policy image. */
#ifndef LM_POLICY_OPEN_H
#define LM_POLICY_OPEN_H

#include "plan/policy_image.h"
#include "script/script.h"

/* The result of lm_policy_open. */
typedef struct lm_policy_opened {
  lm_policy_image *image; /* the caller closes it */
  /* Why the policy was compiled again from the text in an image; "" if it was not. */
  char recompiled[384];
} lm_policy_opened;

/* Opens a policy. source->text is the text of a policy or the bytes of an image. A text is
 * compiled, and its tests are run, unless `is_vetted`. An image is not compiled, and its tests are
 * not run, because both was done when it was written. If it was written for another machine or
 * version, the text that it holds is compiled instead. On failure out->image is NULL; the status is
 * one of lm_script_compile, or one of lm_policy_image_open with LOAM_EPOLICY in place of
 * LOAM_EINVAL. */
loam_status lm_policy_open(const lm_script_source *source, bool is_vetted, lm_policy_opened *out);
/* Returns whether a refusal with this status is about the text of the policy. A policy that was
 * refused for another reason may be accepted when it is opened again: there is memory then, another
 * publisher has ended, or a handler is registered. */
bool lm_policy_open_is_verdict(loam_status status);
/* Replaces the bytes of an image by the text that it holds; a text is not changed. Fails with
 * LOAM_EPOLICY for an image that was damaged. */
loam_status lm_policy_open_text(const char *name, const char **text, size_t *length);
/* Like lm_policy_open_text, of source->text, for a report on the policy. A program that loads an
 * image never reads the text in it. So for an image that a program would load, the text is compiled
 * here. An image with other bytes, or whose text is refused, is refused with LOAM_EPOLICY. */
loam_status lm_policy_open_to_report(lm_script_source *source);
/* Returns the hash by which loam tells versions of a policy apart (lm_policy_file_hash). For an
 * image it is the hash of the text in it; for a damaged image, the hash of its bytes. */
uint64_t lm_policy_open_hash(const char *text, size_t length);

#endif

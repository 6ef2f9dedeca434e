/* carried.h - the image of a policy as text, as LOAM_VETTED has it (cli/vet.h). */
#ifndef CARRIED_H
#define CARRIED_H

#include "plan/image_text.h"
#include "script/policy_open.h"

/* Compiles and tests a policy, and writes its image as text; "" if it would be too long. */
static inline loam_status carried_write(const lm_script_source *source,
                                        char text[LM_IMAGE_TEXT_SIZE]) {
  lm_policy_opened opened;
  size_t size;
  loam_status status = lm_policy_open(source, false, &opened);
  if (status != LOAM_OK) return status;
  const void *bytes = lm_policy_image_bytes(opened.image, &size);
  if (!lm_image_text_write(bytes, size, text)) *text = 0;
  lm_policy_image_close(opened.image);
  return LOAM_OK;
}

#endif

/* sleep_api.c - loam_sleep, loam_wake and loam_asleep. */
#include "engine/sleep_tag.h"

loam_status loam_sleep(const char *tag, const char *where, size_t *bytes) {
  size_t given;
  loam_status status = lm_sleep_tag_put(tag, where, &given);
  if (status == LOAM_OK && bytes) *bytes = given;
  return status;
}

loam_status loam_wake(const char *tag, size_t *bytes) {
  size_t taken;
  loam_status status = lm_sleep_tag_wake(tag, &taken);
  if (status == LOAM_OK && bytes) *bytes = taken;
  return status;
}

size_t loam_asleep(const char *tag) { return lm_sleep_tag_asleep(tag); }

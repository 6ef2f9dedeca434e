/* policy_image.c - damages policy images and gives them a good checksum. loam refuses such an
 * image, or the image obeys its laws and has a plan for every site. Arguments: the number of images
 * (20000), and a seed. */
#include "../core/policy_bytes.h"
#include "chance.h"

#include <stdio.h>
#include <stdlib.h>

static uint64_t seed = 11;

/* Overwrites one to four numbers of 1 to 8 bytes: with special values, with other bytes of the
 * image, with numbers that differ by 4 at most, or with numbers below 256. */
static void damage(char *bytes, size_t size) {
  static const uint64_t odd[] = { 0, 1, 4, 31, 0x7fffffff, 0x80000000, 0xffffffff, UINT64_MAX };
  for (uint32_t n = 1 + chance(&seed, 4); n > 0; n--) {
    size_t width = (size_t)1 << chance(&seed, 4),
           at = chance(&seed, (uint32_t)(size / width)) * width;
    uint64_t value = 0;
    memcpy(&value, bytes + at, width);
    uint32_t how = chance(&seed, 4);
    if (how == 0) value = odd[chance(&seed, LM_COUNT(odd))];
    else if (how == 1) memcpy(&value, bytes + chance(&seed, (uint32_t)(size - width)), width);
    else if (how == 2) value += chance(&seed, 9) - 4u;
    else value = chance(&seed, 256);
    memcpy(bytes + at, &value, width);
  }
}

/* Cuts an image short or makes it longer, and writes the new size to its head. Returns the new
 * size. */
static size_t resize(char *bytes, size_t size) {
  size_t now = chance(&seed, 8) ? size : chance(&seed, (uint32_t)size + 64);
  if (now > size) memset(bytes + size, 0, now - size);
  if (now >= sizeof(lm_policy_image_frame)) ((lm_policy_image_frame *)(void *)bytes)->size = now;
  return now;
}

static void some_text(char out[16]) {
  static const char letters[] = "onetw.pym*";
  size_t n = chance(&seed, 10);
  for (size_t i = 0; i < n; i++) out[i] = letters[chance(&seed, sizeof letters - 1)];
  out[n] = 0;
}

static void use(lm_policy_image *policy) {
  static const double fixed[LM_INPUTS];
  for (int i = 0; i < 20; i++) {
    char text[4][16];
    const lm_plan *plan;
    for (int k = 0; k < 4; k++) some_text(text[k]);
    loam_where where = { text[0], text[1], text[2], text[3], (int)chance(&seed, 300) };
    lm_require(!lm_policy_image_find(policy, &where, &plan));
    lm_inputs r = { .size = chance(&seed, 5000), .align = 16, .fixed = fixed };
    lm_require(lm_plan_decide(plan, &r) < plan->leaves);
  }
  lm_require(lm_policy_image_is_valid(policy));
}

int main(int argc, char **argv) {
  long count = argc > 1 ? atol(argv[1]) : 20000, opened = 0;
  if (argc > 2) seed = strtoull(argv[2], NULL, 10);
  lm_plan *plan[BYTES_PLANS];
  size_t size;
  bytes_plans(plan);
  char *good = bytes_write(plan, &size);
  lm_require(good != NULL);
  for (long i = 0; i < count; i++) {
    lm_policy_image *policy;
    char *bytes = lm_metadata_alloc(size + 64);
    lm_require(bytes != NULL);
    memcpy(bytes, good, size);
    damage(bytes, size);
    size_t now = resize(bytes, size);
    bytes_seal(bytes, now);
    if (lm_policy_image_open(bytes, now, false, &policy)) {
      lm_metadata_free(bytes);
      continue;
    }
    use(policy);
    lm_policy_image_close(policy);
    opened++;
  }
  printf("%ld images, %ld of them opened\n", count, opened);
  return opened > count / 20 ? 0 : 1;
}

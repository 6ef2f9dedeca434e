/* plan_text.c - reads a plan from text, as it stands in the environment: two hexadecimal digits for
 * each byte, and `z` with two digits for a run of that many zeros. */
#include "plan/plan_text.h"

#include <string.h>

#include "heap/strategy.h"
#include "plan/policy_image.h"

/* ---- Strategies */

static bool is_fair(const lm_plan_text_member *m) {
  bool aligned = !m->align || (lm_is_pow2(m->align) && m->align <= LM_GIB);
  return lm_plan_text_has_kind(m->kind) && m->huge <= LM_HUGE_THP && m->zero <= 1 &&
         m->prefault <= 1 && aligned && m->limit <= LM_SIZE_MAX &&
         memchr(m->name, 0, sizeof m->name);
}

static bool intern(const lm_plan_text_member *m, uint32_t *id) {
  lm_strategy *s;
  lm_desc d = { .kind = m->kind,
                .align = m->align,
                .limit = m->limit,
                .guard = m->guard,
                .huge = m->huge,
                .zero = m->zero,
                .prefault = m->prefault };
  if (!is_fair(m)) return false;
  memcpy(d.name, m->name, sizeof d.name);
  if (lm_strategy_intern(&d, &s) != LOAM_OK) return false;
  *id = s->id;
  return true;
}

/* ---- Text */

static int digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Two digits; -1 if they are none. */
static int read_byte(const char *text) {
  int high = digit(text[0]), low = high < 0 ? -1 : digit(text[1]);
  return low < 0 ? -1 : high * 16 + low;
}

/* The number of bytes; 0 if the text is wrong, or too long. */
static size_t read_text(const char *text, unsigned char bytes[LM_PLAN_TEXT_BYTES]) {
  size_t n = 0;
  while (*text) {
    bool is_run = *text == 'z';
    int byte = read_byte(text + is_run);
    size_t more = is_run ? (size_t)byte : 1;
    if (byte < 0 || more > LM_PLAN_TEXT_BYTES - n) return 0;
    memset(bytes + n, is_run ? 0 : byte, more);
    n += more;
    text += 2 + is_run;
  }
  return n;
}

/* ---- Plans */

/* Gives the strategies at the end of an image the numbers that they have in this process. */
static bool renumber(unsigned char *image, size_t size, const uint32_t *ids, uint32_t members) {
  lm_image start;
  if (size < sizeof start) return false;
  memcpy(&start, image, sizeof start);
  if (start.chain > (size - sizeof start) / sizeof(uint32_t)) return false;
  uint32_t *chain = (uint32_t *)(void *)(image + size) - start.chain;
  for (uint32_t i = 0; i < start.chain; i++) {
    if (chain[i] >= members) return false;
    chain[i] = ids[chain[i]];
  }
  return true;
}

bool lm_plan_text_read(const char *text, lm_plan_text *out) {
  lm_plan_text_head h;
  lm_plan_text_member m;
  uint32_t ids[LM_PLAN_TEXT_MEMBERS];
  size_t size = read_text(text, out->bytes), at = sizeof h;
  if (size < sizeof h || size % 4) return false;
  memcpy(&h, out->bytes, sizeof h);
  if (h.magic != LM_PLAN_TEXT_MAGIC || !h.members || h.members > LM_PLAN_TEXT_MEMBERS ||
      h.applies_live > 1)
    return false;
  if (size - at < h.members * sizeof m || !memchr(h.policy, 0, sizeof h.policy)) return false;
  for (uint32_t i = 0; i < h.members; i++, at += sizeof m) {
    memcpy(&m, out->bytes + at, sizeof m);
    if (!intern(&m, &ids[i])) return false;
  }
  if (!renumber(out->bytes + at, size - at, ids, h.members)) return false;
  memcpy(out->policy, h.policy, sizeof out->policy);
  out->applies_live = h.applies_live;
  out->image = out->bytes + at;
  out->size = size - at;
  return true;
}

/* ---- Images */

static void *write_image(const lm_plan_text *c, const char *text, size_t length, size_t *size) {
  const lm_class_head tree = { .magic = LM_CLASS_MAGIC, .plans = 1 };
  lm_plan *plan;
  void *bytes = NULL;
  if (lm_plan_make(c->image, c->size, &plan)) return NULL;
  lm_policy_image_source source = { .plan = (const lm_plan *const *)&plan,
                                    .plans = 1,
                                    .tree = &tree,
                                    .tree_size = sizeof tree,
                                    .name = c->policy,
                                    .applies_live = c->applies_live,
                                    .text = text,
                                    .length = length,
                                    .devices = -1 };
  (void)lm_policy_image_write(&source, &bytes, size);
  lm_plan_destroy(plan);
  return bytes;
}

void *lm_plan_text_image(const char *carried, const char *text, size_t length, size_t *size) {
  lm_plan_text *c = lm_metadata_alloc(sizeof *c);
  bool is_read = c && lm_plan_text_read(carried, c);
  void *bytes = is_read ? write_image(c, text, length, size) : NULL;
  lm_metadata_free(c);
  return bytes;
}

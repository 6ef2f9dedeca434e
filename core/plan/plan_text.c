/* plan_text.c - a plan as text, for the environment.
 *
 * A plan is first written as bytes: a head, the strategies that the plan names, and the image of
 * the plan (plan.h). In that image a strategy id is the position of the strategy in the list. The
 * text is two hexadecimal digits for each byte; a run of zeros is `z` and its length, in two
 * hexadecimal digits. */
#include "plan/plan_text.h"

#include <stdio.h>
#include <string.h>

#include "heap/strategy.h"

/* MEMBERS: the most strategies of a plan. RUN_MOST: the longest run of zeros. */
enum { MAGIC = 0x6c637931, MEMBERS = 16, RUN_MOST = 255 };

typedef struct head {
  uint32_t magic, members;
  char policy[LM_PLAN_TEXT_NAME];
  uint64_t applies_live;
} head;

/* A strategy, by the fields of its description that can be other than the default. */
typedef struct member {
  char name[LM_STRATEGY_NAME];
  uint64_t align, limit;
  uint32_t guard;
  uint8_t kind, huge, zero, prefault;
} member;

/* Bytes that are written one after the other. Law: size <= LM_PLAN_TEXT_BYTES. */
typedef struct writer {
  size_t size;
  bool failed; /* something did not fit */
  _Alignas(8) unsigned char bytes[LM_PLAN_TEXT_BYTES];
} writer;

static void put(writer *w, const void *data, size_t size) {
  lm_assert(w->size <= sizeof w->bytes);
  w->failed = w->failed || size > sizeof w->bytes - w->size;
  if (w->failed || !size) return;
  memcpy(w->bytes + w->size, data, size);
  w->size += size;
}

/* ---- Strategies */

static bool is_kind_portable(lm_kind kind) {
  return kind == LM_KIND_HOST || kind == LM_KIND_SYSTEM || kind == LM_KIND_DENY;
}

/* Returns whether every machine can provide memory of a strategy. */
static bool is_portable(const lm_desc *d) {
  return is_kind_portable(d->kind) && d->placement.mode == LM_BIND_DEFAULT && !d->lock &&
         d->huge <= LM_HUGE_THP;
}

static member member_of(const lm_desc *d) {
  member m = { .align = d->align,
               .limit = d->limit,
               .guard = d->guard,
               .kind = (uint8_t)d->kind,
               .huge = (uint8_t)d->huge,
               .zero = d->zero,
               .prefault = d->prefault };
  lm_assert(is_portable(d));
  snprintf(m.name, sizeof m.name, "%s", d->name);
  return m;
}

/* Returns whether a member that was read is one that member_of can make. */
static bool is_member_valid(const member *m) {
  bool aligned = !m->align || (lm_is_pow2(m->align) && m->align <= LM_GIB);
  return is_kind_portable(m->kind) && m->huge <= LM_HUGE_THP && m->zero <= 1 && m->prefault <= 1 &&
         aligned && m->limit <= LM_SIZE_MAX && memchr(m->name, 0, sizeof m->name);
}

/* Interns the strategy of a member; *id becomes its id in this process. */
static bool intern(const member *m, uint32_t *id) {
  lm_strategy *s;
  lm_desc d = { .kind = m->kind,
                .align = m->align,
                .limit = m->limit,
                .guard = m->guard,
                .huge = m->huge,
                .zero = m->zero,
                .prefault = m->prefault };
  if (!is_member_valid(m)) return false;
  memcpy(d.name, m->name, sizeof d.name);
  if (lm_strategy_intern(&d, &s) != LOAM_OK) return false;
  *id = s->id;
  return true;
}

/* ---- Text */

/* Writes the bytes as text. Returns false if the text is too long. */
static bool write_text(const writer *w, char text[LM_PLAN_TEXT_SIZE]) {
  size_t at = 0;
  lm_assert(!w->failed);
  for (size_t i = 0; i < w->size;) {
    unsigned run = 0;
    while (i + run < w->size && run < RUN_MOST && !w->bytes[i + run]) run++;
    if (at + 4 > LM_PLAN_TEXT_SIZE) return false;
    if (run > 1) at += (size_t)sprintf(text + at, "z%02x", run);
    else at += (size_t)sprintf(text + at, "%02x", w->bytes[i]);
    i += run > 1 ? run : 1;
  }
  return true;
}

static int digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Returns the value of two hexadecimal digits; -1 if they are other characters. */
static int read_byte(const char *text) {
  int high = digit(text[0]), low = high < 0 ? -1 : digit(text[1]);
  return low < 0 ? -1 : high * 16 + low;
}

/* Reads the bytes of a text. Returns their number; 0 if the text is not valid, or too long. */
static size_t read_text(const char *text, unsigned char bytes[LM_PLAN_TEXT_BYTES]) {
  size_t n = 0;
  while (*text) {
    bool is_run = *text == 'z';
    int byte = read_byte(text + is_run);
    size_t more = is_run ? (size_t)byte : 1;
    if (byte < 0 || more > LM_PLAN_TEXT_BYTES - n) return 0;
    memset(bytes + n, is_run ? 0 : byte, more);
    n += more;
    lm_assert(n <= LM_PLAN_TEXT_BYTES);
    text += 2 + is_run;
  }
  return n;
}

/* ---- Plans */

/* Numbers the strategies of a plan in the order in which its chains first name them: `ids` by
 * number, and `chain` with the numbers in place of the ids. Returns how many there are; 0 if they
 * are too many, or if one of them is not portable. */
static uint32_t number_members(const lm_plan *plan, uint32_t *chain, uint32_t ids[MEMBERS]) {
  uint32_t n = 0;
  for (uint32_t i = 0; i < plan->chains; i++) {
    uint32_t at = 0;
    while (at < n && ids[at] != plan->chain[i]) at++;
    if (at == MEMBERS || !is_portable(&lm_strategy_at(plan->chain[i])->desc)) return 0;
    if (at == n) ids[n++] = plan->chain[i];
    chain[i] = at;
  }
  return n;
}

bool lm_plan_text_write(const lm_plan *plan, const char *policy, bool applies_live,
                        char text[LM_PLAN_TEXT_SIZE]) {
  enum { CHAINS = LM_PLAN_TEXT_BYTES / 4 };
  uint32_t ids[MEMBERS], chain[CHAINS];
  uint32_t portable = 1u << LM_IN_SIZE | 1u << LM_IN_ALIGN | 1u << LM_IN_ZERO | 1u << LM_IN_LIVE;
  writer w = { .size = 0 };
  head h = { .magic = MAGIC, .applies_live = applies_live };
  if (plan->reads & ~portable || plan->chains > CHAINS) return false;
  h.members = number_members(plan, chain, ids);
  if (!h.members) return false;
  snprintf(h.policy, sizeof h.policy, "%s", policy);
  put(&w, &h, sizeof h);
  for (uint32_t i = 0; i < h.members; i++) {
    member m = member_of(&lm_strategy_at(ids[i])->desc);
    put(&w, &m, sizeof m);
  }
  lm_image image = { LM_PLAN_MAGIC, plan->nodes, plan->codes, plan->leaves, plan->chains, 0 };
  put(&w, &image, sizeof image);
  put(&w, plan->node, plan->nodes * sizeof *plan->node);
  put(&w, plan->code, plan->codes * sizeof *plan->code);
  put(&w, plan->leaf, plan->leaves * sizeof *plan->leaf);
  put(&w, chain, plan->chains * sizeof *chain);
  return !w.failed && write_text(&w, text);
}

/* Replaces the strategy numbers at the end of an image by the ids `ids` of this process. Returns
 * false if the image is not valid. */
static bool renumber(unsigned char *image, size_t size, const uint32_t *ids, uint32_t members) {
  lm_image start;
  lm_assert(members && members <= MEMBERS);
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
  head h;
  member m;
  uint32_t ids[MEMBERS];
  size_t size = read_text(text, out->bytes), at = sizeof h;
  if (size < sizeof h || size % 4) return false;
  memcpy(&h, out->bytes, sizeof h);
  if (h.magic != MAGIC || !h.members || h.members > MEMBERS || h.applies_live > 1) return false;
  if (size - at < h.members * sizeof m || !memchr(h.policy, 0, sizeof h.policy)) return false;
  for (uint32_t i = 0; i < h.members; i++, at += sizeof m) {
    memcpy(&m, out->bytes + at, sizeof m);
    if (!intern(&m, &ids[i])) return false;
  }
  if (!renumber(out->bytes + at, size - at, ids, h.members)) return false;
  memcpy(out->policy, h.policy, sizeof out->policy);
  out->applies_live = h.applies_live;
  lm_assert(at + sizeof(lm_image) <= size);
  out->image = out->bytes + at;
  out->size = size - at;
  return true;
}

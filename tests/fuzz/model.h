/* model.h - the interface fuzzer's model of live blocks, and the comparison of loam with the model.
 *
 * A block enters the model after it was allocated, and leaves it before it is freed or reallocated.
 * So every block of the model is live, and the model has all live blocks while no thread is in an
 * operation. */
#ifndef MODEL_H
#define MODEL_H

#include <pthread.h>
#include <stdlib.h>

#include "loam.h"
#include "policies.h"

/* A tag, with or without a place in the source of a program. */
typedef struct spot {
  const char *tag, *file;
  int line;
} spot;

static const spot spots[] = {
  { "", "", 0 },
  { "a", "", 0 },
  { "a.b", "", 0 },
  { "a.b", "one.c", 10 },
  { "a.b", "one.c", 11 },
  { "a.b.c", "", 0 },
  { "ab", "", 0 },
  { "cache", "", 0 },
  { "cache.x", "", 0 },
  { "cache.y", "", 0 },
  { "cache.y", "two.c", 7 },
  { "log", "", 0 },
  { "log", "two.c", 8 },
  { "other", "", 0 },
  { "late.1", "", 0 },
  { "late.2", "three.c", 1 },
};
enum { SPOTS = LM_COUNT(spots) };

typedef struct block {
  char *p; /* NULL: no block */
  size_t asked, usable;
  int spot, strategy;
  uint64_t generation;
  uint32_t mark; /* determines its contents */
} block;

enum { THREADS = 4, SLOTS = 400, GENERATIONS = 1 << 16 };

/* Sums over some blocks. */
typedef struct amount {
  uint64_t blocks, bytes;
} amount;

static struct {
  pthread_mutex_t lock;
  block slot[SLOTS];
  /* The policy of each generation. Only one thread loads at a time, so `begun` is at most one ahead
   * of `live`. */
  uint8_t policy[GENERATIONS];
  _Atomic uint64_t live, begun;
  /* The counts that loam must have; exact if threads take turns. */
  _Atomic uint64_t bad_frees, denied, failed, made, remade;
} model = { .lock = PTHREAD_MUTEX_INITIALIZER };

_Noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
#define must(e, ...)             \
  do {                           \
    if (!(e)) fail(__VA_ARGS__); \
  } while (0)

/* ---- contents: all bytes at the beginning and at the end of a block, and some of the others */

static size_t next_byte(size_t i, size_t n) {
  if (i + 1 < 2048 || i + 64 >= n) return i + 1;
  return i + 509 < n - 64 ? i + 509 : n - 64;
}

static char byte_at(uint32_t mark, size_t i) { return (char)(mark + i * 7 + (i >> 8)); }

static void fill(const block *b) {
  for (size_t i = 0; i < b->usable; i = next_byte(i, b->usable)) b->p[i] = byte_at(b->mark, i);
}

/* This process is a forked child. Its parent may write to memory that they share. */
static bool is_child;

/* A forked child counts its own requests. */
static void begin_child(void) {
  is_child = true;
  model.bad_frees = model.denied = model.failed = 0;
}

/* Checks that the first `n` bytes at `p` are the contents of `b`. */
static void check_contents(const block *b, const char *p, size_t n) {
  if (is_child && b->strategy == LENT) return;
  for (size_t i = 0; i < n; i = next_byte(i, b->usable))
    must(p[i] == byte_at(b->mark, i),
         "byte %zu of %p, a block of %zu bytes of strategy '%s': changed", i, (void *)b->p,
         b->usable, strategies[b->strategy].name);
}

static void check_zero(const char *p, size_t from, size_t n) {
  for (size_t i = from; i < n; i = next_byte(i, n))
    must(!p[i], "byte %zu of %p: not zero", i, (void *)p);
}

/* ---- the table of blocks, which the lock guards */

static amount sum_locked(int strategy, const char *tag, int64_t generation) {
  amount sum = { 0 };
  for (int i = 0; i < SLOTS; i++) {
    const block *b = &model.slot[i];
    if (!b->p || (strategy && b->strategy != strategy)) continue;
    if (tag && strcmp(spots[b->spot].tag, tag)) continue;
    if (generation >= 0 && b->generation != (uint64_t)generation) continue;
    sum.blocks++;
    sum.bytes += b->usable;
  }
  return sum;
}

static amount sum_of(int strategy, const char *tag, int64_t generation) {
  pthread_mutex_lock(&model.lock);
  amount sum = sum_locked(strategy, tag, generation);
  pthread_mutex_unlock(&model.lock);
  return sum;
}

static void check_apart_locked(const block *b) {
  for (int i = 0; i < SLOTS; i++) {
    const block *other = &model.slot[i];
    must(!other->p || b->p + b->usable <= other->p || other->p + other->usable <= b->p,
         "%p, a block of %zu bytes: in it is %p, one of %zu", (void *)b->p, b->usable,
         (void *)other->p, other->usable);
  }
}

/* Returns how many bytes may be live in a strategy, or 0 if it has no limit. The size of a block of
 * the system's realloc is known only after the call, so such a block may exceed the limit a
 * little. */
static size_t most_of(int strategy) {
  const strategy_spec *s = &strategies[strategy];
  return s->limit && !strcmp(s->kind, "system") ? s->limit + THREADS * LM_PAGE : s->limit;
}

/* Keeps a block in the first free slot from `at` on. Returns false if no slot is free. Checks that
 * the block overlaps no other one, and that its strategy is within its limit. */
static bool keep(const block *b, uint32_t at) {
  pthread_mutex_lock(&model.lock);
  check_apart_locked(b);
  size_t limit = most_of(b->strategy);
  uint64_t used = sum_locked(b->strategy, NULL, -1).bytes + b->usable;
  must(!limit || used <= limit, "strategy '%s': %zu bytes live, limit %zu",
       strategies[b->strategy].name, (size_t)used, limit);
  int n = 0;
  while (n < SLOTS && model.slot[(at + (uint32_t)n) % SLOTS].p) n++;
  if (n < SLOTS) model.slot[(at + (uint32_t)n) % SLOTS] = *b;
  pthread_mutex_unlock(&model.lock);
  return n < SLOTS;
}

/* Takes the first block from slot `at` on out of the table. Returns false if there is no block. */
static bool claim(uint32_t at, block *out) {
  *out = (block){ 0 };
  pthread_mutex_lock(&model.lock);
  for (uint32_t n = 0; n < SLOTS && !out->p; n++) {
    block *b = &model.slot[(at + n) % SLOTS];
    if (!b->p) continue;
    *out = *b;
    b->p = NULL;
  }
  pthread_mutex_unlock(&model.lock);
  return out->p;
}

static int strategy_called(const char *name) {
  for (int i = DEFAULT; i < STRATEGIES; i++)
    if (!strcmp(strategies[i].name, name)) return i;
  fail("strategy '%s': there is none of this name", name);
}

/* ---- the strategies that a policy may choose */

/* Returns whether a member of a chain must serve a request, if `used` bytes of its limit are
 * used. */
static bool is_certain(int member, const request *r, uint64_t used, bool in_turns) {
  size_t limit = strategies[member].limit;
  size_t cached = limit / 8; /* the most that other threads cache */
  if (member == LENT) return false;
  return !limit || (in_turns && used + cached + r->size + r->size / 4 + r->align + 8192 <= limit);
}

/* Returns whether the policy may serve a request by `strategy` or, if that is NO, may leave it
 * without memory. `used` has the used bytes of each strategy. Without `in_turns`, other threads may
 * change them during the request. */
static bool may_answer(const policy *p, const request *r, int strategy, const uint64_t *used,
                       bool in_turns) {
  chain c = p->decide(r);
  for (int i = 0; i < 4 && c.member[i] != END; i++) {
    if (c.member[i] == strategy) return true;
    if (c.member[i] == NO || is_certain(c.member[i], r, used[c.member[i]], in_turns)) return false;
  }
  return strategy == NO;
}

static bool may_answer_at_all(const policy *p, const request *r, int strategy, const uint64_t *used,
                              bool in_turns) {
  request low = *r, high = *r;
  low.live = r->live > r->uncertainty ? r->live - r->uncertainty : 0;
  high.live = r->live < INT64_MAX - r->uncertainty ? r->live + r->uncertainty : INT64_MAX;
  request some = *r; /* a value between both thresholds, if both lie between `low` and `high` */
  some.live = low.live < LIVE_SOME && high.live >= LIVE_MUCH ? LIVE_SOME : r->live;
  return may_answer(p, &low, strategy, used, in_turns) ||
         may_answer(p, &some, strategy, used, in_turns) ||
         may_answer(p, &high, strategy, used, in_turns);
}

static bool has_denied(const policy *p, const request *r) {
  chain c = p->decide(r);
  for (int i = 0; i < 4; i++)
    if (c.member[i] == NO) return true;
  return false;
}

/* Returns whether a realloc to a size that fits the block did not change it, although the policies
 * since `generation` choose another strategy for it, or the call names another site. loam does so
 * if it has no memory for a smaller block. */
static bool realloc_kept_block(const block *was, const char *p, int at, const request *r,
                               uint64_t generation, const uint64_t *used, bool in_turns) {
  loam_owner_info o;
  if (p != was->p || r->size > was->usable || loam_owner(p, &o)) return false;
  if (o.generation != was->generation) return false;
  if (strcmp(o.strategy, strategies[was->strategy].name)) return false;
  const spot *as = &spots[at];
  bool is_its = !strcmp(o.tag, as->tag) && !strcmp(o.file, as->file) && o.line == as->line;
  if (!is_its && strategies[was->strategy].limit && r->size <= was->usable / 2) return true;
  const policy *of = &policies[model.policy[o.generation]];
  return o.generation < generation || strcmp(o.tag, r->tag) ||
         !may_answer_at_all(of, r, was->strategy, used, in_turns);
}

/* Returns whether the block is memory under no policy, which a request gets while another thread
 * forks for long. Such a block is checked and freed: the model does not know it. */
static bool is_without_policy(char *p, const request *r, bool in_turns) {
  loam_owner_info o;
  if (in_turns || !loam_owns(p) || loam_owner(p, &o) != LOAM_EBADPTR) return false;
  must(loam_usable_size(p) >= r->size && (uintptr_t)p % r->align == 0, "%p: %zu usable of %zu",
       (void *)p, loam_usable_size(p), r->size);
  for (size_t i = 0; r->zero && i < r->size; i++) must(!p[i], "%p: not zero", (void *)p);
  loam_free(p);
  return true;
}

/* ---- loam's figures */

typedef struct books {
  amount all;
} books;

static void check_row(void *ctx, const loam_stats_row *row) {
  books *b = ctx;
  if (!row->live_blocks && !row->live_bytes) return;
  amount sum = sum_of(strategy_called(row->strategy), row->tag, (int64_t)row->generation);
  must(sum.blocks == row->live_blocks && sum.bytes == row->live_bytes,
       "tag '%s', strategy '%s', generation %zu: %zu blocks of %zu bytes, told %zu of %zu",
       row->tag, row->strategy, (size_t)row->generation, (size_t)sum.blocks, (size_t)sum.bytes,
       (size_t)row->live_blocks, (size_t)row->live_bytes);
  b->all.blocks += row->live_blocks;
  b->all.bytes += row->live_bytes;
}

static void check_limits(void) {
  for (int i = DEFAULT; i < STRATEGIES; i++) {
    size_t limit = most_of(i);
    must(!limit || sum_of(i, NULL, -1).bytes <= limit, "strategy '%s': over its limit of %zu",
         strategies[i].name, limit);
  }
}

/* Compares all figures of loam with the model. No other thread may be in an operation. */
static void check_books(bool in_turns) {
  books b = { 0 };
  struct loam_stats s;
  must(!loam_stats_by(LOAM_BY_TAG | LOAM_BY_STRATEGY | LOAM_BY_GENERATION, check_row, &b),
       "stats: %s", loam_error());
  must(!loam_stats(&s), "stats: %s", loam_error());
  amount sum = sum_of(0, NULL, -1);
  must(sum.blocks == b.all.blocks && sum.bytes == b.all.bytes,
       "%zu blocks of %zu bytes live, the rows tell %zu of %zu", (size_t)sum.blocks,
       (size_t)sum.bytes, (size_t)b.all.blocks, (size_t)b.all.bytes);
  must(sum.blocks == s.live_blocks && sum.bytes == s.live_bytes,
       "%zu blocks of %zu bytes live, told %zu of %zu", (size_t)sum.blocks, (size_t)sum.bytes,
       (size_t)s.live_blocks, (size_t)s.live_bytes);
  must(s.total_blocks >= model.made && s.total_blocks <= model.made + model.remade,
       "%zu blocks made and %zu reallocated, told %zu", (size_t)model.made, (size_t)model.remade,
       (size_t)s.total_blocks);
  must(s.generation == model.live, "generation %zu, told %zu", (size_t)model.live,
       (size_t)s.generation);
  must(s.bad_frees == model.bad_frees, "%zu bad frees, told %zu", (size_t)model.bad_frees,
       (size_t)s.bad_frees);
  must(!in_turns || (s.denied == model.denied && s.failed == model.failed),
       "%zu denied and %zu failed, told %zu and %zu", (size_t)model.denied, (size_t)model.failed,
       (size_t)s.denied, (size_t)s.failed);
  check_limits();
}

#endif

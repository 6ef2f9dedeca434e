/* interface.c - random calls of the whole interface, on one to four threads, against a model.
 *
 *   interface [--seed S] [--count N] [--runs R]    R sequences of N operations, from seed S on
 *   interface --seed S --count N --keep LIST       prints and does only these (3,17,40-52) of one
 *   interface --bytes FILE                         one sequence, drawn from the bytes of a file
 *
 * Each sequence runs in a process of its own. The seed and the number of an operation decide its
 * actions. So a sequence that fails can be made smaller: halves, then quarters and so on are left
 * out while it still fails, and what remains is printed. With an even seed the threads take turns,
 * and everything is compared exactly. With an odd seed they run at the same time, and figures that
 * other threads may have changed are not compared. A fuzzing engine can write the bytes: eight for
 * an operation, of which the first two choose the thread and two more the kind of operation.
 *
 * A long run: interface --seed 1000 --runs 100000 */
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "counting_handler.h"
#include "heap/pool.h"
#include "heap/sweep.h"
#include "model.h"

enum {
  ROUND = 256, /* operations between two comparisons of loam's figures */
  RECORD = 8,  /* bytes of an operation */
  DEEPEST = 70,
  PATIENCE = 60 /* seconds to make a failure smaller */
};

#if defined __SANITIZE_THREAD__ || defined __SANITIZE_ADDRESS__
enum { SECONDS = 240 };
#else
enum { SECONDS = 80 };
#endif

/* The address sanitizer's own allocator may be locked in a child of several threads. */
#ifdef __SANITIZE_ADDRESS__
enum { FORKS_AMID_THREADS = 0 };
#else
enum { FORKS_AMID_THREADS = 1 };
#endif

typedef struct worker {
  int number;
  pthread_t thread;
  long at; /* the next operation to look at */
  bool rested;
  bool joins_predecessor; /* joins the ended thread that it replaces, to complete its counts */
  int depth;
  int scope[DEEPEST]; /* indices of spots; -1: NULL */
} worker;

/* Memory that the parent shares with the processes of sequences. */
typedef struct progress {
  _Atomic long operation;
} progress;

static struct {
  uint64_t seed;
  long count;
  const uint8_t *bytes; /* NULL: everything is drawn from the seed */
  const char *skipped;  /* a flag for each operation; NULL: none is skipped */
  int threads;
  bool in_turns; /* threads take turns */
  bool traced, quiet;
  const char *folder; /* of control sockets */
} run;

static progress *shared;
static _Thread_local long operation = -1;
static _Thread_local int thread_number;

_Noreturn void fail(const char *format, ...) {
  va_list args;
  va_start(args, format);
  fprintf(stderr, "interface: operation %ld, thread %d: ", operation, thread_number);
  vfprintf(stderr, format, args);
  fputc('\n', stderr);
  va_end(args);
  _exit(1);
}

static void tell(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void tell(const char *format, ...) {
  if (!run.traced) return;
  va_list args;
  va_start(args, format);
  fprintf(stderr, "%6ld  thread %d  ", operation, thread_number);
  vfprintf(stderr, format, args);
  fputc('\n', stderr);
  va_end(args);
}

/* ---- random numbers */

typedef struct dice {
  uint64_t state;
  const uint8_t *bytes;
  int left;
} dice;

static uint32_t roll(dice *d, uint32_t n) {
  if (d->left >= 2) {
    uint32_t value = d->bytes[0] | (uint32_t)d->bytes[1] << 8;
    d->bytes += 2;
    d->left -= 2;
    return value % n;
  }
  d->state = d->state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)((d->state >> 32) * n >> 32);
}

static dice dice_of(long i) {
  dice d = { .state = (run.seed + 1) * 0x9e3779b97f4a7c15u ^ (uint64_t)i * 0xbf58476d1ce4e5b9u };
  if (run.bytes) d = (dice){ (uint64_t)i, run.bytes + i * RECORD, RECORD };
  for (int k = 0; k < 3 && !d.left; k++) roll(&d, 2);
  return d;
}

static size_t some_size(dice *d) {
  uint32_t kind = roll(d, 100);
  if (kind < 60) return roll(d, 600);
  if (kind < 80) return roll(d, 6000);
  if (kind < 86) return (size_t)16 << roll(d, 14);
  if (kind < 95) return roll(d, 60000);
  if (kind < 98) return roll(d, 400000);
  return roll(d, 5000000);
}

/* ---- the state before an operation */

typedef struct before {
  uint64_t generation;
  uint64_t used[STRATEGIES];
  int64_t live; /* bytes under the tag */
} before;

static before look(int at) {
  before b = { .generation = model.live };
  for (int i = DEFAULT; i < STRATEGIES; i++)
    if (run.in_turns && strategies[i].limit) b.used[i] = sum_of(i, NULL, -1).bytes;
  if (run.in_turns) b.live = (int64_t)sum_of(0, spots[at].tag, -1).bytes;
  return b;
}

static loam_site *site_of(int at) {
  const spot *p = &spots[at];
  loam_where where = { .tag = p->tag, .file = p->file, .line = p->line };
  loam_site *site = p->line ? loam_site_at(&where) : loam_site_get(p->tag);
  must(site, "tag '%s': %s", p->tag, loam_error());
  return site;
}

/* Returns the spot of the thread's scope, for requests that name no site. */
static int spot_in_scope(const worker *w) {
  int depth = w->depth < 64 ? w->depth : 64;
  return depth && w->scope[depth - 1] >= 0 ? w->scope[depth - 1] : 0;
}

/* Draws the spot of a request. Sets *site to its site, or to NULL if the thread's scope decides. */
static int some_spot(const worker *w, dice *d, loam_site **site) {
  *site = NULL;
  if (roll(d, 5) == 0) return spot_in_scope(w);
  int at = (int)roll(d, SPOTS);
  *site = site_of(at);
  return at;
}

/* The most bytes that a thread may have added or freed under a tag before other threads see it. */
enum { UNREPORTED_MAX = 128 << 10 };

static request asked(int at, size_t size, size_t align, bool zero, const before *b) {
  int64_t uncertainty = run.in_turns ? (run.threads - 1) * UNREPORTED_MAX : INT64_MAX;
  return (request){ spots[at].tag, size, align < 16 ? 16 : align, zero, b->live, uncertainty };
}

/* Checks who served a request. Any policy that was in force since `b` was made may have decided. */
static void check_answer(const request *r, const before *b, uint64_t generation, int strategy) {
  uint64_t begun = model.begun;
  must(generation >= b->generation && generation <= begun, "generation %zu: it was %zu to %zu",
       (size_t)generation, (size_t)b->generation, (size_t)begun);
  const policy *p = &policies[model.policy[generation]];
  must(may_answer_at_all(p, r, strategy, b->used, run.in_turns),
       "policy '%s', tag '%s', size %zu, align %zu, zero %d, live %zu: strategy '%s'", p->name,
       r->tag, r->size, r->align, r->zero, (size_t)r->live, strategies[strategy].name);
}

/* Checks that a policy that was in force since `b` was made may refuse the request. */
static void check_refusal(const request *r, const before *b) {
  if (run.in_turns) check_answer(r, b, b->generation, NO);
  for (uint64_t g = b->generation; g <= model.begun; g++)
    if (may_answer_at_all(&policies[model.policy[g]], r, NO, b->used, run.in_turns)) return;
  fail("size %zu under tag '%s': %s", r->size, r->tag, loam_error());
}

static void check_none(const request *r, const before *b) {
  must(*loam_error(), "size %zu under tag '%s': NULL without a word", r->size, r->tag);
  check_refusal(r, b);
  if (!run.in_turns) return;
  if (has_denied(&policies[model.policy[model.live]], r)) model.denied++;
  else model.failed++;
}

/* Checks all that loam reports about a new block. Returns the block for the model. */
static block inspect(char *p, int at, const request *r, const before *b) {
  loam_owner_info o;
  must(!loam_owner(p, &o), "owner of %p, just made: %s", (void *)p, loam_error());
  must(o.base == p && o.size >= r->size, "owner of %p: %p and %zu bytes, %zu were asked for",
       (void *)p, o.base, o.size, r->size);
  must(!strcmp(o.tag, spots[at].tag) && !strcmp(o.file, spots[at].file) && o.line == spots[at].line,
       "owner of %p: '%s' %s:%d, not '%s' %s:%d", (void *)p, o.tag, o.file, o.line, spots[at].tag,
       spots[at].file, spots[at].line);
  int strategy = strategy_called(o.strategy);
  const strategy_spec *s = &strategies[strategy];
  const char *maker = strategy == LIB ? "fuzz" : strcmp(s->kind, "system") ? "loam" : "system";
  must(!strcmp(o.kind, s->kind) && !strcmp(o.handler, maker), "owner of %p: %s, by %s", (void *)p,
       o.kind, o.handler);
  check_answer(r, b, o.generation, strategy);
  must(loam_usable_size(p) == o.size && loam_owns(p), "%p: %zu usable, owner says %zu", (void *)p,
       loam_usable_size(p), o.size);
  must(loam_live_size(p) == o.size, "%p: %zu, owner says %zu", (void *)p, loam_live_size(p),
       o.size);
  block made = { .p = p, .asked = r->size, .usable = o.size, .spot = at, .strategy = strategy };
  made.generation = o.generation;
  return made;
}

static void free_block(const block *b) {
  check_contents(b, b->p, b->usable);
  loam_free(b->p);
}

/* Fills a block and puts it into the model. Frees the block if the model has no room for it. */
static void adopt(block *b, dice *d) {
  b->mark = roll(d, 1 << 16);
  fill(b);
  if (!keep(b, roll(d, SLOTS))) free_block(b);
}

static void adopt_new(char *p, int at, const request *r, const before *b, dice *d) {
  if (!p) {
    check_none(r, b);
    return;
  }
  if (is_without_policy(p, r, run.in_turns)) return;
  block made = inspect(p, at, r, b);
  const strategy_spec *s = &strategies[made.strategy];
  must((uintptr_t)p % r->align == 0 && (!s->align || (uintptr_t)p % s->align == 0),
       "%p: %zu asked for, strategy '%s' has %zu", (void *)p, r->align, s->name, s->align);
  if (r->zero) check_zero(p, 0, r->size);
  if (s->zero) check_zero(p, 0, made.usable);
  model.made++;
  adopt(&made, d);
}

/* ---- operations */

/* Called if loam has no decision for a return address. The request is for the site `missing`. */
static _Thread_local loam_site *missing;
static void *missed(size_t size, const void *code) { return loam_code_learn(size, code, missing); }

static void *malloc_by_code(loam_site *site, size_t size) {
  missing = site;
  return loam_code_malloc(size, site, missed);
}

/* Allocates by a handler, by code (a scope then replaces the site), or by a site. */
static char *malloc_by(uint32_t way, loam_site *site, size_t size) {
  const loam_handler *by = loam_handler_of(site);
  if (way == 0) return by->allocator.malloc(by->allocator.ctx, size);
  return way == 1 ? malloc_by_code(site, size) : loam_malloc(site, size);
}

static bool do_malloc(worker *w, dice *d) {
  loam_site *site;
  int at = some_spot(w, d, &site);
  uint32_t way = roll(d, 5);
  if (way == 1 && loam_scope_get()) at = spot_in_scope(w);
  size_t size = some_size(d);
  before b = look(at);
  request r = asked(at, size, 16, false, &b);
  char *p = malloc_by(way, site, size);
  tell("malloc '%s' %zu%s = %p", spots[at].tag, size,
       way == 0   ? " by handler"
       : way == 1 ? " by code"
                  : "",
       (void *)p);
  adopt_new(p, at, &r, &b, d);
  return false;
}

static bool do_calloc(worker *w, dice *d) {
  loam_site *site;
  int at = some_spot(w, d, &site);
  size_t size = some_size(d), count = 1 + roll(d, 3);
  before b = look(at);
  request r = asked(at, size * count, 16, true, &b);
  const loam_handler *by = roll(d, 4) ? NULL : loam_handler_of(site);
  char *p = by ? by->allocator.calloc(by->allocator.ctx, count, size)
               : loam_calloc(site, count, size);
  tell("calloc '%s' %zu x %zu%s = %p", spots[at].tag, count, size, by ? " by handler" : "",
       (void *)p);
  adopt_new(p, at, &r, &b, d);
  return false;
}

static bool do_aligned_alloc(worker *w, dice *d) {
  loam_site *site;
  int at = some_spot(w, d, &site);
  size_t size = some_size(d), align = (size_t)1 << roll(d, roll(d, 20) ? 14 : 22);
  before b = look(at);
  request r = asked(at, size, align, false, &b);
  char *p = loam_aligned_alloc(site, align, size);
  tell("aligned_alloc '%s' %zu %zu = %p", spots[at].tag, align, size, (void *)p);
  adopt_new(p, at, &r, &b, d);
  return false;
}

/* Draws a new size for a block of `was` bytes: near it, a few times as much, a part, or `any`. */
static size_t some_growth(dice *d, size_t was, size_t any) {
  switch (roll(d, 6)) {
    case 0:
    case 1: return was + roll(d, 300);
    case 2: return was < 4 * LM_MIB ? was + roll(d, 4) * was + roll(d, 5000) : was / 2;
    case 3: return was - roll(d, (uint32_t)was / 2 + 1);
    default: return any;
  }
}

static bool do_realloc(worker *w, dice *d) {
  block was;
  loam_site *site = NULL;
  uint32_t from = roll(d, SLOTS), way = roll(d, 6);
  size_t size = some_size(d);
  int at = (int)roll(d, SPOTS);
  (void)w;
  if (way < 4) at = -1;
  before b = { 0 };
  /* The block counts as used, so the figures are read while the model has it. */
  if (run.in_turns) {
    if (!claim(from, &was)) return false;
    must(keep(&was, from), "no room for %p", (void *)was.p);
    b = look(at < 0 ? was.spot : at);
  }
  b.generation = model.live;
  if (!claim(from, &was)) return false;
  if (at < 0) at = was.spot;
  else site = site_of(at);
  size = some_growth(d, was.asked, size);
  check_contents(&was, was.p, was.usable);
  request r = asked(at, size, 16, false, &b);
  char *p = loam_realloc(site, was.p, size);
  tell("realloc %p of %zu, '%s' %zu = %p", (void *)was.p, was.asked, site ? spots[at].tag : "",
       size, (void *)p);
  if (!p) {
    check_none(&r, &b);
    check_contents(&was, was.p, was.usable);
    must(loam_usable_size(was.p) == was.usable, "%p: another size after a failed realloc",
         (void *)was.p);
    must(keep(&was, from) || (loam_free(was.p), true), "no room");
    return false;
  }
  if (realloc_kept_block(&was, p, at, &r, b.generation, b.used, run.in_turns)) {
    check_refusal(&r, &b);
    check_contents(&was, p, was.usable);
    must(keep(&was, from) || (loam_free(p), true), "no room");
    return false;
  }
  check_contents(&was, p, was.usable < size ? was.usable : size);
  if (is_without_policy(p, &r, run.in_turns)) return false;
  block is = inspect(p, at, &r, &b);
  if (strategies[is.strategy].zero) check_zero(p, was.usable, is.usable);
  model.remade++;
  adopt(&is, d);
  return false;
}

static bool do_free(worker *w, dice *d) {
  block b;
  (void)w;
  if (!claim(roll(d, SLOTS), &b)) return false;
  check_contents(&b, b.p, b.usable);
  uint32_t way = roll(d, 8);
  tell("free %p of %zu '%s'", (void *)b.p, b.asked, spots[b.spot].tag);
  if (way < 5) loam_free(b.p);
  else if (way < 7) loam_free_sized(b.p, roll(d, 2) ? b.asked : b.usable);
  else loam_handler_get()->allocator.free(NULL, b.p, b.asked);
  if (!run.in_turns) return false;
  loam_owner_info o;
  must(loam_usable_size(b.p) == 0, "%p: usable after free", (void *)b.p);
  must(loam_owner(b.p, &o) == LOAM_EBADPTR, "%p: owned after free", (void *)b.p);
  return false;
}

/* Frees many neighbours in the model, so that spans, central lists and regions become empty. */
static bool do_free_many(worker *w, dice *d) {
  block b;
  uint32_t n = roll(d, SLOTS / 2), from = roll(d, SLOTS);
  (void)w;
  tell("free of %u", n);
  while (n-- > 0 && claim(from, &b)) free_block(&b);
  return false;
}

static bool do_look(worker *w, dice *d) {
  block b;
  loam_owner_info o;
  uint32_t from = roll(d, SLOTS);
  (void)w;
  if (!claim(from, &b)) return false;
  check_contents(&b, b.p, b.usable);
  char *inner = b.usable ? b.p + (roll(d, 1 << 16) * (uint64_t)b.usable >> 16) : b.p;
  must(!loam_owner(inner, &o) && o.base == b.p && o.size == b.usable &&
           o.generation == b.generation && strategy_called(o.strategy) == b.strategy,
       "owner of %p, in %p of %zu bytes: %s", (void *)inner, (void *)b.p, b.usable, loam_error());
  must(inner == b.p || !loam_usable_size(inner), "%p, in %p: usable", (void *)inner, (void *)b.p);
  must(inner == b.p || !loam_live_size(inner), "%p, in %p: a size", (void *)inner, (void *)b.p);
  /* A guarded malloc(0) has no byte, but loam_owner knows its address. */
  bool ends = !b.usable || loam_owner(b.p + b.usable, &o) || o.base != b.p;
  must(ends, "%p: its end is in it", (void *)b.p);
  must(keep(&b, from) || (loam_free(b.p), true), "no room");
  return false;
}

static bool do_scope(worker *w, dice *d) {
  if (roll(d, 2) || w->depth == DEEPEST) {
    if (w->depth) w->depth--;
    loam_scope_leave();
  } else {
    for (uint32_t n = roll(d, 16) ? 1 : DEEPEST; n > 0 && w->depth < DEEPEST; n--) {
      int at = roll(d, 6) ? (int)roll(d, SPOTS) : -1;
      w->scope[w->depth++] = at;
      loam_scope_enter(at < 0 ? NULL : site_of(at));
    }
  }
  int depth = w->depth < 64 ? w->depth : 64;
  loam_site *here = depth && w->scope[depth - 1] >= 0 ? site_of(w->scope[depth - 1]) : NULL;
  tell("scope: %d deep, '%s'", w->depth, spots[spot_in_scope(w)].tag);
  must(loam_scope_get() == here, "the scope is another");
  return false;
}

static bool do_load(worker *w, dice *d) {
  static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;
  static char text[8192];
  int n = FIRST_POLICY + (int)roll(d, LM_COUNT(policies) - FIRST_POLICY);
  const policy *p = &policies[n];
  (void)w;
  pthread_mutex_lock(&loading);
  uint64_t next = model.live + 1;
  if (next < GENERATIONS) {
    write_policy(p, text, sizeof text);
    model.policy[next] = p->is_wrong ? model.policy[next - 1] : (uint8_t)n;
    if (!p->is_wrong) model.begun = next;
    loam_status status = loam_policy_load_text(p->name, text);
    tell("load '%s': %d", p->name, status);
    must(status == (p->is_wrong ? LOAM_EPOLICY : LOAM_OK), "policy '%s': %s: %s", p->name,
         loam_status_text(status), loam_error());
    model.live = model.begun;
  }
  pthread_mutex_unlock(&loading);
  return false;
}

static bool do_trim(worker *w, dice *d) {
  (void)w;
  if (roll(d, 3)) lm_sweep_decay();
  else tell("trim: %zu", loam_trim());
  return false;
}

/* Draws an offset in a block of `n` bytes, which are more than 16. The offset is not 0. */
static size_t some_offset(dice *d, size_t n) {
  size_t near = 1 + roll(d, 16);
  return roll(d, 2) ? near : 1 + roll(d, (uint32_t)n - 1);
}

/* Frees or reallocates wrongly. loam must count that as a bad free, and do no harm. */
static bool do_wrong(worker *w, dice *d) {
  block b;
  char on_stack[32];
  uint32_t from = roll(d, SLOTS), way = roll(d, 6);
  (void)w;
  if (!claim(from, &b)) return false;
  tell("wrong, way %u, with %p", way, (void *)b.p);
  model.bad_frees++;
  if (way == 0) loam_free(on_stack + 16);
  else if (way == 1 && b.usable > 16) loam_free(b.p + some_offset(d, b.usable));
  else if (way == 2 && b.usable > 16)
    must(!loam_realloc(NULL, b.p + some_offset(d, b.usable), 100), "moved from within");
  else if (way == 3 && run.in_turns) {
    free_block(&b);
    loam_free(b.p);
    return false;
  } else if (way == 4) {
    loam_free_sized(b.p, b.usable + 1 + roll(d, 5000));
    return false;
  } else model.bad_frees--;
  check_contents(&b, b.p, b.usable);
  must(keep(&b, from) || (loam_free(b.p), true), "no room");
  return false;
}

/* Makes requests that are too large or wrong, and must fail. */
static bool do_too_much(worker *w, dice *d) {
  loam_site *site;
  block b;
  size_t size = SIZE_MAX - roll(d, 5000);
  uint32_t from = roll(d, SLOTS);
  some_spot(w, d, &site);
  must(!loam_malloc(site, size) && *loam_error(), "malloc of %zu", size);
  must(!loam_calloc(site, size, 2) && *loam_error(), "calloc of %zu times 2", size);
  must(!loam_calloc(site, (size_t)1 << 33, ((size_t)1 << 31) + 1), "calloc of a wrapped size");
  must(!loam_aligned_alloc(site, 24, 100) && *loam_error(), "an alignment of 24");
  must(!loam_aligned_alloc(site, 4096, size), "aligned_alloc of %zu", size);
  if (!claim(from, &b)) return false;
  must(!loam_realloc(site, b.p, size), "realloc to %zu", size);
  check_contents(&b, b.p, b.usable);
  must(keep(&b, from) || (loam_free(b.p), true), "no room");
  return false;
}

static void ignore_row(void *ctx, const loam_stats_row *row) {
  *(uint64_t *)ctx += row->live_bytes;
}

static bool do_ask(worker *w, dice *d) {
  struct loam_stats s;
  struct loam_policy_info info;
  uint64_t bytes = 0;
  (void)w;
  if (run.in_turns) check_books(true);
  must(!loam_stats(&s) && !loam_policy_info(&info), "%s", loam_error());
  must(!loam_stats_by((int)roll(d, 8), ignore_row, &bytes), "%s", loam_error());
  must(!run.in_turns || bytes == s.live_bytes, "rows of %zu bytes, %zu in all", (size_t)bytes,
       (size_t)s.live_bytes);
  must(s.region_bytes <= s.reserved_bytes && s.metadata_bytes, "%zu reserved, %zu in regions",
       (size_t)s.reserved_bytes, (size_t)s.region_bytes);
  return false;
}

/* Checks a block after a rebalance. Its address and contents are unchanged, and its strategy is the
 * old one or one that the policy in force may choose. Returns whether the strategy changed. */
static bool is_brought_locked(block *b) {
  loam_owner_info o;
  must(!loam_owner(b->p, &o) && o.base == b->p && o.size == b->usable, "owner of %p: %s",
       (void *)b->p, loam_error());
  must(!strcmp(o.tag, spots[b->spot].tag), "%p: its tag is '%s' now", (void *)b->p, o.tag);
  check_contents(b, b->p, b->usable);
  int strategy = strategy_called(o.strategy);
  request r = { spots[b->spot].tag, b->usable, 16, false, 0, INT64_MAX };
  const policy *p = &policies[model.policy[model.live]];
  uint64_t used[STRATEGIES] = { 0 };
  must(strategy == b->strategy || may_answer_at_all(p, &r, strategy, used, false),
       "policy '%s': %p of %zu bytes, tag '%s', was brought to '%s'", p->name, (void *)b->p,
       b->usable, o.tag, o.strategy);
  bool is_brought = strategy != b->strategy;
  b->strategy = strategy;
  b->generation = o.generation;
  return is_brought;
}

/* Works only if threads take turns: else the model may have an old strategy of a block. */
static bool do_rebalance(worker *w, dice *d) {
  (void)w;
  if (!run.in_turns) return false;
  loam_rebalance_options how = { .size = sizeof how, .rate = UINT64_MAX };
  if (roll(d, 3) == 0) how.tag = spots[roll(d, SPOTS)].tag;
  loam_status status = loam_rebalance(&how, NULL, NULL, NULL);
  must(!status, "rebalance: %s", loam_error());
  int n = 0;
  pthread_mutex_lock(&model.lock);
  for (int i = 0; i < SLOTS; i++) n += model.slot[i].p && is_brought_locked(&model.slot[i]);
  pthread_mutex_unlock(&model.lock);
  tell("rebalance of '%s': %d blocks are another strategy's", how.tag ? how.tag : "", n);
  check_limits();
  return false;
}

/* Checks in a forked child that live blocks are intact, and that it can allocate and free. */
static int live_on(worker *w, dice *d) {
  block b;
  begin_child();
  run.in_turns = run.in_turns || run.threads == 1;
  if (run.in_turns) check_books(true);
  for (int i = 0; i < 20; i++) do_malloc(w, d);
  for (int i = 0; i < 10; i++) do_realloc(w, d);
  while (claim(roll(d, SLOTS), &b)) free_block(&b);
  loam_trim();
  must(lm_pool_is_valid(), "the laws of pools do not hold in a child");
  return 0;
}

static bool do_fork(worker *w, dice *d) {
  if (!run.in_turns && !FORKS_AMID_THREADS) return false;
  tell("fork");
  pthread_mutex_lock(&model.lock);
  pid_t pid = fork();
  if (pid == 0) alarm(SECONDS);
  pthread_mutex_unlock(&model.lock);
  if (pid == 0) _exit(live_on(w, d));
  int status;
  must(pid > 0, "fork: %s", strerror(errno));
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  must(status == 0, "a child ended with status %#x", (unsigned)status);
  return false;
}

static bool do_leave(worker *w, dice *d) {
  (void)d;
  tell("this thread ends, another begins");
  w->depth = 0;
  return true;
}

/* Performs an operation. Returns whether the thread must end. */
typedef bool operation_fn(worker *w, dice *d);

static const struct {
  operation_fn *perform;
  uint32_t weight;
} operations[] = {
  { do_malloc, 240 }, { do_calloc, 90 }, { do_aligned_alloc, 70 }, { do_realloc, 160 },
  { do_free, 260 },   { do_look, 80 },   { do_scope, 40 },         { do_wrong, 20 },
  { do_trim, 12 },    { do_load, 10 },   { do_leave, 8 },          { do_ask, 6 },
  { do_too_much, 5 }, { do_fork, 3 },    { do_free_many, 3 },      { do_rebalance, 6 },
};

static bool perform(worker *w, dice *d) {
  uint32_t all = 0, at;
  for (size_t i = 0; i < LM_COUNT(operations); i++) all += operations[i].weight;
  at = roll(d, all);
  size_t i = 0;
  for (; at >= operations[i].weight; i++) at -= operations[i].weight;
  return operations[i].perform(w, d);
}

/* ---- threads */

static struct {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  long next; /* the operation whose turn it is */
  int done;
  pthread_barrier_t round;
} turns = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

static void await_turn(long i) {
  pthread_mutex_lock(&turns.lock);
  while (turns.next != i) pthread_cond_wait(&turns.changed, &turns.lock);
  pthread_mutex_unlock(&turns.lock);
}

static void announce(long next, int done) {
  pthread_mutex_lock(&turns.lock);
  turns.next = next;
  turns.done += done;
  pthread_cond_broadcast(&turns.changed);
  pthread_mutex_unlock(&turns.lock);
}

/* Waits until all threads are here. One of them then compares loam's figures with the model. */
static void meet(worker *w) {
  w->rested = true;
  if (pthread_barrier_wait(&turns.round) == PTHREAD_BARRIER_SERIAL_THREAD) {
    operation = w->at;
    check_books(run.in_turns);
    must(lm_pool_is_valid(), "the laws of pools do not hold");
  }
  pthread_barrier_wait(&turns.round);
}

static bool take_part(worker *w, long i) {
  dice d = dice_of(i);
  bool ends = false;
  if ((int)roll(&d, (uint32_t)run.threads) != w->number) return false;
  if (run.in_turns) await_turn(i);
  operation = i;
  if (shared->operation < i) shared->operation = i;
  if (!run.skipped || !run.skipped[i]) ends = perform(w, &d);
  if (run.in_turns) announce(i + 1, 0);
  return ends;
}

static void *work(void *argument) {
  worker *w = argument;
  thread_number = w->number;
  if (w->joins_predecessor) must(!pthread_join(w->thread, NULL), "no thread before this one");
  w->thread = pthread_self();
  while (w->at < run.count) {
    if (w->at % ROUND == 0 && !w->rested) meet(w);
    w->rested = false;
    if (!take_part(w, w->at++)) continue;
    pthread_t next;
    w->joins_predecessor = run.in_turns;
    if (!run.in_turns) pthread_detach(pthread_self());
    must(!pthread_create(&next, NULL, work, w), "no thread");
    return NULL;
  }
  if (!w->rested) meet(w);
  announce(run.count, 1);
  return NULL;
}

static void run_threads(void) {
  static worker workers[THREADS];
  pthread_barrier_init(&turns.round, NULL, (unsigned)run.threads);
  for (int i = 0; i < run.threads; i++) {
    pthread_t thread;
    workers[i].number = i;
    must(!pthread_create(&thread, NULL, work, &workers[i]), "no thread");
  }
  pthread_mutex_lock(&turns.lock);
  while (turns.done < run.threads) pthread_cond_wait(&turns.changed, &turns.lock);
  pthread_mutex_unlock(&turns.lock);
  for (int i = 0; i < run.threads; i++) pthread_join(workers[i].thread, NULL);
}

/* ---- one sequence, in a process of its own */

static void start(void) {
  loam_config config = { .size = sizeof config, .step_ms = 60000 };
  config.control = run.seed & 8 ? 1 : -1;
  config.control_dir = run.folder;
  must(!loam_start(&config), "%s", loam_error());
  must(!loam_handler_register(&handler), "%s", loam_error());
}

static void run_sequence(void) {
  block b;
  alarm(SECONDS);
  start();
  run_threads();
  operation = run.count;
  thread_number = 0;
  for (uint32_t i = 0; claim(i, &b); i++) free_block(&b);
  check_books(run.in_turns);
  must(handler_live == 0, "%zd bytes of a handler's live", (ssize_t)handler_live);
  loam_trim();
  must(lm_pool_is_valid(), "the laws of pools do not hold");
  loam_stop();
}

/* Runs a sequence in a process of its own. Returns 0, or the wait status of the process. */
static int attempt(void) {
  char path[200];
  shared->operation = 0;
  pid_t pid = fork();
  if (pid < 0) fail("fork: %s", strerror(errno));
  if (pid == 0) {
    if (run.quiet && !freopen("/dev/null", "w", stderr)) _exit(2);
    run_sequence();
    _exit(0);
  }
  int status;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  snprintf(path, sizeof path, "%s/%d.sock", run.folder, (int)pid);
  if (status) unlink(path);
  return status;
}

/* ---- making a failure smaller */

/* Leaves out the operations [from, to), if the sequence still fails without them. */
static void try_without(char *skipped, long from, long to) {
  size_t n = (size_t)(to - from);
  char *before_it = malloc(n);
  must(before_it, "no memory");
  memcpy(before_it, skipped + from, n);
  memset(skipped + from, 1, n);
  if (!attempt()) memcpy(skipped + from, before_it, n);
  free(before_it);
}

static long count_kept(const char *skipped) {
  long n = 0;
  for (long i = 0; i < run.count; i++) n += !skipped[i];
  return n;
}

static void print_kept(const char *skipped) {
  const char *between = "";
  for (long i = 0, end; i < run.count; i = end + 1) {
    end = i;
    if (skipped[i]) continue;
    while (end + 1 < run.count && !skipped[end + 1]) end++;
    fprintf(stderr, end > i ? "%s%ld-%ld" : "%s%ld", between, i, end);
    between = ",";
  }
}

static void shrink(void) {
  char *skipped = calloc((size_t)run.count + 1, 1);
  must(skipped, "no memory");
  run.skipped = skipped;
  run.quiet = true;
  time_t end = time(NULL) + PATIENCE;
  for (long chunk = run.count / 2; chunk > 0 && time(NULL) < end; chunk /= 2)
    for (long from = 0; from < run.count && time(NULL) < end; from += chunk) {
      long to = from + chunk < run.count ? from + chunk : run.count;
      if (memchr(skipped + from, 0, (size_t)(to - from))) try_without(skipped, from, to);
    }
  run.quiet = false;
  run.traced = true;
  fprintf(stderr, "interface: seed %zu fails with %ld of its operations:\n", (size_t)run.seed,
          count_kept(skipped));
  (void)attempt();
  fprintf(stderr, "interface: again: --seed %zu --count %ld --keep ", (size_t)run.seed, run.count);
  print_kept(skipped);
  fputc('\n', stderr);
  run.traced = false;
  run.skipped = NULL;
  free(skipped);
}

/* Runs the sequence of a seed. If it fails, prints a smaller part of it that fails too. */
static bool try_seed(uint64_t seed) {
  run.seed = seed;
  run.threads = run.bytes ? 2 : 1 + (int)(seed / 2 % THREADS);
  run.in_turns = run.bytes || run.threads == 1 || seed % 2 == 0;
  int status = attempt();
  if (!status) return true;
  fprintf(
      stderr, "interface: seed %zu, %d threads%s: %s %d, operation %ld of %ld\n", (size_t)seed,
      run.threads, run.in_turns ? " in turns" : "", WIFSIGNALED(status) ? "signal" : "exit status",
      WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status), shared->operation, run.count);
  if (!run.bytes) shrink();
  return false;
}

/* The default number of sequences. Each takes ten times as long with a sanitizer. */
#if defined __SANITIZE_THREAD__ || defined __SANITIZE_ADDRESS__
enum { RUNS = 10 };
#else
enum { RUNS = 24 };
#endif

/* ---- the command line */

static const char usage[] = "usage: interface [--seed S] [--count N] [--runs R] [--keep LIST]"
                            " [--bytes FILE]\n";

/* Returns a flag for each operation, set if the operation is not in a list such as 3,17,40-52. */
static const char *skipped_by(const char *list) {
  char *skipped = malloc((size_t)run.count + 1), *end;
  must(skipped, "no memory");
  memset(skipped, 1, (size_t)run.count + 1);
  while (*list) {
    long from = strtol(list, &end, 10), to = *end == '-' ? strtol(end + 1, &end, 10) : from;
    for (long i = from; i <= to && i < run.count; i++) skipped[i] = 0;
    if (end == list || (*end && *end != ',')) fail("--keep %s: a list such as 3,17,40-52", list);
    list = *end ? end + 1 : end;
  }
  return skipped;
}

static void read_bytes(const char *path) {
  static uint8_t bytes[1 << 20];
  FILE *file = strcmp(path, "-") ? fopen(path, "rb") : stdin;
  if (!file) fail("%s: %s", path, strerror(errno));
  run.count = (long)(fread(bytes, 1, sizeof bytes, file) / RECORD);
  run.bytes = bytes;
  run.traced = true;
}

int main(int argc, char **argv) {
  uint64_t seed = 1;
  long runs = RUNS;
  const char *kept = NULL, *file = NULL;
  char folder[] = "/tmp/loam-fuzz-XXXXXX";
  run.count = 1500;
  for (int i = 1; i < argc; i += 2) {
    if (i + 1 == argc) return fputs(usage, stderr), 2;
    if (!strcmp(argv[i], "--seed")) seed = strtoull(argv[i + 1], NULL, 10);
    else if (!strcmp(argv[i], "--count")) run.count = strtol(argv[i + 1], NULL, 10);
    else if (!strcmp(argv[i], "--runs")) runs = strtol(argv[i + 1], NULL, 10);
    else if (!strcmp(argv[i], "--keep")) kept = argv[i + 1];
    else if (!strcmp(argv[i], "--bytes")) file = argv[i + 1];
    else return fputs(usage, stderr), 2;
  }
  shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  run.folder = mkdtemp(folder);
  if (shared == MAP_FAILED || !run.folder) fail("%s: %s", folder, strerror(errno));
  if (file) read_bytes(file);
  if (kept) run.skipped = skipped_by(kept);
  if (kept || file) runs = 1;
  run.traced = run.traced || kept;
  long failed = 0;
  for (long i = 0; i < runs && failed < 3; i++) failed += !try_seed(seed + (uint64_t)i);
  rmdir(folder);
  printf("%ld sequences of %ld operations, %ld failed\n", runs, run.count, failed);
  return failed ? 1 : 0;
}

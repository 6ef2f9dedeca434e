/* blocks.c - random sequences of operations on blocks and arenas, compared with a model that knows
 * all references and every byte. At random times, policies that limit or deny requests are loaded,
 * and system calls are refused. Arguments: the number of sequences (60), and the first seed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "block/arena.h"
#include "heap/pool.h"
#include "loam.h"
#include "os/sys.h"

enum { THINGS = 48, PIECES = 12, STEPS = 1500, OUTSIDE = 300, KINDS = LOAM_BLOCK_POOLED + 1 };

typedef struct piece {
  char *p;
  size_t size;
  unsigned mark; /* its byte i is mark + i */
} piece;

/* A block in the model. Law: it exists while refs + slices > 0. `root` is the block's own index.
 * The root of a slice is the index of the block that has the bytes. */
typedef struct thing {
  loam_block *block; /* NULL: no block */
  loam_block_kind kind;
  int refs, slices, root, flags, pieces;
  bool is_final;
  char *data;
  size_t size, offset;
  unsigned mark;
  piece piece[PIECES];
} thing;

static thing things[THINGS];
static char outside[THINGS][OUTSIDE];
static int ended[THINGS];          /* how often each one's destructor ran */
static int64_t hook_blocks[KINDS]; /* live blocks by kind, by the hooks */
static int64_t hook_live;          /* live memory, by the hooks */
static uint64_t seed, first_seed;
static int step;
static bool refusing;

static void expect(bool holds, int line, const char *what) {
  if (holds) return;
  fprintf(stderr, "blocks.c:%d: sequence %zu, step %d: not so: %s\n", line, (size_t)first_seed,
          step, what);
  abort();
}
#define must(e) expect(e, __LINE__, #e)

static size_t roll(size_t n) {
  seed = seed * 6364136223846793005u + 1442695040888963407u;
  return (size_t)(seed >> 33) % n;
}

static size_t some_size(void) {
  size_t most[] = { 40, 1024, 1100, 5000, 70000 };
  return roll(most[roll(5)]);
}

/* ---- Policies and sites ---- */

static const char *const policies[] = {
  "local h = loam.host { name = 'h' }\n"
  "return loam.policy { pick = function(req) return h end }\n",
  "local h, s = loam.host { name = 'h' }, loam.system { name = 's' }\n"
  "local t = loam.host { name = 't', limit = 100000, align = 64 }\n"
  "return loam.policy { pick = function(req)\n"
  "  if req.tag:is('strict') then return t end\n"
  "  return req.size > 3000 and s or t:or_else(h) end }\n",
  "local g, no = loam.host { name = 'g', guard = 3 }, loam.deny {}\n"
  "return loam.policy { pick = function(req)\n"
  "  if req.tag:is('strict') and req.size > 200 then return no end\n"
  "  return g end }\n",
};

static const char *const tags[] = { "loose", "strict", "" };

static loam_site *some_site(const char **tag) {
  *tag = tags[roll(3)];
  return **tag ? loam_site_get(*tag) : NULL;
}

/* ---- Handlers of the thread ---- */

static size_t handler_live; /* live bytes of the handler */

static void *handler_malloc(void *ctx, size_t size) {
  size_t *p = malloc(size + 16);
  (void)ctx;
  if (!p) return NULL;
  handler_live += *p = size;
  return p + 2;
}

static void *handler_calloc(void *ctx, size_t count, size_t size) {
  void *p = handler_malloc(ctx, count * size);
  return p ? memset(p, 0, count * size) : NULL;
}

static void handler_free(void *ctx, void *p, size_t size) {
  size_t *real = (size_t *)p - 2;
  (void)ctx;
  must(*real == size);
  handler_live -= size;
  free(real);
}

static void *handler_realloc(void *ctx, void *p, size_t size) {
  size_t *real = (size_t *)p - 2, was = *real;
  (void)ctx;
  real = realloc(real, size + 16);
  if (!real) return NULL;
  handler_live += size - was;
  *real = size;
  return real + 2;
}

static const loam_handler handler = {
  "fuzz", 1, { NULL, handler_malloc, handler_calloc, handler_realloc, handler_free }
};

static bool is_loose; /* the thread's handler serves the tag "loose" */

static void change_handler(void) {
  size_t which = roll(3);
  is_loose = which == 2;
  loam_handler_set(which == 0   ? NULL
                   : which == 1 ? &handler
                                : loam_handler_of(loam_site_get("loose")));
}

/* Returns a site for a new block or arena. If the thread has the handler of a tag, that tag
 * counts. */
static loam_site *some_data_site(const char **tag) {
  loam_site *site = some_site(tag);
  if (is_loose) *tag = "loose";
  return site;
}

/* Checks that a request may fail: system calls are refused, or the tag is the one that policies
 * limit and deny. */
static void may_be_none(const char *tag) { must(refusing || !strcmp(tag, "strict")); }

/* ---- Bytes ---- */

static void fill(char *p, size_t from, size_t size, unsigned mark) {
  for (size_t i = from; i < size; i++) p[i] = (char)(mark + i);
}

static void check(const char *p, size_t offset, size_t size, unsigned mark) {
  for (size_t i = 0; i < size; i++) must(p[i] == (char)(mark + offset + i));
}

static void check_zero(const char *p, size_t from, size_t size) {
  for (size_t i = from; i < size; i++) must(!p[i]);
}

/* ---- The model ---- */

static thing *some_thing(bool is_held) {
  size_t first = roll(THINGS);
  for (size_t i = 0; i < THINGS; i++) {
    thing *t = &things[(first + i) % THINGS];
    if (is_held ? t->refs > 0 : !t->block) return t;
  }
  return NULL;
}

static void look_at(const thing *t) {
  const thing *root = &things[t->root];
  size_t sum = 0;
  for (int i = 0; i < t->pieces; i++) {
    check(t->piece[i].p, 0, t->piece[i].size, t->piece[i].mark);
    sum += t->piece[i].size;
  }
  must(loam_block_kind_of(t->block) == t->kind && loam_block_data(t->block) == t->data);
  must(loam_block_size(t->block) == (t->kind == LOAM_BLOCK_POOLED ? sum : t->size));
  must(loam_block_refcount(t->block) == (size_t)(t->refs + t->slices));
  if (t->data) check(t->data, t->offset, t->size, root->mark);
  must(t->kind != LOAM_BLOCK_POOLED || lm_arena_is_valid(t->block));
}

static void add(thing *t, loam_block *b, loam_block_kind kind, size_t size) {
  int i = (int)(t - things);
  *t = (thing){ .block = b, .kind = kind, .refs = 1, .root = i, .size = size };
  t->data = loam_block_data(b);
  t->mark = (unsigned)roll(256);
  if (t->data) fill(t->data, 0, size, t->mark);
  must(loam_block_kind_of(b) == kind);
  look_at(t);
}

static void end_if_unheld(thing *t) {
  if (t->refs + t->slices) return;
  if (t->kind == LOAM_BLOCK_EXTERNAL) must(ended[t - things] == 1);
  t->block = NULL;
}

/* ---- Blocks ---- */

static void end_outside(void *p, size_t size, void *ctx) {
  int i = (int)(intptr_t)ctx;
  must(p == outside[i] && size == things[i].size);
  ended[i]++;
}

static void make_block(void) {
  thing *t = some_thing(false);
  const char *tag;
  loam_site *site = some_data_site(&tag);
  size_t size = some_size(), way = roll(3), align = (size_t)1 << roll(13);
  if (!t) return;
  loam_block *b = way == 0   ? loam_block_new(site, size)
                  : way == 1 ? loam_block_zeroed(site, size)
                             : loam_block_aligned(site, align, size);
  if (!b) return may_be_none(tag);
  const char *data = loam_block_data(b);
  if (way == 1) check_zero(data, 0, size);
  if (way == 2) must((uintptr_t)data % align == 0);
  must(!strcmp(loam_block_tag(b), tag));
  add(t, b, loam_block_kind_of(b), size);
  must(t->kind == LOAM_BLOCK_OWNED || (t->kind == LOAM_BLOCK_EMBEDDED && size <= 1024));
}

static void wrap(void) {
  thing *t = some_thing(false);
  if (!t) return;
  int i = (int)(t - things);
  const char *tag;
  ended[i] = 0;
  size_t size = t->size = roll(OUTSIDE);
  loam_block *b = loam_block_wrap(some_site(&tag), outside[i], size, end_outside,
                                  (void *)(intptr_t)i);
  must(b || refusing || *tag);
  if (b) add(t, b, LOAM_BLOCK_EXTERNAL, size);
  else must(!ended[i]);
}

static void slice(void) {
  thing *from = some_thing(true), *t = some_thing(false);
  if (!t || !from || from->kind == LOAM_BLOCK_POOLED) return;
  size_t offset = roll(from->size + 2), size = roll(from->size + 2);
  bool fits = offset <= from->size && size <= from->size - offset;
  loam_block *b = loam_block_slice(from->block, offset, size);
  must(fits || !b);
  if (!b) {
    must(!fits || refusing);
    return;
  }
  *t = (thing){ .block = b, .kind = LOAM_BLOCK_SLICE, .refs = 1, .root = from->root };
  t->data = from->data + offset;
  t->offset = from->offset + offset;
  t->size = size;
  things[t->root].slices++;
  look_at(t);
}

static void retain(void) {
  thing *t = some_thing(true);
  if (!t || t->refs > 3) return;
  must(loam_block_retain(t->block) == t->block);
  t->refs++;
}

static void release(thing *t) {
  if (!t) return;
  look_at(t);
  loam_block_release(t->block);
  if (--t->refs) return;
  if (t->kind == LOAM_BLOCK_SLICE) {
    t->block = NULL;
    things[t->root].slices--;
    t = &things[t->root];
  }
  end_if_unheld(t);
}

static void release_some(void) { release(some_thing(true)); }

/* ---- Arenas ---- */

static thing *some_arena(void) {
  thing *t = some_thing(true);
  return t && t->kind == LOAM_BLOCK_POOLED ? t : NULL;
}

static void make_arena(void) {
  thing *t = some_thing(false);
  const char *tag;
  if (!t) return;
  int flags = (int)roll(4);
  loam_block *b = loam_arena_new(some_data_site(&tag), flags, roll(2) ? 0 : roll(9000));
  if (!b) return must(refusing || *tag);
  add(t, b, LOAM_BLOCK_POOLED, 0);
  t->flags = flags;
}

static bool may_lack(const thing *t) {
  return refusing || t->is_final || !strcmp(loam_block_tag(t->block), "strict");
}

static void cut(void) {
  thing *t = some_arena();
  size_t align = (size_t)1 << roll(10), size = some_size();
  if (!t || t->pieces == PIECES) return;
  bool by_resize = roll(4) == 0;
  char *p = by_resize ? loam_arena_resize(t->block, NULL, size)
                      : loam_arena_alloc(t->block, align, size);
  if (!p) return must(may_lack(t));
  must(!t->is_final && (uintptr_t)p % (by_resize ? 16 : align) == 0);
  if (t->flags & LOAM_ARENA_ZEROED) check_zero(p, 0, size);
  piece *made = &t->piece[t->pieces++];
  *made = (piece){ p, size, (unsigned)roll(256) };
  fill(p, 0, size, made->mark);
  look_at(t);
}

static void resize(void) {
  thing *t = some_arena();
  if (!t || !t->pieces) return;
  int i = (int)roll((size_t)t->pieces);
  piece *of = &t->piece[i];
  size_t size = some_size();
  bool may = !t->is_final && (t->flags & LOAM_ARENA_RESIZABLE || i == t->pieces - 1);
  char *p = loam_arena_resize(t->block, of->p, size);
  if (!p) {
    must(!may || may_lack(t));
    return look_at(t);
  }
  must(may);
  check(p, 0, of->size < size ? of->size : size, of->mark);
  if (t->flags & LOAM_ARENA_ZEROED) check_zero(p, of->size, size);
  fill(p, 0, size, of->mark);
  of->p = p;
  of->size = size;
  look_at(t);
}

static void reset(void) {
  thing *t = some_arena();
  if (!t || roll(3)) return;
  must(loam_arena_reset(t->block) == (t->refs > 1 ? LOAM_ESTATE : LOAM_OK));
  if (t->refs > 1) return;
  t->pieces = 0;
  t->is_final = false;
  look_at(t);
}

static void finalize(void) {
  thing *t = some_arena();
  if (!t || roll(4)) return;
  must(loam_arena_finalize(t->block) == LOAM_OK);
  t->is_final = true;
  look_at(t);
}

/* ---- Memory by code ---- */

static loam_site *missing;

static void *missed(size_t size, const void *code) {
  return loam_code_learn_zeroed(size, code, missing);
}

static void ask_by_code(void) {
  static char code[3];
  loam_owner_info owner;
  size_t size = some_size(), at = roll(3);
  missing = loam_site_get(tags[at]);
  if (roll(20) == 0) loam_code_forget();
  char *p = loam_code_calloc(size, &code[at], missed);
  if (!p) return may_be_none(tags[at]);
  check_zero(p, 0, size);
  must(loam_owner(p, &owner) == LOAM_OK && !strcmp(owner.tag, tags[at]) && owner.size >= size);
  memset(p, 0x55, owner.size);
  loam_free(p);
}

/* ---- Hooks and figures ---- */

static void count_block(void *ctx, loam_block_verb verb, const loam_block *block, size_t refs) {
  (void)ctx;
  if (verb == LOAM_BLOCK_MADE) hook_blocks[loam_block_kind_of(block)]++;
  if (verb == LOAM_BLOCK_ENDED) hook_blocks[loam_block_kind_of(block)]--;
  must(verb != LOAM_BLOCK_MADE || refs == 1);
}

static void count_memory(void *ctx, void *from, void *to, size_t size) {
  (void)ctx;
  (void)size;
  hook_live += !from - !to;
}

static uint64_t live_blocks(void) {
  struct loam_stats now;
  must(loam_stats(&now) == LOAM_OK && now.bad_frees == 0);
  return now.live_blocks;
}

static void check_figures(uint64_t before) {
  struct loam_block_stats s;
  int64_t have[KINDS] = { 0 };
  must(loam_block_stats(&s) == LOAM_OK);
  for (int i = 0; i < THINGS; i++)
    if (things[i].block) have[things[i].kind]++;
  for (int k = 1; k < KINDS; k++)
    must(hook_blocks[k] == have[k] && (int64_t)(s.made[k] - s.ended[k]) == have[k]);
  must((int64_t)(live_blocks() - before) == hook_live);
}

static void change_policy(void) {
  refusing = false;
  lm_sys_refuse(0);
  must(loam_policy_load_text("fuzz", policies[roll(LM_COUNT(policies))]) == LOAM_OK);
}

static void look(void) {
  thing *t = some_thing(true);
  if (t) look_at(t);
}

static void play(uint64_t start) {
  static void (*const operations[])(void) = {
    make_block,   make_block,   wrap,       slice,       slice, retain,
    release_some, release_some, make_arena, cut,         cut,   resize,
    resize,       reset,        finalize,   ask_by_code, look,  change_handler,
  };
  seed = first_seed = start;
  uint64_t before = live_blocks();
  for (step = 0; step < STEPS; step++) {
    if (roll(200) == 0) change_policy();
    refusing = roll(4) == 0;
    if (refusing) lm_sys_refuse((long)roll(3) + 1);
    operations[roll(LM_COUNT(operations))]();
    lm_sys_refuse(0);
    if (step % 100 == 0) check_figures(before);
  }
  refusing = false;
  for (thing *t; (t = some_thing(true));) release(t);
  check_figures(before);
  must(!handler_live);
  must(!hook_live && lm_pool_is_valid());
}

int main(int argc, char **argv) {
  long count = argc > 1 ? atol(argv[1]) : 60;
  uint64_t start = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
  setenv("LOAM_CONTROL", "0", 1);
  for (size_t i = 0; i < LM_COUNT(tags); i++) loam_site_get(tags[i]);
  (void)loam_on_block(count_block, NULL);
  (void)loam_on_memory(count_memory, NULL);
  for (long i = 0; i < count; i++) play(start + (uint64_t)i);
  printf("%ld sequences of %d steps\n", count, STEPS);
}

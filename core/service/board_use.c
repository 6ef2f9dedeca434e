/* board_use.c - collects the memory of strategies and tags from counters.
 *
 * The strategies with the most live memory get a place in the entry. To find them, the newest
 * strategies are summed up by family: an edit of a limit makes another strategy of one family, and
 * a share for a NUMA node is a strategy too. The size classes of the largest strategies are listed
 * until their page of the entry is full. The work is bounded: STRATEGIES_SEEN strategies,
 * CANDIDATES families, and the size classes of their pools. */
#include "service/board_use.h"

#include "engine/live_bytes.h"
#include "heap/pools.h"
#include "heap/strategy.h"
#include "os/text.h"

enum {
  STRATEGIES_SEEN = 1024, /* the newest ones */
  CANDIDATES = 256,       /* families, and tags, among which the largest are found */
};

_Static_assert((int)CANDIDATES >= (int)LM_LIVE_TAGS,
               "all tags that lm_live_each knows have a place");

/* The figures of a family of strategies. */
typedef struct family_use {
  const lm_strategy *family, *newest;
  bool has_pool, has_limit; /* a strategy of the family has a pool; one has a limit */
  uint64_t limit_used;      /* bytes that the newest limit counts */
  lm_pool_use use;          /* of all pools */
  uint64_t failed;
} family_use;

typedef struct tag_use {
  const loam_site *site;
  uint64_t live_bytes;
} tag_use;

/* Work space; the lock of board.c guards it. */
static LM_SPARSE struct {
  family_use family[CANDIDATES];
  tag_use tag[CANDIDATES];
  uint32_t families, tags, families_left_out;
} work;

/* ---- Strategies */

/* Returns the figures of the family of a strategy, which are zeros if it is new; NULL: there is no
 * room. */
static family_use *family_of(const lm_strategy *s) {
  for (uint32_t i = 0; i < work.families; i++)
    if (work.family[i].family == s->family) return &work.family[i];
  if (work.families == CANDIDATES) {
    work.families_left_out++;
    return NULL;
  }
  family_use *f = &work.family[work.families++];
  *f = (family_use){ .family = s->family, .newest = s->whole };
  return f;
}

/* Adds a strategy to its family. A strategy without memory and without a failed request is left
 * alone. */
static void add_strategy(const lm_strategy *s) {
  uint64_t failed = atomic_load_explicit(&s->failed, memory_order_relaxed);
  int64_t used = s->desc.limit ? atomic_load_explicit(&s->account->used, memory_order_relaxed) : 0;
  bool has_pool = lm_pool_of(s);
  if (s->desc.kind == LM_KIND_DENY || (!has_pool && !failed && used <= 0)) return;
  family_use *f = family_of(s);
  if (!f) return;
  f->failed += failed;
  if (has_pool && lm_pools_add_use(s, &f->use)) f->has_pool = true;
  if (!has_pool && s->whole == s && s->desc.limit && !f->has_limit) {
    f->limit_used = used > 0 ? (uint64_t)used : 0;
    f->has_limit = true;
  }
}

/* Memory that no pool of loam has is known only if a limit counts it; else it is 0 here. A limit
 * counts the memory of pools too, so it says nothing more where the family has a pool. */
static uint64_t live_bytes_of(const family_use *f) {
  return f->has_pool ? f->use.live_bytes : f->limit_used;
}

static bool is_larger(const family_use *a, const family_use *b) {
  uint64_t of_a = live_bytes_of(a), of_b = live_bytes_of(b);
  if (of_a != of_b) return of_a > of_b;
  if (a->use.held_bytes != b->use.held_bytes) return a->use.held_bytes > b->use.held_bytes;
  return a->failed > b->failed;
}

static void put_family(lm_board_use *to, const family_use *f) {
  const lm_desc *desc = &f->newest->desc;
  lm_text_put(to->strategy, sizeof to->strategy,
              *desc->name ? desc->name : lm_strategy_kind_text(desc->kind), NULL);
  to->live_bytes = f->has_pool || f->has_limit ? live_bytes_of(f) : LM_BOARD_NO_FIGURE;
  to->held_bytes = f->use.held_bytes;
  to->small_blocks = f->use.small_blocks;
  to->failed = f->failed;
}

/* Lists the size classes of the family that is number `use` in the entry, until the entry is full.
 */
static void put_classes(lm_board_entry *entry, uint32_t use, const family_use *f) {
  lm_board_figures *figures = &entry->figures;
  for (unsigned c = 0; c < LM_CLASSES; c++) {
    if (!f->use.class_blocks[c]) continue;
    if (figures->classes == LM_BOARD_CLASSES) figures->classes_left_out++;
    else
      entry->of_class[figures->classes++] = (lm_board_class){ use, (uint32_t)lm_class_max_size(c),
                                                              f->use.class_blocks[c] };
  }
}

/* Moves the largest family to the entry until the entry is full. */
static void put_families(lm_board_entry *entry) {
  uint32_t n = 0;
  entry->figures.classes = entry->figures.classes_left_out = 0;
  for (; n < LM_BOARD_USES && work.families; n++) {
    uint32_t largest = 0;
    for (uint32_t i = 1; i < work.families; i++)
      if (is_larger(&work.family[i], &work.family[largest])) largest = i;
    put_family(&entry->use[n], &work.family[largest]);
    put_classes(entry, n, &work.family[largest]);
    work.family[largest] = work.family[--work.families];
  }
  entry->figures.uses = n;
  entry->figures.uses_left_out = work.families + work.families_left_out;
}

/* ---- Tags */

static void add_tag(void *ctx, const loam_site *site, uint64_t bytes) {
  (void)ctx;
  if (work.tags < CANDIDATES) work.tag[work.tags++] = (tag_use){ site, bytes };
}

/* Moves the largest tag to the entry until the entry is full. */
static void put_tags(lm_board_entry *entry, uint32_t unseen) {
  uint32_t n = 0;
  for (; n < LM_BOARD_USES && work.tags; n++) {
    uint32_t largest = 0;
    for (uint32_t i = 1; i < work.tags; i++)
      if (work.tag[i].live_bytes > work.tag[largest].live_bytes) largest = i;
    lm_text_put(entry->tag[n].tag, sizeof entry->tag[n].tag, work.tag[largest].site->where.tag,
                NULL);
    entry->tag[n].live_bytes = work.tag[largest].live_bytes;
    work.tag[largest] = work.tag[--work.tags];
  }
  entry->figures.tags = n;
  entry->figures.tags_left_out = work.tags + unseen;
}

void lm_board_use_fill(lm_board_entry *entry) {
  uint32_t count = lm_strategy_count();
  uint32_t least = count > STRATEGIES_SEEN ? count - STRATEGIES_SEEN : 0;
  work.families = work.tags = work.families_left_out = 0;
  for (uint32_t id = count; id-- > least;) add_strategy(lm_strategy_at(id));
  put_families(entry);
  put_tags(entry, lm_live_each(add_tag, NULL));
}

/* slab.c - pieces of one size, cut from chunks of a slot. */
#include "pages/slab.h"

#include "os/poison.h"

/* Stands in the last bytes of an unused piece, so that all else of it may stay zero. */
typedef struct link {
  char *below;
} link;

/* At the beginning of a chunk; the pieces follow, cut up to `at`. */
struct lm_chunk {
  lm_chunk *next, *previous;
  lm_slab *slab;
  char *unused, *at;
  size_t size; /* of a piece */
  uint32_t used;
  bool clean; /* what is not cut yet is all zero */
} __attribute__((aligned(LM_CACHE_LINE)));

void lm_slab_clear(void *at, size_t size) {
  uint64_t *word = at;
  for (size_t i = 0; i < (size + 7) / 8; i++) __atomic_store_n(&word[i], 0, __ATOMIC_RELAXED);
}

static lm_chunk *chunk_of(const void *piece) {
  return (lm_chunk *)lm_align_down((uintptr_t)piece, LM_SLOT);
}

static link *link_of(char *piece, size_t size) { return (link *)(piece + size - sizeof(link)); }

static bool can_cut(const lm_chunk *c) {
  return (size_t)((const char *)c + LM_SLOT - c->at) >= c->size;
}

static void list_chunk(lm_chunk *c) {
  c->previous = NULL;
  c->next = c->slab->first;
  if (c->next) c->next->previous = c;
  c->slab->first = c;
}

static void unlist_chunk(lm_chunk *c) {
  if (c->next) c->next->previous = c->previous;
  if (c->previous) c->previous->next = c->next;
  else c->slab->first = c->next;
}

static lm_chunk *make_chunk(lm_slab *s, lm_regions *r, size_t size) {
  bool clean;
  uint32_t slot = lm_regions_take(r, 1, LM_SLOT, &clean);
  if (!slot) return NULL;
  lm_map_extent(slot, 1, LM_USE_METADATA);
  atomic_store_explicit(&lm_map_span(slot)->size, size, memory_order_relaxed);
  lm_chunk *c = lm_map_address(slot);
  lm_unpoison(c, LM_SLOT);
  if (s->zeroed && !clean) lm_slab_clear(c, LM_SLOT);
  *c = (lm_chunk){ .slab = s, .at = (char *)(c + 1), .size = size, .clean = clean || s->zeroed };
  list_chunk(c);
  return c;
}

void *lm_slab_take(lm_slab *s, lm_regions *r, size_t size, bool *clean) {
  lm_chunk *c = s->first ? s->first : make_chunk(s, r, size);
  if (!c) return NULL;
  lm_assert(c->size == size);
  char *piece = c->unused;
  *clean = s->zeroed || (!piece && c->clean);
  if (piece) {
    c->unused = link_of(piece, size)->below;
    link_of(piece, size)->below = NULL;
  } else {
    piece = c->at;
    c->at += size;
  }
  c->used++;
  if (!c->unused && !can_cut(c)) unlist_chunk(c);
  return piece;
}

static void give_up(lm_chunk *c, lm_regions *r) {
  uint32_t slot = lm_map_slot(c);
  unlist_chunk(c);
  lm_map_extent(slot, 1, LM_USE_NONE);
  lm_regions_put(r, slot, 1);
}

void lm_slab_put(lm_slab *s, lm_regions *r, void *piece) {
  lm_chunk *c = chunk_of(piece);
  lm_require(c->slab == s && c->used > 0);
  if (!c->unused && !can_cut(c)) list_chunk(c);
  link_of(piece, c->size)->below = c->unused;
  c->unused = piece;
  c->used--;
  if (!c->used && (!s->zeroed || c->next || c->previous)) give_up(c, r);
}

bool lm_slab_is_valid(const lm_slab *s) {
  for (const lm_chunk *c = s->first; c; c = c->next)
    if (c->slab != s || (!c->unused && !can_cut(c)) || (c->next && c->next->previous != c))
      return false;
  return true;
}

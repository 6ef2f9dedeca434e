/* slab.c - pieces of memory of one size, cut from chunks of one slot each. */
#include "pages/slab.h"

#include "os/poison.h"

/* The link to the next unused piece. It stands in the last bytes of a piece, so that all other
 * bytes may stay zero. */
typedef struct link {
  char *next;
} link;

/* Stands at the beginning of a chunk. The pieces follow.
 *
 * Law: the pieces cut so far, (at - end of this struct) / size, are `used` taken ones and
 * the pieces of the list `unused`. */
struct lm_chunk {
  lm_chunk *next, *previous; /* in the list of the slab, if the chunk is in it */
  lm_slab *slab;
  char *unused, *at; /* the first unused piece; where the next piece is cut */
  size_t size;       /* of a piece */
  uint32_t used;     /* pieces that are taken */
  bool clean;        /* the part that is not cut yet is all zero */
} __attribute__((aligned(LM_CACHE_LINE)));

void lm_slab_clear(void *at, size_t size) {
  lm_assert((uintptr_t)at % 8 == 0);
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

/* Returns a new chunk, listed; NULL: no memory. */
static lm_chunk *make_chunk(lm_slab *s, lm_regions *r, size_t size) {
  bool clean;
  lm_assert(size % 16 == 0 && size >= sizeof(link) && size <= LM_SLOT - sizeof(lm_chunk));
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
    c->unused = link_of(piece, size)->next;
    link_of(piece, size)->next = NULL;
  } else {
    piece = c->at;
    c->at += size;
  }
  c->used++;
  lm_assert((uintptr_t)piece % 16 == 0 && piece + size <= (char *)c + LM_SLOT);
  if (!c->unused && !can_cut(c)) unlist_chunk(c);
  return piece;
}

static void free_chunk(lm_chunk *c, lm_regions *r) {
  lm_assert(c->used == 0);
  uint32_t slot = lm_map_slot(c);
  unlist_chunk(c);
  lm_map_extent(slot, 1, LM_USE_NONE);
  lm_regions_put(r, slot, 1);
}

void lm_slab_put(lm_slab *s, lm_regions *r, void *piece) {
  lm_chunk *c = chunk_of(piece);
  lm_require(c->slab == s && c->used > 0);
  lm_assert((char *)piece < c->at && ((char *)piece - (char *)(c + 1)) % (ptrdiff_t)c->size == 0);
  if (!c->unused && !can_cut(c)) list_chunk(c);
  link_of(piece, c->size)->next = c->unused;
  c->unused = piece;
  c->used--;
  if (!c->used && (!s->zeroed || c->next || c->previous)) free_chunk(c, r);
}

static bool is_chunk_valid(const lm_chunk *c) {
  size_t cut = (size_t)(c->at - (const char *)(c + 1)), pieces = cut / c->size, unused = 0;
  if (cut % c->size || c->at > (const char *)c + LM_SLOT) return false;
  for (char *piece = c->unused; piece && unused <= pieces; piece = link_of(piece, c->size)->next)
    unused++;
  return c->used + unused == pieces;
}

bool lm_slab_is_valid(const lm_slab *s) {
  for (const lm_chunk *c = s->first; c; c = c->next) {
    if (c->slab != s || (!c->unused && !can_cut(c)) || !is_chunk_valid(c)) return false;
    if (c->next && c->next->previous != c) return false;
  }
  return true;
}

/* heap.c - memory of one Lua state. */
#include "script/heap.h"

#include <string.h>

#include "os/sys.h"
#include "pages/own.h"

#define CHUNK ((size_t)64 << 10)
#define SMALL_MAX ((size_t)LM_HEAP_SIZES * LM_HEAP_UNIT)

struct lm_heap_piece {
  lm_heap_piece *next;
};

struct lm_heap_chunk {
  lm_heap_chunk *next;
} __attribute__((aligned(LM_HEAP_UNIT)));

/* Before the piece. Law: all that are out are in one list, from lm_heap.large. */
struct lm_heap_large {
  lm_heap_large *next, **from;
} __attribute__((aligned(LM_HEAP_UNIT)));

static size_t room_for(size_t size) { return lm_align_up(size, LM_HEAP_UNIT); }

static lm_heap_piece **unused_of(lm_heap *h, size_t size) {
  return &h->unused[(size - 1) / LM_HEAP_UNIT];
}

/* What is left of the chunk before is lost: less than a piece of most. */
static bool open_chunk(lm_heap *h) {
  lm_heap_chunk *c = lm_own_take(CHUNK);
  if (!c) return false;
  (void)lm_sys_prefault(c, CHUNK);
  c->next = h->chunks;
  h->chunks = c;
  h->at = (char *)(c + 1);
  h->end = (char *)c + CHUNK;
  return true;
}

static void *cut(lm_heap *h, size_t size) {
  if ((size_t)(h->end - h->at) < size && !open_chunk(h)) return NULL;
  char *piece = h->at;
  h->at += size;
  return piece;
}

/* ---- Large pieces */

static void *link_large(lm_heap *h, lm_heap_large *large) {
  large->next = h->large;
  large->from = &h->large;
  if (large->next) large->next->from = &large->next;
  h->large = large;
  return large + 1;
}

static lm_heap_large *unlink_large(void *piece) {
  lm_heap_large *large = (lm_heap_large *)piece - 1;
  if (large->next) large->next->from = large->from;
  *large->from = large->next;
  return large;
}

static void *take_large(lm_heap *h, size_t size) {
  lm_heap_large *large = size < SIZE_MAX / 2 ? lm_own_take(sizeof *large + size) : NULL;
  return large ? link_large(h, large) : NULL;
}

static void *resize_large(lm_heap *h, void *piece, size_t size) {
  lm_heap_large *large = unlink_large(piece), *to = NULL;
  if (size < SIZE_MAX / 2) to = lm_own_realloc(large, sizeof *large + size);
  void *out = link_large(h, to ? to : large);
  return to ? out : NULL;
}

/* ---- All */

void *lm_heap_take(lm_heap *h, size_t size) {
  if (size > SMALL_MAX) return take_large(h, size);
  lm_heap_piece **unused = unused_of(h, size), *piece = *unused;
  if (!piece) return cut(h, room_for(size));
  *unused = piece->next;
  return piece;
}

void lm_heap_put(lm_heap *h, void *at, size_t size) {
  if (size > SMALL_MAX) {
    lm_own_free(unlink_large(at));
    return;
  }
  lm_heap_piece *piece = at, **unused = unused_of(h, size);
  piece->next = *unused;
  *unused = piece;
}

void *lm_heap_resize(lm_heap *h, void *piece, size_t old, size_t size) {
  if (old > SMALL_MAX && size > SMALL_MAX) return resize_large(h, piece, size);
  if (old <= SMALL_MAX && room_for(old) == room_for(size)) return piece;
  void *to = lm_heap_take(h, size);
  if (!to) return NULL;
  memcpy(to, piece, old < size ? old : size);
  lm_heap_put(h, piece, old);
  return to;
}

void lm_heap_end(lm_heap *h) {
  while (h->large) lm_own_free(unlink_large(h->large + 1));
  while (h->chunks) {
    lm_heap_chunk *c = h->chunks;
    h->chunks = c->next;
    lm_own_free(c);
  }
  *h = (lm_heap){ .chunks = NULL };
}

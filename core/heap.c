/* heap.c - memory of one Lua state. */
#include "heap.h"

#include <string.h>

#include "own.h"

#define CHUNK ((size_t)64 << 10)
#define SMALL_MAX ((size_t)LM_HEAP_SIZES * LM_HEAP_UNIT)

struct lm_heap_piece {
  lm_heap_piece *next;
};

struct lm_heap_chunk {
  lm_heap_chunk *next;
} __attribute__((aligned(LM_HEAP_UNIT)));

static size_t room_for(size_t size) { return lm_align_up(size, LM_HEAP_UNIT); }

static lm_heap_piece **unused_of(lm_heap *h, size_t size) {
  return &h->unused[(size - 1) / LM_HEAP_UNIT];
}

/* What is left of the chunk before is lost: less than a piece of most. */
static bool open_chunk(lm_heap *h) {
  lm_heap_chunk *c = lm_own_alloc(CHUNK);
  if (!c) return false;
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

void *lm_heap_take(lm_heap *h, size_t size) {
  if (size > SMALL_MAX) return lm_own_alloc(size);
  lm_heap_piece **unused = unused_of(h, size), *piece = *unused;
  if (!piece) return cut(h, room_for(size));
  *unused = piece->next;
  return piece;
}

void lm_heap_put(lm_heap *h, void *at, size_t size) {
  if (size > SMALL_MAX) {
    lm_own_free(at);
    return;
  }
  lm_heap_piece *piece = at, **unused = unused_of(h, size);
  piece->next = *unused;
  *unused = piece;
}

void *lm_heap_resize(lm_heap *h, void *piece, size_t old, size_t size) {
  if (old > SMALL_MAX && size > SMALL_MAX) return lm_own_realloc(piece, size);
  if (old <= SMALL_MAX && room_for(old) == room_for(size)) return piece;
  void *to = lm_heap_take(h, size);
  if (!to) return NULL;
  memcpy(to, piece, old < size ? old : size);
  lm_heap_put(h, piece, old);
  return to;
}

void lm_heap_end(lm_heap *h) {
  while (h->chunks) {
    lm_heap_chunk *c = h->chunks;
    h->chunks = c->next;
    lm_own_free(c);
  }
  *h = (lm_heap){ .chunks = NULL };
}

/* vm_alloc.c - memory of one Lua state. */
#include "script/vm_alloc.h"

#include <string.h>

#include "os/sys.h"
#include "pages/metadata.h"

#define CHUNK ((size_t)64 << 10)
#define SMALL_MAX ((size_t)LM_VM_ALLOC_SIZES * LM_VM_ALLOC_UNIT)

struct lm_vm_alloc_piece {
  lm_vm_alloc_piece *next;
};

struct lm_vm_alloc_chunk {
  lm_vm_alloc_chunk *next;
} __attribute__((aligned(LM_VM_ALLOC_UNIT)));

/* Before the piece. Law: all that are out are in one list, from lm_vm_alloc.large. */
struct lm_vm_alloc_large {
  lm_vm_alloc_large *next, **from;
} __attribute__((aligned(LM_VM_ALLOC_UNIT)));

static size_t room_for(size_t size) { return lm_align_up(size, LM_VM_ALLOC_UNIT); }

static lm_vm_alloc_piece **unused_of(lm_vm_alloc *h, size_t size) {
  return &h->unused[(size - 1) / LM_VM_ALLOC_UNIT];
}

/* What is left of the chunk before is lost: less than a piece of most. */
static bool open_chunk(lm_vm_alloc *h) {
  lm_vm_alloc_chunk *c = lm_metadata_take(CHUNK);
  if (!c) return false;
  (void)lm_sys_prefault(c, CHUNK);
  c->next = h->chunks;
  h->chunks = c;
  h->at = (char *)(c + 1);
  h->end = (char *)c + CHUNK;
  return true;
}

static void *cut(lm_vm_alloc *h, size_t size) {
  if ((size_t)(h->end - h->at) < size && !open_chunk(h)) return NULL;
  char *piece = h->at;
  h->at += size;
  return piece;
}

/* ---- Large pieces */

static void *link_large(lm_vm_alloc *h, lm_vm_alloc_large *large) {
  large->next = h->large;
  large->from = &h->large;
  if (large->next) large->next->from = &large->next;
  h->large = large;
  return large + 1;
}

static lm_vm_alloc_large *unlink_large(void *piece) {
  lm_vm_alloc_large *large = (lm_vm_alloc_large *)piece - 1;
  if (large->next) large->next->from = large->from;
  *large->from = large->next;
  return large;
}

static void *take_large(lm_vm_alloc *h, size_t size) {
  lm_vm_alloc_large *large = size < SIZE_MAX / 2 ? lm_metadata_take(sizeof *large + size) : NULL;
  return large ? link_large(h, large) : NULL;
}

static void *resize_large(lm_vm_alloc *h, void *piece, size_t size) {
  lm_vm_alloc_large *large = unlink_large(piece), *to = NULL;
  if (size < SIZE_MAX / 2) to = lm_metadata_realloc(large, sizeof *large + size);
  void *out = link_large(h, to ? to : large);
  return to ? out : NULL;
}

/* ---- All */

void *lm_vm_alloc_take(lm_vm_alloc *h, size_t size) {
  if (size > SMALL_MAX) return take_large(h, size);
  lm_vm_alloc_piece **unused = unused_of(h, size), *piece = *unused;
  if (!piece) return cut(h, room_for(size));
  *unused = piece->next;
  return piece;
}

void lm_vm_alloc_put(lm_vm_alloc *h, void *at, size_t size) {
  if (size > SMALL_MAX) {
    lm_metadata_free(unlink_large(at));
    return;
  }
  lm_vm_alloc_piece *piece = at, **unused = unused_of(h, size);
  piece->next = *unused;
  *unused = piece;
}

void *lm_vm_alloc_resize(lm_vm_alloc *h, void *piece, size_t old, size_t size) {
  if (old > SMALL_MAX && size > SMALL_MAX) return resize_large(h, piece, size);
  if (old <= SMALL_MAX && room_for(old) == room_for(size)) return piece;
  void *to = lm_vm_alloc_take(h, size);
  if (!to) return NULL;
  memcpy(to, piece, old < size ? old : size);
  lm_vm_alloc_put(h, piece, old);
  return to;
}

void lm_vm_alloc_end(lm_vm_alloc *h) {
  while (h->large) lm_metadata_free(unlink_large(h->large + 1));
  while (h->chunks) {
    lm_vm_alloc_chunk *c = h->chunks;
    h->chunks = c->next;
    lm_metadata_free(c);
  }
  *h = (lm_vm_alloc){ .chunks = NULL };
}

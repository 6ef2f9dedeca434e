/* vm_alloc.c - the memory of one Lua state: free lists by size, over chunks of 64 KiB. */
#include "script/vm_alloc.h"

#include <string.h>

#include "os/sys.h"
#include "pages/metadata.h"

#define CHUNK ((size_t)64 << 10)
/* More than lua_newstate takes, which is 13 KiB. */
#define RESERVE ((size_t)32 << 10)
#define SMALL_MAX ((size_t)LM_VM_ALLOC_SIZES * LM_VM_ALLOC_UNIT)

struct lm_vm_alloc_piece {
  lm_vm_alloc_piece *next;
};

struct lm_vm_alloc_chunk {
  lm_vm_alloc_chunk *next;
} __attribute__((aligned(LM_VM_ALLOC_UNIT)));

/* Stands before the memory of a large piece.
 * Law: the list from lm_vm_alloc.large holds every large piece that is in use; *from points to this
 *      struct. */
struct lm_vm_alloc_large {
  lm_vm_alloc_large *next, **from;
} __attribute__((aligned(LM_VM_ALLOC_UNIT)));

/* The bytes that a small piece of this size takes. */
static size_t room_for(size_t size) { return lm_align_up(size, LM_VM_ALLOC_UNIT); }

/* The list of free pieces of a small size. */
static lm_vm_alloc_piece **unused_of(lm_vm_alloc *h, size_t size) {
  lm_assert(size > 0 && size <= SMALL_MAX);
  return &h->unused[(size - 1) / LM_VM_ALLOC_UNIT];
}

/* Takes a new chunk. What was not cut from the previous chunk is lost: less than one small piece.
 * False: no memory. */
static bool open_chunk(lm_vm_alloc *h) {
  lm_vm_alloc_chunk *c = lm_metadata_take(CHUNK);
  if (!c) return false;
  (void)lm_sys_prefault(c, CHUNK);
  c->next = h->chunks;
  h->chunks = c;
  h->at = (char *)(c + 1);
  h->end = (char *)c + CHUNK;
  lm_assert((uintptr_t)h->at % LM_VM_ALLOC_UNIT == 0);
  return true;
}

/* Cuts a piece of `size` bytes, a multiple of the unit, from the first chunk. */
static void *cut(lm_vm_alloc *h, size_t size) {
  lm_assert(size % LM_VM_ALLOC_UNIT == 0 && size <= SMALL_MAX);
  if ((size_t)(h->end - h->at) < size && !open_chunk(h)) return NULL;
  char *piece = h->at;
  h->at += size;
  return piece;
}

/* ---- Large pieces ---- */

static void *link_large(lm_vm_alloc *h, lm_vm_alloc_large *large) {
  large->next = h->large;
  large->from = &h->large;
  if (large->next) large->next->from = &large->next;
  h->large = large;
  lm_assert(*large->from == large);
  return large + 1;
}

static lm_vm_alloc_large *unlink_large(void *piece) {
  lm_vm_alloc_large *large = (lm_vm_alloc_large *)piece - 1;
  lm_assert(*large->from == large && (!large->next || large->next->from == &large->next));
  if (large->next) large->next->from = large->from;
  *large->from = large->next;
  return large;
}

static void *take_large(lm_vm_alloc *h, size_t size) {
  lm_vm_alloc_large *large = size < SIZE_MAX / 2 ? lm_metadata_take(sizeof *large + size) : NULL;
  return large ? link_large(h, large) : NULL;
}

/* The piece is out of the list while it may move. It goes back into the list in any case. Memory
 * that gets smaller is always there (lm_metadata_realloc). */
static void *resize_large(lm_vm_alloc *h, void *piece, size_t size) {
  lm_vm_alloc_large *large = unlink_large(piece), *to = NULL;
  if (size < SIZE_MAX / 2) to = lm_metadata_realloc(large, sizeof *large + size);
  void *out = link_large(h, to ? to : large);
  return to ? out : NULL;
}

/* ---- All pieces ---- */

static void *take(lm_vm_alloc *h, size_t size) {
  if (size > SMALL_MAX) return take_large(h, size);
  lm_vm_alloc_piece **unused = unused_of(h, size), *piece = *unused;
  if (!piece) return cut(h, room_for(size));
  *unused = piece->next;
  return piece;
}

static void *take_of_reserve(lm_vm_alloc *h, size_t size) {
  h->is_short = true;
  if (size > h->reserve_left) return NULL; /* a multiple of the unit */
  h->reserve_left -= room_for(size);
  return h->reserve + h->reserve_left;
}

void *lm_vm_alloc_take(lm_vm_alloc *h, size_t size) {
  lm_assert(size > 0);
  void *piece = h->is_short ? NULL : take(h, size);
  return piece || !h->reserve ? piece : take_of_reserve(h, size);
}

void lm_vm_alloc_put(lm_vm_alloc *h, void *at, size_t size) {
  lm_assert(at && size > 0);
  if (h->is_short) return;
  if (size > SMALL_MAX) {
    lm_metadata_free(unlink_large(at));
    return;
  }
  lm_vm_alloc_piece *piece = at, **unused = unused_of(h, size);
  piece->next = *unused;
  *unused = piece;
}

void *lm_vm_alloc_resize(lm_vm_alloc *h, void *piece, size_t old, size_t size) {
  lm_assert(piece && old > 0 && size > 0);
  if (old > SMALL_MAX && size > SMALL_MAX && !h->reserve) return resize_large(h, piece, size);
  if (old <= SMALL_MAX && room_for(old) == room_for(size)) return piece;
  void *to = lm_vm_alloc_take(h, size);
  if (!to) return size < old ? piece : NULL;
  memcpy(to, piece, old < size ? old : size);
  lm_vm_alloc_put(h, piece, old);
  return to;
}

bool lm_vm_alloc_reserve(lm_vm_alloc *h) {
  lm_assert(!h->reserve && !h->is_short);
  h->reserve = lm_vm_alloc_take(h, RESERVE);
  h->reserve_left = RESERVE;
  return h->reserve;
}

bool lm_vm_alloc_end_reserve(lm_vm_alloc *h) {
  if (h->is_short) return false;
  if (h->reserve) lm_vm_alloc_put(h, h->reserve, RESERVE);
  h->reserve = NULL;
  return true;
}

/* Tells whether [at, at + size) is part of one of the chunks. */
static bool is_in_chunks(const lm_vm_alloc *h, const void *at, size_t size) {
  for (const lm_vm_alloc_chunk *c = h->chunks; c; c = c->next) {
    const char *from = (const char *)(c + 1), *to = (const char *)c + CHUNK;
    if ((const char *)at >= from && (const char *)at + size <= to) return true;
  }
  return false;
}

/* Tells whether `at` is a large piece: one that got small when there was no memory. */
static bool is_large(const lm_vm_alloc *h, const void *at) {
  const lm_vm_alloc_large *l = h->large;
  while (l && at != l + 1) l = l->next;
  return l;
}

bool lm_vm_alloc_is_valid(const lm_vm_alloc *h) {
  if (!h->chunks && (h->at || h->end)) return false;
  if (h->chunks && (h->end != (char *)h->chunks + CHUNK || h->at > h->end)) return false;
  if (h->is_short && !h->reserve) return false;
  for (size_t i = 0; i < LM_VM_ALLOC_SIZES; i++)
    for (const lm_vm_alloc_piece *p = h->unused[i]; p; p = p->next)
      if (!is_in_chunks(h, p, (i + 1) * LM_VM_ALLOC_UNIT) && !is_large(h, p)) return false;
  for (const lm_vm_alloc_large *l = h->large; l; l = l->next)
    if (*l->from != l) return false;
  return true;
}

void lm_vm_alloc_end(lm_vm_alloc *h) {
  lm_verify(lm_vm_alloc_is_valid(h));
  while (h->large) lm_metadata_free(unlink_large(h->large + 1));
  while (h->chunks) {
    lm_vm_alloc_chunk *c = h->chunks;
    h->chunks = c->next;
    lm_metadata_free(c);
  }
  *h = (lm_vm_alloc){ .chunks = NULL };
}

/* arena.c - many small pieces from one pooled block, freed together: DyND's POD memory block.
 *
 * Pieces stand in chunks, which are ordinary allocations under the arena's site, each twice as
 * large as the one before, to 1 MiB. In a plain arena they follow one another with nothing between
 * them, and the last one can be resized: where it is, or with its chunk if it is alone there, or by
 * moving, and then its place is the chunk's again.
 *
 * In a resizable arena any piece can be. It stands in a slot of a power of two, after a mark that
 * says how large it is; the slot that it leaves is kept for others. What needs more than the
 * largest slot, or an alignment above 16, has a chunk of its own, which goes when it moves.
 *
 * Law of a chunk: used <= size; pieces lie below used. Of an arena: block.size is the sum of its
 * pieces' sizes; a plain one's `last` lies in `last_chunk` and ends where that is used to. Of a
 * resizable one: all that is used below a chunk's first piece's mark is slots, live or free. */
#include "block/arena.h"

#include <string.h>

#include "os/error.h"

typedef struct chunk {
  struct chunk *next, *previous;
  void *base;  /* of the allocation: the chunk, unless a large alignment stands before it */
  size_t size; /* for pieces, after the chunk */
  size_t used;
  size_t alignment;
  void *spare;
  uint64_t mark; /* of a piece that has the chunk to itself */
} chunk;

_Static_assert(sizeof(chunk) == LM_CACHE_LINE, "the first piece keeps the strategy's alignment");

enum { SLOTS = 9, SLOT_MIN_SHIFT = 4, SLOT_MAX = 16 << (SLOTS - 1), ALONE = SLOTS };

typedef struct arena {
  loam_block block;
  chunk *chunks, *current;
  size_t next_size; /* of a chunk, with its head */
  int flags;
  bool is_final;
  chunk *last_chunk; /* plain: of the last piece, NULL if there is none */
  char *last;
  size_t last_size, last_alignment;
  char *free[SLOTS]; /* resizable: pieces that nobody has, linked by their first word */
} arena;

static const size_t least_size = 4096, largest_size = LM_MIB;

/* ---- Chunks ------------------------------------------------------------------------------- */

static char *data_of(const chunk *c) { return (char *)(c + 1); }
static chunk *chunk_of(char *p) { return (chunk *)p - 1; } /* of a piece that has it to itself */
static size_t room_of(const chunk *c) { return c ? c->size - c->used : 0; }

static void link_chunk(arena *a, chunk *c) {
  c->previous = NULL;
  c->next = a->chunks;
  if (c->next) c->next->previous = c;
  a->chunks = c;
}

static void unlink_chunk(arena *a, const chunk *c) {
  if (c->next) c->next->previous = c->previous;
  if (c->previous) c->previous->next = c->next;
  else a->chunks = c->next;
}

/* A chunk for `size` bytes whose data are aligned. */
static chunk *make_chunk(arena *a, size_t alignment, size_t size) {
  size_t head = alignment > sizeof(chunk) ? alignment : sizeof(chunk);
  if (size > LM_SIZE_MAX || alignment > LM_SIZE_MAX)
    return lm_error_null("a piece of %zu bytes: no address space is that large", size);
  loam_site *site = a->block.site;
  char *base = alignment > 16 ? loam_aligned_alloc(site, alignment, head + size)
                              : loam_malloc(site, head + size);
  if (!base) return NULL;
  chunk *c = (chunk *)(base + head) - 1;
  *c = (chunk){ .base = base, .size = size, .alignment = alignment };
  link_chunk(a, c);
  return c;
}

static void free_chunk(arena *a, chunk *c) {
  unlink_chunk(a, c);
  loam_free(c->base);
}

/* Only the least alignment is kept when memory is resized. */
static bool can_resize(const chunk *c) { return c->alignment <= 16; }

/* The same chunk with room for `size` bytes, perhaps elsewhere; NULL: it is as it was. */
static chunk *resize_chunk(arena *a, chunk *c, size_t size) {
  lm_assert(can_resize(c));
  if (size > LM_SIZE_MAX)
    return lm_error_null("a piece of %zu bytes: no address space is that large", size);
  unlink_chunk(a, c);
  chunk *to = loam_realloc(a->block.site, c, sizeof *c + size);
  link_chunk(a, to ? to : c);
  if (!to) return NULL;
  to->base = to;
  to->size = size;
  if (a->current == c) a->current = to;
  if (a->last_chunk == c) a->last_chunk = to;
  return to;
}

/* A chunk with room for `size` bytes, of the usual size unless that is too little. */
static chunk *next_chunk(arena *a, size_t alignment, size_t size) {
  size_t usual = a->next_size - sizeof(chunk);
  chunk *c = make_chunk(a, alignment, size > usual ? size : usual);
  if (c) a->next_size = a->next_size < largest_size / 2 ? a->next_size * 2 : largest_size;
  return c;
}

/* ---- Plain arenas: pieces one after the other --------------------------------------------- */

/* One of size 0 takes a byte: it would else have the address of the next one, and by that be taken
 * for it. */
static size_t span_of(size_t size) { return size ? size : 1; }

static char *put(arena *a, chunk *c, size_t alignment, size_t size) {
  uintptr_t end = (uintptr_t)data_of(c) + c->used, start = lm_align_up(end, alignment);
  if (start < end || start - end > room_of(c) || span_of(size) > room_of(c) - (start - end))
    return NULL;
  c->used += start - end + span_of(size);
  a->last_chunk = c;
  a->last = (char *)start;
  a->last_size = size;
  a->last_alignment = alignment;
  return a->last;
}

/* Where more room is left, there the next ones go. */
static char *plain_new(arena *a, size_t alignment, size_t size) {
  char *p = a->current ? put(a, a->current, alignment, size) : NULL;
  if (p) return p;
  chunk *c = next_chunk(a, alignment, size);
  if (!c) return NULL;
  p = put(a, c, alignment, size);
  lm_require(p);
  if (room_of(c) >= room_of(a->current)) a->current = c;
  return p;
}

/* Half as much again, so that a piece that grows byte by byte seldom moves. */
static char *grow_alone(arena *a, size_t size) {
  size_t more = a->last_size + a->last_size / 2;
  if (!resize_chunk(a, a->last_chunk, size > more ? size : more) &&
      !resize_chunk(a, a->last_chunk, size))
    return NULL;
  a->last = data_of(a->last_chunk);
  a->last_chunk->used = a->last_size = size;
  return a->last;
}

static char *move_last(arena *a, size_t size) {
  chunk *from = a->last_chunk;
  char *old = a->last;
  size_t old_size = a->last_size;
  char *p = plain_new(a, a->last_alignment, size);
  if (!p) return NULL;
  memcpy(p, old, old_size);
  from->used = (size_t)(old - data_of(from));
  if (!from->used && from != a->current) free_chunk(a, from);
  else if (room_of(from) > room_of(a->current)) a->current = from;
  return p;
}

static char *plain_resize(arena *a, char *p, size_t size) {
  chunk *c = a->last_chunk;
  size_t start = (size_t)(p - data_of(c));
  if (size > c->size - start)
    return start || !can_resize(c) ? move_last(a, size) : grow_alone(a, size);
  c->used = start + span_of(size);
  a->last_size = size;
  return p;
}

/* ---- Resizable arenas: pieces in slots, marked --------------------------------------------- */

/* A mark: LIVE or DEAD in 8 bits, which slot in 8, size in 48. */
enum { LIVE = 0xA5, DEAD = 0x5A };
static uint64_t mark_of(unsigned slot, size_t size) {
  return (uint64_t)LIVE << 56 | (uint64_t)slot << 48 | size;
}
static unsigned state_in(uint64_t mark) { return (unsigned)(mark >> 56); }
static uint64_t *mark_at(const char *p) { return (uint64_t *)p - 1; }
static unsigned slot_in(uint64_t mark) { return mark >> 48 & 0xFF; }
static size_t size_in(uint64_t mark) { return mark & (LM_SIZE_MAX * 2 - 1); }

static size_t slot_size(unsigned slot) { return (size_t)16 << slot; }
/* The slot for a piece and its mark. */
static unsigned slot_for(size_t size) {
  size_t whole = size + sizeof(uint64_t);
  return whole <= 16 ? 0 : 64 - SLOT_MIN_SHIFT - (unsigned)__builtin_clzll(whole - 1);
}
static bool fits_slot(size_t alignment, size_t size) {
  return alignment <= 16 && size <= SLOT_MAX - sizeof(uint64_t);
}

static void keep_free(arena *a, char *p, unsigned slot) {
  *mark_at(p) = (uint64_t)DEAD << 56 | (uint64_t)slot << 48;
  memcpy(p, &a->free[slot], sizeof(char *));
  a->free[slot] = p;
}

/* A slot off the current chunk, whose first one begins 8 bytes in: so marks lie 8 before a multiple
 * of 16, and pieces at it. */
static char *cut(arena *a, unsigned slot) {
  chunk *c = a->current;
  if (slot_size(slot) > room_of(c)) return NULL;
  char *p = data_of(c) + c->used + sizeof(uint64_t);
  c->used += slot_size(slot);
  return p;
}

/* What is left of the current chunk becomes slots, the largest first. */
static void cut_up(arena *a) {
  for (unsigned slot = SLOTS; slot-- > 0;)
    for (char *p = cut(a, slot); p; p = cut(a, slot)) keep_free(a, p, slot);
}

static char *take_slot(arena *a, unsigned slot) {
  char *p = a->free[slot];
  if (p) memcpy(&a->free[slot], p, sizeof(char *));
  if (!p) p = cut(a, slot);
  if (p) return p;
  chunk *c = next_chunk(a, 16, slot_size(slot) + sizeof(uint64_t));
  if (!c) return NULL;
  c->used = sizeof(uint64_t);
  cut_up(a);
  a->current = c;
  return cut(a, slot);
}

static char *alone_new(arena *a, size_t alignment, size_t size) {
  chunk *c = make_chunk(a, alignment, size);
  if (!c) return NULL;
  c->used = size;
  c->mark = mark_of(ALONE, size);
  return data_of(c);
}

static char *slot_new(arena *a, size_t alignment, size_t size) {
  if (!fits_slot(alignment, size)) return alone_new(a, alignment, size);
  unsigned slot = slot_for(size);
  char *p = take_slot(a, slot);
  if (p) *mark_at(p) = mark_of(slot, size);
  return p;
}

static void slot_free(arena *a, char *p) {
  unsigned slot = slot_in(*mark_at(p));
  if (slot == ALONE) free_chunk(a, chunk_of(p));
  else keep_free(a, p, slot);
}

static size_t room_at(char *p) {
  unsigned slot = slot_in(*mark_at(p));
  return slot == ALONE ? chunk_of(p)->size : slot_size(slot) - sizeof(uint64_t);
}

/* Whether it fits where it is, and would not in a place of a quarter. */
static bool is_fair(char *p, size_t size) {
  size_t room = room_at(p);
  return size <= room && (size >= room / 4 || room < 16);
}

/* An eighth more than asked, so that a piece that grows byte by byte seldom moves. */
static char *alone_resize(arena *a, char *p, size_t size) {
  chunk *c = chunk_of(p);
  chunk *resized = size > c->size ? resize_chunk(a, c, size + size / 8) : NULL;
  if (!resized) resized = resize_chunk(a, c, size);
  return resized ? data_of(resized) : NULL;
}

static char *slot_move(arena *a, char *p, size_t size) {
  uint64_t mark = *mark_at(p);
  size_t was = size_in(mark);
  char *to = slot_new(a, slot_in(mark) == ALONE ? chunk_of(p)->alignment : 16, size);
  if (!to) return NULL;
  memcpy(to, p, was < size ? was : size);
  slot_free(a, p);
  return to;
}

/* For one that shrinks there is always a place: its own. */
static char *slot_resize(arena *a, char *p, size_t size) {
  char *to = p;
  unsigned slot = slot_in(*mark_at(p));
  if (!is_fair(p, size)) {
    bool with_chunk = slot == ALONE && can_resize(chunk_of(p)) && !fits_slot(16, size);
    to = with_chunk ? alone_resize(a, p, size) : slot_move(a, p, size);
  }
  if (!to && size <= room_at(p)) to = p;
  if (!to) return NULL;
  slot = slot_in(*mark_at(to));
  *mark_at(to) = mark_of(slot, size);
  if (slot == ALONE) chunk_of(to)->used = size;
  return to;
}

/* ---- Both --------------------------------------------------------------------------------- */

static bool is_resizable(const arena *a) { return a->flags & LOAM_ARENA_RESIZABLE; }

static void *refused(loam_status status, const char *why) {
  lm_error(status, "%s", why);
  return NULL;
}

static arena *arena_of(const loam_block *b) {
  if (b && b->kind == LOAM_BLOCK_POOLED) return (arena *)b;
  return refused(LOAM_EINVAL, b ? "the block is not an arena" : "the arena is NULL");
}

/* All chunks but one. */
static void free_chunks(arena *a, const chunk *but) {
  for (chunk *c = a->chunks, *next; c; c = next) {
    next = c->next;
    if (c != but) free_chunk(a, c);
  }
}

/* The destructor of every arena. It runs when the last reference is released. */
static void finish(void *data, size_t size, void *ctx) {
  (void)data;
  (void)size;
  free_chunks(ctx, NULL);
}

loam_block *loam_arena_new(loam_site *site, int flags, size_t first) {
  if (flags & ~(LOAM_ARENA_ZEROED | LOAM_ARENA_RESIZABLE))
    return refused(LOAM_EINVAL, "flags: they are a sum of LOAM_ARENA_*");
  if (first > LM_SIZE_MAX)
    return lm_error_null("an arena of %zu bytes: no address space is that large", first);
  loam_block *b = lm_block_header(site, LOAM_BLOCK_POOLED, sizeof(arena) - sizeof *b);
  if (!b) return NULL;
  arena *a = (arena *)b;
  memset(b + 1, 0, sizeof *a - sizeof *b);
  b->dtor = finish;
  b->ctx = a;
  a->flags = flags;
  a->next_size = first > least_size ? first + sizeof(chunk) : least_size;
  return lm_block_made(b);
}

static void zero_more(const arena *a, char *p, size_t from, size_t to) {
  if (p && from < to && a->flags & LOAM_ARENA_ZEROED) memset(p + from, 0, to - from);
}

void *loam_arena_alloc(loam_block *b, size_t alignment, size_t size) {
  arena *a = arena_of(b);
  if (!a) return NULL;
  if (a->is_final) return refused(LOAM_ESTATE, "the arena is finished: it has no more pieces");
  if (!lm_is_pow2(alignment)) {
    lm_error(LOAM_EINVAL, "alignment %zu: it is not a power of two", alignment);
    return NULL;
  }
  char *p = is_resizable(a) ? slot_new(a, alignment, size) : plain_new(a, alignment, size);
  zero_more(a, p, 0, size);
  if (p) a->block.size += size;
  return p;
}

/* The size of a piece that can be resized. */
static bool find_piece(const arena *a, const char *p, size_t *size) {
  if (!is_resizable(a)) {
    *size = a->last_size;
    return a->last_chunk && p == a->last;
  }
  if ((uintptr_t)p % 16) return false;
  *size = size_in(*mark_at(p));
  return state_in(*mark_at(p)) == LIVE && slot_in(*mark_at(p)) <= ALONE;
}

void *loam_arena_resize(loam_block *b, void *piece, size_t size) {
  size_t was;
  if (!piece) return loam_arena_alloc(b, 16, size);
  arena *a = arena_of(b);
  if (!a) return NULL;
  if (a->is_final) return refused(LOAM_ESTATE, "the arena is finished: its pieces stay");
  if (!find_piece(a, piece, &was))
    return refused(LOAM_EINVAL, is_resizable(a) ? "it is no live piece of a resizable arena"
                                                : "only the arena's last piece can be resized");
  char *p = is_resizable(a) ? slot_resize(a, piece, size) : plain_resize(a, piece, size);
  zero_more(a, p, was, size);
  if (p) a->block.size += size - was;
  return p;
}

void lm_arena_drop(loam_block *b, void *piece) {
  size_t size;
  arena *a = arena_of(b);
  lm_require(a && is_resizable(a) && find_piece(a, piece, &size));
  a->block.size -= size;
  slot_free(a, piece);
}

loam_status loam_arena_reset(loam_block *b) {
  arena *a = arena_of(b);
  if (!a) return LOAM_EINVAL;
  if (loam_block_refcount(b) > 1)
    return lm_error(LOAM_ESTATE, "the arena has %zu owners: its pieces may be in use",
                    loam_block_refcount(b));
  free_chunks(a, a->current);
  if (a->current) a->current->used = is_resizable(a) ? sizeof(uint64_t) : 0;
  memset(a->free, 0, sizeof a->free);
  a->last_chunk = NULL;
  a->last = NULL;
  a->block.size = 0;
  a->is_final = false;
  return LOAM_OK;
}

loam_status loam_arena_finalize(loam_block *b) {
  arena *a = arena_of(b);
  if (!a) return LOAM_EINVAL;
  a->is_final = true;
  a->last_chunk = NULL;
  if (a->current && !a->current->used) free_chunk(a, a->current);
  a->current = NULL;
  return LOAM_OK;
}

/* ---- Laws --------------------------------------------------------------------------------- */

/* Bytes of the live pieces in a chunk of slots; SIZE_MAX if what is used is not all slots. */
static size_t live_in(chunk *c) {
  if (c->mark) return c->used == size_in(c->mark) ? c->used : SIZE_MAX;
  size_t sum = 0, at = sizeof(uint64_t);
  while (at < c->used) {
    uint64_t mark;
    memcpy(&mark, data_of(c) + at, sizeof mark);
    if (slot_in(mark) >= SLOTS) return SIZE_MAX;
    if (state_in(mark) == LIVE) sum += size_in(mark);
    at += slot_size(slot_in(mark));
  }
  return at == c->used ? sum : SIZE_MAX;
}

bool lm_arena_is_valid(const loam_block *b) {
  const arena *a = (const arena *)b;
  size_t used = 0, pieces = 0;
  const chunk *previous = NULL;
  for (chunk *c = a->chunks; c; previous = c, c = c->next) {
    if (c->previous != previous || c->used > c->size) return false;
    used += c->used;
    if (is_resizable(a)) {
      size_t more = live_in(c);
      if (more == SIZE_MAX) return false;
      pieces += more;
    }
  }
  if (is_resizable(a)) return pieces == b->size;
  if (a->last_chunk &&
      a->last + span_of(a->last_size) != data_of(a->last_chunk) + a->last_chunk->used)
    return false;
  return used >= b->size;
}

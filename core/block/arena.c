/* arena.c - many small pieces from one pooled block, freed together. It has the interface of the
 * "POD memory block" of DyND, a library for dynamic arrays.
 *
 * Pieces stand in chunks. A chunk is an ordinary allocation under the arena's site; each chunk is
 * twice as large as the one before, up to 1 MiB.
 *
 * In a plain arena, pieces follow one another with nothing between them except for alignment. The
 * last piece can be resized: where it stands, or together with its chunk if it is alone in the
 * chunk, or by moving. When it moves, its old place becomes free space of the chunk again.
 *
 * In a resizable arena, every piece can be resized. A piece stands in a place. A place of order k
 * takes 16 << k bytes. It begins with a head of 8 bytes that says how large the piece is. When a
 * piece moves, its place goes to the free list of its order. A piece that needs more than the
 * largest place, or an alignment above 16, has a chunk of its own, which is freed when the piece
 * moves. */
#include "block/arena.h"

#include <string.h>

#include "api/handler_api.h"
#include "api/memory.h"
#include "os/error.h"

/* The data of a chunk follow this struct.
 *
 * Law: used <= size; every piece of the chunk lies in the first `used` bytes of its data. */
typedef struct chunk {
  struct chunk *next, *previous;
  void *base;       /* the allocation; it begins before the chunk if alignment > sizeof(chunk) */
  size_t size;      /* bytes of the data */
  size_t used;      /* bytes of the data that are taken, from the front */
  size_t alignment; /* of the data */
  void *padding;    /* makes `head` end where the data begin */
  uint64_t head;    /* the head of a piece that has the chunk to itself; 0 in other chunks */
} chunk;

_Static_assert(sizeof(chunk) == LM_CACHE_LINE, "the first piece keeps the strategy's alignment");

/* OWN_CHUNK stands in a head instead of an order: the piece has a chunk to itself. */
enum { ORDERS = 9, PLACE_MIN_SHIFT = 4, PLACE_MAX = 16 << (ORDERS - 1), OWN_CHUNK = ORDERS };

/* Law: block.size is the sum of the sizes of the live pieces. All chunks are in the list `chunks`,
 * also `current` and `last_chunk`. In a plain arena, `last` lies in `last_chunk` and ends
 * where the used part of that chunk ends. In a resizable arena, the used part of a chunk is 8 bytes
 * and then places, live or free, without a gap; or it is one piece with head OWN_CHUNK. */
typedef struct arena {
  loam_block block;
  chunk *chunks;
  chunk *current; /* new pieces are cut from this chunk; NULL: none yet, or finalized */
  const loam_handler *handler; /* makes the chunks; NULL: the policy decides */
  size_t next_size;            /* of the next chunk, including the struct chunk */
  int flags;                   /* a sum of LOAM_ARENA_* */
  bool is_final;               /* no more pieces until a reset */
  chunk *last_chunk; /* plain: the chunk of the last piece; NULL: no piece can be resized */
  char *last;        /* plain: the last piece */
  size_t last_size, last_alignment;
  char *free[ORDERS]; /* resizable: for each order, a list of free places, linked by first words */
} arena;

/* The sizes of the smallest and the largest chunk that holds several pieces. */
static const size_t chunk_min = 4096, chunk_max = LM_MIB;

/* ---- Chunks ------------------------------------------------------------------------------- */

static char *data_of(const chunk *c) { return (char *)(c + 1); }
/* The chunk of a piece that has its chunk to itself. */
static chunk *chunk_of(char *p) { return (chunk *)p - 1; }
/* The bytes at the end of a chunk that are not used. NULL has none. */
static size_t room_in(const chunk *c) { return c ? c->size - c->used : 0; }

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

static char *allocate(const arena *a, size_t alignment, size_t size) {
  lm_request r = { .site = a->block.site, .size = size, .align = alignment, .handler = a->handler };
  if (lm_unlikely(a->handler != NULL)) return lm_memory_alloc(&r);
  return alignment > 16 ? loam_aligned_alloc(r.site, alignment, size) : loam_malloc(r.site, size);
}

static void *reallocate(const arena *a, void *base, size_t size) {
  if (lm_likely(!a->handler)) return loam_realloc(a->block.site, base, size);
  return lm_handler_api_realloc(a->handler, a->block.site, base, size);
}

/* Fails because a piece would be too large. Returns NULL. */
static void *fail_size(size_t size) {
  return lm_error_null("a piece of %zu bytes: no address space is that large", size);
}

/* Allocates a chunk for `size` bytes of data that begin at a multiple of `alignment`, a power of
 * two. Returns NULL without memory. */
static chunk *make_chunk(arena *a, size_t alignment, size_t size) {
  lm_assert(lm_is_pow2(alignment));
  size_t before = alignment > sizeof(chunk) ? alignment : sizeof(chunk);
  if (size > LM_SIZE_MAX) return fail_size(size);
  if (alignment > LM_SIZE_MAX)
    return lm_error_null("alignment %zu: it is above the address space, %zu", alignment,
                         LM_SIZE_MAX);
  char *base = allocate(a, alignment, before + size);
  if (!base) return NULL;
  chunk *c = (chunk *)(base + before) - 1;
  *c = (chunk){ .base = base, .size = size, .alignment = alignment };
  lm_assert((uintptr_t)data_of(c) % alignment == 0);
  link_chunk(a, c);
  return c;
}

static void free_chunk(arena *a, chunk *c) {
  unlink_chunk(a, c);
  loam_free(c->base);
}

/* loam_realloc keeps an alignment of 16, and no greater one. */
enum { REALLOC_ALIGNMENT = 16 };

/* Returns whether the chunk can be reallocated. */
static bool can_resize(const chunk *c) { return c->alignment <= REALLOC_ALIGNMENT; }

/* Resizes a chunk to `size` bytes of data and returns its new address; corrects the pointers of the
 * arena to it. Returns NULL without memory: the chunk is unchanged. */
static chunk *resize_chunk(arena *a, chunk *c, size_t size) {
  lm_assert(can_resize(c));
  if (size > LM_SIZE_MAX) return fail_size(size);
  unlink_chunk(a, c);
  chunk *to = reallocate(a, c, sizeof *c + size);
  link_chunk(a, to ? to : c);
  if (!to) return NULL;
  to->base = to;
  to->size = size;
  if (a->current == c) a->current = to;
  if (a->last_chunk == c) a->last_chunk = to;
  return to;
}

/* Allocates a chunk of the next size in turn, or a larger one where `size` bytes need it. Returns
 * NULL without memory. */
static chunk *next_chunk(arena *a, size_t alignment, size_t size) {
  lm_assert(a->next_size >= chunk_min);
  size_t usual = a->next_size - sizeof(chunk);
  chunk *c = make_chunk(a, alignment, size > usual ? size : usual);
  if (c) a->next_size = a->next_size < chunk_max / 2 ? a->next_size * 2 : chunk_max;
  return c;
}

/* The bytes that a piece takes. A piece of size 0 takes one byte: otherwise the next piece, or the
 * block behind the chunk, would have the same address. */
static size_t bytes_taken(size_t size) { return size ? size : 1; }

/* ---- Plain arenas: pieces follow one another ---------------------------------------------- */

/* Puts a piece behind the used part of a chunk; it becomes the arena's last piece. Returns NULL if
 * the chunk has too little room. */
static char *place_piece(arena *a, chunk *c, size_t alignment, size_t size) {
  lm_assert(lm_is_pow2(alignment) && c->used <= c->size);
  uintptr_t end = (uintptr_t)data_of(c) + c->used, start = lm_align_up(end, alignment);
  if (start < end || start - end > room_in(c) || bytes_taken(size) > room_in(c) - (start - end))
    return NULL;
  c->used += start - end + bytes_taken(size);
  a->last_chunk = c;
  a->last = (char *)start;
  a->last_size = size;
  a->last_alignment = alignment;
  return a->last;
}

/* Makes a piece, in a new chunk if the current one has too little room. The chunk with more room
 * left becomes the current one. Returns NULL without memory. */
static char *plain_new(arena *a, size_t alignment, size_t size) {
  char *p = a->current ? place_piece(a, a->current, alignment, size) : NULL;
  if (p) return p;
  chunk *c = next_chunk(a, alignment, size);
  if (!c) return NULL;
  p = place_piece(a, c, alignment, size);
  lm_require(p);
  if (room_in(c) >= room_in(a->current)) a->current = c;
  return p;
}

/* Resizes the chunk in which the last piece is alone. Returns the piece, or NULL without memory.
 * The chunk grows by half at least, if memory allows: so a piece that grows byte by byte seldom
 * moves. */
static char *grow_with_chunk(arena *a, size_t size) {
  lm_assert(a->last == data_of(a->last_chunk));
  size_t more = a->last_size + a->last_size / 2;
  if (!resize_chunk(a, a->last_chunk, size > more ? size : more) &&
      !resize_chunk(a, a->last_chunk, size))
    return NULL;
  a->last = data_of(a->last_chunk);
  a->last_chunk->used = a->last_size = size;
  return a->last;
}

/* Moves the last piece to where `size` bytes have room. Its old chunk gets the space back, or is
 * freed if nothing else is in it. Returns NULL without memory: nothing is changed. */
static char *move_last(arena *a, size_t size) {
  chunk *from = a->last_chunk;
  char *old = a->last;
  size_t old_size = a->last_size;
  char *p = plain_new(a, a->last_alignment, size);
  if (!p) return NULL;
  memcpy(p, old, old_size);
  from->used = (size_t)(old - data_of(from));
  if (!from->used && from != a->current) free_chunk(a, from);
  else if (room_in(from) > room_in(a->current)) a->current = from;
  return p;
}

/* Resizes the last piece `p` of a plain arena; returns its address, or NULL without memory. */
static char *plain_resize(arena *a, char *p, size_t size) {
  lm_assert(a->last_chunk && p == a->last);
  chunk *c = a->last_chunk;
  size_t start = (size_t)(p - data_of(c));
  /* The piece may need more alignment than its chunk has: the chunk was made for another piece. */
  bool is_fixed = start || !can_resize(c) || a->last_alignment > REALLOC_ALIGNMENT;
  if (size > c->size - start) return is_fixed ? move_last(a, size) : grow_with_chunk(a, size);
  c->used = start + bytes_taken(size);
  a->last_size = size;
  return p;
}

/* ---- Resizable arenas: pieces in places, behind heads -------------------------------------- */

/* A head, from the highest bit: LIVE or FREE in 8 bits; the order of the place, or OWN_CHUNK, in 8
 * bits; the size of the piece in 48 bits. */
enum { LIVE = 0xA5, FREE = 0x5A };
static uint64_t make_head(unsigned order, size_t size) {
  return (uint64_t)LIVE << 56 | (uint64_t)order << 48 | size;
}
static unsigned state_in(uint64_t head) { return (unsigned)(head >> 56); }
static uint64_t *head_at(const char *p) { return (uint64_t *)p - 1; }
static unsigned order_in(uint64_t head) { return head >> 48 & 0xFF; }
static size_t size_in(uint64_t head) { return head & (LM_SIZE_MAX * 2 - 1); }

static size_t place_size(unsigned order) { return (size_t)16 << order; }

/* The least order whose places hold a piece of `size` bytes and its head. */
static unsigned order_for(size_t size) {
  lm_assert(size <= PLACE_MAX - sizeof(uint64_t));
  size_t whole = size + sizeof(uint64_t);
  return whole <= 16 ? 0 : 64 - PLACE_MIN_SHIFT - (unsigned)__builtin_clzll(whole - 1);
}

/* Returns whether a place can hold a piece. Otherwise the piece needs a chunk of its own. */
static bool fits_place(size_t alignment, size_t size) {
  return alignment <= 16 && size <= PLACE_MAX - sizeof(uint64_t);
}

/* Puts the place of `p` on the free list of its order. */
static void push_free_place(arena *a, char *p, unsigned order) {
  lm_assert(order < ORDERS && (uintptr_t)p % 16 == 0);
  *head_at(p) = (uint64_t)FREE << 56 | (uint64_t)order << 48;
  memcpy(p, &a->free[order], sizeof(char *));
  a->free[order] = p;
}

/* Cuts a place from the current chunk and returns where its piece begins; NULL if the chunk has too
 * little room. The first place begins 8 bytes into the data, so heads lie 8 bytes before a multiple
 * of 16 and pieces lie at it. */
static char *cut_place(arena *a, unsigned order) {
  chunk *c = a->current;
  if (place_size(order) > room_in(c)) return NULL;
  char *p = data_of(c) + c->used + sizeof(uint64_t);
  c->used += place_size(order);
  return p;
}

/* Cuts what remains of the current chunk into free places, large ones before small ones. */
static void cut_rest(arena *a) {
  for (unsigned order = ORDERS; order-- > 0;)
    for (char *p = cut_place(a, order); p; p = cut_place(a, order)) push_free_place(a, p, order);
}

/* Takes a place of an order: a free one, else one cut from the current chunk or from a new chunk.
 * Returns where its piece begins, or NULL without memory. */
static char *take_place(arena *a, unsigned order) {
  lm_assert(order < ORDERS);
  char *p = a->free[order];
  if (p) memcpy(&a->free[order], p, sizeof(char *));
  if (!p) p = cut_place(a, order);
  if (p) return p;
  chunk *c = next_chunk(a, 16, place_size(order) + sizeof(uint64_t));
  if (!c) return NULL;
  c->used = sizeof(uint64_t);
  cut_rest(a);
  a->current = c;
  return cut_place(a, order);
}

/* Makes a piece with a chunk of its own. Returns NULL without memory. */
static char *own_chunk_new(arena *a, size_t alignment, size_t size) {
  chunk *c = make_chunk(a, alignment, bytes_taken(size));
  if (!c) return NULL;
  c->used = size;
  c->head = make_head(OWN_CHUNK, size);
  return data_of(c);
}

/* Makes a piece of a resizable arena. Returns NULL without memory. */
static char *resizable_new(arena *a, size_t alignment, size_t size) {
  if (!fits_place(alignment, size)) return own_chunk_new(a, alignment, size);
  unsigned order = order_for(size);
  char *p = take_place(a, order);
  if (p) *head_at(p) = make_head(order, size);
  return p;
}

/* Frees a live piece: its place becomes free, or its chunk is freed. */
static void resizable_free(arena *a, char *p) {
  lm_assert(state_in(*head_at(p)) == LIVE);
  unsigned order = order_in(*head_at(p));
  if (order == OWN_CHUNK) free_chunk(a, chunk_of(p));
  else push_free_place(a, p, order);
}

/* The largest size that the piece can have where it stands. */
static size_t room_at(char *p) {
  unsigned order = order_in(*head_at(p));
  return order == OWN_CHUNK ? chunk_of(p)->size : place_size(order) - sizeof(uint64_t);
}

/* Whether `size` bytes fit where the piece stands and fill at least a quarter of that room. A piece
 * that shrinks below a quarter moves, so that it does not keep a large place. */
static bool fits_well(char *p, size_t size) {
  size_t room = room_at(p);
  return size <= room && (size >= room / 4 || room < 16);
}

/* Resizes a piece together with its chunk; returns the piece, or NULL without memory. A chunk that
 * grows gets an eighth more than `size`, if memory allows, so that a piece that grows byte by byte
 * seldom moves. */
static char *own_chunk_resize(arena *a, char *p, size_t size) {
  chunk *c = chunk_of(p);
  chunk *resized = size > c->size ? resize_chunk(a, c, size + size / 8) : NULL;
  if (!resized) resized = resize_chunk(a, c, size);
  return resized ? data_of(resized) : NULL;
}

/* Moves a piece to where `size` bytes have room. Returns NULL without memory: nothing changes. */
static char *resizable_move(arena *a, char *p, size_t size) {
  uint64_t head = *head_at(p);
  size_t was = size_in(head);
  char *to = resizable_new(a, order_in(head) == OWN_CHUNK ? chunk_of(p)->alignment : 16, size);
  if (!to) return NULL;
  memcpy(to, p, was < size ? was : size);
  resizable_free(a, p);
  return to;
}

/* Resizes a live piece and returns its address, or NULL without memory. Shrinking never fails: the
 * piece can stay where it stands. */
static char *resizable_resize(arena *a, char *p, size_t size) {
  lm_assert(state_in(*head_at(p)) == LIVE);
  char *to = p;
  unsigned order = order_in(*head_at(p));
  if (!fits_well(p, size)) {
    bool with_chunk = order == OWN_CHUNK && can_resize(chunk_of(p)) && !fits_place(16, size);
    to = with_chunk ? own_chunk_resize(a, p, size) : resizable_move(a, p, size);
  }
  if (!to && size <= room_at(p)) to = p;
  if (!to) return NULL;
  order = order_in(*head_at(to));
  *head_at(to) = make_head(order, size);
  if (order == OWN_CHUNK) chunk_of(to)->used = size;
  return to;
}

/* ---- Arenas of both kinds ----------------------------------------------------------------- */

static bool is_resizable(const arena *a) { return a->flags & LOAM_ARENA_RESIZABLE; }

/* Turns a failure, whose words are set, into a NULL result. */
static void *fail(loam_status failure) {
  lm_assert(failure);
  (void)failure;
  return NULL;
}

/* The arena that a block is. NULL, with error words, if it is not an arena. */
static arena *arena_of(const loam_block *b) {
  if (b && b->kind == LOAM_BLOCK_POOLED) return (arena *)b;
  return fail(lm_error(LOAM_EINVAL, b ? "the block is not an arena" : "the arena is NULL"));
}

/* Frees all chunks except `kept`, which may be NULL. */
static void free_chunks(arena *a, const chunk *kept) {
  for (chunk *c = a->chunks, *next; c; c = next) {
    next = c->next;
    if (c != kept) free_chunk(a, c);
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
    return fail(lm_error(
        LOAM_EINVAL, "flags %d: an arena has the flags LOAM_ARENA_ZEROED and LOAM_ARENA_RESIZABLE",
        flags));
  if (first > LM_SIZE_MAX)
    return lm_error_null("an arena of %zu bytes: no address space is that large", first);
  const loam_handler *handler = lm_handler_api_for_data(&site);
  loam_block *b = lm_block_header(site, LOAM_BLOCK_POOLED, sizeof(arena) - sizeof *b);
  if (!b) return NULL;
  arena *a = (arena *)b;
  memset(b + 1, 0, sizeof *a - sizeof *b);
  b->dtor = finish;
  b->ctx = a;
  a->flags = flags;
  a->handler = handler;
  a->next_size = first > chunk_min ? first + sizeof(chunk) : chunk_min;
  return lm_block_made(b);
}

/* Zeroes the bytes `from` to `to` of a piece of a zeroed arena. `p` may be NULL. */
static void zero_more(const arena *a, char *p, size_t from, size_t to) {
  if (p && from < to && a->flags & LOAM_ARENA_ZEROED) memset(p + from, 0, to - from);
}

void *loam_arena_alloc(loam_block *b, size_t alignment, size_t size) {
  arena *a = arena_of(b);
  if (!a) return NULL;
  if (a->is_final)
    return fail(lm_error(LOAM_ESTATE, "the arena is finalized: no pieces can be allocated"));
  if (!lm_is_pow2(alignment))
    return fail(lm_error(LOAM_EINVAL, "alignment %zu: it is not a power of two", alignment));
  char *p = is_resizable(a) ? resizable_new(a, alignment, size) : plain_new(a, alignment, size);
  zero_more(a, p, 0, size);
  if (p) a->block.size += size;
  return p;
}

/* Whether `p` is a live piece that can be resized; *size is then its size. In a resizable arena the
 * head is read, so `p` has to point into the arena's memory. */
static bool find_piece(const arena *a, const char *p, size_t *size) {
  if (!is_resizable(a)) {
    *size = a->last_size;
    return a->last_chunk && p == a->last;
  }
  if ((uintptr_t)p % 16) return false;
  *size = size_in(*head_at(p));
  return state_in(*head_at(p)) == LIVE && order_in(*head_at(p)) <= OWN_CHUNK;
}

void *loam_arena_resize(loam_block *b, void *piece, size_t size) {
  size_t was;
  if (!piece) return loam_arena_alloc(b, 16, size);
  arena *a = arena_of(b);
  if (!a) return NULL;
  if (a->is_final)
    return fail(lm_error(LOAM_ESTATE, "the arena is finalized: no pieces can be resized"));
  if (!find_piece(a, piece, &was))
    return fail(lm_error(LOAM_EINVAL,
                         is_resizable(a)
                             ? "%p is not a live piece of the arena"
                             : "%p is not the arena's last piece: only that one can be resized",
                         piece));
  if (size > LM_SIZE_MAX) return fail_size(size);
  char *p = is_resizable(a) ? resizable_resize(a, piece, size) : plain_resize(a, piece, size);
  zero_more(a, p, was, size);
  lm_assert(a->block.size >= was || !p);
  if (p) a->block.size += size - was;
  return p;
}

bool lm_arena_can_resize(const loam_block *b, const void *piece) {
  const arena *a = (const arena *)b;
  lm_assert(b->kind == LOAM_BLOCK_POOLED);
  return is_resizable(a) || (a->last_chunk && piece == a->last);
}

bool lm_arena_is_zeroed(const loam_block *b) {
  lm_assert(b->kind == LOAM_BLOCK_POOLED);
  return ((const arena *)b)->flags & LOAM_ARENA_ZEROED;
}

/* Frees the last piece of a plain arena. After that, no piece is the last one. */
static void plain_drop_last(arena *a) {
  a->last_chunk->used = (size_t)(a->last - data_of(a->last_chunk));
  a->block.size -= a->last_size;
  a->last_chunk = NULL;
  a->last = NULL;
}

void lm_arena_drop(loam_block *b, void *piece) {
  size_t size;
  arena *a = arena_of(b);
  lm_require(a);
  if (!is_resizable(a)) {
    if (lm_arena_can_resize(b, piece)) plain_drop_last(a);
    return;
  }
  lm_require(find_piece(a, piece, &size));
  lm_assert(a->block.size >= size);
  a->block.size -= size;
  resizable_free(a, piece);
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
  lm_verify(lm_arena_is_valid(b));
  return LOAM_OK;
}

loam_status loam_arena_finalize(loam_block *b) {
  arena *a = arena_of(b);
  if (!a) return LOAM_EINVAL;
  a->is_final = true;
  a->last_chunk = NULL;
  if (a->current && !a->current->used) free_chunk(a, a->current);
  a->current = NULL;
  lm_verify(lm_arena_is_valid(b));
  return LOAM_OK;
}

/* ---- Laws --------------------------------------------------------------------------------- */

/* The sum of the sizes of the live pieces in a chunk of a resizable arena. SIZE_MAX if the chunk
 * breaks the law. */
static size_t sum_live(chunk *c) {
  if (c->head) return c->used == size_in(c->head) ? c->used : SIZE_MAX;
  size_t sum = 0, at = sizeof(uint64_t);
  while (at < c->used) {
    uint64_t head;
    memcpy(&head, data_of(c) + at, sizeof head);
    if (order_in(head) >= ORDERS) return SIZE_MAX;
    if (state_in(head) == LIVE) sum += size_in(head);
    at += place_size(order_in(head));
  }
  return at == c->used ? sum : SIZE_MAX;
}

/* Returns whether a chunk is in the arena's list; true for NULL. */
static bool is_listed(const arena *a, const chunk *wanted) {
  const chunk *c = a->chunks;
  while (wanted && c && c != wanted) c = c->next;
  return !wanted || c;
}

bool lm_arena_is_valid(const loam_block *b) {
  const arena *a = (const arena *)b;
  size_t used = 0, pieces = 0;
  if (b->kind != LOAM_BLOCK_POOLED || !lm_block_is_valid(b)) return false;
  if (!is_listed(a, a->current) || !is_listed(a, a->last_chunk)) return false;
  const chunk *previous = NULL;
  for (chunk *c = a->chunks; c; previous = c, c = c->next) {
    if (c->previous != previous || c->used > c->size) return false;
    used += c->used;
    if (is_resizable(a)) {
      size_t more = sum_live(c);
      if (more == SIZE_MAX) return false;
      pieces += more;
    }
  }
  if (is_resizable(a)) return pieces == b->size;
  if (a->last_chunk &&
      a->last + bytes_taken(a->last_size) != data_of(a->last_chunk) + a->last_chunk->used)
    return false;
  return used >= b->size;
}

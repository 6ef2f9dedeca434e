/* large.c - blocks that have slots of their own: large blocks and guarded blocks. */
#include "heap/large.h"

#include <stdlib.h>
#include <string.h>

#include "heap/age.h"
#include "heap/strategy.h"
#include "os/poison.h"
#include "pages/metadata.h"
#include "pages/range.h"

/* The bytes beside a guarded block have this value, until the program writes there. */
enum { EDGE_BYTE = 0xb5 };
/* The quarantine of a pool holds at most this many blocks and slots (256 MiB). */
enum { QUARANTINE_BLOCKS = 1024, QUARANTINE_SLOTS = 4096 };
/* Moving pages is cheaper than copying bytes from this size on. */
#define MOVE_MIN LM_MIB
/* The slots of a moved block keep their mappings if these have this length on average, and if so
 * many of their length would be as long as the pool. */
#define PIECE_KEPT LM_MIB
enum { PIECES_KEPT = 4096 };
/* A transparent huge page. */
#define THP_SIZE (2 * LM_MIB)
/* The mappings that a process may have, if the kernel's setting cannot be read: its default. */
enum { DEFAULT_MAPPINGS = 65530 };
/* All live blocks together were moved at most so often. The kernel's setting is not asked for: a
 * program may be one that must open no file any more. */
enum { MOVES_MOST = DEFAULT_MAPPINGS / 4 };

static size_t bytes_of(uint32_t slots) { return (size_t)slots << LM_SLOT_SHIFT; }
static size_t usable_of(size_t size) { return lm_align_up(size ? size : 1, LM_PAGE); }
/* Relaxed, as for slots_at: the caller owns the block, or checks the use again under the lock. */
static uint32_t use_of(uint32_t slot) {
  return atomic_load_explicit(&lm_map_span(slot)->use, memory_order_relaxed);
}
static uint32_t slots_at(uint32_t slot) {
  return atomic_load_explicit(&lm_map_span(slot)->slots, memory_order_relaxed);
}

void lm_large_init(lm_large *l, lm_regions *regions, uint32_t strategy) {
  lm_assert(!l->ring && !l->waiting && !l->parked);
  l->regions = regions;
  l->strategy = strategy;
}

/* The first slot of the block with this state cell. */
static uint32_t head_slot(lm_state_cell *state) {
  return lm_map_slot_of(lm_map_span_of_state(state));
}

/* ---- Moved pages --------------------------------------------------------------------------- */

/* The sum of `moves` of all live blocks: about the number of mappings that the moves have added.
 * Relaxed: it orders nothing, and may pass the bound by one for each thread. */
static _Atomic uint64_t all_moves;

/* Relaxed: the caller owns the block. */
static uint64_t moves_of(const lm_large *l, uint32_t slot) {
  if (l->regions->how.backing) return 0;
  return atomic_load_explicit(&lm_map_span(slot)->moves, memory_order_relaxed);
}

/* Called when a block ends, before its slots are used again. Returns how often its pages were
 * moved. */
static uint64_t end_moves(const lm_large *l, uint32_t slot) {
  uint64_t moves = moves_of(l, slot);
  if (moves) atomic_fetch_sub_explicit(&all_moves, moves, memory_order_relaxed);
  return moves;
}

/* Gives back slots of a block whose pages were moved so often. They keep their memory if their
 * mappings are long. */
static void put_moved(lm_large *l, uint32_t slot, uint32_t slots, uint64_t moves) {
  size_t least = moves ? lm_regions_size(l->regions) / PIECES_KEPT : 0;
  if (least < PIECE_KEPT) least = PIECE_KEPT;
  if (moves && bytes_of(slots) / (moves + 1) < least) lm_regions_renew(l->regions, slot, slots);
  else lm_regions_put(l->regions, slot, slots);
}

/* ---- Large blocks ------------------------------------------------------------------------- */

/* A block before it can be found. */
typedef struct block {
  uint32_t slot, slots;
  uint32_t use; /* LM_USE_LARGE or LM_USE_GUARDED */
  uint32_t bin; /* 0: threads do not cache it */
  uintptr_t start;
  size_t size;    /* usable bytes */
  uint64_t moves; /* how often its pages were moved */
} block;

/* Writes the entries of a block, which can be found by its addresses from then on. */
static void describe_block(const lm_large *l, const block *b, lm_token token) {
  lm_span *head = lm_map_span(b->slot);
  lm_assert(b->slot && b->slots && token != LM_TOKEN_NONE);
  lm_assert(b->start >= (uintptr_t)lm_map_address(b->slot));
  lm_assert(b->start - (uintptr_t)lm_map_address(b->slot) + b->size <= bytes_of(b->slots));
  lm_unpoison((void *)b->start, b->size);
  atomic_store_explicit(&head->token, token, memory_order_relaxed);
  atomic_store_explicit(&head->cell, lm_state_of_large(token), memory_order_relaxed);
  if (l->regions->how.backing) atomic_store(&head->lent, LM_LARGE_LENT_NEVER);
  else lm_age_reset(b->slot);
  if (!l->regions->how.backing) atomic_store_explicit(&head->moves, b->moves, memory_order_relaxed);
  lm_span_info view = { b->start, b->bin, &head->cell, b->bin, l->strategy, b->size };
  lm_map_describe_large(b->slot, b->slots, &view);
  lm_map_extent(b->slot, b->slots, b->use);
}

/* Makes the slots of a block an extent of no use. The lock keeps lm_large_retoken from writing a
 * token to an entry that is about to be something else's. */
static void forget_block(lm_large *l, uint32_t slot, uint32_t slots) {
  lm_lock_take(&l->lock);
  lm_map_forget_large(slot, slots);
  lm_map_extent(slot, slots, LM_USE_NONE);
  lm_lock_drop(&l->lock);
}

static uint32_t take_slots(lm_large *l, uint32_t slots, size_t align, bool *clean) {
  bool thp = l->regions->how.thp > 0 && bytes_of(slots) >= THP_SIZE;
  lm_assert(slots && lm_is_pow2(align));
  return lm_regions_take(l->regions, slots, thp && align < THP_SIZE ? THP_SIZE : align, clean);
}

/* Takes slots for a large block, of which `slots`, `bin` and `size` are given. */
static void *make_large(lm_large *l, block *b, size_t align, lm_token token, bool *clean) {
  b->slot = take_slots(l, b->slots, align, clean);
  if (!b->slot) return NULL;
  b->use = LM_USE_LARGE;
  b->start = (uintptr_t)lm_map_address(b->slot);
  describe_block(l, b, token);
  return (void *)b->start;
}

void *lm_large_alloc(lm_large *l, size_t size, size_t align, lm_token token, bool *clean) {
  block b = { .size = usable_of(size) };
  b.slots = lm_map_slots(b.size);
  return make_large(l, &b, align, token, clean);
}

void *lm_large_alloc_class(lm_large *l, size_t size, uint32_t bin, lm_token token, bool *clean) {
  block b = { .bin = bin, .size = usable_of(size), .slots = lm_class_slots(lm_class_large(size)) };
  lm_assert(size && size <= LM_LARGE_MAX && bin);
  return make_large(l, &b, LM_SLOT, token, clean);
}

/* ---- Guarded blocks ----------------------------------------------------------------------- */

/* The place of a guarded block in its slots. Law: first <= ready <= start < end; [ready, end) is
 * whole pages of memory, and the page that begins at `end` is in the slots and has no memory. */
typedef struct guard_layout {
  uint32_t slots;
  uintptr_t first; /* where the slots begin */
  uintptr_t ready, start, end;
} guard_layout;

/* Returns whether the law holds for pages of `page` bytes. */
static inline bool guard_layout_is_valid(const guard_layout *g, size_t page) {
  if (g->first > g->ready || g->ready > g->start || g->start >= g->end) return false;
  if (g->ready % page || (g->end - g->ready) % page) return false;
  return g->end + LM_PAGE <= g->first + bytes_of(g->slots);
}

static uint32_t guard_slots(size_t size, size_t page) {
  size_t ready = page == LM_PAGE ? size : lm_align_up(size, page);
  return lm_map_slots(ready + LM_PAGE);
}

static guard_layout lay_out(uint32_t slot, size_t size, size_t align, size_t page) {
  guard_layout g = { .slots = guard_slots(size, page), .first = (uintptr_t)lm_map_address(slot) };
  g.end = g.first + (page == LM_PAGE ? bytes_of(g.slots) - LM_PAGE : lm_align_up(size, page));
  g.start = lm_align_down(g.end - size, align);
  g.ready = lm_align_down(g.start, page);
  lm_assert(guard_layout_is_valid(&g, page));
  return g;
}

/* The size that the page map notes of a guarded block: the requested size. A single byte at the
 * start of a slot would look like a block of size 0. */
static size_t noted_size(uintptr_t start, size_t size) {
  return lm_large_is_empty((void *)start, size) ? size + 1 : size;
}

/* The edges of a guarded block: the bytes of its first page before it, and of its last page behind
 * it. */
typedef struct edges {
  unsigned char *before, *behind;
  size_t before_bytes, behind_bytes;
} edges;

static edges edges_of(uintptr_t start, size_t size) {
  uintptr_t end = start + size, page = lm_align_down(start, LM_PAGE);
  return (edges){ (unsigned char *)page, (unsigned char *)end, start - page,
                  lm_align_up(end, LM_PAGE) - end };
}

/* Returns the first byte that is not EDGE_BYTE, from the end if `backwards`; NULL: all are.
 * memcmp(3) tells fast whether each byte equals the byte before it. */
static const void *find_change(const unsigned char *at, size_t bytes, bool backwards) {
  if (!bytes || (*at == EDGE_BYTE && !memcmp(at, at + 1, bytes - 1))) return NULL;
  for (size_t i = 0; i < bytes; i++) {
    const unsigned char *byte = backwards ? at + bytes - 1 - i : at + i;
    if (*byte != EDGE_BYTE) return byte;
  }
  return NULL;
}

const void *lm_large_damage(const lm_map_object *place) {
  if (!lm_large_is_guarded(place) || lm_large_is_empty((void *)place->base, place->size))
    return NULL;
  edges e = edges_of(place->base, place->size);
  const void *behind = find_change(e.behind, e.behind_bytes, false);
  return behind ? behind : find_change(e.before, e.before_bytes, true);
}

/* Live guarded blocks, of all pools. Relaxed: it orders nothing, and may pass the bound by one for
 * each thread. */
static _Atomic uint32_t guarded;

static uint32_t read_guard_max(void) {
  char text[32];
  size_t length;
  if (lm_sys_read_file("/proc/sys/vm/max_map_count", text, sizeof text, &length))
    return DEFAULT_MAPPINGS / 4;
  unsigned long mappings = strtoul(text, NULL, 10);
  return mappings < UINT32_MAX ? (uint32_t)(mappings / 4) : UINT32_MAX;
}

uint32_t lm_large_guard_max(void) {
  /* Relaxed: threads that read the setting at the same time read one value. */
  static _Atomic uint32_t most;
  uint32_t limit = atomic_load_explicit(&most, memory_order_relaxed);
  if (limit) return limit;
  limit = read_guard_max();
  atomic_store_explicit(&most, limit, memory_order_relaxed);
  return limit;
}

bool lm_large_guard_has_room(void) {
  return atomic_load_explicit(&guarded, memory_order_relaxed) < lm_large_guard_max();
}

/* A guarded block of size 0: a slot of which nothing is made accessible. */
static void *guard_nothing(lm_large *l, size_t align, lm_token token) {
  uint32_t slot = lm_range_take(1, align > LM_PAGE ? align : LM_PAGE);
  if (!slot) return NULL;
  block b = { slot, 1, LM_USE_GUARDED, 0, (uintptr_t)lm_map_address(slot), 1, 0 };
  describe_block(l, &b, token);
  atomic_fetch_add_explicit(&guarded, 1, memory_order_relaxed);
  lm_assert(lm_large_is_empty((void *)b.start, b.size));
  return (void *)b.start;
}

void *lm_large_guard_alloc(lm_large *l, size_t size, size_t align, lm_token token) {
  size_t page = lm_region_page_size(&l->regions->how);
  if (!size) return guard_nothing(l, align, token);
  uint32_t slots = guard_slots(size, page);
  uint32_t slot = lm_range_take(slots, align > page ? align : page);
  if (!slot) return NULL;
  guard_layout g = lay_out(slot, size, align, page);
  const lm_preparation *how = &l->regions->how;
  const char *why = lm_region_prepare(how, (void *)g.ready, g.end - g.ready);
  if (!why) why = lm_region_populate(how, (void *)g.ready, g.end - g.ready);
  if (why) {
    atomic_store_explicit(&l->regions->why, why, memory_order_relaxed);
    lm_regions_return(slot, slots);
    return NULL;
  }
  lm_unpoison(lm_map_address(slot), bytes_of(slots));
  block b = { slot, slots, LM_USE_GUARDED, 0, g.start, noted_size(g.start, size), 0 };
  edges e = edges_of(b.start, b.size);
  memset(e.before, EDGE_BYTE, e.before_bytes);
  memset(e.behind, EDGE_BYTE, e.behind_bytes);
  describe_block(l, &b, token);
  atomic_fetch_add_explicit(&guarded, 1, memory_order_relaxed);
  return (void *)g.start;
}

/* ---- Quarantine --------------------------------------------------------------------------- */

static void return_to_range_locked(uint32_t slot) {
  uint32_t slots = slots_at(slot);
  lm_assert(use_of(slot) == LM_USE_GUARDED);
  lm_map_forget_large(slot, slots);
  lm_map_extent(slot, slots, LM_USE_NONE);
  lm_range_put(slot, slots);
}

/* Ends the quarantine of the oldest block. */
static void release_oldest_locked(lm_large *l) {
  lm_assert(lm_lock_is_held(&l->lock) && l->waiting);
  uint32_t slot = l->ring[l->oldest];
  l->oldest = (l->oldest + 1) % QUARANTINE_BLOCKS;
  l->waiting--;
  l->slots -= slots_at(slot);
  return_to_range_locked(slot);
}

/* Without memory for the ring, a block that is freed skips the quarantine. */
static void enter_locked(lm_large *l, uint32_t slot) {
  uint32_t slots = slots_at(slot);
  lm_assert(lm_lock_is_held(&l->lock));
  if (!l->ring) l->ring = lm_metadata_alloc(QUARANTINE_BLOCKS * sizeof *l->ring);
  if (!l->ring || slots > QUARANTINE_SLOTS) {
    return_to_range_locked(slot);
    return;
  }
  while (l->waiting == QUARANTINE_BLOCKS || l->slots + slots > QUARANTINE_SLOTS)
    release_oldest_locked(l);
  l->ring[(l->oldest + l->waiting++) % QUARANTINE_BLOCKS] = slot;
  l->slots += slots;
  lm_verify(lm_large_is_valid(l));
}

/* Makes a guarded block that was freed inaccessible, and puts it into the quarantine. */
static void quarantine(lm_large *l, uint32_t slot) {
  void *at = lm_map_address(slot);
  uint32_t slots = slots_at(slot);
  /* This fails if the process has as many mappings as the kernel allows. */
  if (lm_sys_decommit(at, bytes_of(slots))) {
    (void)lm_sys_purge(at, bytes_of(slots));
    forget_block(l, slot, slots);
    lm_regions_return(slot, slots);
    return;
  }
  lm_lock_take(&l->lock);
  enter_locked(l, slot);
  lm_lock_drop(&l->lock);
}

void lm_large_drain(lm_large *l) {
  lm_lock_take(&l->lock);
  while (l->waiting) release_oldest_locked(l);
  lm_metadata_free(l->ring);
  l->ring = NULL;
  lm_lock_drop(&l->lock);
}

bool lm_large_is_valid(const lm_large *l) {
  uint32_t slots = 0;
  if (l->waiting > (l->ring ? QUARANTINE_BLOCKS : 0) || l->oldest >= QUARANTINE_BLOCKS)
    return false;
  for (uint32_t i = 0; i < l->waiting; i++) {
    uint32_t slot = l->ring[(l->oldest + i) % QUARANTINE_BLOCKS];
    if (use_of(slot) != LM_USE_GUARDED) return false;
    slots += slots_at(slot);
  }
  for (uint32_t slot = l->parked; slot; slot = lm_map_span(slot)->next)
    if (use_of(slot) != LM_USE_NONE) return false;
  return slots == l->slots && slots <= QUARANTINE_SLOTS;
}

/* ---- Blocks that other processes map ------------------------------------------------------- */

/* Tells whether another process maps the block. The regions' lock guards the file too. */
static bool is_held(lm_large *l, uint32_t slot) {
  lm_regions *r = l->regions;
  lm_lock_take(&r->lock);
  bool held = lm_backing_is_held(r->how.backing, lm_map_address(slot), bytes_of(slots_at(slot)));
  lm_lock_drop(&r->lock);
  return held;
}

static void keep_until_unmapped(lm_large *l, uint32_t slot) {
  lm_assert(use_of(slot) == LM_USE_NONE);
  lm_lock_take(&l->lock);
  lm_map_span(slot)->next = l->parked;
  l->parked = slot;
  lm_lock_drop(&l->lock);
}

/* Gives back the slots of a block in a file, which are an extent of no use by now, or parks them.
 * `lent` is what the block's entry said. */
static void return_or_park(lm_large *l, uint32_t slot, uint64_t lent) {
  uint32_t slots = slots_at(slot);
  if (lent == LM_LARGE_LENT_INHERITED) lm_regions_give_up(l->regions, slot, slots);
  else if (lent && l->regions->how.backing->lost) lm_regions_give_up(l->regions, slot, slots);
  else if (lent && is_held(l, slot)) keep_until_unmapped(l, slot);
  else lm_regions_put(l->regions, slot, slots);
}

/* Empties the list of parked runs, and returns its first. */
static uint32_t take_parked(lm_large *l) {
  lm_lock_take(&l->lock);
  uint32_t all = l->parked;
  l->parked = 0;
  lm_lock_drop(&l->lock);
  return all;
}

bool lm_large_unpark(lm_large *l) {
  bool more = false;
  for (uint32_t slot = take_parked(l), next; slot; slot = next) {
    next = lm_map_span(slot)->next;
    if (l->regions->how.backing->lost) {
      lm_regions_give_up(l->regions, slot, slots_at(slot)); /* no process can ask about it */
    } else if (is_held(l, slot)) {
      keep_until_unmapped(l, slot);
      more = true;
    } else {
      lm_regions_put(l->regions, slot, slots_at(slot));
    }
  }
  return more;
}

void lm_large_fork_child(lm_large *l) {
  for (uint32_t slot = take_parked(l), next; slot; slot = next) {
    next = lm_map_span(slot)->next;
    lm_regions_give_up(l->regions, slot, slots_at(slot));
  }
}

/* ---- Freeing ------------------------------------------------------------------------------ */

void lm_large_free(lm_large *l, lm_state_cell *state) {
  uint32_t slot = head_slot(state), slots = slots_at(slot);
  lm_assert(slots);
  if (use_of(slot) == LM_USE_GUARDED) {
    atomic_fetch_sub_explicit(&guarded, 1, memory_order_relaxed);
    quarantine(l, slot);
    return;
  }
  bool backed = l->regions->how.backing, stray = use_of(slot) == LM_USE_UNPREPARED;
  uint64_t moves = end_moves(l, slot);
  uint64_t lent = backed ? atomic_exchange(&lm_map_span(slot)->lent, LM_LARGE_LENT_NEVER) : 0;
  lm_poison(lm_map_address(slot), bytes_of(slots));
  forget_block(l, slot, slots);
  if (backed) return_or_park(l, slot, lent);
  else if (stray) lm_regions_give_up(l->regions, slot, slots);
  else put_moved(l, slot, slots, moves);
}

/* ---- Zeroing ------------------------------------------------------------------------------ */

/* Gives the memory of these pages back, so that they read as zeros; or writes zeros. */
static void empty(char *from, char *end) {
  if (from < end && lm_sys_purge(from, (size_t)(end - from))) memset(from, 0, (size_t)(end - from));
}

/* How many pages, from the first on, are resident like the first, or like it are not. */
static size_t run_of(const unsigned char *in, size_t pages) {
  size_t n = 1;
  while (n < pages && !((in[n] ^ *in) & 1)) n++;
  return n;
}

void lm_large_zero(void *p, size_t size) {
  enum { LOOK = 1024 };
  unsigned char in[LOOK];
  char *at = p, *bare = p, *end = (char *)p + lm_align_down(size, LM_PAGE);
  while (at < end) {
    size_t pages = (size_t)(end - at) / LM_PAGE;
    if (pages > LOOK) pages = LOOK;
    if (lm_sys_resident(at, pages * LM_PAGE, in)) memset(in, 1, pages);
    for (size_t i = 0, n; i < pages; i += n, at += n * LM_PAGE) {
      n = run_of(&in[i], pages - i);
      if (!(in[i] & 1)) continue;
      empty(bare, at); /* pages that are not resident may be swapped out: those go too */
      memset(at, 0, n * LM_PAGE);
      bare = at + n * LM_PAGE;
    }
  }
  empty(bare, end);
  memset(end, 0, size % LM_PAGE);
}

/* ---- Resizing and moving ------------------------------------------------------------------ */

/* Gives back all but the first `less` slots of a block. */
static void shrink(lm_large *l, uint32_t slot, uint32_t slots, uint32_t less, size_t size) {
  lm_assert(less > 0 && less < slots);
  lm_map_resize_large(slot, slots, less, size);
  lm_map_extent(slot + less, slots - less, LM_USE_NONE);
  lm_map_extent(slot, less, LM_USE_LARGE);
  put_moved(l, slot + less, slots - less, moves_of(l, slot));
}

/* Takes the slots behind a block until it has `more`. False: they are not free. */
static bool grow(lm_large *l, uint32_t slot, uint32_t slots, uint32_t more, size_t size) {
  lm_assert(more > slots);
  if (!lm_regions_extend(l->regions, slot + slots, more - slots)) return false;
  lm_map_extent(slot, more, LM_USE_LARGE);
  lm_map_resize_large(slot, slots, more, size);
  return true;
}

/* Tells whether other processes may map the block. Its size must not change then. */
static bool is_lent(const lm_large *l, uint32_t slot) {
  return l->regions->how.backing && atomic_load(&lm_map_span(slot)->lent);
}

bool lm_large_is_guarded(const lm_map_object *place) {
  lm_assert(place->large);
  return use_of(head_slot(place->cell)) == LM_USE_GUARDED;
}

bool lm_large_is_prepared(const lm_map_object *place) {
  lm_assert(place->large);
  return use_of(head_slot(place->cell)) != LM_USE_UNPREPARED;
}

/* A block whose memory is not prepared keeps its slots: it can only become smaller. */
static bool resize_unprepared(uint32_t slot, uint32_t slots, const lm_map_object *place,
                              size_t size) {
  size = usable_of(size);
  if (size > place->size) return false;
  lm_poison((void *)(place->base + size), place->size - size);
  lm_map_resize_large(slot, slots, slots, size);
  return true;
}

bool lm_large_resize(lm_large *l, const lm_map_object *place, size_t size) {
  uint32_t slot = head_slot(place->cell), slots = slots_at(slot);
  lm_assert(place->large && place->strategy == l->strategy);
  if (use_of(slot) == LM_USE_GUARDED)
    return size && size == place->size && !lm_large_is_empty((void *)place->base, size);
  if (size < LM_SLOT / 4) return false;
  if (use_of(slot) == LM_USE_UNPREPARED) return resize_unprepared(slot, slots, place, size);
  if (use_of(slot) != LM_USE_LARGE) return false;
  size = usable_of(size);
  uint32_t now = lm_map_slots(size);
  if (size != place->size && is_lent(l, slot)) return false;
  if (now > slots && !grow(l, slot, slots, now, size)) return false;
  if (size > place->size) lm_unpoison((void *)place->base, size);
  else lm_poison((void *)(place->base + size), place->size - size);
  if (now < slots) shrink(l, slot, slots, now, size);
  else if (now == slots) lm_map_resize_large(slot, slots, slots, size);
  return true;
}

void *lm_large_move(lm_large *l, const lm_map_object *place, size_t size) {
  uint32_t from = head_slot(place->cell), slots = slots_at(from);
  const lm_preparation *how = &l->regions->how;
  lm_assert(place->large && place->strategy == l->strategy);
  size = usable_of(size);
  if (use_of(from) != LM_USE_LARGE || place->size < MOVE_MIN || size < bytes_of(slots)) return NULL;
  if (how->page || how->lock || how->backing) return NULL;
  if (atomic_load_explicit(&all_moves, memory_order_relaxed) >= MOVES_MOST) return NULL;
  bool clean;
  uint64_t moves = moves_of(l, from) + 1;
  size_t align = lm_strategy_at(l->strategy)->desc.align;
  uint32_t to = take_slots(l, lm_map_slots(size), align > LM_SLOT ? align : LM_SLOT, &clean);
  if (!to) return NULL;
  if (lm_sys_move((void *)place->base, bytes_of(slots), lm_map_address(to))) {
    /* The target has no access any more. */
    lm_regions_give_up(l->regions, to, lm_map_slots(size));
    return NULL;
  }
  lm_token token = atomic_load_explicit(&lm_map_span_of_state(place->cell)->token,
                                        memory_order_relaxed);
  atomic_store_explicit(place->cell, lm_state_when_freed(place->state), memory_order_release);
  forget_block(l, from, slots);
  block b = { to, lm_map_slots(size), LM_USE_LARGE, 0, (uintptr_t)lm_map_address(to), size, moves };
  describe_block(l, &b, token);
  atomic_fetch_add_explicit(&all_moves, 1, memory_order_relaxed);
  lm_regions_renew(l->regions, from, slots);
  return lm_map_address(to);
}

/* BUSY keeps the block from being freed while its token changes. Release pairs with the acquire of
 * whoever reads the state: the new token is seen with it. */
bool lm_large_retoken(lm_large *l, const void *p, lm_token old, lm_token new_token) {
  lm_map_object place;
  lm_lock_take(&l->lock);
  bool done = lm_map_find(p, &place) && place.large && place.strategy == l->strategy &&
              place.base == (uintptr_t)p && place.token == old && lm_state_is_live(place.state) &&
              atomic_compare_exchange_strong_explicit(place.cell, &place.state, LM_STATE_BUSY,
                                                      memory_order_acq_rel, memory_order_relaxed);
  if (done) {
    /* Its age begins again: the token changes when realloc makes another block of it. */
    if (!l->regions->how.backing) lm_age_reset(head_slot(place.cell));
    atomic_store_explicit(&lm_map_span_of_state(place.cell)->token, new_token,
                          memory_order_relaxed);
    lm_state state = lm_state_keep_sampled(place.state, lm_state_of_large(new_token));
    atomic_store_explicit(place.cell, state, memory_order_release);
  }
  lm_lock_drop(&l->lock);
  return done;
}

/* ---- Moving to another pool --------------------------------------------------------------- */

static bool is_live_at(uint32_t slot) {
  return lm_state_is_live(lm_map_object_state(&lm_map_span(slot)->cell));
}

/* Says in the block's first slot, the one that a free reads, whether threads may cache the
 * block. */
static void set_cacheable(uint32_t slot, bool cacheable) {
  lm_span *head = lm_map_span(slot);
  uint32_t bin = cacheable ? atomic_load_explicit(&head->bin, memory_order_relaxed) : 0;
  atomic_store_explicit(&head->key, bin, memory_order_relaxed);
}

/* Acquire and release: a free and whoever moves the block each see what the other did before. */
static bool change_use(uint32_t slot, uint32_t from, uint32_t to) {
  return atomic_compare_exchange_strong_explicit(&lm_map_span(slot)->use, &from, to,
                                                 memory_order_acq_rel, memory_order_relaxed);
}

lm_lock lm_large_claiming;

/* The lock keeps the block at `slot` from being forgotten between the checks. */
bool lm_large_claim(lm_large *l, uint32_t slot) {
  lm_span_info view;
  uint32_t version;
  lm_assert(lm_lock_is_held(&lm_large_claiming));
  lm_lock_take(&l->lock);
  bool done = use_of(slot) == LM_USE_LARGE && lm_map_read(lm_map_span(slot), &view, &version) &&
              view.strategy == l->strategy && is_live_at(slot) &&
              change_use(slot, LM_USE_LARGE, LM_USE_MOVING);
  if (done) set_cacheable(slot, false);
  lm_lock_drop(&l->lock);
  return done;
}

bool lm_large_hand_over(lm_state_cell *state) {
  uint32_t slot = head_slot(state);
  if (lm_likely(use_of(slot) != LM_USE_MOVING)) return false;
  lm_poison(lm_map_address(slot), bytes_of(slots_at(slot)));
  return change_use(slot, LM_USE_MOVING, LM_USE_MOVING_FREED);
}

size_t lm_large_release(lm_large *l, uint32_t slot, bool stray) {
  const lm_span *head = lm_map_span(slot);
  uint32_t slots = slots_at(slot);
  lm_lock_take(&l->lock);
  size_t size = atomic_load_explicit(&head->size, memory_order_relaxed);
  bool held = use_of(slot) == LM_USE_MOVING || use_of(slot) == LM_USE_MOVING_FREED;
  if (held) set_cacheable(slot, !stray);
  bool left = held && !change_use(slot, LM_USE_MOVING, stray ? LM_USE_UNPREPARED : LM_USE_LARGE);
  if (left) {
    (void)end_moves(l, slot);
    lm_map_forget_large(slot, slots);
    lm_map_extent(slot, slots, LM_USE_NONE);
  }
  lm_lock_drop(&l->lock);
  if (left) lm_regions_give_up(l->regions, slot, slots);
  return left ? size : 0;
}

/* A block that a thread freed into a bin just before the grace is not moved. */
bool lm_large_confirm(lm_large *l, uint32_t slot, size_t *freed) {
  *freed = 0;
  lm_lock_take(&l->lock);
  bool claimed = use_of(slot) == LM_USE_MOVING || use_of(slot) == LM_USE_MOVING_FREED;
  bool live = use_of(slot) == LM_USE_MOVING && is_live_at(slot);
  lm_lock_drop(&l->lock);
  if (claimed && !live) *freed = lm_large_release(l, slot, false);
  return live;
}

/* Gives the live block at `slot` its new token, unless another thread changed or frees it. */
static void retoken_locked(const lm_large_adoption *as) {
  lm_span *head = lm_map_span(as->slot);
  lm_state state = lm_map_object_state(&head->cell);
  if (!lm_state_is_live(state)) return;
  if (atomic_load_explicit(&head->token, memory_order_relaxed) != as->old) return;
  if (!atomic_compare_exchange_strong_explicit(&head->cell, &state, LM_STATE_BUSY,
                                               memory_order_acq_rel, memory_order_relaxed))
    return;
  atomic_store_explicit(&head->token, as->token, memory_order_relaxed);
  atomic_store_explicit(&head->cell, state, memory_order_release);
}

void lm_large_adopt(lm_large *to, lm_large *from, const lm_large_adoption *as) {
  lm_large *first = from->strategy < to->strategy ? from : to, *second = first == from ? to : from;
  lm_span *head = lm_map_span(as->slot);
  lm_span_info view;
  uint32_t version;
  lm_assert(to != from && as->token != LM_TOKEN_NONE);
  lm_lock_take(&first->lock); /* in the order of lm_pool_is_valid */
  lm_lock_take(&second->lock);
  lm_assert(use_of(as->slot) == LM_USE_MOVING || use_of(as->slot) == LM_USE_MOVING_FREED);
  lm_require(lm_map_read(head, &view, &version));
  view.strategy = to->strategy;
  view.bin = as->bin;
  if (view.key) view.key = as->bin;
  view.size = atomic_load_explicit(&head->size, memory_order_relaxed);
  lm_map_describe_large(as->slot, slots_at(as->slot), &view);
  retoken_locked(as);
  lm_lock_drop(&second->lock);
  lm_lock_drop(&first->lock);
}

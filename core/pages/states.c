/* states.c - memory for the states of spans, and assigning tokens to objects.
 *
 * Tables of one kind (the states of one class, the wide tables of one class) are pieces of a slab
 * (slab.h). But the first tables of all kinds are cut from one slot, since most programs have few
 * tables of many kinds.
 *
 * A thread that reads a span while the span ends (map.c, heap/walk.c) may read a table that belongs
 * to another span by then; it notices that, and does not use the bytes. Therefore tables are
 * only changed by atomic stores, and their memory stays readable for ever. */
#include "pages/states.h"

#include "os/poison.h"
#include "os/thread.h"
#include "pages/metadata.h"
#include "pages/slab.h"

/* Places of a palette that are tried before a token goes to the wide table. */
enum { PALETTE_LOOKS = 16 };
/* Kinds of tables: the states of each class, then the wide tables of each class. */
enum { KINDS = 2 * LM_CLASSES };

/* Law: [at, end) is the part of the first slot that is not cut yet. Every list in `unused` holds
 * pieces of the first slot of one kind. */
static struct {
  lm_lock lock;
  lm_slab slab[KINDS];
  lm_regions regions;
  bool begun;
  char *at, *end;      /* NULL: there was no memory for a first slot */
  char *unused[KINDS]; /* freed pieces: the last word of each points at the next */
} tables;

const lm_regions *const lm_states_outside = &tables.regions;

/* ---- Tables ------------------------------------------------------------------------------- */

static void renew_all(void) {
  lm_lock_renew(&tables.regions.lock);
  lm_lock_renew(&tables.lock);
}

void lm_states_start(void) {
  lm_metadata_start();
  lm_thread_add_hooks(&(lm_thread_hooks){ .fork_child = renew_all });
}

static void take_first_slot_locked(void) {
  bool clean;
  uint32_t slot = lm_regions_take(&tables.regions, 1, LM_SLOT, &clean);
  if (!slot) return;
  lm_map_extent(slot, 1, LM_USE_METADATA);
  tables.at = lm_map_address(slot);
  tables.end = tables.at + LM_SLOT;
  lm_unpoison(tables.at, LM_SLOT);
  if (!clean) lm_slab_clear(tables.at, LM_SLOT);
}

/* Not done by lm_states_start: another thread may need a table before that has returned. */
static void begin_locked(void) {
  if (tables.begun) return;
  lm_regions_init(&tables.regions, &(lm_preparation){ .stays = true });
  for (unsigned kind = 0; kind < KINDS; kind++) tables.slab[kind].zeroed = true;
  take_first_slot_locked();
  tables.begun = true;
}

static char **next_of(char *piece, size_t size) {
  return (char **)(void *)(piece + size - sizeof(char *));
}

/* Returns a piece of the first slot; NULL: none is left. */
static void *take_of_first_slot_locked(unsigned kind, size_t size) {
  char *piece = tables.unused[kind];
  lm_assert(kind < KINDS && tables.at <= tables.end);
  if (piece) {
    tables.unused[kind] = *next_of(piece, size);
    *next_of(piece, size) = NULL;
  } else if ((size_t)(tables.end - tables.at) >= size) {
    piece = tables.at;
    tables.at += size;
  }
  return piece;
}

/* Bytes of the piece for a table: behind the table it has a word for the link of the slab. */
static size_t piece_size(size_t size) { return lm_align_up(size + sizeof(char *), LM_CACHE_LINE); }

static void *take_table(unsigned kind, size_t size) {
  bool clean;
  size = piece_size(size);
  lm_lock_take(&tables.lock);
  begin_locked();
  void *at = take_of_first_slot_locked(kind, size);
  if (!at) at = lm_slab_take(&tables.slab[kind], &tables.regions, size, &clean);
  lm_lock_drop(&tables.lock);
  lm_assert((uintptr_t)at % LM_CACHE_LINE == 0);
  return at;
}

static bool is_of_first_slot(const void *at) {
  return tables.end && lm_map_slot(at) == lm_map_slot(tables.end - LM_SLOT);
}

static void put_table(unsigned kind, void *at, size_t size) {
  lm_assert(kind < KINDS && at);
  size = piece_size(size);
  lm_lock_take(&tables.lock);
  if (is_of_first_slot(at)) {
    *next_of(at, size) = tables.unused[kind];
    tables.unused[kind] = at;
  } else {
    lm_slab_put(&tables.slab[kind], &tables.regions, at);
  }
  lm_lock_drop(&tables.lock);
}

lm_state_cell *lm_states_alloc(unsigned class_, uint32_t count) {
  lm_assert(class_ < LM_CLASSES && count > 0);
  lm_palette *palette = take_table(class_, sizeof *palette + count + 1);
  if (!palette) return NULL;
  /* Atomic, since a thread may still read this memory as the states of an older span. */
  __atomic_store_n(&palette->class_, class_, __ATOMIC_RELAXED);
  __atomic_store_n(&palette->count, count, __ATOMIC_RELAXED);
  return (lm_state_cell *)(palette + 1);
}

void lm_states_free(lm_state_cell *cells) {
  lm_assert(cells);
  lm_palette *palette = lm_state_palette(cells);
  _Atomic(lm_token) *wide = atomic_load_explicit(&palette->wide, memory_order_relaxed);
  uint32_t count = palette->count, class_ = palette->class_;
  lm_assert(class_ < LM_CLASSES && count > 0);
  if (wide) {
    lm_slab_clear((void *)wide, count * sizeof *wide);
    put_table(LM_CLASSES + class_, (void *)wide, count * sizeof *wide);
  }
  lm_slab_clear(palette, sizeof *palette + count);
  put_table(class_, palette, sizeof *palette + count + 1);
}

/* Returns the wide table of a span, made if it has none; NULL: no memory. If two threads make
 * one, the thread that is later frees its own. */
static _Atomic(lm_token) *wide_of(lm_palette *palette) {
  /* Acquire pairs with the release of the exchange below: the table is zeroed. */
  _Atomic(lm_token) *wide = atomic_load_explicit(&palette->wide, memory_order_acquire), *made;
  if (wide) return wide;
  made = take_table(LM_CLASSES + palette->class_, palette->count * sizeof *made);
  if (!made || atomic_compare_exchange_strong_explicit(&palette->wide, &wide, made,
                                                       memory_order_acq_rel, memory_order_acquire))
    return made;
  put_table(LM_CLASSES + palette->class_, (void *)made, palette->count * sizeof *made);
  return wide;
}

/* ---- Tokens ------------------------------------------------------------------------------- */

/* Returns whether an id of the span, common or of the palette, names the token. */
static bool is_id_of(lm_state_cell *cells, unsigned id, lm_token token) {
  lm_assert(id < LM_ID_COUNTED);
  const _Atomic(lm_token) *place = lm_state_plain_token(cells, (lm_state)(LM_STATE_LIVE + id));
  return !lm_state_is_closed(id) && atomic_load_explicit(place, memory_order_relaxed) == token;
}

/* Returns the id of a token in a palette, put there if it is new; 0: no place near its first. */
static unsigned find_in_palette(lm_palette *palette, lm_token token) {
  unsigned id = lm_state_palette_first(token);
  for (unsigned i = 0; i < PALETTE_LOOKS; i++) {
    if (lm_state_claim_place(&palette->owner[id - LM_ID_PALETTE], token)) return id;
    id = id + 1 < LM_ID_COUNTED ? id + 1 : LM_ID_PALETTE;
  }
  return 0;
}

static lm_state assign_wide(lm_palette *palette, size_t index, lm_token token) {
  _Atomic(lm_token) *wide = wide_of(palette);
  if (!wide) return 0;
  lm_assert(index < palette->count);
  /* Relaxed: the store of the state, by the caller, publishes the token. */
  atomic_store_explicit(&wide[index], token, memory_order_relaxed);
  return token & LM_TOKEN_COUNTED ? LM_STATE_COUNTED_WIDE : LM_STATE_LIVE + LM_ID_WIDE;
}

LM_NOINLINE lm_state lm_states_assign(lm_state_cell *cells, size_t index, lm_token token,
                                      uint8_t *hint) {
  lm_palette *palette = lm_state_palette(cells);
  if (token & LM_TOKEN_COUNTED) {
    bool is_ours = lm_state_claim_place(&palette->owner[LM_ID_COUNTED - LM_ID_PALETTE], token);
    return is_ours ? LM_STATE_COUNTED : assign_wide(palette, index, token);
  }
  if (is_id_of(cells, *hint, token)) return (lm_state)(LM_STATE_LIVE + *hint);
  unsigned id = lm_state_find_common(token);
  if (!id) id = find_in_palette(palette, token);
  if (id) {
    *hint = (uint8_t)id;
    return (lm_state)(LM_STATE_LIVE + id);
  }
  if (*hint <= LM_COMMON_TOKENS) /* a common place that belongs to another token */
    *hint = (uint8_t)lm_state_palette_first(token);
  return assign_wide(palette, index, token);
}

/* ---- What is held ------------------------------------------------------------------------- */

static bool has_begun(void) {
  lm_lock_take(&tables.lock);
  bool begun = tables.begun;
  lm_lock_drop(&tables.lock);
  return begun;
}

void lm_states_trim(void) {
  if (has_begun()) lm_regions_trim(&tables.regions);
}

bool lm_states_decay(uint32_t *most) {
  return has_begun() && lm_regions_decay(&tables.regions, most);
}

size_t lm_states_held(void) { return lm_regions_memory(&tables.regions); }
size_t lm_states_taken(void) { return lm_regions_size(&tables.regions); }

/* ---- Laws --------------------------------------------------------------------------------- */

static bool is_state_valid(lm_palette *palette, lm_state state) {
  if (state == LM_STATE_FREE || state == LM_STATE_CACHED) return true;
  bool has_id = state % LM_STATE_IDS && state % LM_STATE_IDS != LM_ID_COUNTED;
  if (lm_state_is_sampled(state) && !has_id) return false;
  lm_state_cell *cells = (lm_state_cell *)(palette + 1);
  _Atomic(lm_token) *place = lm_state_token_ref(cells, 0, state);
  if (!place) return false; /* it names a wide table that is not there */
  if (state % LM_STATE_IDS == LM_ID_WIDE || state == LM_STATE_COUNTED_WIDE) return true;
  lm_token token = atomic_load_explicit(place, memory_order_relaxed);
  bool is_counted = state == LM_STATE_COUNTED || state % LM_STATE_IDS == LM_ID_COUNTED;
  return token != LM_TOKEN_NONE &&
         (token & LM_TOKEN_COUNTED) == (is_counted ? LM_TOKEN_COUNTED : 0);
}

bool lm_states_span_is_valid(lm_state_cell *cells) {
  lm_palette *palette = lm_state_palette(cells);
  if (palette->class_ >= LM_CLASSES || palette->free > palette->count) return false;
  for (uint32_t i = 0; i < palette->count; i++)
    if (!is_state_valid(palette, atomic_load_explicit(&cells[i], memory_order_relaxed)))
      return false;
  return atomic_load_explicit(&cells[palette->count], memory_order_relaxed) == LM_STATE_FREE;
}

static bool is_kind_valid_locked(unsigned kind) {
  return lm_slab_is_valid(&tables.slab[kind]) &&
         (!tables.unused[kind] || is_of_first_slot(tables.unused[kind]));
}

bool lm_states_is_valid(void) {
  lm_lock_take(&tables.lock);
  bool valid = tables.at <= tables.end;
  for (unsigned kind = 0; kind < KINDS; kind++) valid = valid && is_kind_valid_locked(kind);
  lm_lock_take(&tables.regions.lock);
  valid = valid && (!tables.begun || lm_regions_is_valid(&tables.regions));
  lm_lock_drop(&tables.regions.lock);
  lm_lock_drop(&tables.lock);
  return valid;
}

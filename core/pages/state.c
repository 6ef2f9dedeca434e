/* state.c - memory for marks, and the tokens that they name.
 *
 * Tables of one kind (the marks of a class, the wide tokens of a class) are pieces of a slab; but
 * the first ones of all kinds are cut from one slot, since most programs have few of many. Who
 * reads a span just as it goes (map.c, walk.c) may look at a table that is another by then, and
 * does not believe it: so what changes them are atomic stores, and their memory can always be
 * read. */
#include "pages/state.h"

#include "os/poison.h"
#include "os/thread.h"
#include "pages/metadata.h"
#include "pages/slab.h"

/* For a token, among the common ones: at first, and since some left, when fewer are neighbours; and
 * in a palette before it is noted apart. */
enum { LOOKS_FIRST = 8, LOOKS_LATER = 16, LOOKS = 16 };
enum { KINDS = 2 * LM_CLASSES };

_Atomic(lm_token) lm_state_common[LM_COMMON_TOKENS + 1];
/* Who makes a place his puts his token there, takes it out of the one, then out of the other. */
static _Atomic uint64_t vacant, closed;
static _Atomic unsigned looks = LOOKS_FIRST;

static struct {
  lm_lock lock;
  lm_slab slab[KINDS];
  lm_regions regions;
  bool begun;
  char *at, *end;      /* what of the first slot is not cut yet */
  char *unused[KINDS]; /* pieces of it that came back: each has the next in its last word */
} marks;

/* ---- Tables ------------------------------------------------------------------------------- */

static void lock_all(void) {
  lm_lock_take(&marks.lock);
  lm_lock_take(&marks.regions.lock);
}

static void unlock_all(void) {
  lm_lock_drop(&marks.regions.lock);
  lm_lock_drop(&marks.lock);
}

static void renew_all(void) {
  lm_lock_renew(&marks.regions.lock);
  lm_lock_renew(&marks.lock);
}

void lm_states_start(void) {
  lm_metadata_start();
  lm_thread_add_hooks(&(lm_thread_hooks){ NULL, lock_all, unlock_all, renew_all });
}

/* Without memory there is no first slot. */
static void take_first_slot_locked(void) {
  bool clean;
  uint32_t slot = lm_regions_take(&marks.regions, 1, LM_SLOT, &clean);
  if (!slot) return;
  lm_map_extent(slot, 1, LM_USE_METADATA);
  marks.at = lm_map_address(slot);
  marks.end = marks.at + LM_SLOT;
  lm_unpoison(marks.at, LM_SLOT);
  if (!clean) lm_slab_clear(marks.at, LM_SLOT);
}

/* Another thread may be in the midst of lm_states_start: so whoever is first begins. */
static void begin_locked(void) {
  if (marks.begun) return;
  lm_regions_init(&marks.regions, &(lm_preparation){ .stays = true });
  for (unsigned kind = 0; kind < KINDS; kind++) marks.slab[kind].zeroed = true;
  take_first_slot_locked();
  marks.begun = true;
}

static char **next_of(char *piece, size_t size) {
  return (char **)(void *)(piece + size - sizeof(char *));
}

/* A piece of the first slot; NULL: there is none left. */
static void *take_first_locked(unsigned kind, size_t size) {
  char *piece = marks.unused[kind];
  if (piece) {
    marks.unused[kind] = *next_of(piece, size);
    *next_of(piece, size) = NULL;
  } else if ((size_t)(marks.end - marks.at) >= size) {
    piece = marks.at;
    marks.at += size;
  }
  return piece;
}

static size_t room_for(size_t size) { return lm_align_up(size + sizeof(char *), LM_CACHE_LINE); }

/* With a word at the end where no mark or token is, which a slab may use. */
static void *take(unsigned kind, size_t size) {
  bool clean;
  size = room_for(size);
  lm_lock_take(&marks.lock);
  begin_locked();
  void *at = take_first_locked(kind, size);
  if (!at) at = lm_slab_take(&marks.slab[kind], &marks.regions, size, &clean);
  lm_lock_drop(&marks.lock);
  return at;
}

static bool is_of_first_slot(const void *at) {
  return marks.end && lm_map_slot(at) == lm_map_slot(marks.end - LM_SLOT);
}

static void put(unsigned kind, void *at, size_t size) {
  size = room_for(size);
  lm_lock_take(&marks.lock);
  if (is_of_first_slot(at)) {
    *next_of(at, size) = marks.unused[kind];
    marks.unused[kind] = at;
  } else {
    lm_slab_put(&marks.slab[kind], &marks.regions, at);
  }
  lm_lock_drop(&marks.lock);
}

lm_state_cell *lm_states_alloc(unsigned class_, uint32_t count) {
  lm_palette *palette = take(class_, sizeof *palette + count + 1);
  if (!palette) return NULL;
  __atomic_store_n(&palette->class_, class_, __ATOMIC_RELAXED);
  __atomic_store_n(&palette->count, count, __ATOMIC_RELAXED);
  return (lm_state_cell *)(palette + 1);
}

void lm_states_free(lm_state_cell *side) {
  lm_palette *palette = lm_state_palette(side);
  _Atomic(lm_token) *wide = atomic_load_explicit(&palette->wide, memory_order_relaxed);
  uint32_t count = palette->count, class_ = palette->class_;
  if (wide) {
    lm_slab_clear((void *)wide, count * sizeof *wide);
    put(LM_CLASSES + class_, (void *)wide, count * sizeof *wide);
  }
  lm_slab_clear(palette, sizeof *palette + count);
  put(class_, palette, sizeof *palette + count + 1);
}

/* The span's table of a token for each object, made if it has none: by whoever is first. */
static _Atomic(lm_token) *wide_of(lm_palette *palette) {
  /* Acquire pairs with the exchange: the table is zeroed. */
  _Atomic(lm_token) *wide = atomic_load_explicit(&palette->wide, memory_order_acquire), *made;
  if (wide) return wide;
  made = take(LM_CLASSES + palette->class_, palette->count * sizeof *made);
  if (!made || atomic_compare_exchange_strong_explicit(&palette->wide, &wide, made,
                                                       memory_order_acq_rel, memory_order_acquire))
    return made;
  put(LM_CLASSES + palette->class_, (void *)made, palette->count * sizeof *made);
  return wide;
}

/* ---- Tokens ------------------------------------------------------------------------------- */

/* Whether a place is the token's, or is now. */
static bool owns(_Atomic(lm_token) *owner, lm_token token) {
  lm_token now = atomic_load_explicit(owner, memory_order_relaxed);
  if (now == token) return true;
  return now == LM_TOKEN_NONE &&
         (atomic_compare_exchange_strong_explicit(owner, &now, token, memory_order_relaxed,
                                                  memory_order_relaxed) ||
          now == token);
}

static uint64_t bit_of(unsigned id) { return (uint64_t)1 << id; }
static bool is_in(uint64_t ids, unsigned id) { return ids & bit_of(id); }

/* Acquire pairs with the release of move_in: what is open has its token. */
static bool is_closed(unsigned id) {
  return is_in(atomic_load_explicit(&closed, memory_order_acquire), id);
}

static bool is_at(lm_state_cell *side, unsigned id, lm_token token) {
  const _Atomic(lm_token) *owner = lm_state_plain_token(side, (lm_state)(LM_STATE_LIVE + id));
  return !is_closed(id) && atomic_load_explicit(owner, memory_order_relaxed) == token;
}

/* Makes a vacant place the token's; false: it is another's by now. */
static bool move_in(unsigned id, lm_token token) {
  if (!is_in(atomic_fetch_and_explicit(&vacant, ~bit_of(id), memory_order_acq_rel), id))
    return false;
  atomic_store_explicit(&lm_state_common[id], token, memory_order_relaxed);
  atomic_fetch_and_explicit(&closed, ~bit_of(id), memory_order_release);
  return true;
}

/* The id of a token that is common, or is now; 0: others have the places near its own. */
static unsigned find_common(lm_token token) {
  uint64_t shut = atomic_load_explicit(&closed, memory_order_acquire);
  unsigned id = lm_state_common_first(token), room = 0;
  for (unsigned n = atomic_load_explicit(&looks, memory_order_relaxed); n > 0; n--) {
    lm_token now = atomic_load_explicit(&lm_state_common[id], memory_order_relaxed);
    if (now == token && !is_in(shut, id)) return id;
    if (!room && (now == LM_TOKEN_NONE || is_in(lm_states_vacant_ids(), id))) room = id;
    id = id < LM_COMMON_TOKENS ? id + 1 : 1;
  }
  if (!room) return 0;
  bool is_its = is_in(shut, room) ? move_in(room, token) : owns(&lm_state_common[room], token);
  return is_its ? room : find_common(token); /* another was first */
}

static lm_state assign_wide(lm_palette *palette, size_t index, lm_token token) {
  _Atomic(lm_token) *wide = wide_of(palette);
  if (!wide) return 0;
  atomic_store_explicit(&wide[index], token, memory_order_relaxed);
  return token & LM_TOKEN_COUNTED ? LM_STATE_COUNTED_WIDE : LM_STATE_LIVE + LM_ID_WIDE;
}

LM_NOINLINE lm_state lm_state_assign(lm_state_cell *side, size_t index, lm_token token,
                                     uint8_t *hint) {
  lm_palette *palette = lm_state_palette(side);
  if (token & LM_TOKEN_COUNTED) {
    bool is_its = owns(&palette->owner[LM_ID_COUNTED - LM_ID_PALETTE], token);
    return is_its ? LM_STATE_COUNTED : assign_wide(palette, index, token);
  }
  if (is_at(side, *hint, token)) return (lm_state)(LM_STATE_LIVE + *hint);
  unsigned id = find_common(token);
  for (unsigned i = 0, at = lm_state_palette_first(token); !id && i < LOOKS; i++) {
    if (owns(&palette->owner[at - LM_ID_PALETTE], token)) id = at;
    at = at + 1 < LM_ID_COUNTED ? at + 1 : LM_ID_PALETTE;
  }
  if (id) *hint = (uint8_t)id;
  else if (*hint <= LM_COMMON_TOKENS)
    *hint = (uint8_t)lm_state_palette_first(token); /* it is not its */
  if (!id) return assign_wide(palette, index, token);
  return (lm_state)(LM_STATE_LIVE + id);
}

/* ---- Places that are nobody's any more ----------------------------------------------------- */

static uint64_t closing; /* closed, and neither vacated nor open again */

/* What is closed is vacant, or somebody is moving in. */
uint64_t lm_states_idle_ids(lm_states_wanted_fn *is_wanted) {
  lm_states_vacate_ids(0); /* a fork may have lost who closed some */
  uint64_t shut = atomic_load_explicit(&closed, memory_order_acquire), idle = 0;
  unsigned free = (unsigned)__builtin_popcountll(shut);
  for (unsigned id = 1; id <= LM_COMMON_TOKENS; id++) {
    if (is_in(shut, id)) continue;
    lm_token token = atomic_load_explicit(&lm_state_common[id], memory_order_relaxed);
    if (token == LM_TOKEN_NONE) free++;
    else if (!is_wanted(token)) idle |= bit_of(id);
  }
  return free < LM_COMMON_TOKENS / 2 ? idle : 0;
}

void lm_states_close_ids(uint64_t ids) {
  closing = ids;
  atomic_fetch_or_explicit(&closed, ids, memory_order_relaxed);
}

/* Release: who moves in finds that no mark has the id. */
void lm_states_vacate_ids(uint64_t ids) {
  atomic_fetch_or_explicit(&vacant, ids, memory_order_release);
  atomic_fetch_and_explicit(&closed, ids | ~closing, memory_order_relaxed);
  closing = 0;
  if (ids) atomic_store_explicit(&looks, LOOKS_LATER, memory_order_relaxed);
}

uint64_t lm_states_vacant_ids(void) { return atomic_load_explicit(&vacant, memory_order_relaxed); }

/* ---- What is held ------------------------------------------------------------------------- */

static bool has_begun(void) {
  lm_lock_take(&marks.lock);
  bool begun = marks.begun;
  lm_lock_drop(&marks.lock);
  return begun;
}

void lm_states_trim(void) {
  if (has_begun()) lm_regions_trim(&marks.regions);
}

bool lm_states_decay(uint32_t *most) {
  return has_begun() && lm_regions_decay(&marks.regions, most);
}

size_t lm_states_held(void) {
  lm_lock_take(&marks.regions.lock);
  size_t slots = marks.regions.held - marks.regions.clean.slots;
  lm_lock_drop(&marks.regions.lock);
  return slots << LM_SLOT_SHIFT;
}

size_t lm_states_taken(void) {
  lm_lock_take(&marks.regions.lock);
  size_t slots = marks.regions.held;
  lm_lock_drop(&marks.regions.lock);
  return slots << LM_SLOT_SHIFT;
}

bool lm_states_are_valid(void) {
  bool valid = true;
  lm_lock_take(&marks.lock);
  for (unsigned kind = 0; kind < KINDS; kind++)
    valid = valid && lm_slab_is_valid(&marks.slab[kind]) &&
            (!marks.unused[kind] || is_of_first_slot(marks.unused[kind]));
  lm_lock_take(&marks.regions.lock);
  valid = valid && (!marks.begun || lm_regions_is_valid(&marks.regions));
  lm_lock_drop(&marks.regions.lock);
  lm_lock_drop(&marks.lock);
  return valid;
}

/* look_map.c - goes through the page map and the states of another process: counts live objects,
 * shows each extent, and finds the object at an address.
 *
 * The page map is read in windows of consecutive slots. These are the steps for a window:
 *
 *   1. Copy the entries and the common tokens.
 *   2. Copy the palette and the states of each span in the window.
 *   3. Copy the common tokens again, and last the entries again.
 *   4. Go through the extents in their order, and count each extent whose entry is equal in both
 *      copies. At an extent whose entry differs, the next window begins.
 *
 * An entry changes its version whenever the objects that it describes change. So states that were
 * copied between two equal copies of an entry are the states of its span. A state can name a token
 * that came into the palette after the palette was copied; then the extent is copied again. The
 * reader takes lengths of extents from the second copy of the entries. That copy was made after
 * the first copy of the extent before, so the law of extents (pages/map.h) holds for the reader: it
 * passes over no object that lives all the time.
 *
 * States are counted by a histogram of their 256 values. So a span costs as much as its bytes, and
 * a token is looked up once for each value. */
#include "cli/look.h"

#include <string.h>

#include "heap/central.h"
#include "heap/large.h"
#include "os/error.h"
#include "pages/metadata.h"

enum {
  WINDOW = 2048,          /* slots */
  ROOM = 1 << 20,         /* bytes of states in one window */
  TRIES = 64,             /* for an extent that changes each time */
  VALUES = UINT8_MAX + 1, /* of a state */
  LANES = 4,              /* histograms that take turns, so that equal states do not wait */
};

/* An extent with objects in the window. */
typedef struct extent {
  uint32_t slot;
  bool is_large, is_wanted;
  lm_span_info view; /* of the first copy of the entry */
  uint32_t count;    /* objects; 0: the entry describes none at the moment */
  /* Copies of the palette and, behind it, of the states, of a span of small objects. */
  lm_palette *palette;
  uint8_t *cells;
} extent;

typedef struct window {
  lm_span entry[WINDOW], again[WINDOW]; /* in the order of the process: the last slot first */
  extent extent[WINDOW];
  lm_remote_part part[LM_REMOTE_PARTS];
  uint8_t room[ROOM] __attribute__((aligned(LM_CACHE_LINE))); /* for palettes and states */
  lm_token common[LM_COMMON_TOKENS + 1], common_again[LM_COMMON_TOKENS + 1];
  uint32_t first, slots; /* what part of the page map the window shows */
  uint32_t extents;
  /* Of the span that is being counted: how many objects have each state, and which live states
   * there are. */
  uint16_t lane[LANES][VALUES], histogram[VALUES];
  uint8_t live[VALUES];
  uint32_t lives;
} window;

/* A walk: counts if both `visit` and `show` are NULL. */
typedef struct walk {
  lm_look *look;
  window *w;
  lm_walk_visit *visit;
  lm_audit_wants *wants; /* if `visit` is set */
  lm_look_extent_fn *show;
  void *ctx;
  const char *broken; /* the table that breaks its law; NULL: none */
} walk;

/* ---- Copying ---- */

static const lm_span *entry_in(const window *w, const lm_span *copy, uint32_t slot) {
  lm_assert(slot >= w->first && slot < w->first + w->slots);
  return &copy[w->first + w->slots - 1 - slot];
}

static uintptr_t address_of_entry(const lm_look *look, uint32_t slot) {
  return look->map.base - ((uintptr_t)slot + 1) * sizeof(lm_span);
}

static bool copy_entries(walk *k, lm_span *copy) {
  window *w = k->w;
  uintptr_t from = address_of_entry(k->look, w->first + w->slots - 1);
  return lm_remote_read(&k->look->remote, from, copy, w->slots * sizeof *copy);
}

static bool copy_common(walk *k, lm_token *copy) {
  return lm_remote_read(&k->look->remote, (uintptr_t)k->look->root.common, copy,
                        (LM_COMMON_TOKENS + 1) * sizeof *copy);
}

/* Copies the palettes and states of the spans in the window. */
static bool copy_spans(walk *k) {
  window *w = k->w;
  size_t n = 0;
  bool ok = true;
  for (uint32_t i = 0; ok && i < w->extents; i++) {
    extent *e = &w->extent[i];
    if (e->palette)
      w->part[n++] = (lm_remote_part){ (uintptr_t)e->view.cells - sizeof *e->palette, e->palette,
                                       sizeof *e->palette + e->count };
    if (n < LM_REMOTE_PARTS && i + 1 < w->extents) continue;
    ok = lm_remote_read_parts(&k->look->remote, w->part, n);
    n = 0;
  }
  return ok;
}

/* ---- Entries ---- */

static uint32_t use_of(const lm_span *s) {
  return atomic_load_explicit(&s->use, memory_order_relaxed);
}

static bool holds_objects(uint32_t use) {
  return use == LM_USE_SMALL || use == LM_USE_GUARDED || lm_map_use_is_large(use);
}

/* Returns the slots of an extent. Without a length, as in walk.c, an extent has one slot. */
static uint32_t length_of(const lm_span *s) {
  uint32_t slots = atomic_load_explicit(&s->slots, memory_order_relaxed);
  return slots ? slots : 1;
}

static uint32_t version_of(const lm_span *s) {
  return atomic_load_explicit(&s->version, memory_order_relaxed);
}

static void read_view(const lm_span *s, lm_span_info *view) {
  *view = (lm_span_info){
    .start = atomic_load_explicit(&s->start, memory_order_relaxed),
    .key = atomic_load_explicit(&s->key, memory_order_relaxed),
    .cells = atomic_load_explicit(&s->cells, memory_order_relaxed),
    .bin = atomic_load_explicit(&s->bin, memory_order_relaxed),
    .strategy = atomic_load_explicit(&s->strategy, memory_order_relaxed),
    .size = atomic_load_explicit(&s->size, memory_order_relaxed),
  };
}

/* Returns how many objects of `size` bytes a span has; 0: no class has objects of that size. */
static uint32_t count_of(size_t size) {
  if (!size || size > LM_SMALL_MAX + LM_PAGE) return 0;
  unsigned class_ = lm_class_of_usable(size);
  return lm_class_size(class_) == size ? lm_central_span_count(class_) : 0;
}

/* Adds an extent with objects to the window. False: the window has no room for its states. */
static bool note_extent(walk *k, uint32_t slot, size_t *used) {
  window *w = k->w;
  extent *e = &w->extent[w->extents];
  const lm_span *s = entry_in(w, w->entry, slot);
  e->slot = slot;
  e->palette = NULL;
  e->count = 0;
  read_view(s, &e->view);
  e->is_large = lm_map_is_large(e->view.key);
  bool is_whole = e->view.start && !(version_of(s) & 1);
  e->is_wanted = !k->visit || k->wants(k->ctx, e->view.strategy);
  if (is_whole) e->count = e->is_large ? 1 : count_of(e->view.size);
  if (!e->is_large && e->count && e->is_wanted) {
    size_t size = lm_align_up(sizeof *e->palette + e->count, LM_CACHE_LINE);
    if (ROOM - *used < size) return false;
    e->palette = (lm_palette *)(void *)(w->room + *used);
    e->cells = (uint8_t *)(e->palette + 1);
    *used += size;
  }
  w->extents++;
  return true;
}

/* Follows the lengths of the first copy, and notes the extents with objects. A window whose states
 * have no more room ends earlier. */
static void note_extents(walk *k) {
  window *w = k->w;
  size_t used = 0;
  uint32_t end = w->first + w->slots;
  w->extents = 0;
  for (uint32_t slot = w->first; slot < end;) {
    const lm_span *s = entry_in(w, w->entry, slot);
    if (holds_objects(use_of(s)) && !note_extent(k, slot, &used)) return;
    uint32_t length = length_of(s);
    if (length >= end - slot) return;
    slot += length;
  }
}

/* Tells whether both copies of an entry describe one extent and, if it has objects, the same ones.
 * All fields are compared, since the first copy may have been made in the middle of a change. */
static bool is_alike(const lm_span *a, const lm_span *b, bool has_objects) {
  lm_span_info x, y;
  if (use_of(a) != use_of(b) || length_of(a) != length_of(b)) return false;
  if (!has_objects) return true;
  read_view(a, &x);
  read_view(b, &y);
  return version_of(a) == version_of(b) && !(version_of(a) & 1) && x.start == y.start &&
         x.key == y.key && x.cells == y.cells && x.strategy == y.strategy && x.size == y.size;
}

/* ---- Counting ---- */

/* How counting an extent ended. */
typedef enum verdict { COUNTED, CHANGED, BROKEN } verdict;

/* Shows an extent of the window; `e` is NULL if it has no objects. */
static void show_extent(walk *k, uint32_t slot, const extent *e) {
  const lm_span *s = entry_in(k->w, k->w->again, slot);
  lm_state large = atomic_load_explicit(&s->cell, memory_order_relaxed);
  lm_look_extent shown = { .slot = slot, .slots = length_of(s), .use = use_of(s) };
  if (e && e->view.start) {
    shown.strategy = e->view.strategy;
    shown.count = e->count;
    shown.start = e->view.start;
    shown.size = e->is_large ? lm_large_usable((void *)e->view.start, e->view.size) : e->view.size;
    shown.state = e->is_large ? &large : e->cells;
    if (e->is_large) shown.token = atomic_load_explicit(&s->token, memory_order_relaxed);
  }
  k->show(k->ctx, &shown);
}

static verdict count_large(walk *k, const extent *e) {
  const lm_span *s = entry_in(k->w, k->w->again, e->slot);
  uintptr_t cell = address_of_entry(k->look, e->slot) + offsetof(lm_span, cell);
  lm_token token = atomic_load_explicit(&s->token, memory_order_relaxed);
  lm_state state = atomic_load_explicit(&s->cell, memory_order_relaxed);
  void *base = (void *)e->view.start;
  if ((uintptr_t)e->view.cells != cell) {
    k->broken = "a large block has its state elsewhere";
    return BROKEN;
  }
  if (k->show || !lm_state_is_live(state)) return COUNTED;
  size_t size = lm_large_usable(base, e->view.size);
  if (k->visit) {
    k->visit(k->ctx, &(lm_object){ base, size, token, e->view.strategy, true, NULL });
    return COUNTED;
  }
  if (lm_look_add_live(k->look, token, e->view.strategy, lm_class_counted_object(size), 1, size))
    return COUNTED;
  k->broken = "a large block has a site or strategy that does not exist";
  return BROKEN;
}

static void visit_objects(walk *k, const extent *e) {
  for (uint32_t i = 0; i < e->count; i++) {
    if (!lm_state_is_live(e->cells[i])) continue;
    lm_object object = { .base = (char *)e->view.start + i * e->view.size,
                         .size = e->view.size,
                         .strategy = e->view.strategy };
    k->visit(k->ctx, &object);
  }
}

/* Fills the histogram and the list of live states. Most spans have one to three states, so four
 * counts are tested at a time. */
static void count_states(window *w, const uint8_t *cells, uint32_t count) {
  uint32_t i = 0;
  lm_assert(count <= UINT16_MAX);
  memset(w->lane, 0, sizeof w->lane);
  for (; i + LANES <= count; i += LANES)
    for (int lane = 0; lane < LANES; lane++) w->lane[lane][cells[i + (uint32_t)lane]]++;
  for (; i < count; i++) w->lane[0][cells[i]]++;
  for (int value = 0; value < VALUES; value++)
    w->histogram[value] = (uint16_t)(w->lane[0][value] + w->lane[1][value] + w->lane[2][value] +
                                     w->lane[3][value]);
  w->lives = 0;
  for (unsigned value = 0; value < VALUES; value += 4) {
    uint64_t four;
    memcpy(&four, &w->histogram[value], sizeof four);
    for (unsigned state = value; four && state < value + 4; state++)
      if (w->histogram[state] && lm_state_is_live((lm_state)state))
        w->live[w->lives++] = (uint8_t)state;
  }
}

/* Tells whether the token of a live state stands in the wide table of the span. */
static bool is_wide(unsigned state) {
  return state == LM_STATE_LIVE + LM_ID_WIDE || state == LM_STATE_COUNTED_WIDE ||
         state == LM_STATE_SAMPLED + LM_ID_WIDE;
}

/* Returns the token of a live state that is neither wide nor BUSY; LM_TOKEN_NONE: the copies do not
 * have it yet. */
static lm_token token_of(const window *w, const extent *e, unsigned state) {
  unsigned id = state == LM_STATE_COUNTED ? LM_ID_COUNTED : state % LM_STATE_IDS;
  if (id <= LM_COMMON_TOKENS)
    return w->common[id] == w->common_again[id] ? w->common_again[id] : LM_TOKEN_NONE;
  return atomic_load_explicit(&e->palette->owner[id - LM_ID_PALETTE], memory_order_relaxed);
}

/* Counts the objects of a span whose tokens stand in its wide table. The table is another piece of
 * memory, so the entry is read once more behind it. */
static verdict count_wide(walk *k, const extent *e) {
  lm_look *look = k->look;
  lm_span now;
  uintptr_t from = (uintptr_t)atomic_load_explicit(&e->palette->wide, memory_order_relaxed);
  lm_token *token = lm_metadata_alloc(e->count * sizeof *token);
  unsigned class_ = lm_class_counted_object(e->view.size);
  verdict found = COUNTED;
  lm_remote_part parts[] = { { from, token, e->count * sizeof *token },
                             { address_of_entry(look, e->slot), &now, sizeof now } };
  if (!token || !lm_remote_read_parts(&look->remote, parts, LM_COUNT(parts)) ||
      !is_alike(&now, entry_in(k->w, k->w->again, e->slot), true))
    found = CHANGED;
  for (uint32_t i = 0; found == COUNTED && i < e->count; i++) {
    if (!is_wide(e->cells[i])) continue;
    if (!lm_look_add_live(look, token[i], e->view.strategy, class_, 1, e->view.size))
      found = BROKEN;
  }
  lm_metadata_free(token);
  return found;
}

/* Tells whether the tokens of all live states are known. A BUSY object is getting another token at
 * this moment. */
static bool has_tokens(const window *w, const extent *e) {
  if (w->histogram[LM_STATE_BUSY]) return false;
  for (uint32_t i = 0; i < w->lives; i++)
    if (!is_wide(w->live[i]) && token_of(w, e, w->live[i]) == LM_TOKEN_NONE) return false;
  return true;
}

/* Counts the objects of one live state that is not wide. In a process that was stopped while it
 * gives an object another token, the object is BUSY. It is counted without a tag. */
static verdict count_state(walk *k, const extent *e, unsigned state) {
  uint32_t n = k->w->histogram[state];
  unsigned class_ = lm_class_counted_object(e->view.size);
  lm_token token = state == LM_STATE_BUSY ? LM_TOKEN_NONE : token_of(k->w, e, state);
  if (token == LM_TOKEN_NONE) {
    token = LM_SITE_FIRST;
    k->look->is_inexact = true;
  }
  bool ok = lm_look_add_live(k->look, token, e->view.strategy, class_, n, n * e->view.size);
  return ok ? COUNTED : BROKEN;
}

static verdict count_small(walk *k, const extent *e, bool is_last_try) {
  window *w = k->w;
  if (e->palette->count != e->count) {
    k->broken = "a span has another number of objects than its class";
    return BROKEN;
  }
  if (k->show) return COUNTED;
  count_states(w, e->cells, e->count);
  if (!is_last_try && !has_tokens(w, e)) return CHANGED;
  bool has_wide = w->histogram[LM_STATE_LIVE + LM_ID_WIDE] || w->histogram[LM_STATE_COUNTED_WIDE] ||
                  w->histogram[LM_STATE_SAMPLED + LM_ID_WIDE];
  verdict found = has_wide ? count_wide(k, e) : COUNTED;
  for (uint32_t i = 0; found == COUNTED && i < w->lives; i++)
    if (!is_wide(w->live[i])) found = count_state(k, e, w->live[i]);
  if (found == BROKEN) k->broken = "an object has a site or strategy that does not exist";
  return found;
}

/* Tells whether all objects of an extent lie in its slots. A large block that is being resized may
 * not do so for a moment. */
static bool is_inside(const walk *k, const extent *e) {
  size_t room = (size_t)length_of(entry_in(k->w, k->w->again, e->slot)) << LM_SLOT_SHIFT;
  uintptr_t offset = e->view.start - (k->look->map.base + ((uintptr_t)e->slot << LM_SLOT_SHIFT));
  return offset <= room && e->view.size <= (room - offset) / (e->count ? e->count : 1);
}

/* Counts an extent of the window. */
static verdict count_extent(walk *k, const extent *e, bool is_last_try) {
  if (!e->view.start || !e->is_wanted) return COUNTED;
  if (!is_inside(k, e)) {
    k->broken = "an extent has objects outside its slots";
    return BROKEN;
  }
  if (!e->count) {
    k->broken = "a span has objects of a size that no class has";
    return BROKEN;
  }
  if (e->is_large) return count_large(k, e);
  if (!k->visit) return count_small(k, e, is_last_try);
  visit_objects(k, e);
  return COUNTED;
}

/* ---- Windows ---- */

/* Copies what there is to know of the window that begins at w->first. False: a part of it cannot be
 * read. */
static bool copy_window(walk *k) {
  window *w = k->w;
  if (!copy_entries(k, w->entry) || !copy_common(k, w->common)) return false;
  note_extents(k);
  return copy_spans(k) && copy_common(k, w->common_again) && copy_entries(k, w->again);
}

/* Counts the extents of the window in order, until one of them has changed. Returns the slot where
 * the next window begins; `map_end` ends the page map. At the last try, an extent that has changed
 * again is passed over; a walk in the process (heap/walk.c) does so too. */
static uint32_t count_window(walk *k, uint32_t map_end, bool is_last_try) {
  window *w = k->w;
  uint32_t slot = w->first, end = w->first + w->slots, next = 0;
  while (slot < end) {
    const lm_span *a = entry_in(w, w->entry, slot), *b = entry_in(w, w->again, slot);
    bool has_objects = holds_objects(use_of(a)), is_first = slot == w->first;
    if (has_objects && (next == w->extents || w->extent[next].slot != slot)) break;
    const extent *e = has_objects ? &w->extent[next++] : NULL;
    bool may_pass = is_first && is_last_try;
    verdict found = is_alike(a, b, has_objects) ? COUNTED : CHANGED;
    if (found == COUNTED && e) found = count_extent(k, e, may_pass);
    if (found == BROKEN || (found == CHANGED && !may_pass)) break;
    if (found == CHANGED) k->look->is_inexact = true;
    if (k->show) show_extent(k, slot, found == COUNTED ? e : NULL);
    if (length_of(b) >= map_end - slot) return map_end;
    slot += length_of(b);
  }
  return slot;
}

/* A window whose entries or states cannot be read is tried with fewer slots: a page of the map
 * without memory may be behind the last extent. */
static loam_status go(walk *k) {
  window *w = k->w;
  uint32_t end = (uint32_t)(atomic_load_explicit(&k->look->map.top, memory_order_relaxed) >>
                            LM_SLOT_SHIFT);
  unsigned tries = 0;
  for (uint32_t slot = LM_MAP_FIRST; slot < end;) {
    w->first = slot;
    w->slots = end - slot < WINDOW ? end - slot : WINDOW;
    if (tries) w->slots = 1;
    uint32_t next = slot;
    if (copy_window(k)) next = count_window(k, end, tries == TRIES);
    else if (tries == TRIES) return lm_look_fail(k->look, "the page map: memory is missing");
    if (k->broken && (tries == TRIES || k->look->remote.is_late))
      return lm_look_fail(k->look, k->broken);
    k->broken = NULL;
    if (k->look->remote.is_late) return lm_look_fail(k->look, NULL);
    tries = next > slot ? 0 : tries + 1;
    if (tries > TRIES) return lm_look_fail(k->look, "the page map: an extent does not end");
    slot = next;
  }
  return LOAM_OK;
}

static loam_status start(walk *k) {
  k->w = lm_metadata_alloc(sizeof *k->w);
  if (!k->w) return lm_error(LOAM_ENOMEM, "statistics: no memory to read the page map");
  loam_status status = go(k);
  lm_metadata_free(k->w);
  return status;
}

loam_status lm_look_count(lm_look *look) { return start(&(walk){ .look = look }); }
loam_status lm_look_each(lm_look *look, lm_walk_visit *visit, lm_audit_wants *wants, void *ctx) {
  lm_assert(visit && wants);
  return start(&(walk){ .look = look, .visit = visit, .wants = wants, .ctx = ctx });
}
loam_status lm_look_extents(lm_look *look, lm_look_extent_fn *show, void *ctx) {
  lm_assert(show);
  return start(&(walk){ .look = look, .show = show, .ctx = ctx });
}

/* ---- One address ---- */

static bool copy_entry(lm_look *look, uint32_t slot, lm_span *to) {
  return lm_remote_read(&look->remote, address_of_entry(look, slot), to, sizeof *to);
}

/* Returns the token that a state of the object at `index` names; LM_TOKEN_NONE: none. */
static lm_token read_token(lm_look *look, const lm_palette *palette, size_t index, lm_state state) {
  lm_token token = LM_TOKEN_NONE;
  unsigned id = state < LM_STATE_COUNTED ? state % LM_STATE_IDS : LM_ID_WIDE;
  uintptr_t wide = (uintptr_t)atomic_load_explicit(&palette->wide, memory_order_relaxed);
  if (state == LM_STATE_COUNTED) id = LM_ID_COUNTED;
  if (id > LM_COMMON_TOKENS && id != LM_ID_WIDE)
    return atomic_load_explicit(&palette->owner[id - LM_ID_PALETTE], memory_order_relaxed);
  uintptr_t at = (uintptr_t)look->root.common + id * sizeof token;
  if (id == LM_ID_WIDE) at = wide ? wide + index * sizeof token : 0;
  if (!at || !lm_remote_read(&look->remote, at, &token, sizeof token)) return LM_TOKEN_NONE;
  return token;
}

static lm_place_state place_of_small(lm_state state) {
  if (lm_state_is_live(state)) return LM_PLACE_LIVE;
  return lm_state_is_cached(state) ? LM_PLACE_CACHED : LM_PLACE_FREE;
}

/* Describes the object of a span; `entry` is the first copy of the entry of the address. False: the
 * object changed while it was read. */
static bool find_small(lm_look *look, uint32_t slot, const lm_span *entry, lm_place *out) {
  lm_span_info view;
  lm_span now;
  struct {
    lm_palette palette;
    lm_state state, again;
  } copy;
  read_view(entry, &view);
  uint32_t count = count_of(view.size);
  if (!count || out->address < view.start) return false;
  size_t index = (out->address - view.start) / view.size;
  out->state = LM_PLACE_REGION;
  if (index >= count) return true; /* behind the last object, a span has unused bytes */
  uintptr_t cells = (uintptr_t)view.cells;
  lm_remote_part parts[] = { { cells - sizeof copy.palette, &copy.palette, sizeof copy.palette },
                             { cells + index, &copy.state, sizeof copy.state } };
  if (!lm_remote_read_parts(&look->remote, parts, LM_COUNT(parts))) return false;
  lm_token token = read_token(look, &copy.palette, index, copy.state);
  if (!lm_remote_read(&look->remote, cells + index, &copy.again, sizeof copy.again)) return false;
  if (copy.again != copy.state || !copy_entry(look, slot, &now)) return false;
  if (!is_alike(entry, &now, true)) return false;
  out->state = place_of_small(copy.state);
  out->memory = "small";
  out->start = view.start + index * view.size;
  out->size = view.size;
  out->strategy = view.strategy;
  out->token = token;
  return true;
}

/* Describes the large or guarded block whose first slot is `slot`; `entry` is the first copy of the
 * entry of this slot. False: the block changed while it was read. */
static bool find_block(lm_look *look, uint32_t slot, const lm_span *entry, lm_place *out) {
  lm_span_info view;
  lm_span now;
  read_view(entry, &view);
  if (!copy_entry(look, slot, &now) || !is_alike(entry, &now, true)) return false;
  bool is_guarded = use_of(entry) == LM_USE_GUARDED;
  lm_state state = atomic_load_explicit(&now.cell, memory_order_relaxed);
  size_t size = lm_large_usable((void *)view.start, view.size);
  bool is_inside = out->address - view.start < size || out->address == view.start;
  out->state = LM_PLACE_REGION;
  if (!view.start || (!is_inside && !is_guarded)) return true;
  if (!lm_state_is_live(state)) out->state = is_guarded ? LM_PLACE_QUARANTINE : LM_PLACE_CACHED;
  else out->state = is_inside ? LM_PLACE_LIVE : LM_PLACE_GUARD;
  out->memory = is_guarded ? "guarded" : "large";
  out->start = view.start;
  out->size = size;
  out->strategy = view.strategy;
  out->token = atomic_load_explicit(&now.token, memory_order_relaxed);
  return true;
}

/* Finds the extent that a slot is in, by the lengths of all extents before it. False: a part of the
 * page map cannot be read. */
static bool find_extent(walk *k, uint32_t slot, uint32_t *head, lm_span *entry) {
  window *w = k->w;
  uint32_t end = (uint32_t)(atomic_load_explicit(&k->look->map.top, memory_order_relaxed) >>
                            LM_SLOT_SHIFT);
  uint32_t most = WINDOW;
  for (uint32_t at = LM_MAP_FIRST; at <= slot;) {
    w->first = at;
    w->slots = end - at < most ? end - at : most;
    if (!copy_entries(k, w->entry)) {
      if (most == 1) return false;
      most = 1; /* memory of the map may be missing behind the extent */
      continue;
    }
    while (at <= slot && at - w->first < w->slots) {
      *entry = *entry_in(w, w->entry, at);
      *head = at;
      if (slot - at < length_of(entry)) return true;
      at += length_of(entry);
    }
  }
  return false;
}

/* Finds what an address of the range is. False: it changed while it was read. */
static bool find_once(walk *k, lm_place *out) {
  lm_look *look = k->look;
  lm_span entry;
  uint32_t head, slot = (uint32_t)((out->address - look->map.base) >> LM_SLOT_SHIFT);
  out->state = LM_PLACE_REGION;
  if (slot < LM_MAP_FIRST) return true;
  if (!copy_entry(look, slot, &entry) || version_of(&entry) & 1) return false;
  uintptr_t start = atomic_load_explicit(&entry.start, memory_order_relaxed);
  uint64_t key = atomic_load_explicit(&entry.key, memory_order_relaxed);
  if (start && !lm_map_is_large(key)) return find_small(look, slot, &entry, out);
  if (!find_extent(k, slot, &head, &entry)) return false;
  uint32_t use = use_of(&entry);
  if (use == LM_USE_SMALL) return false; /* a span that begins or ends at this moment */
  if (holds_objects(use)) return find_block(look, head, &entry, out);
  if (use == LM_USE_METADATA) out->state = LM_PLACE_METADATA;
  return true;
}

/* Tells whether an address is in the array of entries, which ends where the range begins. */
static bool is_in_entries(const lm_look *look, uintptr_t address) {
  uintptr_t bytes = (look->map.size >> LM_SLOT_SHIFT) * sizeof(lm_span);
  return look->map.base - 1 - address < bytes;
}

loam_status lm_look_find_pooled(lm_look *look, lm_place *place) {
  const lm_map_state *map = &look->map;
  size_t top = atomic_load_explicit(&map->top, memory_order_relaxed);
  bool is_found = false;
  *place = (lm_place){ .address = place->address };
  if (top && is_in_entries(look, place->address)) place->state = LM_PLACE_METADATA;
  if (!top || place->address - map->base >= map->size) return LOAM_OK;
  place->state = LM_PLACE_REGION;
  if (place->address - map->base >= top) return LOAM_OK;
  walk k = { .look = look, .w = lm_metadata_alloc(sizeof(window)) };
  if (!k.w) return lm_error(LOAM_ENOMEM, "no memory to read the page map");
  for (int tries = 0; !is_found && tries < TRIES; tries++) is_found = find_once(&k, place);
  lm_metadata_free(k.w);
  if (look->remote.is_late) return lm_look_fail(look, NULL);
  if (!is_found) place->state = LM_PLACE_CHANGING;
  return LOAM_OK;
}

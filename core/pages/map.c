/* map.c - the page map: describing spans and large blocks, and finding objects by address. */
#include "pages/map.h"

lm_map_state lm_map;

uint32_t lm_map_extent_of(const void *p) {
  uint32_t slot = LM_MAP_FIRST, target = lm_map_slot(p);
  lm_assert(lm_map_owns(p) && slot <= target);
  for (uint32_t next; (next = lm_map_next(slot)) <= target && next > slot;) slot = next;
  return slot;
}

/* ---- Writing entries ---------------------------------------------------------------------- */

/* An entry is protected by a sequence lock: its version is odd while it is changed. There is one
 * writer at a time, the owner of the slot. Releases and acquires on the fields themselves take the
 * place of fences (Boehm, "Can seqlocks get along with programming language memory models?", 2012):
 * a reader that sees one new field also sees the odd version that was stored before it. */
static void begin_change(lm_span *s) {
  uint32_t version = atomic_load_explicit(&s->version, memory_order_relaxed);
  atomic_store_explicit(&s->version, version + 1, memory_order_relaxed);
}
static void end_change(lm_span *s) {
  uint32_t version = atomic_load_explicit(&s->version, memory_order_relaxed);
  /* Release pairs with the acquire of read_entry: all fields are written. */
  atomic_store_explicit(&s->version, version + 1, memory_order_release);
}

/* Each release pairs with the acquire of the field in read_entry: see begin_change. */
static void write_entry(lm_span *s, const lm_span_info *view, uint64_t key) {
  begin_change(s);
  atomic_store_explicit(&s->start, view->start, memory_order_release);
  atomic_store_explicit(&s->key, key, memory_order_release);
  atomic_store_explicit(&s->cells, view->cells, memory_order_release);
  atomic_store_explicit(&s->bin, view->bin, memory_order_release);
  atomic_store_explicit(&s->strategy, view->strategy, memory_order_release);
  atomic_store_explicit(&s->size, view->size, memory_order_release);
  end_change(s);
}

LM_INLINE bool is_in_range(uint32_t slot, uint32_t slots) {
  size_t top = atomic_load_explicit(&lm_map.top, memory_order_relaxed) >> LM_SLOT_SHIFT;
  return slot >= LM_MAP_FIRST && slots > 0 && slot < top && slots <= top - slot;
}

void lm_map_describe_small(uint32_t slot, uint32_t slots, const lm_span_info *view) {
  lm_assert(is_in_range(slot, slots) && view->strategy <= UINT16_MAX);
  lm_assert(!view->start || (view->cells && view->size && !lm_map_is_large(view->key)));
  for (uint32_t i = 0; i < slots; i++) {
    lm_span *s = lm_map_span(slot + i);
    if (atomic_load_explicit(&s->cells, memory_order_relaxed) != view->cells)
      atomic_store_explicit(&s->token, LM_TOKEN_NONE, memory_order_relaxed);
    write_entry(s, view, view->key);
  }
}

void lm_map_forget_small(uint32_t slot, uint32_t slots) {
  lm_map_describe_small(slot, slots, &(lm_span_info){ 0 });
}

/* Returns the length of the binary part that begins at `slot`, of an extent that ends at `end`: the
 * greatest power of two that divides `slot` and is at most end - slot. */
static uint32_t next_binary_part(uint32_t slot, uint32_t end) {
  lm_assert(slot > 0 && slot < end);
  uint32_t by_place = slot & -slot, by_room = 1u << (31 - __builtin_clz(end - slot));
  return by_place < by_room ? by_place : by_room;
}

void lm_map_describe_large(uint32_t slot, uint32_t slots, const lm_span_info *view) {
  lm_assert(is_in_range(slot, slots) && view->strategy <= UINT16_MAX);
  lm_assert(!view->start || view->cells == &lm_map_span(slot)->cell);
  lm_assert(lm_map_is_large(view->key));
  uint32_t end = slot + slots;
  for (uint32_t at = slot; at < end; at += next_binary_part(at, end))
    write_entry(lm_map_span(at), view, at == slot ? view->key : 0);
}

static void describe_all_but_head(uint32_t slot, uint32_t slots, const lm_span_info *view) {
  uint32_t end = slot + slots;
  for (uint32_t at = slot + next_binary_part(slot, end); at < end; at += next_binary_part(at, end))
    write_entry(lm_map_span(at), view, 0);
}

void lm_map_resize_large(uint32_t slot, uint32_t slots, uint32_t new_slots, size_t size) {
  lm_span_info view;
  uint32_t version;
  lm_span *head = lm_map_span(slot);
  lm_assert(is_in_range(slot, slots) && is_in_range(slot, new_slots));
  lm_assert(size > 0 && size <= (size_t)new_slots << LM_SLOT_SHIFT);
  lm_require(lm_map_read(head, &view, &version));
  view.size = size;
  if (slots != new_slots) {
    view.bin = 0;
    atomic_store_explicit(&head->bin, 0, memory_order_relaxed);
    atomic_store_explicit(&head->key, 0, memory_order_relaxed);
  }
  describe_all_but_head(slot, slots, &(lm_span_info){ 0 });
  /* Release pairs with the acquire of find_in_entry, which reads the size of the first slot. */
  atomic_store_explicit(&head->size, size, memory_order_release);
  describe_all_but_head(slot, new_slots, &view);
}

void lm_map_forget_large(uint32_t slot, uint32_t slots) {
  lm_map_describe_large(slot, slots, &(lm_span_info){ 0 });
}

void lm_map_note_counted(const lm_span *span, lm_token token) {
  lm_assert(token & LM_TOKEN_COUNTED);
  uintptr_t start = atomic_load_explicit(&span->start, memory_order_relaxed);
  uint32_t slot = lm_map_slot((void *)start);
  /* Release: a thread that reads the token in a slot finds it in the palette too. */
  for (uint32_t next = lm_map_next(slot); slot < next; slot++)
    atomic_store_explicit(&lm_map_span(slot)->token, token, memory_order_release);
}

/* ---- Reading entries ---------------------------------------------------------------------- */

/* The acquires pair with the releases of write_entry. */
LM_INLINE bool read_entry(const lm_span *s, lm_span_info *out, uint32_t *version) {
  *version = atomic_load_explicit(&s->version, memory_order_acquire);
  out->start = atomic_load_explicit(&s->start, memory_order_acquire);
  out->key = atomic_load_explicit(&s->key, memory_order_acquire);
  out->cells = atomic_load_explicit(&s->cells, memory_order_acquire);
  out->bin = atomic_load_explicit(&s->bin, memory_order_acquire);
  out->strategy = atomic_load_explicit(&s->strategy, memory_order_acquire);
  out->size = atomic_load_explicit(&s->size, memory_order_acquire);
  return out->start && !(*version & 1) && lm_map_is_unchanged(s, *version);
}

bool lm_map_read(const lm_span *s, lm_span_info *out, uint32_t *version) {
  return read_entry(s, out, version);
}

/* Waits while the cell is BUSY: the thread that replaces the token ends that in a moment, and does
 * not fork before. Acquire pairs with the release of the thread that stored the state. */
LM_INLINE lm_state settled_state(const lm_span *s, uint32_t version, lm_state_cell *cell) {
  lm_state state;
  for (int tries = 0; (state = atomic_load_explicit(cell, memory_order_acquire)) == LM_STATE_BUSY &&
                      lm_map_is_unchanged(s, version);
       tries++)
    lm_sys_wait_a_little(tries);
  return state;
}

LM_INLINE lm_token token_of(const lm_span *s, uint32_t version, lm_state_cell *cells, size_t index,
                            lm_state state) {
  _Atomic(lm_token) *at = lm_state_token_ref(cells, index, state);
  /* If the entry has changed, `at` may be no pointer. */
  if (!at || !lm_map_is_unchanged(s, version)) return LM_TOKEN_NONE;
  return atomic_load_explicit(at, memory_order_acquire);
}

lm_state lm_map_object_state(lm_state_cell *cell) {
  lm_state state;
  for (int tries = 0; (state = atomic_load_explicit(cell, memory_order_acquire)) == LM_STATE_BUSY;
       tries++)
    lm_sys_wait_a_little(tries);
  return state;
}

lm_state lm_map_object_state_in(const lm_span *s, uint32_t version, lm_state_cell *cells,
                                size_t index, lm_token *token) {
  lm_state state = settled_state(s, version, &cells[index]);
  *token = token_of(s, version, cells, index, state);
  return state;
}

/* ---- Finding objects ---------------------------------------------------------------------- */

static lm_token token_of_large(lm_state_cell *cell) {
  /* Acquire: the version of the entry is read after it. */
  return atomic_load_explicit(&lm_map_span_of_state(cell)->token, memory_order_acquire);
}

/* Finds the object at p if the entry of `slot` describes it. The entry of a large block does so for
 * all slots of the block, an entry of small objects only for its own slot. */
LM_INLINE bool find_in_entry(uint32_t slot, uintptr_t p, lm_map_object *out) {
  const lm_span *s = lm_map_span(slot);
  lm_span_info v;
  if (!read_entry(s, &v, &out->version) || p < v.start) return false;
  size_t offset = p - v.start, index = 0;
  out->large = lm_map_is_large(v.key);
  if (out->large) /* acquire pairs with the release of lm_map_resize_large */
    v.size = atomic_load_explicit(&lm_map_span_of_state(v.cells)->size, memory_order_acquire);
  if (out->large ? offset >= v.size : slot != lm_map_slot((void *)p)) return false;
  if (!out->large) index = (size_t)(((unsigned __int128)offset * v.key) >> 64);
  out->base = v.start + index * v.size;
  out->size = v.size;
  out->cell = v.cells + index;
  out->state = settled_state(s, out->version, out->cell);
  out->token = out->large ? token_of_large(v.cells)
                          : token_of(s, out->version, v.cells, index, out->state);
  out->bin = v.bin;
  out->strategy = v.strategy;
  out->span = s;
  return lm_map_is_unchanged(s, out->version);
}

/* Tries every slot that p's slot gives when low bits are cleared: one of them begins a binary part.
 * *changing becomes true if an entry was being changed, and may describe p a moment later. */
LM_INLINE bool find_once(const void *p, lm_map_object *out, bool *changing) {
  uint32_t slot = lm_map_slot(p), tried = 0;
  for (uint32_t mask = ~0u; slot & mask; mask <<= 1) {
    if ((slot & mask) == tried) continue;
    tried = slot & mask;
    if (find_in_entry(tried, (uintptr_t)p, out)) return true;
    if (out->version & 1 || !lm_map_is_unchanged(lm_map_span(tried), out->version))
      *changing = true;
  }
  return false;
}

/* The entry of a live object changes when its span moves to another pool, which takes a moment. The
 * number of tries is limited because a forked child may have lost the thread that changed it. */
bool lm_map_find(const void *p, lm_map_object *out) {
  if (!lm_map_owns(p)) return false;
  for (int tries = 0; tries < LM_MAP_RETRIES; tries++) {
    bool changing = false;
    if (find_once(p, out, &changing)) return true;
    if (lm_likely(!changing)) return false;
    lm_sys_wait_a_little(tries);
  }
  return false;
}

bool lm_map_is_valid(void) {
  size_t top = atomic_load_explicit(&lm_map.top, memory_order_relaxed);
  uintptr_t reach = atomic_load_explicit(&lm_map.reach, memory_order_relaxed);
  uint32_t slot = LM_MAP_FIRST, end = (uint32_t)(top >> LM_SLOT_SHIFT);
  if (!top) return true;
  if (lm_map.base % LM_SLOT || top > lm_map.size) return false;
  if (reach && reach != lm_map.base) return false;
  while (slot < end && lm_map_next(slot) > slot) slot = lm_map_next(slot);
  return slot == end;
}

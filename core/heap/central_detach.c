/* central_detach.c - detached spans of central lists: spans that go to another pool while their
 * objects live. central.h describes them. */
#include "heap/central_parts.h"
#include "pages/states.h"

/* Changes the strategy and the bin that the entries of a span name. */
static void describe_span(uint32_t slot, uint32_t strategy, uint32_t bin) {
  lm_span_info view;
  uint32_t version;
  const lm_span *span = lm_map_span(slot);
  lm_require(lm_map_read(span, &view, &version));
  view.strategy = strategy;
  view.bin = bin;
  view.key = lm_map_key(view.size, bin);
  lm_map_describe_small(slot, atomic_load_explicit(&span->slots, memory_order_relaxed), &view);
}

/* Puts a span that is not detached any more into a list, unless it is full. */
static void list_again_locked(lm_central *c, uint32_t slot) {
  uint32_t free = lm_central_free_of(lm_map_span(slot));
  lm_central_set_note(lm_map_span(slot), LM_CENTRAL_NOTE_NONE);
  if (free) lm_central_list_locked(c, slot, free == lm_central_span_count(c->class_));
}

/* Takes a span out of `current` or its list. */
static void take_off_list_locked(lm_central *c, uint32_t slot) {
  for (int i = 0; i < LM_CENTRAL_CURRENT; i++)
    if (c->current[i] == slot) {
      c->current[i] = 0;
      return;
    }
  if (lm_central_free_of(lm_map_span(slot))) lm_central_unlink_locked(c, slot);
}

/* Tells whether a span of this list begins at `slot`, is not detached, and has an object that is
 * not free. */
static bool is_ours_locked(const lm_central *c, uint32_t slot) {
  lm_span_info view;
  uint32_t version;
  const lm_span *span = lm_map_span(slot);
  return atomic_load_explicit(&span->use, memory_order_relaxed) == LM_USE_SMALL &&
         lm_map_read(span, &view, &version) && view.start == (uintptr_t)lm_map_address(slot) &&
         view.strategy == c->strategy && view.bin == c->bin &&
         lm_central_free_of(span) < lm_central_span_count(c->class_);
}

bool lm_central_detach(lm_central *c, uint32_t slot, uint32_t bin) {
  lm_assert(slot && bin != c->bin);
  lm_lock_take(&c->lock);
  lm_central_empty_depot_locked(c);
  bool done = is_ours_locked(c, slot);
  if (done) {
    take_off_list_locked(c, slot);
    describe_span(slot, c->strategy, bin);
    atomic_fetch_add_explicit(&c->detached, 1, memory_order_relaxed);
  }
  lm_lock_drop(&c->lock);
  return done;
}

/* Ends an abandoned span whose objects are all FREE. The span leaves the page map, and its states
 * are freed. The caller then gives its slots back, after it has dropped the lock. */
static void end_abandoned_locked(lm_central *c, uint32_t slot, uint32_t slots) {
  lm_assert(lm_lock_is_held(&c->lock) && c->spans > 0);
  lm_state_cell *states = atomic_load_explicit(&lm_map_span(slot)->cells, memory_order_relaxed);
  lm_map_forget_small(slot, slots);
  lm_map_extent(slot, slots, LM_USE_NONE);
  lm_states_free(states);
  c->spans--;
}

/* Tells whether a span was abandoned and all of its objects are FREE now. */
static bool is_over_locked(const lm_central *c, uint32_t slot) {
  const lm_span *span = lm_map_span(slot);
  return lm_central_note(span) == LM_CENTRAL_NOTE_ABANDONED && lm_central_is_detached(c, span) &&
         lm_central_free_of(span) == lm_central_span_count(c->class_);
}

bool lm_central_free_detached(lm_central *c, lm_cached_object item) {
  uint32_t slots = lm_central_span_slots(c->class_), over = 0;
  lm_lock_take(&c->lock);
  const lm_span *span = lm_map_span(lm_map_slot(item.p));
  bool ours = atomic_load_explicit(&span->strategy, memory_order_relaxed) == c->strategy;
  if (ours) {
    uint32_t slot = lm_map_slot((void *)atomic_load_explicit(&span->start, memory_order_relaxed));
    lm_central_put_all_locked(c, &item, 1);
    if (is_over_locked(c, slot)) end_abandoned_locked(c, over = slot, slots);
  }
  lm_lock_drop(&c->lock);
  if (over) lm_regions_give_up(c->regions, over, slots);
  return ours;
}

uint32_t lm_central_detached_count(lm_central *c, uint32_t slot) {
  lm_lock_take(&c->lock);
  uint32_t n = lm_central_span_count(c->class_) - lm_central_free_of(lm_map_span(slot));
  lm_lock_drop(&c->lock);
  return n;
}

void lm_central_reattach(lm_central *c, uint32_t slot) {
  lm_lock_take(&c->lock);
  lm_assert(lm_central_is_detached(c, lm_map_span(slot)) && lm_load(uint32_t, &c->detached));
  describe_span(slot, c->strategy, c->bin);
  atomic_fetch_sub_explicit(&c->detached, 1, memory_order_relaxed);
  list_again_locked(c, slot);
  lm_lock_drop(&c->lock);
}

/* Gives each live object of a span the token that `renew` returns for its old token. If there is no
 * memory to note the new token, the object keeps the old one. */
static void retoken_all_locked(uint32_t slot, unsigned class_, lm_retoken_fn *renew) {
  lm_state_cell *states = atomic_load_explicit(&lm_map_span(slot)->cells, memory_order_relaxed);
  const char *start = lm_map_address(slot);
  size_t size = lm_class_size(class_);
  uint32_t count = lm_central_span_count(class_);
  for (uint32_t i = 0; i < count; i++) {
    lm_state state = lm_map_object_state(&states[i]);
    lm_token old = lm_state_is_live(state) ? lm_state_token(states, i, state) : LM_TOKEN_NONE;
    lm_token now = old == LM_TOKEN_NONE ? old : renew(old);
    uint8_t hint = lm_state_hint(now);
    if (now == old ||
        !atomic_compare_exchange_strong_explicit(&states[i], &state, LM_STATE_BUSY,
                                                 memory_order_acq_rel, memory_order_relaxed))
      continue;
    lm_state next = lm_states_assign_at(start + i * size, &states[i], now, &hint);
    next = next ? lm_state_keep_sampled(state, next) : state;
    atomic_store_explicit(&states[i], next, memory_order_release);
  }
}

uint32_t lm_central_adopt(lm_central *to, lm_central *from, uint32_t slot, lm_retoken_fn *renew) {
  lm_central *first = from->strategy < to->strategy ? from : to,
             *second = first == from ? to : from;
  lm_assert(from != to && from->class_ == to->class_);
  lm_lock_take(&first->lock); /* in the order of strategies, for all threads */
  lm_lock_take(&second->lock);
  lm_assert(lm_central_is_detached(from, lm_map_span(slot)) && lm_load(uint32_t, &from->detached));
  uint32_t held = lm_central_span_count(from->class_) - lm_central_free_of(lm_map_span(slot));
  retoken_all_locked(slot, from->class_, renew);
  describe_span(slot, to->strategy, to->bin);
  atomic_fetch_sub_explicit(&from->detached, 1, memory_order_relaxed);
  from->spans--;
  from->out -= held;
  to->spans++;
  to->out += held;
  list_again_locked(to, slot);
  lm_lock_drop(&second->lock);
  lm_lock_drop(&first->lock);
  return held;
}

bool lm_central_has_abandoned(uint32_t slot) {
  return lm_central_note(lm_map_span(slot)) == LM_CENTRAL_NOTE_ABANDONED;
}

void lm_central_abandon(lm_central *c, uint32_t slot) {
  uint32_t slots = lm_central_span_slots(c->class_);
  lm_lock_take(&c->lock);
  lm_assert(lm_central_is_detached(c, lm_map_span(slot)) && lm_load(uint32_t, &c->detached));
  atomic_fetch_sub_explicit(&c->detached, 1, memory_order_relaxed);
  lm_central_set_note(lm_map_span(slot), LM_CENTRAL_NOTE_ABANDONED);
  bool over = is_over_locked(c, slot);
  if (over) end_abandoned_locked(c, slot, slots);
  lm_lock_drop(&c->lock);
  if (over) lm_regions_give_up(c->regions, slot, slots);
}

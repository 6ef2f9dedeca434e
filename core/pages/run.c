/* run.c - sets of free runs of slots. */
#include "pages/run.h"

/* Below EXACT slots, all runs of a list have one length. Of a list, at most LOOKS runs are tried:
 * lists above have longer runs. */
enum { EXACT = 16, LOOKS = 32 };

static _Atomic uint32_t sets; /* made so far; relaxed: each set gets another number */

/* The tags of a set: values of `use` in the page map. */
static uint32_t tag_first(const lm_runs *runs) { return LM_USE_RUNS + 2 * runs->id; }
static uint32_t tag_last(const lm_runs *runs) { return tag_first(runs) + 1; }

static void set_use(uint32_t slot, uint32_t use) {
  atomic_store_explicit(&lm_map_span(slot)->use, use, memory_order_relaxed);
}

static uint32_t length_of(uint32_t slot) {
  return atomic_load_explicit(&lm_map_span(slot)->slots, memory_order_relaxed);
}

static unsigned log2_of(uint32_t n) { return 31u - (unsigned)__builtin_clz(n); }

/* Returns the list of runs of this length. All lists above it have longer runs. */
static unsigned list_of(uint32_t slots) {
  lm_assert(slots > 0);
  if (slots < EXACT) return slots;
  unsigned e = log2_of(slots);
  unsigned list = EXACT + (e - 4) * 4 + ((slots >> (e - 2)) & 3);
  return list < LM_RUN_LISTS ? list : LM_RUN_LISTS - 1;
}

void lm_runs_init(lm_runs *runs) {
  runs->id = atomic_fetch_add_explicit(&sets, 1, memory_order_relaxed);
}

/* Relaxed: of the values of other owners none is a tag of this set, so an old one does no harm. A
 * slot above the top may have no readable entry. */
static uint32_t use_of(uint32_t slot) {
  size_t top = atomic_load_explicit(&lm_map.top, memory_order_relaxed);
  if ((size_t)slot << LM_SLOT_SHIFT >= top) return LM_USE_NONE;
  return atomic_load_explicit(&lm_map_span(slot)->use, memory_order_relaxed);
}

static void link_run(lm_runs *runs, uint32_t slot, uint32_t slots) {
  lm_assert(slot >= LM_MAP_FIRST && slots > 0 && use_of(slot) == LM_USE_NONE);
  unsigned list = list_of(slots);
  lm_span *s = lm_map_span(slot);
  s->prev = 0;
  s->next = runs->head[list];
  if (s->next) lm_map_span(s->next)->prev = slot;
  runs->head[list] = slot;
  runs->filled[list / 64] |= 1ull << (list % 64);
  runs->slots += slots;
  set_use(slot + slots - 1, tag_last(runs));
  atomic_store_explicit(&lm_map_span(slot + slots - 1)->length, slots, memory_order_relaxed);
  lm_map_extent(slot, slots, tag_first(runs));
}

static void unlink_run(lm_runs *runs, uint32_t slot, uint32_t slots) {
  lm_assert(length_of(slot) == slots && runs->slots >= slots);
  lm_assert(use_of(slot) == tag_first(runs) && runs->filled[list_of(slots) / 64]);
  unsigned list = list_of(slots);
  lm_span *s = lm_map_span(slot);
  if (s->next) lm_map_span(s->next)->prev = s->prev;
  if (s->prev) lm_map_span(s->prev)->next = s->next;
  else runs->head[list] = s->next;
  if (!runs->head[list]) runs->filled[list / 64] &= ~(1ull << (list % 64));
  runs->slots -= slots;
  set_use(slot + slots - 1, LM_USE_NONE);
  set_use(slot, LM_USE_NONE);
}

/* Returns the length of the run of this set that begins at a slot; 0: there is none. */
static uint32_t run_from(const lm_runs *runs, uint32_t slot) {
  return use_of(slot) == tag_first(runs) ? length_of(slot) : 0;
}
/* Returns the length of the run of this set whose last slot this is; 0: there is none. */
static uint32_t run_until(const lm_runs *runs, uint32_t slot) {
  uint32_t use = use_of(slot);
  if (use != tag_first(runs) && use != tag_last(runs)) return 0;
  return atomic_load_explicit(&lm_map_span(slot)->length, memory_order_relaxed);
}

void lm_runs_put(lm_runs *runs, uint32_t slot, uint32_t slots) {
  lm_assert(slot >= LM_MAP_FIRST && slots > 0);
  lm_assert(!run_from(runs, slot) && !run_until(runs, slot + slots - 1)); /* it is not put twice */
  uint32_t after = run_from(runs, slot + slots);
  if (after) {
    unlink_run(runs, slot + slots, after);
    slots += after;
  }
  uint32_t before = run_until(runs, slot - 1);
  if (before) {
    slot -= before;
    unlink_run(runs, slot, before);
    slots += before;
  }
  link_run(runs, slot, slots);
}

/* Returns the first slot of a run where `slots` slots with this alignment fit; 0: they do not. */
static uint32_t place_in_run(uint32_t slot, uint32_t length, uint32_t slots, size_t align) {
  uintptr_t first = (uintptr_t)lm_map_address(slot);
  uintptr_t at = align <= LM_SLOT ? first : lm_align_up(first, align);
  uint32_t skip = (uint32_t)((at - first) >> LM_SLOT_SHIFT);
  return skip <= length && length - skip >= slots ? slot + skip : 0;
}

/* Cuts [at, at + slots) out of a run. The parts that are left have no neighbour in the set, so they
 * are linked without joining. The further part is described first, as the law of extents asks. */
static void cut_from_run(lm_runs *runs, uint32_t slot, uint32_t length, uint32_t at,
                         uint32_t slots) {
  lm_assert(at >= slot && slots > 0 && slots <= length && at - slot <= length - slots);
  unlink_run(runs, slot, length);
  uint32_t end = slot + length;
  if (at + slots < end) link_run(runs, at + slots, end - at - slots);
  lm_map_extent(at, slots, LM_USE_NONE);
  if (slot < at) link_run(runs, slot, at - slot);
}

/* Takes slots from one of the first runs of a list in which they fit; 0: they fit in none.
 * `at_end`: as lm_runs_take_last says. */
static uint32_t take_from_list(lm_runs *runs, unsigned list, uint32_t slots, size_t align,
                               bool at_end) {
  int looks = LOOKS;
  for (uint32_t slot = runs->head[list]; slot && looks--; slot = lm_map_span(slot)->next) {
    uint32_t length = length_of(slot);
    uint32_t at = place_in_run(slot, length, slots, align);
    if (!at) continue;
    if (at_end) at = slot + length - slots;
    cut_from_run(runs, slot, length, at, slots);
    return at;
  }
  return 0;
}

/* Returns the first list from `list` on that has a run; LM_RUN_LISTS: there is none. */
static unsigned next_filled(const lm_runs *runs, unsigned list) {
  for (unsigned word = list / 64; word < LM_COUNT(runs->filled); word++) {
    uint64_t bits = runs->filled[word];
    if (word == list / 64) bits &= ~0ull << (list % 64);
    if (bits) return word * 64 + (unsigned)__builtin_ctzll(bits);
  }
  return LM_RUN_LISTS;
}

static uint32_t take_any(lm_runs *runs, uint32_t slots, size_t align, bool at_end) {
  for (unsigned list = next_filled(runs, list_of(slots)); list < LM_RUN_LISTS;
       list = next_filled(runs, list + 1)) {
    uint32_t slot = take_from_list(runs, list, slots, align, at_end);
    if (slot) return slot;
  }
  return 0;
}

uint32_t lm_runs_take(lm_runs *runs, uint32_t slots, size_t align) {
  lm_assert(lm_is_pow2(align));
  return take_any(runs, slots, align, false);
}

uint32_t lm_runs_take_last(lm_runs *runs, uint32_t slots) {
  return take_any(runs, slots, LM_SLOT, true);
}

bool lm_runs_take_at(lm_runs *runs, uint32_t slot, uint32_t slots) {
  lm_assert(slots > 0);
  uint32_t length = run_from(runs, slot);
  if (!length || length < slots) return false;
  cut_from_run(runs, slot, length, slot, slots);
  return true;
}

uint32_t lm_runs_take_from(lm_runs *runs, uint32_t slot, uint32_t most) {
  uint32_t length = run_from(runs, slot);
  if (!length || length > most) return 0;
  unlink_run(runs, slot, length);
  return length;
}

uint32_t lm_runs_take_until(lm_runs *runs, uint32_t slot, uint32_t most) {
  uint32_t length = run_until(runs, slot);
  if (!length || length > most) return 0;
  unlink_run(runs, slot - length + 1, length);
  return length;
}

uint32_t lm_runs_take_longest(lm_runs *runs, uint32_t *slots) {
  for (unsigned list = LM_RUN_LISTS; list-- > 0;) {
    uint32_t slot = runs->head[list];
    if (!slot) continue;
    *slots = length_of(slot);
    unlink_run(runs, slot, *slots);
    return slot;
  }
  return 0;
}

uint32_t lm_runs_take_suitable(lm_runs *runs, uint32_t most, lm_runs_suits *suits, int ctx,
                               uint32_t *slots) {
  for (unsigned list = LM_RUN_LISTS; list-- > 0;)
    for (uint32_t slot = runs->head[list]; slot; slot = lm_map_span(slot)->next) {
      uint32_t length = length_of(slot);
      if (length > most || !suits(slot, length, ctx)) continue;
      *slots = length;
      unlink_run(runs, slot, length);
      return slot;
    }
  return 0;
}

bool lm_runs_has(const lm_runs *runs, uint32_t slots) {
  for (unsigned list = list_of(slots); list < LM_RUN_LISTS; list++)
    for (uint32_t slot = runs->head[list]; slot; slot = lm_map_span(slot)->next)
      if (length_of(slot) >= slots) return true;
  return false;
}

static bool is_list_valid(const lm_runs *runs, unsigned list, uint64_t *total) {
  uint32_t prev = 0;
  for (uint32_t slot = runs->head[list]; slot; slot = lm_map_span(slot)->next) {
    const lm_span *s = lm_map_span(slot);
    uint32_t slots = length_of(slot);
    if (s->prev != prev || list_of(slots) != list || run_from(runs, slot) != slots) return false;
    if (run_until(runs, slot + slots - 1) != slots) return false;
    if (run_from(runs, slot + slots) || run_until(runs, slot - 1)) return false;
    *total += slots;
    prev = slot;
  }
  return true;
}

bool lm_runs_is_valid(const lm_runs *runs) {
  uint64_t total = 0;
  for (unsigned list = 0; list < LM_RUN_LISTS; list++) {
    bool filled = runs->filled[list / 64] >> (list % 64) & 1;
    if (filled != (runs->head[list] != 0)) return false;
    if (!is_list_valid(runs, list, &total)) return false;
  }
  return total == runs->slots;
}

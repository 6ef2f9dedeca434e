/* run.c - sets of free runs of slots. */
#include "pages/run.h"

enum { EXACT = 16, LOOKS = 32 };

static _Atomic uint32_t sets;

/* Values of `use`, and the next one says "last". */
static uint32_t first_of(const lm_runs *runs) { return LM_USE_RUNS + 2 * runs->id; }
static uint32_t last_of(const lm_runs *runs) { return first_of(runs) + 1; }

static void set_use(uint32_t slot, uint32_t use) {
  atomic_store_explicit(&lm_map_span(slot)->use, use, memory_order_relaxed);
}

static uint32_t length_of(uint32_t slot) {
  return atomic_load_explicit(&lm_map_span(slot)->slots, memory_order_relaxed);
}

static unsigned log2_of(uint32_t n) { return 31u - (unsigned)__builtin_clz(n); }

/* The list of runs of this length: lists above it hold longer runs only. */
static unsigned list_of(uint32_t slots) {
  if (slots < EXACT) return slots;
  unsigned e = log2_of(slots);
  unsigned list = EXACT + (e - 4) * 4 + ((slots >> (e - 2)) & 3);
  return list < LM_RUN_LISTS ? list : LM_RUN_LISTS - 1;
}

void lm_runs_init(lm_runs *runs) {
  runs->id = atomic_fetch_add_explicit(&sets, 1, memory_order_relaxed);
}

static uint32_t use_of(uint32_t slot) {
  size_t top = atomic_load_explicit(&lm_map.top, memory_order_relaxed);
  if ((size_t)slot << LM_SLOT_SHIFT >= top) return LM_USE_NONE;
  return atomic_load_explicit(&lm_map_span(slot)->use, memory_order_relaxed);
}

static void link_run(lm_runs *runs, uint32_t slot, uint32_t slots) {
  lm_assert(slot && slots && use_of(slot) == LM_USE_NONE);
  unsigned list = list_of(slots);
  lm_span *s = lm_map_span(slot);
  s->prev = 0;
  s->next = runs->head[list];
  if (s->next) lm_map_span(s->next)->prev = slot;
  runs->head[list] = slot;
  runs->filled[list / 64] |= 1ull << (list % 64);
  runs->slots += slots;
  set_use(slot + slots - 1, last_of(runs));
  atomic_store_explicit(&lm_map_span(slot + slots - 1)->length, slots, memory_order_relaxed);
  lm_map_extent(slot, slots, first_of(runs));
}

static void unlink_run(lm_runs *runs, uint32_t slot, uint32_t slots) {
  lm_assert(length_of(slot) == slots && runs->slots >= slots);
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

/* Length of the run of this set that begins at, or ends with, a slot; 0: there is none. */
static uint32_t run_from(const lm_runs *runs, uint32_t slot) {
  return use_of(slot) == first_of(runs) ? length_of(slot) : 0;
}
static uint32_t run_until(const lm_runs *runs, uint32_t slot) {
  uint32_t use = use_of(slot);
  if (use != first_of(runs) && use != last_of(runs)) return 0;
  return atomic_load_explicit(&lm_map_span(slot)->length, memory_order_relaxed);
}

void lm_runs_put(lm_runs *runs, uint32_t slot, uint32_t slots) {
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

/* The first slot in [slot, slot + length) where `slots` slots fit with this alignment; 0: none. */
static uint32_t fit(uint32_t slot, uint32_t length, uint32_t slots, size_t align) {
  uintptr_t first = (uintptr_t)lm_map_address(slot);
  uintptr_t at = align <= LM_SLOT ? first : lm_align_up(first, align);
  uint32_t skip = (uint32_t)((at - first) >> LM_SLOT_SHIFT);
  return skip <= length && length - skip >= slots ? slot + skip : 0;
}

/* Cuts [at, at + slots) out of the run. The parts left over cannot be neighbours of another run
 * of the set, so they are linked as they are; the further first, as the law of extents asks. */
static void carve(lm_runs *runs, uint32_t slot, uint32_t length, uint32_t at, uint32_t slots) {
  unlink_run(runs, slot, length);
  uint32_t end = slot + length;
  if (at + slots < end) link_run(runs, at + slots, end - at - slots);
  lm_map_extent(at, slots, LM_USE_NONE);
  if (slot < at) link_run(runs, slot, at - slot);
}

/* Where the last whole unit of a long run begins, which slots that fit are to be cut from. */
static uint32_t last_unit(uint32_t slot, uint32_t length, uint32_t unit) {
  return (uint32_t)lm_align_down(slot + length - unit, unit);
}

/* A run of this list that fits, among the first few. */
static uint32_t take_from(lm_runs *runs, unsigned list, uint32_t slots, size_t align,
                          uint32_t unit) {
  int looks = LOOKS;
  for (uint32_t slot = runs->head[list]; slot && looks--; slot = lm_map_span(slot)->next) {
    uint32_t length = length_of(slot);
    uint32_t at = fit(slot, length, slots, align);
    if (!at) continue;
    if (unit && length >= 2 * unit) at = last_unit(slot, length, unit);
    carve(runs, slot, length, at, slots);
    return at;
  }
  return 0;
}

/* The first list from `list` on that has a run; LM_RUN_LISTS: none. */
static unsigned next_filled(const lm_runs *runs, unsigned list) {
  for (unsigned word = list / 64; word < LM_COUNT(runs->filled); word++) {
    uint64_t bits = runs->filled[word];
    if (word == list / 64) bits &= ~0ull << (list % 64);
    if (bits) return word * 64 + (unsigned)__builtin_ctzll(bits);
  }
  return LM_RUN_LISTS;
}

static uint32_t take(lm_runs *runs, uint32_t slots, size_t align, uint32_t unit) {
  for (unsigned list = next_filled(runs, list_of(slots)); list < LM_RUN_LISTS;
       list = next_filled(runs, list + 1)) {
    uint32_t slot = take_from(runs, list, slots, align, unit);
    if (slot) return slot;
  }
  return 0;
}

uint32_t lm_runs_take(lm_runs *runs, uint32_t slots, size_t align) {
  return take(runs, slots, align, 0);
}

uint32_t lm_runs_take_spaced(lm_runs *runs, uint32_t slots, uint32_t unit) {
  lm_assert(slots <= unit);
  return take(runs, slots, LM_SLOT, unit);
}

bool lm_runs_take_at(lm_runs *runs, uint32_t slot, uint32_t slots) {
  uint32_t length = run_from(runs, slot);
  if (!length || length < slots) return false;
  carve(runs, slot, length, slot, slots);
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

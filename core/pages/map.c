/* map.c - the range that all pool memory is in: reserving it, handing out runs of it, describing
 * what stands where, and finding it again. */
#include "pages/map.h"

#include "pages/run.h"

/* The range begins at a multiple of 1 GiB where it is large, so that blocks can too; whole, at one
 * of its own size. Its first slots stay unused: slot 0 means none, and a huge page's worth keeps
 * the next one aligned. */
enum { FIRST = 32 };
#define RANGE_LEAST ((size_t)1 << 26)
/* The arrays become accessible in steps: what is committed counts where the system does not
 * overcommit. One step, of the spans 64 KiB, describes 64 MiB of the range. */
#define SPAN_STEP ((size_t)1 << 16)

lm_map_state lm_map;

static struct {
  lm_lock lock;
  lm_runs free;          /* runs that came back */
  size_t committed;      /* bytes of the array of spans, and of the times a sixteenth */
  _Atomic size_t handed; /* slots in use */
} map;

static size_t span_bytes(size_t size) { return (size >> LM_SLOT_SHIFT) * sizeof(lm_span); }
static size_t time_bytes(size_t size) { return (size >> LM_SLOT_SHIFT) * sizeof *lm_map.born; }

static size_t alignment_of(size_t size) {
  if (size == LM_RANGE) return LM_RANGE;
  return size >= 16 * LM_GIB ? LM_GIB : 2 * LM_MIB;
}

/* Lets all entries be read that the range can have, so that a free need not ask how many there are.
 * Where addresses have 47 bits, span_of_0 and base have those above LM_RANGE in common. */
static void show_spans(void) {
  uintptr_t reach = lm_map.span_of_0;
  if (lm_map.size < LM_RANGE || (reach ^ lm_map.base) >> LM_RANGE_SHIFT) return;
  size_t bytes = span_bytes(LM_RANGE);
  if (lm_sys_make_readable((char *)lm_map.base - bytes, bytes)) return;
  atomic_store_explicit(&lm_map.reach, reach, memory_order_release);
}

/* Address space for the range, its two arrays before it, and half as much again, which is let go:
 * where address space is limited, the host keeps at least a third of what was left. The spans end
 * where the range begins, and before them are the times; what alignment leaves is let go too. */
static bool reserve(size_t size) {
  size_t arrays = span_bytes(size) + time_bytes(size), align = alignment_of(size);
  size_t whole = arrays + align + size + size / 2;
  void *at;
  if (lm_sys_reserve(whole, LM_PAGE, &at)) return false;
  uintptr_t start = (uintptr_t)at, base = lm_align_up(start + arrays, align);
  lm_sys_unmap((void *)(base + size), start + whole - base - size);
  lm_sys_unmap(at, base - arrays - start);
  lm_map.born = (_Atomic uint32_t *)(base - arrays);
  lm_map.span_of_0 = base + ((base >> LM_SLOT_SHIFT) - 1) * sizeof(lm_span);
  lm_map.size = size;
  lm_map.base = base;
  show_spans();
  return true;
}

static bool start_locked(void) {
  if (lm_map.base) return true;
  for (size_t size = LM_RANGE; size >= RANGE_LEAST; size /= 2)
    if (reserve(size)) {
      lm_runs_init(&map.free);
      return true;
    }
  return false;
}

bool lm_map_reserves(const void *p) {
  /* As in lm_map_owns. */
  if (!atomic_load_explicit(&lm_map.top, memory_order_acquire)) return false;
  uintptr_t first = (uintptr_t)lm_map.born;
  return (uintptr_t)p - first < lm_map.base - first + lm_map.size;
}

/* More of the arrays: that of spans grows downwards, from the range's beginning. */
static bool commit_spans(size_t need) {
  return !lm_sys_commit((char *)lm_map.base - need, need - map.committed);
}
static bool commit_times(size_t need) {
  size_t each = sizeof(lm_span) / sizeof *lm_map.born;
  return !lm_sys_commit((char *)lm_map.born + map.committed / each, (need - map.committed) / each);
}

/* Makes the arrays' entries up to `top` accessible. */
static bool describe_to_locked(size_t top) {
  size_t need = lm_align_up((top >> LM_SLOT_SHIFT) * sizeof(lm_span), SPAN_STEP);
  if (need <= map.committed) return true;
  if (!commit_spans(need) || !commit_times(need)) return false;
  map.committed = need;
  return true;
}

/* Slots never used before, from the top. A gap that the alignment leaves goes to the free runs. */
static uint32_t raise_locked(uint32_t slots, size_t align) {
  size_t old = atomic_load_explicit(&lm_map.top, memory_order_relaxed);
  if (!old) old = (size_t)FIRST << LM_SLOT_SHIFT;
  if (align < LM_SLOT) align = LM_SLOT;
  size_t at = lm_align_up(lm_map.base + old, align) - lm_map.base;
  size_t size = (size_t)slots << LM_SLOT_SHIFT;
  if (at > lm_map.size || lm_map.size - at < size || !describe_to_locked(at + size)) return 0;
  uint32_t slot = (uint32_t)(at >> LM_SLOT_SHIFT), first = (uint32_t)(old >> LM_SLOT_SHIFT);
  lm_map_extent(slot, slots, LM_USE_NONE);
  if (first < slot) lm_map_extent(first, slot - first, LM_USE_NONE);
  /* Release pairs with the acquire of lm_map_owns. */
  atomic_store_explicit(&lm_map.top, at + size, memory_order_release);
  if (first < slot) lm_runs_put(&map.free, first, slot - first);
  return slot;
}

static uint32_t take_locked(uint32_t slots, size_t align) {
  if (!start_locked()) return 0;
  uint32_t slot = lm_runs_take(&map.free, slots, align);
  return slot ? slot : raise_locked(slots, align);
}

uint32_t lm_map_take(uint32_t slots, size_t align) {
  lm_lock_take(&map.lock);
  uint32_t slot = take_locked(slots, align);
  lm_lock_drop(&map.lock);
  if (slot) atomic_fetch_add_explicit(&map.handed, slots, memory_order_relaxed);
  return slot;
}

void lm_map_put(uint32_t slot, uint32_t slots) {
  lm_lock_take(&map.lock);
  lm_runs_put(&map.free, slot, slots);
  lm_lock_drop(&map.lock);
  atomic_fetch_sub_explicit(&map.handed, slots, memory_order_relaxed);
}

uint32_t lm_map_first(void) { return FIRST; }
lm_lock *lm_map_lock(void) { return &map.lock; }
size_t lm_map_used(void) {
  return atomic_load_explicit(&map.handed, memory_order_relaxed) << LM_SLOT_SHIFT;
}
size_t lm_map_overhead(void) {
  return (atomic_load_explicit(&lm_map.top, memory_order_relaxed) >> LM_SLOT_SHIFT) *
         sizeof(lm_span);
}

/* The entry is not to be believed from begin to end: a seqlock, its only writer the lock's owner.
 * Releases and acquires on the fields themselves stand for its fences. */
static void begin_change(lm_span *s) {
  uint32_t version = atomic_load_explicit(&s->version, memory_order_relaxed);
  atomic_store_explicit(&s->version, version + 1, memory_order_relaxed);
}
static void end_change(lm_span *s) {
  uint32_t version = atomic_load_explicit(&s->version, memory_order_relaxed);
  /* Release pairs with the acquire of lm_map_read. */
  atomic_store_explicit(&s->version, version + 1, memory_order_release);
}

static void write_view(lm_span *s, const lm_span_info *view, uint64_t key) {
  begin_change(s);
  atomic_store_explicit(&s->start, view->start, memory_order_release);
  atomic_store_explicit(&s->key, key, memory_order_release);
  atomic_store_explicit(&s->side, view->side, memory_order_release);
  atomic_store_explicit(&s->bin, view->bin, memory_order_release);
  atomic_store_explicit(&s->strategy, view->strategy, memory_order_release);
  atomic_store_explicit(&s->size, view->size, memory_order_release);
  end_change(s);
}

void lm_map_describe_small(uint32_t slot, uint32_t slots, const lm_span_info *view) {
  for (uint32_t i = 0; i < slots; i++) {
    lm_span *s = lm_map_span(slot + i);
    if (atomic_load_explicit(&s->side, memory_order_relaxed) != view->side)
      atomic_store_explicit(&s->token, LM_TOKEN_NONE, memory_order_relaxed);
    write_view(s, view, view->key);
  }
}

void lm_map_forget_small(uint32_t slot, uint32_t slots) {
  lm_map_describe_small(slot, slots, &(lm_span_info){ 0 });
}

/* Slots from this mark of the extent's binary decomposition to the next. */
static uint32_t mark_step(uint32_t slot, uint32_t end) {
  uint32_t by_place = slot & -slot, by_room = 1u << (31 - __builtin_clz(end - slot));
  return by_place < by_room ? by_place : by_room;
}

void lm_map_describe_large(uint32_t slot, uint32_t slots, const lm_span_info *view) {
  uint32_t end = slot + slots;
  for (uint32_t at = slot; at < end; at += mark_step(at, end))
    write_view(lm_map_span(at), view, at == slot ? view->key : 0);
}

/* The marks of an extent except its head. */
static void describe_rest(uint32_t slot, uint32_t slots, const lm_span_info *view) {
  uint32_t end = slot + slots;
  for (uint32_t at = slot + mark_step(slot, end); at < end; at += mark_step(at, end))
    write_view(lm_map_span(at), view, 0);
}

void lm_map_resize_large(uint32_t slot, uint32_t slots, uint32_t new_slots, size_t size) {
  lm_span_info view;
  uint32_t version;
  lm_span *head = lm_map_span(slot);
  lm_require(lm_map_read(head, &view, &version));
  view.size = size;
  if (slots != new_slots) {
    view.bin = 0;
    atomic_store_explicit(&head->bin, 0, memory_order_relaxed);
    atomic_store_explicit(&head->key, 0, memory_order_relaxed);
  }
  describe_rest(slot, slots, &(lm_span_info){ 0 });
  atomic_store_explicit(&head->size, size, memory_order_release);
  describe_rest(slot, new_slots, &view);
}

void lm_map_forget_large(uint32_t slot, uint32_t slots) {
  lm_map_describe_large(slot, slots, &(lm_span_info){ 0 });
}

LM_INLINE bool view_of(const lm_span *s, lm_span_info *out, uint32_t *version) {
  *version = atomic_load_explicit(&s->version, memory_order_acquire);
  out->start = atomic_load_explicit(&s->start, memory_order_acquire);
  out->key = atomic_load_explicit(&s->key, memory_order_acquire);
  out->side = atomic_load_explicit(&s->side, memory_order_acquire);
  out->bin = atomic_load_explicit(&s->bin, memory_order_acquire);
  out->strategy = atomic_load_explicit(&s->strategy, memory_order_acquire);
  out->size = atomic_load_explicit(&s->size, memory_order_acquire);
  return out->start && !(*version & 1) && lm_map_is_unchanged(s, *version);
}

bool lm_map_read(const lm_span *s, lm_span_info *out, uint32_t *version) {
  return view_of(s, out, version);
}

/* Whoever replaces a token is done in a moment, and does not fork meanwhile. */
LM_INLINE lm_state mark_of(const lm_span *s, uint32_t version, lm_state_cell *side) {
  lm_state mark;
  while ((mark = atomic_load_explicit(side, memory_order_acquire)) == LM_STATE_BUSY &&
         lm_map_is_unchanged(s, version))
    lm_sys_yield();
  return mark;
}

LM_INLINE lm_token token_of(const lm_span *s, uint32_t version, lm_state_cell *side, size_t index,
                            lm_state mark) {
  _Atomic(lm_token) *at = lm_state_token_ref(side, index, mark);
  if (!at || !lm_map_is_unchanged(s, version)) return LM_TOKEN_NONE;
  return atomic_load_explicit(at, memory_order_acquire);
}

lm_state lm_map_object_state(lm_state_cell *side) {
  lm_state mark;
  while ((mark = atomic_load_explicit(side, memory_order_acquire)) == LM_STATE_BUSY) lm_sys_yield();
  return mark;
}

lm_state lm_map_object_state_in(const lm_span *s, uint32_t version, lm_state_cell *side,
                                size_t index, lm_token *token) {
  lm_state mark = mark_of(s, version, &side[index]);
  *token = token_of(s, version, side, index, mark);
  return mark;
}

/* Release: who reads it in a slot finds it in the palette. */
void lm_map_note_counted(const lm_span *span, lm_token token) {
  uintptr_t start = atomic_load_explicit(&span->start, memory_order_relaxed);
  uint32_t slot = lm_map_slot((void *)start);
  for (uint32_t next = lm_map_next(slot); slot < next; slot++)
    atomic_store_explicit(&lm_map_span(slot)->token, token, memory_order_release);
}

static lm_token token_of_head(lm_state_cell *mark) {
  return atomic_load_explicit(&lm_map_span_of_state(mark)->token, memory_order_relaxed);
}

/* The object of the entry at `slot` that p is in. An entry of small objects speaks for its own
 * slot only. */
LM_INLINE bool place_in(uint32_t slot, uintptr_t p, lm_map_object *out) {
  const lm_span *s = lm_map_span(slot);
  lm_span_info v;
  if (!view_of(s, &v, &out->version) || p < v.start) return false;
  size_t offset = p - v.start, index = 0;
  out->large = lm_map_is_large(v.key);
  if (out->large)
    v.size = atomic_load_explicit(&lm_map_span_of_state(v.side)->size, memory_order_acquire);
  if (out->large ? offset >= v.size : slot != lm_map_slot((void *)p)) return false;
  if (!out->large) index = (size_t)(((unsigned __int128)offset * v.key) >> 64);
  out->base = v.start + index * v.size;
  out->size = v.size;
  out->side = v.side + index;
  out->mark = mark_of(s, out->version, out->side);
  out->token = out->large ? token_of_head(v.side)
                          : token_of(s, out->version, v.side, index, out->mark);
  out->bin = v.bin;
  out->strategy = v.strategy;
  out->span = s;
  return lm_map_is_unchanged(s, out->version);
}

/* *changing: an entry was not to be believed, and may tell more at another time. */
LM_INLINE bool find_once(const void *p, lm_map_object *out, bool *changing) {
  uint32_t slot = lm_map_slot(p), tried = 0;
  for (uint32_t mask = ~0u; slot & mask; mask <<= 1) {
    if ((slot & mask) == tried) continue;
    tried = slot & mask;
    if (place_in(tried, (uintptr_t)p, out)) return true;
    if (out->version & 1 || !lm_map_is_unchanged(lm_map_span(tried), out->version))
      *changing = true;
  }
  return false;
}

/* A live object's entry changes where it becomes another pool's: that is a moment. But a forked
 * child may have lost who was at it. */
bool lm_map_find(const void *p, lm_map_object *out) {
  if (!lm_map_owns(p)) return false;
  for (int tries = 0; tries < LM_MAP_RETRIES; tries++) {
    bool changing = false;
    if (find_once(p, out, &changing)) return true;
    if (lm_likely(!changing)) return false;
    lm_sys_yield();
  }
  return false;
}

static bool are_extents_valid_locked(void) {
  size_t top = atomic_load_explicit(&lm_map.top, memory_order_relaxed);
  uint32_t slot = FIRST, end = (uint32_t)(top >> LM_SLOT_SHIFT);
  if (!end) return true;
  while (slot < end && lm_map_next(slot) > slot) slot = lm_map_next(slot);
  return slot == end;
}

bool lm_map_is_valid(void) {
  lm_lock_take(&map.lock);
  bool valid = are_extents_valid_locked() && lm_runs_is_valid(&map.free);
  lm_lock_drop(&map.lock);
  return valid;
}

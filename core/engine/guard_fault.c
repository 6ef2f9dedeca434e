/* guard_fault.c - says whose block it was, when guarded memory stops the program.
 *
 * All of it but the beginning runs in a signal handler, at an instruction of the host's: no lock is
 * taken but the listener's, nothing is allocated, and the words are put together by hand. What the
 * map says is read as any thread may read it. */
#include "engine/guard_fault.h"

#include <string.h>

#include "heap/strategy.h"
#include "os/error.h"
#include "pages/map.h"
#include "plan/site.h"

static _Atomic bool is_wanted, is_watching, is_telling;

/* ---- Words */

/* Static, because a handler's stack may be small: one fault is told at a time. */
static LM_SPARSE struct {
  size_t n;
  char at[1024];
} words;

static void add(const char *text) {
  size_t length = strnlen(text, sizeof words.at - 1 - words.n);
  memcpy(words.at + words.n, text, length);
  words.n += length;
  words.at[words.n] = 0;
}

static void add_number(uint64_t n, unsigned base) {
  char digits[24], *at = digits + sizeof digits - 1;
  *at = 0;
  do *--at = "0123456789abcdef"[n % base];
  while (n /= base);
  add(at);
}

/* ---- The block */

/* The first slot of the extent that an address of the range is in. */
static uint32_t extent_of(const void *p) {
  uint32_t slot = lm_map_first(), target = lm_map_slot(p);
  for (uint32_t next; (next = lm_map_next(slot)) <= target && next > slot;) slot = next;
  return slot;
}

/* The block that the extent at an address is, or was while its memory was last in use. */
static bool find_block(const void *p, lm_span_info *view, lm_token *token, bool *is_live) {
  uint32_t version, slot = extent_of(p);
  const lm_span *head = lm_map_span(slot);
  uint32_t use = atomic_load_explicit(&head->use, memory_order_relaxed);
  if (use != LM_USE_GUARDED && !lm_map_use_is_large(use)) return false;
  if (!lm_map_read(head, view, &version)) return false;
  *is_live = lm_state_is_live(atomic_load_explicit(view->side, memory_order_acquire));
  *token = atomic_load_explicit(&head->token, memory_order_relaxed);
  return true;
}

static void add_place(uintptr_t p, const lm_span_info *block, bool is_live) {
  uintptr_t end = block->start + block->size;
  uint64_t distance = p >= end ? p - end : p < block->start ? block->start - p : p - block->start;
  add(", ");
  add_number(distance, 10);
  add(p >= end           ? " bytes past the end of a"
      : p < block->start ? " bytes before a"
                         : " bytes into a");
  add(is_live ? " block of " : " freed block of ");
  add_number(block->size, 10);
  add(" bytes");
}

/* Returns the generation that decided it. */
static uint64_t add_owner(const lm_span_info *block, lm_token token) {
  const loam_site *site = token != LM_TOKEN_NONE ? lm_site_at(lm_site_token_index(token)) : NULL;
  if (site) {
    add(" of tag '");
    add(site->where.tag);
    add("' and strategy '");
  } else {
    add(" of strategy '");
  }
  add(lm_strategy_at(block->strategy)->desc.name);
  add("'");
  if (!site) return atomic_load_explicit(&lm_site_generation, memory_order_relaxed);
  uint64_t generation = lm_site_generation_of(lm_site_token_slot(token));
  add(", decided by generation ");
  add_number(generation, 10);
  return generation;
}

static uint64_t describe(const void *address) {
  lm_span_info block;
  lm_token token;
  bool is_live;
  words.n = 0;
  add("fault at 0x");
  add_number((uintptr_t)address, 16);
  if (!find_block(address, &block, &token, &is_live)) {
    add(", where no block lives");
    return atomic_load_explicit(&lm_site_generation, memory_order_relaxed);
  }
  add_place((uintptr_t)address, &block, is_live);
  return add_owner(&block, token);
}

static void tell(const void *address) {
  if (!lm_map_owns(address)) return;
  if (atomic_exchange_explicit(&is_telling, true, memory_order_acquire)) return;
  uint64_t generation = describe(address);
  lm_error_event_tell(&(loam_event){ LOAM_EVENT_FAULT, generation, address, words.at, NULL });
  atomic_store_explicit(&is_telling, false, memory_order_release);
}

/* ---- The beginning */

static bool is_any_guarded(void) {
  for (uint32_t id = 0, n = lm_strategy_count(); id < n; id++)
    if (lm_strategy_at(id)->desc.guard) return true;
  return false;
}

void lm_guard_fault_enable(bool wanted) {
  atomic_store_explicit(&is_wanted, wanted, memory_order_relaxed);
}

void lm_guard_fault_install(void) {
  if (!atomic_load_explicit(&is_wanted, memory_order_relaxed) || !is_any_guarded()) return;
  if (atomic_exchange_explicit(&is_watching, true, memory_order_relaxed)) return;
  if (lm_sys_on_fault(tell)) atomic_store_explicit(&is_watching, false, memory_order_relaxed);
}

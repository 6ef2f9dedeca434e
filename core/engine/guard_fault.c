/* guard_fault.c - reports which block was accessed wrongly when guarded memory faults (SIGSEGV).
 *
 * Everything above the section "Installing" runs in the signal handler, which interrupts an
 * instruction of the host. So it takes no lock except the one that guards which callback is set
 * (lm_error_event_tell), allocates nothing, and does not call printf: the text is put together
 * here. The page map is read without a lock, as every thread may read it. */
#include "engine/guard_fault.h"

#include <string.h>

#include "heap/large.h"
#include "heap/strategy.h"
#include "os/error.h"
#include "os/text.h"
#include "os/thread.h"
#include "pages/map.h"
#include "plan/site.h"

static _Atomic bool is_wanted;    /* the host wants reports; relaxed: publishes no other data */
static _Atomic bool is_installed; /* a thread has installed the handler, or is doing so; relaxed */
/* 1 + lm_thread_forks in the process of the thread that uses `text`; 0: no thread does. In a forked
 * child the number of the parent means no thread. Acquired by exchange, then released. */
static _Atomic uint32_t reporter;

/* ---- The text of a report ----------------------------------------------------------------- */

/* The text is static, because the stack of a signal handler may be small. One thread uses it at a
 * time (`reporter`).
 *
 * Law: length < sizeof at, and at[length] is 0. */
static LM_SPARSE struct {
  size_t length;
  char at[1024];
} text;

LM_INLINE bool text_is_valid(void) { return text.length < sizeof text.at && !text.at[text.length]; }

/* Appends a string, cut off where the text is full. */
static void add(const char *words) {
  lm_assert(text_is_valid());
  size_t length = strnlen(words, sizeof text.at - 1 - text.length);
  memcpy(text.at + text.length, words, length);
  text.length += length;
  text.at[text.length] = 0;
  lm_assert(text_is_valid());
}

static void add_number(uint64_t n, unsigned base) {
  lm_assert(base >= 10 && base <= 16); /* so 24 digits suffice for 64 bits */
  char digits[24], *at = digits + sizeof digits - 1;
  *at = 0;
  do *--at = "0123456789abcdef"[n % base];
  while (n /= base);
  add(at);
}

/* Appends a count of bytes. */
static void add_bytes(uint64_t n) {
  add_number(n, 10);
  add(n == 1 ? " byte" : " bytes");
}

/* ---- The block ---------------------------------------------------------------------------- */

/* A block at which a fault occurred. */
typedef struct faulted {
  lm_span_info span;
  lm_token token; /* LM_TOKEN_NONE: not known */
  bool is_live;   /* false: it has been freed */
} faulted;

/* Finds the block to which the extent at p belongs, or belonged before it was freed. False: the
 * extent holds no guarded and no large block. */
static bool find_block(const void *p, faulted *out) {
  uint32_t version, slot = lm_map_extent_of(p);
  const lm_span *head = lm_map_span(slot);
  uint32_t use = atomic_load_explicit(&head->use, memory_order_relaxed);
  if (use != LM_USE_GUARDED && !lm_map_use_is_large(use)) return false;
  if (!lm_map_read(head, &out->span, &version)) return false;
  /* Acquire pairs with the release of the thread that wrote the state: the token is not older. */
  out->is_live = lm_state_is_live(atomic_load_explicit(out->span.cells, memory_order_acquire));
  out->token = atomic_load_explicit(&head->token, memory_order_relaxed);
  return true;
}

/* Appends where p lies, compared with the block. */
static void add_place(uintptr_t p, const faulted *block) {
  uintptr_t start = block->span.start, size = block->span.size;
  if (lm_large_is_empty((void *)start, size)) size = 0;
  uintptr_t end = start + size;
  uint64_t distance = p >= end ? p - end : p < start ? start - p : p - start;
  add(", ");
  add_bytes(distance);
  add(p >= end ? " past the end of a" : p < start ? " before a" : " into a");
  add(block->is_live ? " block of " : " freed block of ");
  add_bytes(size);
}

static uint64_t live_generation(void) {
  return atomic_load_explicit(&lm_site_generation, memory_order_relaxed);
}

/* Appends the tag and the strategy of the block. Returns the generation whose policy decided the
 * block; the live generation if the block's site is not known. */
static uint64_t add_owner(const faulted *block) {
  lm_token token = block->token;
  const loam_site *site = token != LM_TOKEN_NONE ? lm_site_at(lm_site_token_index(token)) : NULL;
  if (site) {
    add(" of tag '");
    add(site->where.tag);
    add("' and strategy '");
  } else {
    add(" of strategy '");
  }
  add(lm_strategy_at(block->span.strategy)->desc.name);
  add("'");
  if (!site) return live_generation();
  uint64_t generation = lm_site_generation_of(lm_site_token_slot(token));
  add(", decided by generation ");
  add_number(generation, 10);
  return generation;
}

/* Writes the text for a fault at an address. Returns the generation to report. */
static uint64_t describe(const void *address) {
  faulted block;
  text.length = 0;
  text.at[0] = 0;
  add("fault at 0x");
  add_number((uintptr_t)address, 16);
  if (!find_block(address, &block)) {
    add(", which is in no guarded or large block");
    return live_generation();
  }
  add_place((uintptr_t)address, &block);
  return add_owner(&block);
}

/* Sends the event for a fault in the range of the pools. If another thread's fault is being
 * reported, or a fault occurs in the report itself, there is no event for this one. The acquire of
 * the exchange pairs with the release below. */
static void report(const void *address) {
  if (!lm_map_owns(address)) return;
  uint32_t self = 1 + lm_thread_forks;
  if (atomic_exchange_explicit(&reporter, self, memory_order_acquire) == self) return;
  uint64_t generation = describe(address);
  lm_text_make_line(text.at);
  lm_error_event_tell(&(loam_event){ LOAM_EVENT_FAULT, generation, address, text.at, NULL });
  atomic_store_explicit(&reporter, 0, memory_order_release);
}

/* ---- Installing --------------------------------------------------------------------------- */

static bool is_any_guarded(void) {
  for (uint32_t id = 0, n = lm_strategy_count(); id < n; id++)
    if (lm_strategy_at(id)->desc.guard) return true;
  return false;
}

void lm_guard_fault_enable(bool wanted) {
  atomic_store_explicit(&is_wanted, wanted, memory_order_relaxed);
}

void lm_guard_fault_install(void) {
  if (!is_any_guarded()) return;
  (void)lm_large_guard_max(); /* reads a file once: now, and not in a request for memory */
  if (!atomic_load_explicit(&is_wanted, memory_order_relaxed)) return;
  if (atomic_exchange_explicit(&is_installed, true, memory_order_relaxed)) return;
  if (lm_sys_on_fault(report)) atomic_store_explicit(&is_installed, false, memory_order_relaxed);
}

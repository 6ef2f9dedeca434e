/* unwind.c - a thread reads its stack by the rules of frames, or else by libgcc's unwinder. */
#include "os/unwind.h"

#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>
#include <unwind.h>

#include "os/frame_rule.h"

#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 35)

/* ---- Rules that are kept ------------------------------------------------------------------ */

/* An entry has a return address, which has 47 bits in a process, and above it the rule of the frame
 * there. 0: unused. Each entry is read and written as a whole; relaxed, as it publishes no other
 * data. */
enum { RULES = 8192, RULE_SHIFT = 64 - LM_FRAME_BITS };
static LM_SPARSE _Atomic uint64_t kept_rule[RULES];
/* An entry was written since the last lm_unwind_forget. So a dlclose touches no page of the table
 * in a process that samples nothing. Relaxed. */
static _Atomic bool has_rules;

static _Atomic uint64_t *entry_of(uintptr_t ra) {
  return &kept_rule[ra * 0x9e3779b97f4a7c15u >> 51];
}
_Static_assert(RULES == 1 << (64 - 51), "the hash is an index");

static LM_NOINLINE lm_frame_rule read_and_keep(uintptr_t ra) {
  lm_frame_rule rule = lm_frame_rule_read(ra);
  if (ra >> RULE_SHIFT) return rule;
  atomic_store_explicit(entry_of(ra), (uint64_t)rule << RULE_SHIFT | ra, memory_order_relaxed);
  atomic_store_explicit(&has_rules, true, memory_order_relaxed);
  return rule;
}

/* Returns the rule of a frame: a kept one or, if there is none or `use_kept` is false, the one that
 * the tables have. */
LM_INLINE lm_frame_rule rule_at(uintptr_t ra, bool use_kept) {
  uint64_t entry = atomic_load_explicit(entry_of(ra), memory_order_relaxed);
  bool is_kept = entry << LM_FRAME_BITS >> LM_FRAME_BITS == ra;
  return lm_likely(is_kept && use_kept) ? (lm_frame_rule)(entry >> RULE_SHIFT) : read_and_keep(ra);
}

void lm_unwind_forget(void) {
  if (!atomic_exchange_explicit(&has_rules, false, memory_order_relaxed)) return;
  for (size_t i = 0; i < RULES; i++) atomic_store_explicit(&kept_rule[i], 0, memory_order_relaxed);
}

/* ---- Reading a stack ---------------------------------------------------------------------- */

/* How a walk along the stack has ended: WHOLE: the stack was read. ASTRAY: a kept rule has led out
 * of the part of the stack that is known. NO_RULE: the unwinder has to read the stack. */
typedef enum { WHOLE, ASTRAY, NO_RULE } walk_end;

enum { LARGEST = LM_FRAME_WORDS * sizeof(uintptr_t) }; /* bytes of a frame */

/* Reads the stack from the frame of lm_unwind on, by rules. A kept rule may be wrong. So kept rules
 * are used, if at all, only in the part of the stack that is known to be readable, and they lead to
 * nothing above it. `at` is the frame pointer of lm_unwind, where rbp of its caller is saved. */
__attribute__((no_sanitize("address"))) static walk_end walk(lm_unwound *u, uintptr_t at,
                                                             bool may_use_kept) {
  const uintptr_t *rbp = *(const uintptr_t **)at, *place = (const uintptr_t *)at + 1;
  uintptr_t kept_from = may_use_kept ? u->bottom : UINTPTR_MAX;
  walk_end end = WHOLE;
  uint32_t words = 0;
  while (words < LM_COUNT(u->word) && *place) {
    uintptr_t ra = *place;
    bool use_kept = (uintptr_t)place > kept_from;
    u->word[words++] = (lm_unwound_word){ place, ra };
    lm_frame_rule rule = rule_at(ra, use_kept);
    if (rule == LM_FRAME_LAST) break;
    end = NO_RULE;
    if (rule == LM_FRAME_OTHER) break;
    const uintptr_t *cfa = (lm_frame_by_rbp(rule) ? rbp : place + 1) + lm_frame_words(rule);
    /* A frame that is larger than any rule by rsp can say is left to the unwinder: it may be that
     * rbp is wrong. */
    uintptr_t more = (uintptr_t)cfa - (uintptr_t)(place + 2);
    if (more > LARGEST || more % sizeof *cfa || (use_kept && cfa > u->top + 1)) {
      if (use_kept) end = ASTRAY;
      break;
    }
    if (lm_frame_saved(rule)) rbp = *((const uintptr_t **)cfa - lm_frame_saved(rule));
    place = cfa - 1;
    end = WHOLE;
  }
  u->words = words;
  return end;
}

typedef struct reader {
  lm_unwound *u;
  bool is_first; /* the unwinder has told no frame yet */
  uintptr_t cfa; /* of the frame before */
} reader;

/* Notes one frame that the unwinder has found. The stack is not recognised later if the return
 * address does not stand below the CFA, or if it is far from the one before, since it is then on
 * another stack. A stack with a frame that a signal interrupted is not recognised either, because
 * the address of that frame is no return address. The first frame is one of this file. */
__attribute__((no_sanitize("address"))) static _Unwind_Reason_Code
note_frame(struct _Unwind_Context *context, void *ctx) {
  reader *r = ctx;
  lm_unwound *u = r->u;
  int is_interrupted = 0;
  uintptr_t pc = _Unwind_GetIPInfo(context, &is_interrupted), cfa = _Unwind_GetCFA(context);
  const uintptr_t *place = (const uintptr_t *)cfa - 1;
  if (!pc) return _URC_END_OF_STACK;
  bool is_first = r->is_first;
  r->is_first = false;
  if (is_first) return _URC_NO_REASON;
  bool is_near = cfa % sizeof cfa == 0 && cfa - r->cfa <= LARGEST;
  if (is_interrupted || !is_near || (u->at && *place != pc)) u->at = 0;
  r->cfa = cfa;
  u->word[u->words++] = (lm_unwound_word){ place, is_interrupted ? pc + 1 : pc };
  return u->words < LM_COUNT(u->word) ? _URC_NO_REASON : _URC_END_OF_STACK;
}

static void unwind(lm_unwound *u) {
  reader r = { .u = u, .is_first = true, .cfa = u->at };
  u->words = 0;
  (void)_Unwind_Backtrace(note_frame, &r);
}

/* Notes that the stack is readable from `at` to the outermost word that a walk has read. Two parts
 * that overlap are of one stack, so both together are readable. */
static void note_extent(lm_unwound *u, uintptr_t at) {
  if (!u->words) return;
  const uintptr_t *last = u->word[u->words - 1].place;
  bool overlap = at <= (uintptr_t)u->top && u->bottom <= (uintptr_t)last;
  if (!overlap || at < u->bottom) u->bottom = at;
  if (!overlap || last > u->top) u->top = last;
}

/* The code of this library, which stays where it is. own_from is 0 before it is known; both are 1
 * where loam is linked into the program itself. Release and acquire of own_from order own_to. */
static _Atomic uintptr_t own_from, own_to;

static uintptr_t find_own_code(void) {
  struct dl_find_object own;
  void *here = (void *)(uintptr_t)find_own_code;
  bool found = !_dl_find_object(here, &own) && own.dlfo_link_map->l_name[0];
  uintptr_t from = found ? (uintptr_t)own.dlfo_map_start : 1;
  atomic_store_explicit(&own_to, found ? (uintptr_t)own.dlfo_map_end : 1, memory_order_relaxed);
  atomic_store_explicit(&own_from, from, memory_order_release);
  return from;
}

/* Counts the innermost words that lead into this library. */
static void count_own(lm_unwound *u) {
  uintptr_t from = atomic_load_explicit(&own_from, memory_order_acquire);
  if (!from) from = find_own_code();
  uintptr_t to = atomic_load_explicit(&own_to, memory_order_relaxed);
  u->own = 0;
  while (u->own < u->words && u->word[u->own].value > from && u->word[u->own].value <= to) u->own++;
}

/* The words are on the stack of this thread above `at`, and were when they were read, so they can
 * be read as long as a frame is at `at`. */
__attribute__((no_sanitize("address"))) static bool is_same(const lm_unwound *u, uintptr_t at) {
  if (u->at != at) return false;
  for (uint32_t i = 0; i < u->words; i++)
    if (*u->word[i].place != u->word[i].value) return false;
  return u->words > 0;
}

LM_NOINLINE bool lm_unwind(lm_unwound *u) {
  uintptr_t at = (uintptr_t)__builtin_frame_address(0);
  if (is_same(u, at)) return true;
  u->at = at;
  walk_end end = walk(u, at, true);
  if (end == ASTRAY) end = walk(u, at, false);
  note_extent(u, at);
  if (end == NO_RULE) unwind(u);
  count_own(u);
  lm_assert(lm_unwound_is_valid(u));
  lm_verify(!u->at || !u->words || is_same(u, at));
  return false;
}

#else

void lm_unwind_forget(void) {}

bool lm_unwind(lm_unwound *u) {
  (void)u;
  return false;
}

#endif

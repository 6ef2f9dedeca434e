/* state.c - the table of common tokens: finding a token's id, and making places vacant. */
#include "pages/state.h"

/* Places that a search for a token looks at. A search that ends at an empty place is short; once
 * places have become vacant, a token may stand further from its first place. */
enum { LOOKS_FIRST = 8, LOOKS_AFTER_VACATING = 16 };

_Atomic(lm_token) lm_state_common[LM_COMMON_TOKENS + 1];
/* To take a vacant place, a thread clears the bit in `vacant`, stores its token, then clears the
 * bit in lm_state_closed_ids. */
_Atomic uint64_t lm_state_closed_ids;
static _Atomic uint64_t vacant;
static _Atomic unsigned looks = LOOKS_FIRST; /* relaxed: only how long a search is */

enum { FIRST_ID = 1 };
#define ALL_IDS ((((uint64_t)1 << LM_COMMON_TOKENS) - 1) << FIRST_ID)

static uint64_t bit_of(unsigned id) { return (uint64_t)1 << id; }
static bool is_in(uint64_t ids, unsigned id) { return ids & bit_of(id); }

/* Puts a token in a vacant place. False: another thread has taken the place. */
static bool put_in_vacant(unsigned id, lm_token token) {
  /* Acquire pairs with the release of lm_state_vacate_ids: no state has the id any more. */
  if (!is_in(atomic_fetch_and_explicit(&vacant, ~bit_of(id), memory_order_acq_rel), id))
    return false;
  lm_assert(lm_state_is_closed(id));
  atomic_store_explicit(&lm_state_common[id], token, memory_order_relaxed);
  /* Release pairs with the acquires of lm_state_is_closed and lm_state_find_common. */
  atomic_fetch_and_explicit(&lm_state_closed_ids, ~bit_of(id), memory_order_release);
  return true;
}

unsigned lm_state_find_common(lm_token token) {
  lm_assert(token != LM_TOKEN_NONE && !(token & LM_TOKEN_COUNTED));
  uint64_t closed = atomic_load_explicit(&lm_state_closed_ids, memory_order_acquire);
  unsigned id = lm_state_common_first(token), usable = 0;
  for (unsigned n = atomic_load_explicit(&looks, memory_order_relaxed); n > 0; n--) {
    lm_token now = atomic_load_explicit(&lm_state_common[id], memory_order_relaxed);
    if (now == token && !is_in(closed, id)) return id;
    if (!usable && (now == LM_TOKEN_NONE || is_in(lm_state_vacant_ids(), id))) usable = id;
    id = id < LM_COMMON_TOKENS ? id + 1 : FIRST_ID;
  }
  if (!usable) return 0;
  bool is_ours = is_in(closed, usable) ? put_in_vacant(usable, token)
                                       : lm_state_claim_place(&lm_state_common[usable], token);
  /* If another thread took the place first, the search begins again. */
  return is_ours ? usable : lm_state_find_common(token);
}

/* ---- Making places vacant ----------------------------------------------------------------- */

/* Places closed by lm_state_close_ids that lm_state_vacate_ids has yet to make vacant or open. Used
 * by the one thread that makes ids vacant. */
static uint64_t closing;

uint64_t lm_state_idle_ids(lm_state_wanted_fn *is_wanted) {
  lm_assert(is_wanted);
  lm_state_vacate_ids(0); /* a fork may have lost the thread that closed some */
  /* A place that is still closed is vacant, or a thread is putting a token there. */
  uint64_t closed = atomic_load_explicit(&lm_state_closed_ids, memory_order_acquire), idle = 0;
  unsigned usable = 0;
  for (unsigned id = FIRST_ID; id <= LM_COMMON_TOKENS; id++) {
    lm_token token = atomic_load_explicit(&lm_state_common[id], memory_order_relaxed);
    if (is_in(closed, id) || token == LM_TOKEN_NONE) usable++;
    else if (!is_wanted(token)) idle |= bit_of(id);
  }
  return usable < LM_COMMON_TOKENS / 2 ? idle : 0;
}

void lm_state_close_ids(uint64_t ids) {
  lm_assert(!(ids & ~ALL_IDS) && !closing);
  closing = ids;
  /* Relaxed: the caller waits for a grace, which orders it before whatever follows. */
  atomic_fetch_or_explicit(&lm_state_closed_ids, ids, memory_order_relaxed);
}

void lm_state_vacate_ids(uint64_t ids) {
  lm_assert(!(ids & ~closing));
  /* Release pairs with the acquire of put_in_vacant: whoever takes the place finds that no state
   * has the id. */
  atomic_fetch_or_explicit(&vacant, ids, memory_order_release);
  atomic_fetch_and_explicit(&lm_state_closed_ids, ids | ~closing, memory_order_relaxed);
  closing = 0;
  if (ids) atomic_store_explicit(&looks, LOOKS_AFTER_VACATING, memory_order_relaxed);
}

uint64_t lm_state_vacant_ids(void) { return atomic_load_explicit(&vacant, memory_order_relaxed); }

bool lm_state_common_is_valid(void) {
  uint64_t closed = atomic_load_explicit(&lm_state_closed_ids, memory_order_acquire);
  if ((lm_state_vacant_ids() | closing) & ~closed || closed & ~ALL_IDS) return false;
  if (atomic_load_explicit(&lm_state_common[0], memory_order_relaxed) != LM_TOKEN_NONE)
    return false;
  for (unsigned id = FIRST_ID; id <= LM_COMMON_TOKENS; id++) {
    lm_token token = atomic_load_explicit(&lm_state_common[id], memory_order_relaxed);
    if (token & LM_TOKEN_COUNTED || (token == LM_TOKEN_NONE && is_in(closed, id))) return false;
  }
  return true;
}

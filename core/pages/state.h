/* state.h - the state of an object: one byte. It tells whether the object is used, and where its
 * token stands.
 *
 *   state = kind + id      kind: the two high bits; id: the six low bits
 *
 *   kind   FREE     the object is unused in its span
 *          CACHED   it waits in a thread's bin or in the depot of its central list
 *          LIVE     the host uses it
 *   id     0                           the object never had a token
 *          1 to LM_COMMON_TOKENS       the token stands in lm_state_common, which all spans share
 *          LM_ID_PALETTE and more      it stands in the palette of the span (23 places)
 *          LM_ID_COUNTED               it is the counted token of the palette
 *          LM_ID_WIDE                  it stands in the wide table of the span: one token for each
 *                                      object, made when the palette is full
 *
 * The token of an object names its site and generation (plan/site.h). A token is counted when the
 * engine counts the live bytes of its tag. Most programs have few sites, and most spans hold
 * objects of few sites. So most objects cost one byte, and an allocation with a common token need
 * not look at the span. A free changes the kind alone. So a second free of an object can still tell
 * which token the object had.
 *
 * The fast path of free refuses these live states:
 *   COUNTED        the token is the counted token of the palette
 *   COUNTED_WIDE   the token is a counted one in the wide table
 *   BUSY           another thread is replacing the token
 *   SAMPLED + id   the id as in LIVE + id; the profiler knows the object (engine/sample.h)
 *
 * Law of a state:
 *   The id of a LIVE state is not 0, except in BUSY. The id of a SAMPLED state is neither 0 nor
 *   LM_ID_COUNTED.
 *   An id names a place whose token does not change: in a palette for as long as the span exists,
 *   in the common table for as long as any state has the id.
 *   The token of a LIVE or SAMPLED state is not counted. The token of a COUNTED or COUNTED_WIDE
 *   state is counted.
 *   One token may stand at two places of a palette, or of the common table.
 *
 * Law of the common table: no state has the id of a vacant place; a vacant place is closed.
 *
 * Every generation of the policy has tokens of its own, and no request is decided under an old
 * generation. So before a new policy goes live, heap/token_ids.c makes the places of old tokens
 * vacant. It closes a place, so that no state gets the id after a grace (os/thread.h). If no LIVE
 * state has the id by then, it takes the id out of the states of dead objects. The token stays
 * readable in its vacant place until a new token is put there.
 *
 * Memory that held states stays readable for ever and changes by atomic stores alone. A thread that
 * reads the states of a span while the span ends reads wrong bytes at worst. The version of the
 * span's entry in the page map then tells the thread not to use them. */
#ifndef LM_STATE_H
#define LM_STATE_H

#include <stdatomic.h>

#include "pages/class.h"

typedef uint32_t lm_token;           /* made in plan/site.c */
#define LM_TOKEN_COUNTED 0x80000000u /* this bit: the token is counted */
enum { LM_TOKEN_NONE = 0 };          /* no token */

typedef uint8_t lm_state;
typedef _Atomic(lm_state) lm_state_cell; /* where the state of one object is stored */

enum {
  LM_STATE_IDS = 64,                    /* number of ids */
  LM_COMMON_TOKENS = 38,                /* places of the common table */
  LM_ID_PALETTE = LM_COMMON_TOKENS + 1, /* the first id of a palette */
  LM_ID_WIDE = LM_STATE_IDS - 1,
  LM_ID_COUNTED = LM_STATE_IDS - 2, /* only in states of dead objects: a live one is COUNTED */
  LM_PALETTE_TOKENS = LM_ID_COUNTED - LM_ID_PALETTE
};
enum {
  LM_STATE_FREE = 0,                                       /* and 63 more, by id */
  LM_STATE_LIVE = LM_STATE_IDS,                            /* and 63 more, by id */
  LM_STATE_COMMON_LAST = LM_STATE_LIVE + LM_COMMON_TOKENS, /* last live one, common token */
  LM_STATE_CACHED = 2 * LM_STATE_IDS,                      /* and 63 more, by id */
  LM_STATE_COUNTED = 3 * LM_STATE_IDS,
  LM_STATE_COUNTED_WIDE = LM_STATE_COUNTED + LM_ID_COUNTED,
  LM_STATE_SAMPLED = LM_STATE_COUNTED, /* and 62 more, by id: the other values above COUNTED */
  LM_STATE_BUSY = LM_STATE_LIVE
};

/* Stands in memory right before the states of a span.
 *
 * Law: a token of the palette never changes once it is not LM_TOKEN_NONE. Only the last place, of
 * LM_ID_COUNTED, holds a counted token. The span has `count` objects, and its cell number `count`
 * is always FREE, as an end for searches. */
typedef struct lm_palette {
  /* Tokens by id, from LM_ID_PALETTE to LM_ID_COUNTED. Set by a relaxed compare and exchange: the
   * value alone matters, nothing else is read through it. */
  _Atomic(lm_token) owner[LM_PALETTE_TOKENS + 1];
  /* The wide table, by index of the object; NULL: none yet. The release of the exchange that sets
   * it (states.c) pairs with the acquire of those who read it: the table is zeroed. */
  _Atomic(_Atomic(lm_token) *) wide;
  uint32_t class_, count; /* size class and number of the objects; constant while the span exists */
  /* Number of FREE objects, and where the next search for one begins: heap/central.c, under its
   * lock. */
  uint32_t free, hint;
} __attribute__((aligned(LM_CACHE_LINE))) lm_palette;

/* Returns the palette of the span whose states begin at `cells`. */
LM_INLINE lm_palette *lm_state_palette(lm_state_cell *cells) { return (lm_palette *)cells - 1; }

/* The common tokens by id; [0] is LM_TOKEN_NONE. Relaxed: lm_state_closed_ids orders a change. */
extern _Atomic(lm_token) lm_state_common[LM_COMMON_TOKENS + 1]
    __attribute__((visibility("hidden")));
/* A bit for each closed place of the common table. No new state gets the id of a closed place.
 * Cleared with release when a token has been put in the place; lm_state_is_closed acquires. */
extern _Atomic uint64_t lm_state_closed_ids __attribute__((visibility("hidden")));

LM_INLINE bool lm_state_is_closed(unsigned id) {
  /* Acquire pairs with the release of put_in_vacant (state.c): an open place has its token. */
  return atomic_load_explicit(&lm_state_closed_ids, memory_order_acquire) >> id & 1;
}

/* Returns where the token of a LIVE state stands whose id is of the palette. */
LM_INLINE _Atomic(lm_token) *lm_state_palette_token(lm_state_cell *cells, lm_state live) {
  lm_assert(live >= LM_STATE_LIVE + LM_ID_PALETTE && live <= LM_STATE_LIVE + LM_ID_COUNTED);
  return &lm_state_palette(cells)->owner[(size_t)live - LM_STATE_LIVE - LM_ID_PALETTE];
}
/* Returns where the token of a LIVE state stands whose id is of the palette or common. */
LM_INLINE _Atomic(lm_token) *lm_state_plain_token(lm_state_cell *cells, lm_state live) {
  return live <= LM_STATE_COMMON_LAST ? &lm_state_common[live - LM_STATE_LIVE]
                                      : lm_state_palette_token(cells, live);
}

LM_INLINE bool lm_state_is_free(lm_state m) { return m < LM_STATE_LIVE; }
LM_INLINE bool lm_state_is_cached(lm_state m) {
  return m >= LM_STATE_CACHED && m < LM_STATE_COUNTED;
}
/* Returns whether the object is live and its token is counted. */
LM_INLINE bool lm_state_is_counted(lm_state m) {
  return m == LM_STATE_COUNTED || m == LM_STATE_COUNTED_WIDE;
}
/* Returns whether the object is live and the profiler may know it. */
LM_INLINE bool lm_state_is_sampled(lm_state m) {
  return m > LM_STATE_COUNTED && m != LM_STATE_COUNTED_WIDE;
}
/* Returns whether the object is live; true for BUSY too. */
LM_INLINE bool lm_state_is_live(lm_state m) {
  return m >= LM_STATE_LIVE && m / LM_STATE_IDS != LM_STATE_CACHED / LM_STATE_IDS;
}
/* Returns whether the object is live, and its free need only change the state: not COUNTED,
 * COUNTED_WIDE, SAMPLED or BUSY. One signed comparison. */
LM_INLINE bool lm_state_is_plain(lm_state m) { return (int8_t)m > (int8_t)LM_STATE_LIVE; }
_Static_assert(LM_STATE_LIVE + LM_STATE_IDS == LM_STATE_CACHED && LM_STATE_CACHED == INT8_MAX + 1,
               "as signed numbers, plain states are the greatest");
/* Returns whether the state in a cell is CACHED. One signed comparison with memory: as signed
 * numbers, CACHED states are the least. Relaxed. */
LM_INLINE bool lm_state_is_cached_at(const lm_state_cell *at) {
  return lm_load(int8_t, at) < (int8_t)LM_STATE_COUNTED;
}
/* Makes a CACHED state FREE and keeps its id. Relaxed; the caller is the only one to write it. */
LM_INLINE void lm_state_end_cached(lm_state_cell *at) {
  lm_assert(lm_state_is_cached_at(at));
  lm_add_relaxed((lm_state *)at, LM_STATE_CACHED);
}
/* Returns the state of a live large block with this token. The token itself stands in the block's
 * entry of the page map. */
LM_INLINE lm_state lm_state_of_large(lm_token token) {
  return token & LM_TOKEN_COUNTED ? LM_STATE_COUNTED : LM_STATE_LIVE + LM_ID_WIDE;
}
/* Returns the CACHED state that follows a live one (not BUSY) when the object is freed. */
LM_INLINE lm_state lm_state_when_freed(lm_state m) {
  if (m == LM_STATE_COUNTED) return LM_STATE_CACHED + LM_ID_COUNTED;
  if (m == LM_STATE_COUNTED_WIDE) return LM_STATE_CACHED + LM_ID_WIDE;
  return (lm_state)(LM_STATE_CACHED + m % LM_STATE_IDS);
}
/* Returns the state of a live object that gets another token, from its state with the new token:
 * an object that was SAMPLED stays so, unless the new token is counted. */
LM_INLINE lm_state lm_state_keep_sampled(lm_state was, lm_state now) {
  bool is_plain = lm_state_is_plain(now);
  return is_plain && lm_state_is_sampled(was) ? LM_STATE_SAMPLED + now % LM_STATE_IDS : now;
}

/* Returns a number below `places`: where the search for a token begins. Multiplicative hashing
 * (Knuth, "The Art of Computer Programming" 3, 6.4). */
LM_INLINE unsigned lm_state_hash(lm_token token, unsigned places) {
  return ((token * 0x9e3779b1u) >> 16) * places >> 16;
}
/* Returns the common id that a search for the token tries first. */
LM_INLINE unsigned lm_state_common_first(lm_token token) {
  return 1 + lm_state_hash(token, LM_COMMON_TOKENS);
}
/* Returns the palette id that a search for the token tries first. */
LM_INLINE unsigned lm_state_palette_first(lm_token token) {
  return LM_ID_PALETTE + lm_state_hash(token, LM_ID_COUNTED - LM_ID_PALETTE);
}
/* Returns a guess at the id of a token: common if the token stands at its first place there. */
LM_INLINE uint8_t lm_state_hint(lm_token token) {
  bool is_common = lm_load(lm_token, &lm_state_common[lm_state_common_first(token)]) == token;
  return (uint8_t)(is_common ? lm_state_common_first(token) : lm_state_palette_first(token));
}

/* Returns whether `place` holds the token, or was empty and holds it now. Any thread may call it.
 * Relaxed: the value alone matters. */
LM_INLINE bool lm_state_claim_place(_Atomic(lm_token) *place, lm_token token) {
  lm_assert(token != LM_TOKEN_NONE);
  lm_token now = atomic_load_explicit(place, memory_order_relaxed);
  if (now == token) return true;
  return now == LM_TOKEN_NONE &&
         (atomic_compare_exchange_strong_explicit(place, &now, token, memory_order_relaxed,
                                                  memory_order_relaxed) ||
          now == token);
}

/* Returns the common id of a token. A token without one gets a place if a place near its first is
 * empty or vacant. Returns 0 if there is none. Any thread, inside an active section. */
unsigned lm_state_find_common(lm_token token);

/* The next four work on sets of common ids, a bit for each. Only one thread at a time may make ids
 * vacant. */
typedef bool lm_state_wanted_fn(lm_token token);
/* Returns the ids whose token `is_wanted` refuses; 0 while half or more of all places are empty or
 * vacant. First opens what an earlier thread closed and did not finish, as a fork can cause. */
uint64_t lm_state_idle_ids(lm_state_wanted_fn *is_wanted);
/* Closes these places: after the next grace no state gets one of the ids. */
void lm_state_close_ids(uint64_t ids);
/* Makes the places of `ids` vacant and opens all others that lm_state_close_ids closed. The caller
 * knows that no state has one of the ids. */
void lm_state_vacate_ids(uint64_t ids);
/* Returns the ids of vacant places. Any thread. */
uint64_t lm_state_vacant_ids(void);
/* Returns whether the law of the common table holds, as far as the table shows it. No other thread
 * may change the table during the call. */
bool lm_state_common_is_valid(void);

/* Returns where the token stands that a state of the object at `index` names; NULL: nowhere. */
LM_INLINE _Atomic(lm_token) *lm_state_token_ref(lm_state_cell *cells, size_t index,
                                                lm_state state) {
  lm_palette *palette = lm_state_palette(cells);
  unsigned id = state % LM_STATE_IDS;
  if (state == LM_STATE_COUNTED) id = LM_ID_COUNTED;
  if (state == LM_STATE_COUNTED_WIDE) id = LM_ID_WIDE;
  if (id <= LM_COMMON_TOKENS) return &lm_state_common[id];
  if (id != LM_ID_WIDE) return &palette->owner[id - LM_ID_PALETTE];
  /* Acquire pairs with the exchange of wide_of (states.c): the table is zeroed. */
  _Atomic(lm_token) *wide = atomic_load_explicit(&palette->wide, memory_order_acquire);
  return wide ? &wide[index] : NULL;
}

/* Returns the token that a state of the object at `index` names. The span must not end during the
 * call. */
LM_INLINE lm_token lm_state_token(lm_state_cell *cells, size_t index, lm_state state) {
  _Atomic(lm_token) *at = lm_state_token_ref(cells, index, state);
  return at ? atomic_load_explicit(at, memory_order_relaxed) : LM_TOKEN_NONE;
}

#endif

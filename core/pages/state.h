/* state.h - one byte an object: what it is, and whose it is or was.
 *
 *   mark = state + id, two bits and six
 *
 *   state  FREE in its span; CACHED in a thread's bin or its class's depot; LIVE with a caller
 *   id     0: nobody's so far; else where its token is: up to LM_COMMON_TOKENS, among those that
 *          are common to all spans, whichever asked first; then in the span's palette, with room
 *          for 23 more, and (LM_ID_COUNTED) for one that the engine counts, the first of these to
 *          come; or (LM_ID_WIDE) in a table of a token for each object, which a span gets when
 *          there is no more room in its palette
 *
 * Most programs have few sites, and most of the spans of others few, so most objects cost a byte,
 * and who allocates one need not look where a common token is. Because only the state changes when
 * one is freed, a second free can still tell whose it was. Three marks stand for themselves, and
 * the fast free refuses them: COUNTED, live with the counted token of the palette; COUNTED_WIDE,
 * live with a counted one of the table; and BUSY, live while its token is being replaced.
 *
 * Law: a LIVE mark's id is not 0. A mark whose id is not 0 names a token that stays in its place as
 *      long as the span is one, and a common one as long as any mark has the id. Equal tokens may
 *      stand in a palette twice, or be common twice. No LIVE mark names a token that is counted,
 *      and COUNTED and COUNTED_WIDE no other.
 *
 * Each generation has tokens of its own, and nobody decides on those of one gone by. So before a
 * swap their common places become vacant (token_ids.c): one is closed first, so that after a grace
 * no mark gets its id; then, if no LIVE mark has it, it is taken from the dead ones. Its token
 * stays there, to be read, until another moves in.
 *
 * Law of places: no mark has the id of a vacant one; what is vacant is closed.
 *
 * Memory of marks never becomes anything but marks or zeros, so that one who reads a span just as
 * it goes reads no nonsense. */
#ifndef LM_STATE_H
#define LM_STATE_H

#include <stdatomic.h>

#include "pages/class.h"

typedef uint32_t lm_token;           /* site.h */
#define LM_TOKEN_COUNTED 0x80000000u /* frees of it are counted by the engine */
enum { LM_TOKEN_NONE = 0 };          /* a token that is none */

typedef uint8_t lm_state;
typedef _Atomic(lm_state) lm_state_cell;

enum {
  LM_STATE_IDS = 64,
  LM_COMMON_TOKENS = 38,
  LM_ID_PALETTE = LM_COMMON_TOKENS + 1, /* the first of a palette's */
  LM_ID_WIDE = LM_STATE_IDS - 1,
  LM_ID_COUNTED = LM_STATE_IDS - 2, /* of dead objects only */
  LM_PALETTE_TOKENS = LM_ID_COUNTED - LM_ID_PALETTE
};
enum {
  LM_STATE_FREE = 0,
  LM_STATE_LIVE = LM_STATE_IDS,
  LM_STATE_COMMON_LAST = LM_STATE_LIVE +
                         LM_COMMON_TOKENS, /* the greatest live one of a common token */
  LM_STATE_CACHED = 2 * LM_STATE_IDS,
  LM_STATE_COUNTED = 3 * LM_STATE_IDS,
  LM_STATE_COUNTED_WIDE = LM_STATE_COUNTED + LM_ID_COUNTED,
  LM_STATE_BUSY = LM_STATE_LIVE
};

/* A cached object and its mark. Who takes it need not find out where that is: a store whose address
 * is known late holds up what is read after it. */
typedef struct lm_cached_object {
  void *p;
  lm_state_cell *mark;
} lm_cached_object;

/* Stands before the marks of a span. */
typedef struct lm_palette {
  _Atomic(lm_token) owner[LM_PALETTE_TOKENS + 1]; /* by id, from LM_ID_PALETTE to LM_ID_COUNTED */
  _Atomic(_Atomic(lm_token) *) wide;
  uint32_t class_, count; /* of the span */
  uint32_t free, hint;    /* marks that are FREE, and where to look for one: central.c */
} __attribute__((aligned(LM_CACHE_LINE))) lm_palette;

LM_INLINE lm_palette *lm_state_palette(lm_state_cell *side) { return (lm_palette *)side - 1; }

/* By id; [0] is nobody's. */
extern _Atomic(lm_token) lm_state_common[LM_COMMON_TOKENS + 1]
    __attribute__((visibility("hidden")));

/* Where the token of a plain mark is that is in a palette; or among the common ones as well. */
LM_INLINE _Atomic(lm_token) *lm_state_palette_token(lm_state_cell *side, lm_state live) {
  return &lm_state_palette(side)->owner[(size_t)live - LM_STATE_LIVE - LM_ID_PALETTE];
}
LM_INLINE _Atomic(lm_token) *lm_state_plain_token(lm_state_cell *side, lm_state live) {
  return live <= LM_STATE_COMMON_LAST ? &lm_state_common[live - LM_STATE_LIVE]
                                      : lm_state_palette_token(side, live);
}

LM_INLINE bool lm_state_is_free(lm_state m) { return m < LM_STATE_LIVE; }
LM_INLINE bool lm_state_is_cached(lm_state m) {
  return m >= LM_STATE_CACHED && m < LM_STATE_COUNTED;
}
LM_INLINE bool lm_state_is_counted(lm_state m) {
  return m == LM_STATE_COUNTED || m == LM_STATE_COUNTED_WIDE;
}
LM_INLINE bool lm_state_is_live(lm_state m) {
  return (m >= LM_STATE_LIVE && m < LM_STATE_CACHED) || lm_state_is_counted(m);
}
/* Live, and nothing but a free to do about it: one signed comparison. */
LM_INLINE bool lm_state_is_plain(lm_state m) { return (int8_t)m > (int8_t)LM_STATE_LIVE; }
_Static_assert(LM_STATE_LIVE + LM_STATE_IDS == LM_STATE_CACHED && LM_STATE_CACHED == INT8_MAX + 1,
               "as signed numbers, plain marks are the greatest");
/* The same of CACHED ones, which as signed numbers are the least, and become FREE. */
LM_INLINE bool lm_state_is_cached_at(const lm_state_cell *at) {
  return lm_load(int8_t, at) < (int8_t)LM_STATE_COUNTED;
}
LM_INLINE void lm_state_end_cached(lm_state_cell *at) {
  lm_add_relaxed((lm_state *)at, LM_STATE_CACHED);
}
/* Of a live large block with this token, which stands beside it. */
LM_INLINE lm_state lm_state_of_large(lm_token token) {
  return token & LM_TOKEN_COUNTED ? LM_STATE_COUNTED : LM_STATE_LIVE + LM_ID_WIDE;
}
/* What becomes of a live mark when its object is freed. */
LM_INLINE lm_state lm_state_when_freed(lm_state m) {
  if (m == LM_STATE_COUNTED) return LM_STATE_CACHED + LM_ID_COUNTED;
  return m > LM_STATE_COUNTED ? LM_STATE_CACHED + LM_ID_WIDE : (lm_state)(m + LM_STATE_IDS);
}

/* Where a search for a token begins, among the common ones and in a palette. */
LM_INLINE unsigned lm_state_hash(lm_token token, unsigned places) {
  return ((token * 0x9e3779b1u) >> 16) * places >> 16;
}
LM_INLINE unsigned lm_state_common_first(lm_token token) {
  return 1 + lm_state_hash(token, LM_COMMON_TOKENS);
}
LM_INLINE unsigned lm_state_palette_first(lm_token token) {
  return LM_ID_PALETTE + lm_state_hash(token, LM_ID_COUNTED - LM_ID_PALETTE);
}
/* The id to try first. */
LM_INLINE uint8_t lm_state_hint(lm_token token) {
  bool is_common = lm_load(lm_token, &lm_state_common[lm_state_common_first(token)]) == token;
  return (uint8_t)(is_common ? lm_state_common_first(token) : lm_state_palette_first(token));
}

/* Once, before a module above it hooks its own locks: those are taken first. */
void lm_states_start(void);

/* The marks of a span of a class, after its palette, all FREE and nobody's, with one more at the
 * end that always is; NULL when there is no memory. And back. */
lm_state_cell *lm_states_alloc(unsigned class_, uint32_t count);
void lm_states_free(lm_state_cell *side);
/* Gives back what is unused, or was since the last tick (decay.h). Bytes that are held. */
void lm_states_trim(void);
bool lm_states_decay(uint32_t *most);
size_t lm_states_held(void);
/* Bytes of the range that it has at all. */
size_t lm_states_taken(void);
bool lm_states_are_valid(void);

/* Sets of common ids, a bit for each; one thread at a time does all this. Those whose token is not
 * wanted, if fewer than half of all are to be had; 0 else. */
typedef bool lm_states_wanted_fn(lm_token token);
uint64_t lm_states_idle_ids(lm_states_wanted_fn *is_wanted);
/* From the next grace on no mark gets one of these. */
void lm_states_close_ids(uint64_t ids);
/* Of those, no mark has these: they become vacant, and the others open. */
void lm_states_vacate_ids(uint64_t ids);
uint64_t lm_states_vacant_ids(void);

/* The mark for an object at `index` with a token, which is noted where it has to be; 0 when there
 * is no memory for that. *hint is an id to try first, and becomes the one that fitted, if any. */
lm_state lm_state_assign(lm_state_cell *side, size_t index, lm_token token, uint8_t *hint);

/* Where the token stands that a mark of an object names; NULL: nowhere. */
LM_INLINE _Atomic(lm_token) *lm_state_token_ref(lm_state_cell *side, size_t index, lm_state mark) {
  lm_palette *palette = lm_state_palette(side);
  unsigned id = mark < LM_STATE_COUNTED ? mark % LM_STATE_IDS : LM_ID_WIDE;
  if (mark == LM_STATE_COUNTED) id = LM_ID_COUNTED;
  if (id <= LM_COMMON_TOKENS) return &lm_state_common[id];
  if (id != LM_ID_WIDE) return &palette->owner[id - LM_ID_PALETTE];
  _Atomic(lm_token) *wide = atomic_load_explicit(&palette->wide, memory_order_acquire);
  return wide ? &wide[index] : NULL;
}

/* The token itself, of a span that stays as it is. */
LM_INLINE lm_token lm_state_token(lm_state_cell *side, size_t index, lm_state mark) {
  _Atomic(lm_token) *at = lm_state_token_ref(side, index, mark);
  return at ? atomic_load_explicit(at, memory_order_relaxed) : LM_TOKEN_NONE;
}

#endif

/* site.h - call-sites and tags, interned; and tokens, which name a site and a generation.
 *
 * token = COUNTED(1) | generation slot (11) | site index (20), site indices from 2, so that 0 and 1
 * mean no live object (pool.h). Generation slots are reused once no live block carries them. */
#ifndef LM_SITE_H
#define LM_SITE_H

#include "plan/plan.h"

enum { LM_SITE_BITS = 20, LM_GENERATION_SLOTS = 2048, LM_TAG_MAX = 255 };

/* What a site gets under one generation. Two of them, by the parity of the generation: a load
 * writes the other one for every site and then flips lm_site_generation once. */
typedef struct lm_site_plan {
  _Atomic(const lm_plan *) plan;
  _Atomic lm_token token;
} lm_site_plan;

/* What a fast allocation reads stands first, in one cache line. */
struct loam_site {
  lm_site_plan now[2];
  uint64_t key; /* with the class and the epoch, the key of its decisions: engine/decision.h */
  uint32_t index;
  _Atomic uint32_t counted; /* a plan of the tag reads req.live: tokens carry LM_TOKEN_COUNTED */
  _Atomic int64_t *live;    /* see the law below; shared by the sites of the tag */
  uint32_t tag_index;       /* sites of one tag share it */
  _Atomic(loam_handler *) handler; /* of loam_handler_of, or NULL */
  loam_where where;                /* interned strings, never NULL */
  uint64_t hash;                   /* of where */
  loam_site *next_of_tag;          /* under the lock of sites */
} __attribute__((aligned(LM_CACHE_LINE)));

#define LM_SITE_KEY_BIT ((uint64_t)1 << 55)
#define LM_SITE_KEY(index) (LM_SITE_KEY_BIT + (uint64_t)(index)*LM_DECISION_STRIDE)

/* Law: *live, and what threads have not told yet (live.h), is the sum of the usable bytes of the
 * tag's live blocks whose token carries LM_TOKEN_COUNTED. Every block of a counted tag does
 * (engine.c): there it is the tag's live bytes. */

/* Number of the live generation; its low bit picks loam_site.now. Release at the swap, acquire by
 * readers. */
extern _Atomic uint64_t lm_site_generation;

enum { LM_SITE_CHUNK = 256, LM_SITE_FIRST = 2 };
extern _Atomic(loam_site *) lm_site_chunk[] __attribute__((visibility("hidden")));

loam_site *lm_site_at(uint32_t index); /* NULL if there is none */
uint32_t lm_site_count(void);          /* indices are 2 .. count + 1 */
loam_site *lm_site_default(void);      /* tag "", never NULL: */
extern loam_site lm_site_empty;
uint32_t lm_site_tag_count(void);

/* The site of a description, made if it is new; NULL if the tag is too long, or there is no memory,
 * or the thread is inside loam and the site is new. */
loam_site *lm_site_get(const loam_where *where);

/* Called for each new site before anyone else can find it, without a lock; the policy layer
 * compiles its plan. Until set, new sites have the default plan. The site is among lm_site_at's
 * already. So if a loader walks the sites and swaps under a lock that the hook takes as well, then
 * it has seen the site, or the hook comes after the swap and compiles for what is live then. */
extern void (*_Atomic lm_site_on_new)(loam_site *site);

/* Once, before anything is loaded: gives the default plan, now served from bins, to the sites that
 * have the bare one. */
void lm_site_start(void);

/* Marks every site of the tag, those to come as well. False if no block of the tag can be live that
 * was stamped before: the tag was marked, or nobody has got a site of it yet. */
bool lm_site_begin_counting(loam_site *site);

lm_token lm_site_token(const loam_site *site, uint32_t generation_slot);
LM_INLINE uint32_t lm_site_token_index(lm_token t) { return t & ((1u << LM_SITE_BITS) - 1); }
LM_INLINE uint32_t lm_site_token_slot(lm_token t) {
  return (t >> LM_SITE_BITS) & (LM_GENERATION_SLOTS - 1);
}
/* The site of a token that a block has, or had. */
LM_INLINE loam_site *lm_site_of(lm_token token) {
  uint32_t at = lm_site_token_index(token) - LM_SITE_FIRST;
  loam_site *chunk = atomic_load_explicit(&lm_site_chunk[at / LM_SITE_CHUNK], memory_order_relaxed);
  return lm_likely(at) ? &chunk[at % LM_SITE_CHUNK] : &lm_site_empty;
}

/* The token for a block of the site from now on, for one made of it. */
LM_INLINE lm_token lm_site_token_now(const loam_site *site, lm_token token) {
  bool counted = atomic_load_explicit(&site->counted, memory_order_relaxed);
  return counted ? token | LM_TOKEN_COUNTED : token & ~LM_TOKEN_COUNTED;
}

/* Adds to what is counted for a token, or takes from it. */
LM_INLINE void lm_site_add_live(lm_token token, int64_t bytes) {
  if (token & LM_TOKEN_COUNTED)
    atomic_fetch_add_explicit(lm_site_of(token)->live, bytes, memory_order_relaxed);
}

/* Slot of a generation, taken at its swap, and back. When slots run out, those that no live block
 * carries are found by walking live memory; if there is none, the newest is used for both. */
uint32_t lm_site_generation_slot(uint64_t generation);
extern _Atomic uint64_t lm_site_generations[] __attribute__((visibility("hidden")));
LM_INLINE uint64_t lm_site_generation_of(uint32_t slot) {
  return atomic_load_explicit(&lm_site_generations[slot], memory_order_relaxed);
}

/* Whether something has not been told of since the live generation began; now it has. `told` is 0
 * at first. */
LM_INLINE bool lm_site_generation_first(_Atomic uint64_t *told) {
  uint64_t now = atomic_load_explicit(&lm_site_generation, memory_order_relaxed) + 1;
  return atomic_load_explicit(told, memory_order_relaxed) != now &&
         atomic_exchange_explicit(told, now, memory_order_relaxed) != now;
}

#endif

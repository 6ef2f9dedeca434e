/* site.h - call sites and their tags, interned; and tokens, which name a site and a generation.
 *
 * A site is a place in a program that requests memory: tag, file, function, module and line. A
 * policy gives each site a plan. A generation is the time in which one loaded policy is live.
 *
 * A token has 32 bits: LM_TOKEN_COUNTED (1 bit), a generation slot (11 bits) and the index of a
 * site (20 bits). Site indices begin at 2; so 0 and 1 can never be the token of a live object
 * (state.h). A generation slot is a small number that stands for a generation; it is reused when no
 * live block carries it any more. */
#ifndef LM_SITE_H
#define LM_SITE_H

#include "plan/plan.h"

enum { LM_SITE_BITS = 20, LM_GENERATION_SLOTS = 2048, LM_TAG_MAX = 255 };

/* The plan and the token of a site under one generation. A site has two of them, indexed by the
 * parity of the generation: to load a policy, the entry that is not live is written for every
 * site, and then lm_site_generation is raised by one. */
typedef struct lm_site_plan {
  _Atomic(const lm_plan *) plan;
  _Atomic lm_token token; /* for blocks of the site that this plan decides */
} lm_site_plan;

/* A site; it is never freed. The fields that the fast path of an allocation reads stand first, in
 * one cache line. Fields other than atomics and next_of_tag never change once the site can be
 * found.
 *
 * Law: index is the place of the site in lm_site_chunk, from LM_SITE_FIRST on, and
 *      key == LM_SITE_KEY(index).
 *      Sites have one tag_index if and only if they have one tag; then `live` is equal too.
 *      *live, together with the bytes that threads have not added yet (live_bytes.h), is the sum of
 *      the usable bytes of the tag's live blocks whose token has LM_TOKEN_COUNTED. Every block of a
 *      counted tag has it: there the sum is the live bytes of the tag. */
struct loam_site {
  lm_site_plan now[2];
  uint64_t key; /* the site's part of the keys of its decisions: engine/decision.h */
  uint32_t index;
  _Atomic uint32_t counted;        /* 1: a plan of the tag reads req.live, so tokens are counted */
  _Atomic int64_t *live;           /* shared by the sites of the tag */
  uint32_t tag_index;              /* from 1 */
  _Atomic(loam_handler *) handler; /* set by loam_handler_of; NULL: none */
  loam_where where;                /* interned strings, never NULL */
  uint64_t hash;                   /* of where */
  loam_site *next_of_tag;          /* the next site of the tag; under the lock of site.c */
} __attribute__((aligned(LM_CACHE_LINE)));

/* The part of a decision's key that names a site: a bit that marks keys of sites, and the index
 * times the distance of two sites' entries. */
#define LM_SITE_KEY_BIT ((uint64_t)1 << 55)
#define LM_SITE_KEY(index) (LM_SITE_KEY_BIT + (uint64_t)(index)*LM_DECISION_STRIDE)

/* The number of the live generation. Its low bit is the index into loam_site.now. The loader swaps
 * generations with a release store, which pairs with the acquire of lm_decision_live_plan. */
extern _Atomic uint64_t lm_site_generation;

/* Sites stand in chunks of LM_SITE_CHUNK; the chunk pointers never change once they are set. */
enum { LM_SITE_CHUNK = 256, LM_SITE_FIRST = 2 };
extern _Atomic(loam_site *) lm_site_chunk[] __attribute__((visibility("hidden")));

/* Returns the site with an index; NULL if there is none. */
loam_site *lm_site_at(uint32_t index);
/* Returns the number of sites. Their indices are LM_SITE_FIRST to LM_SITE_FIRST + count - 1. */
uint32_t lm_site_count(void);
/* The default site: its tag is "", and its index LM_SITE_FIRST. */
extern loam_site lm_site_empty;
/* Returns the number of different tags. */
uint32_t lm_site_tag_count(void);

/* Returns the site of a description, made if it is new. NULL, with error words, if the tag is
 * longer than LM_TAG_MAX bytes; and, if the site is new, when there is no memory or when the thread
 * is inside loam (lm_thread_inside_begin). Finding a site takes no lock. */
loam_site *lm_site_get(const loam_where *where);

/* Called for each new site, without a lock, before lm_site_get can find the site; the policy layer
 * compiles its plan. While it is NULL, new sites have the default plan. lm_site_at already finds
 * the site. So let a loader walk all sites and swap generations under a lock, and let this function
 * take that lock too: then either the loader has seen the site, or this function runs after the
 * swap and compiles the plan for the new generation. Whoever sets it stores with release; make in
 * site.c loads with acquire. */
extern void (*_Atomic lm_site_on_new)(loam_site *site);

/* Prepares sites, once, before any policy is loaded: registers with fork, and gives every site that
 * has lm_plan_bare the default plan, which thread caches serve. */
void lm_site_start(void);

/* Makes every site of the site's tag counted, later ones too. Returns false if no live block of the
 * tag can have a token without LM_TOKEN_COUNTED: the tag was counted already, or no thread has got
 * a site of the tag yet. */
bool lm_site_begin_counting(loam_site *site);

/* Returns the token for a block of the site in the generation that has this slot. */
lm_token lm_site_token(const loam_site *site, uint32_t generation_slot);
/* The index of a token's site, and the token's generation slot. */
LM_INLINE uint32_t lm_site_token_index(lm_token t) { return t & ((1u << LM_SITE_BITS) - 1); }
LM_INLINE uint32_t lm_site_token_slot(lm_token t) {
  return (t >> LM_SITE_BITS) & (LM_GENERATION_SLOTS - 1);
}
/* Returns the site of a token that a live or freed block has. */
LM_INLINE loam_site *lm_site_of(lm_token token) {
  lm_assert(lm_site_token_index(token) >= LM_SITE_FIRST);
  uint32_t at = lm_site_token_index(token) - LM_SITE_FIRST;
  loam_site *chunk = atomic_load_explicit(&lm_site_chunk[at / LM_SITE_CHUNK], memory_order_relaxed);
  return lm_likely(at) ? &chunk[at % LM_SITE_CHUNK] : &lm_site_empty;
}

/* Returns the token with LM_TOKEN_COUNTED set as the site requires now. */
LM_INLINE lm_token lm_site_token_now(const loam_site *site, lm_token token) {
  bool counted = atomic_load_explicit(&site->counted, memory_order_relaxed);
  return counted ? token | LM_TOKEN_COUNTED : token & ~LM_TOKEN_COUNTED;
}

/* Adds bytes to the live bytes of a token's tag, if the token is counted; `bytes` is below 0 for a
 * free. Relaxed: the sum publishes no other data. */
LM_INLINE void lm_site_add_live(lm_token token, int64_t bytes) {
  if (token & LM_TOKEN_COUNTED)
    atomic_fetch_add_explicit(lm_site_of(token)->live, bytes, memory_order_relaxed);
}

/* Returns the slot of a generation, taken if the generation has none yet. When all slots are taken,
 * the slots that no live block carries are freed, by a walk over live memory. If there are none,
 * the generation shares the slot of the live generation. Takes a lock. */
uint32_t lm_site_generation_slot(uint64_t generation);
/* Returns the generation of a slot. */
extern _Atomic uint64_t lm_site_generations[] __attribute__((visibility("hidden")));
LM_INLINE uint64_t lm_site_generation_of(uint32_t slot) {
  lm_assert(slot < LM_GENERATION_SLOTS);
  return atomic_load_explicit(&lm_site_generations[slot], memory_order_relaxed);
}

/* Returns true once in each generation for each variable: if several threads call it together, one
 * of them gets true. So an event can be sent once for each generation. *last is 0 at first; then it
 * is the number of the generation of the last call, plus 1. Relaxed: it publishes no other data. */
LM_INLINE bool lm_site_generation_first(_Atomic uint64_t *last) {
  uint64_t now = atomic_load_explicit(&lm_site_generation, memory_order_relaxed) + 1;
  return atomic_load_explicit(last, memory_order_relaxed) != now &&
         atomic_exchange_explicit(last, now, memory_order_relaxed) != now;
}

/* Returns whether lm_site_generation_first would return false now. */
LM_INLINE bool lm_site_generation_is_noted(const _Atomic uint64_t *last) {
  uint64_t now = atomic_load_explicit(&lm_site_generation, memory_order_relaxed) + 1;
  return atomic_load_explicit(last, memory_order_relaxed) == now;
}

/* Returns whether all sites and the tables that find them obey their laws (site.c). For tests:
 * takes the lock of site.c, and time in proportion to the number of sites. */
bool lm_site_is_valid(void);

#endif

/* site.h - call-sites and tags, interned; and tokens, which name a site and a generation.
 *
 * token = SLOW(1) | generation slot (11) | site index (20), site indices from 2, so that 0 and 1
 * mean no live object (pool.h). Generation slots are reused once no live block carries them. */
#ifndef LM_SITE_H
#define LM_SITE_H

#include "plan.h"

enum { LM_SITE_BITS = 20, LM_GENERATION_SLOTS = 2048, LM_TAG_MAX = 255 };

/* What a site gets under one generation. Two of them, by the parity of the generation: a load
 * writes the other one for every site and then flips lm_generation once. */
typedef struct lm_decision {
  _Atomic(const lm_plan *) plan;
  _Atomic lm_token token;
} lm_decision;

struct loam_site {
  lm_decision now[2];
  uint32_t index;
  uint32_t tag_index;       /* sites of one tag share it */
  _Atomic int64_t *live;    /* bytes live under the tag, shared by its sites; kept once `counted` */
  _Atomic uint32_t counted; /* a plan of the tag reads req.live: tokens carry LM_TOKEN_SLOW */
  _Atomic uint32_t pending; /* not compiled yet: the script was busy with the asking thread */
  loam_where where;         /* interned strings, never NULL */
  loam_handler *handler;    /* of loam_handler_of, or NULL */
};

/* Number of the live generation; its low bit picks lm_site.now. Release at the swap, acquire here. */
extern _Atomic uint64_t lm_generation;

loam_site *lm_site_at(uint32_t index);  /* NULL if there is none */
uint32_t lm_site_count(void);           /* indices are 2 .. count + 1 */
loam_site *lm_site_default(void);       /* tag "", never NULL once memory could be had at all */
uint32_t lm_site_tag_count(void);

/* Called for each new site before anyone else can see it; the policy layer compiles its plan. Until
 * set, new sites have the default plan. */
extern void (*lm_site_on_new)(loam_site *site);

lm_token lm_token_make(const loam_site *site, uint32_t generation_slot);
LM_INLINE uint32_t lm_token_site(lm_token t) { return t & ((1u << LM_SITE_BITS) - 1); }
LM_INLINE uint32_t lm_token_slot(lm_token t) { return (t >> LM_SITE_BITS) & (LM_GENERATION_SLOTS - 1); }

/* Slot of a generation, taken at its swap (walks live memory when slots run out), and back. */
uint32_t lm_generation_slot(uint64_t generation);
uint64_t lm_generation_of(uint32_t slot);

#endif

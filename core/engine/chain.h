/* chain.h - a request on its way along a chain of strategies. */
#ifndef LM_CHAIN_H
#define LM_CHAIN_H

#include "device/request.h"
#include "engine/record.h"

typedef struct lm_order {
  lm_thread *t;
  lm_request r;    /* r.site is not NULL */
  lm_token token;  /* of the site, in the generation of the plan that names the chain */
  const char *why; /* why the last member that was tried could not serve */
  size_t takes;    /* bytes of the block that the member made and its limit refused; 0: none */
} lm_order;

/* Serves the order by the first member of its chain that can. `was` is the block that a realloc
 * gives another size, which then moves unless the member can resize it; NULL for a new block. */
void *lm_chain_serve(lm_order *o, const lm_record *was);

/* Gives the block *b the order's size where it is, or by moving its pages, if the strategy made the
 * block and can do that; *b is then the new block. False: nothing was done. */
bool lm_resize(lm_order *o, lm_strategy *s, lm_record *b);

#endif

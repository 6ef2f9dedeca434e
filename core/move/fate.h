/* fate.h - what a live block would get if it were asked for now.
 *
 * Of a block it is known whose it is and how much may be used of it, not the request: how much was
 * asked for within its class or page, with which alignment, whether zeroed. Where the plan's answer
 * hangs on that, the block is left alone if one of the answers is what it has. The node of a
 * request is the one that the block's memory is on. */
#ifndef LM_FATE_H
#define LM_FATE_H

#include "engine/engine.h"

/* Right where it is; to be another strategy's; neither, for a reason. */
typedef enum lm_fate_kind { LM_FATE_RIGHT, LM_FATE_OTHER, LM_FATE_REFUSED } lm_fate_kind;

typedef struct lm_fate {
  lm_fate_kind kind;
  lm_strategy *strategy; /* OTHER: the first of the chain that has room for it */
  const char *why;       /* REFUSED */
} lm_fate;

extern const char lm_fate_keeps_handler[], lm_fate_keeps_kind[];

/* Inside an operation. `token`, `strategy` and `size` as of an object or a foreign block; `base`
 * where it begins. */
lm_fate lm_fate_of(const lm_object *object);
/* Whether the pool's object is a block that a handler got from loam, and so the handler's. */
bool lm_fate_is_nested(const lm_object *object);

#endif

/* redecide.h - what a live block would get if it were asked for now.
 *
 * Of a block it is known whose it is and how much may be used of it, not the request: how much was
 * asked for within its class or page, with which alignment, whether zeroed. Where the plan's answer
 * hangs on that, the block is left alone if one of the answers is what it has. The node of a
 * request is the one that the block's memory is on. */
#ifndef LM_REDECIDE_H
#define LM_REDECIDE_H

#include "engine/engine.h"

/* Right where it is; to be another strategy's; neither, for a reason. */
typedef enum lm_redecide_kind {
  LM_REDECIDE_RIGHT,
  LM_REDECIDE_OTHER,
  LM_REDECIDE_REFUSED
} lm_redecide_kind;

typedef struct lm_redecision {
  lm_redecide_kind kind;
  lm_strategy *strategy; /* OTHER: the first of the chain that has room for it */
  const char *why;       /* REFUSED */
} lm_redecision;

extern const char lm_redecide_keeps_handler[], lm_redecide_keeps_kind[];

/* Inside an operation. `token`, `strategy` and `size` as of an object or a foreign block; `base`
 * where it begins. */
lm_redecision lm_redecide(const lm_object *object);
/* Whether the pool's object is a block that a handler got from loam, and so the handler's. */
bool lm_redecide_is_nested(const lm_object *object);

#endif

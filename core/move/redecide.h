/* redecide.h - which strategy a live block would get if it were requested now.
 *
 * loam remembers the site and the usable size of a block, but not its request: the exact size
 * within the size class or page, the alignment, and whether it was to be zero. So the plan is
 * evaluated for each request that may have been made and that the plan can tell apart. If the
 * current strategy of the block is one of the answers, the block is right. If the other answers
 * differ, the block is refused. The NUMA node of the request is taken to be the node that the
 * memory of the block is on. */
#ifndef LM_REDECIDE_H
#define LM_REDECIDE_H

#include "engine/engine.h"

typedef enum lm_redecide_kind {
  LM_REDECIDE_RIGHT,  /* the block has the strategy that the policy gives it now */
  LM_REDECIDE_OTHER,  /* the block should get another strategy */
  LM_REDECIDE_REFUSED /* the block should not be moved, for a reason */
} lm_redecide_kind;

typedef struct lm_redecision {
  lm_redecide_kind kind;
  lm_strategy *strategy; /* OTHER: the first member of the chain with room for the block;
                            RIGHT: the block's own; REFUSED: NULL */
  const char *why;       /* REFUSED: the reason, in static words; else NULL */
} lm_redecision;

/* Reasons that survey.c gives too. */
extern const char lm_redecide_keeps_handler[], lm_redecide_keeps_kind[];

/* Decides for one live block: an object of a pool, or a provided block (provided.h) whose token,
 * strategy, usable size and start *object has. Call in an active section. */
lm_redecision lm_redecide(const lm_object *object);

/* Returns whether the object is memory that a handler got from loam for a block of its own. Then
 * the handler owns it, and it is never moved. */
bool lm_redecide_is_nested(const lm_object *object);

/* Returns whether the fields obey the comments in lm_redecision. */
bool lm_redecision_is_valid(const lm_redecision *r);

#endif

/* plan_text.h - a plan as text, for the environment: `loam run` has compiled the policy for the
 * program that it becomes, and for those that this starts.
 *
 * Carried are plans that are every site's, that ask nothing but the request, and end in memory that
 * every machine has: what else a load asks, the machine or Lua, it has to ask where it happens. */
#ifndef LM_PLAN_TEXT_H
#define LM_PLAN_TEXT_H

#include "plan/plan.h"

/* Bytes of what is written and of its text, at most: that is in the environment of every child. */
enum { LM_PLAN_TEXT_BYTES = 4096, LM_PLAN_TEXT_SIZE = 4096, LM_PLAN_TEXT_NAME = 64 };

typedef struct lm_plan_text {
  char policy[LM_PLAN_TEXT_NAME]; /* its name */
  bool applies_live;
  const void *image; /* in `bytes`; its strategies are interned */
  size_t size;
  _Alignas(8) unsigned char bytes[LM_PLAN_TEXT_BYTES];
} lm_plan_text;

/* False if it is none that can be carried. */
bool lm_plan_text_write(const lm_plan *plan, const char *policy, bool applies_live,
                        char text[LM_PLAN_TEXT_SIZE]);
/* False if it is not what lm_plan_text_write of this version writes. The image is yet to be
 * checked. */
bool lm_plan_text_read(const char *text, lm_plan_text *out);

#endif

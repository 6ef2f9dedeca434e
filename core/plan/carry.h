/* carry.h - a plan as text, for the environment: `loam run` has compiled the policy for the program
 * that it becomes, and for those that this starts.
 *
 * Carried are plans that are every site's, that ask nothing but the request, and end in memory that
 * every machine has: what else a load asks, the machine or Lua, it has to ask where it happens. */
#ifndef LM_CARRY_H
#define LM_CARRY_H

#include "plan/plan.h"

/* Bytes of what is written and of its text, at most: that is in the environment of every child. */
enum { LM_CARRY_BYTES = 4096, LM_CARRY_TEXT = 4096, LM_CARRY_NAME = 64 };

typedef struct lm_carried {
  char policy[LM_CARRY_NAME]; /* its name */
  bool applies_live;
  const void *image; /* in `bytes`; its strategies are interned */
  size_t size;
  _Alignas(8) unsigned char bytes[LM_CARRY_BYTES];
} lm_carried;

/* False if it is none that can be carried. */
bool lm_carry_write(const lm_plan *plan, const char *policy, bool applies_live,
                    char text[LM_CARRY_TEXT]);
/* False if it is not what lm_carry_write of this version writes. The image is yet to be checked. */
bool lm_carry_read(const char *text, lm_carried *out);

#endif

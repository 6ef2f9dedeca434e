/* plan_text.h - a plan as text, for the environment.
 *
 * `loam run` compiles a policy before it becomes the program, and passes the plan to the program
 * and to the processes that the program starts. They need no Lua to read it.
 *
 * Only some plans can be written as text: plans that are equal for all sites, that read no gauge
 * but the live bytes, and whose strategies every machine can provide. For all other policies a
 * process must ask the machine, or Lua, when it loads the policy; so it compiles the policy
 * itself. */
#ifndef LM_PLAN_TEXT_H
#define LM_PLAN_TEXT_H

#include "plan/plan.h"

/* The most bytes of a plan and of its text. They are small because the text is in the environment
 * of every child process. */
enum { LM_PLAN_TEXT_BYTES = 4096, LM_PLAN_TEXT_SIZE = 4096, LM_PLAN_TEXT_NAME = 64 };

typedef struct lm_plan_text {
  char policy[LM_PLAN_TEXT_NAME]; /* the name of the policy */
  bool applies_live;              /* the policy has apply = "live" */
  const void *image; /* the image for lm_plan_make; in `bytes`. Its strategies are interned */
  size_t size;       /* bytes of the image */
  _Alignas(8) unsigned char bytes[LM_PLAN_TEXT_BYTES];
} lm_plan_text;

/* Writes a plan and the name of its policy as text. Returns false if the plan cannot be written. */
bool lm_plan_text_write(const lm_plan *plan, const char *policy, bool applies_live,
                        char text[LM_PLAN_TEXT_SIZE]);
/* Reads a text. Returns false if lm_plan_text_write of this version of loam cannot have written it.
 * lm_plan_make still has to check the image. *out points into itself, so it must not be copied. */
bool lm_plan_text_read(const char *text, lm_plan_text *out);

#endif

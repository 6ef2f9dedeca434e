/* plan_text_write.h - writes a plan as text for the environment of a program that the command
 * starts (plan/plan_text.h). */
#ifndef LM_PLAN_TEXT_WRITE_H
#define LM_PLAN_TEXT_WRITE_H

#include "plan/plan_text.h"

/* Writes the plan that every site gets, with the policy's name. False: the plan cannot be carried.
 * It has too many strategies or is too long, reads more than the request, or has a strategy that
 * not every machine can serve. */
bool lm_plan_text_write(const lm_plan *plan, const char *policy, bool applies_live,
                        char text[LM_PLAN_TEXT_SIZE]);

#endif

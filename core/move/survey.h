/* survey.h - what a job (rebalance.h) wants for the live blocks of an extent: for each block, to
 * move it, to leave it because it is right, or to refuse it for a reason. */
#ifndef LM_SURVEY_H
#define LM_SURVEY_H

#include "heap/pool.h"
#include "move/move_report.h"
#include "move/rebalance.h"

/* The sums over the objects of one extent.
 *
 * Law: objects == movers + others, and right <= others.
 *      `to` is not NULL if and only if there are movers; `kept` if and only if right > 0. */
typedef struct lm_survey {
  uint32_t objects;  /* live objects */
  uint32_t movers;   /* objects that should get another strategy, or advice */
  uint32_t others;   /* objects that are right, refused, or not of the tag of the job */
  uint32_t right;    /* objects that are right */
  bool differ;       /* the movers want different strategies */
  lm_strategy *to;   /* the strategy that the movers want; one of them if they differ */
  lm_strategy *kept; /* the strategy of the objects that are right */
} lm_survey;

/* Returns whether the fields obey the law above. */
bool lm_survey_is_valid(const lm_survey *s);

/* Reasons of refusals that rebalance.c gives too. */
extern const char lm_survey_refused_before[];

/* Decides for each live object of the extent that begins at `slot`. Call in an active section. */
lm_survey lm_survey_extent(const lm_job_order *order, uint32_t slot);

/* Decides again, and adds each object that is right or refused to the report. If `instead` is not
 * NULL, adds the movers too: as refused, for the reason `instead`. Call in an active section. */
void lm_survey_report(const lm_job_order *order, uint32_t slot, const char *instead,
                      lm_move_report *report);

/* Adds each provided block (provided.h) and each block of device pools to the report; such blocks
 * are never moved. Call in an active section. */
void lm_survey_provided(const lm_job_order *order, lm_move_report *report);

#endif

/* live_limits.h - the limits that the live policy sets, for figures.
 *
 * Strategies that differ only in their limit are one family (lm_strategy.family). A policy whose
 * limit is edited names another member of the family; figures show the limit of the member that the
 * live policy names. */
#ifndef LM_LIVE_LIMITS_H
#define LM_LIVE_LIMITS_H

#include "heap/strategy.h"

/* Law: member[f] is 0, or 1 + the id of a member of family f that the live policy names and that
 *      has a limit; 0 also if f is the id of no family. n is the length of `member`. */
typedef struct lm_live_limits {
  uint32_t *member;
  uint32_t n;
} lm_live_limits;

/* Returns whether the law holds, as far as the strategies show it: each member has a limit and is
 * of its family. */
bool lm_live_limits_is_valid(const lm_live_limits *limits);

/* A limit and the part of it that is used. All fields are 0 if the live policy sets no limit. */
typedef struct lm_limit_use {
  uint64_t limit, used; /* bytes; `used` by all processes if the limit is shared */
  uint64_t own;         /* bytes that this process uses */
  uint64_t peak;        /* the most that `used` was: lm_strategy_limit_peak */
  const char *shared;   /* the name under which processes share it; NULL: they do not */
} lm_limit_use;

/* Reads the plans of all sites under the live policy. Without memory, no strategy has a limit in
 * *out. Not called while the calling thread is active. The caller calls lm_live_limits_finish. */
void lm_live_limits_read(lm_live_limits *out);

/* Returns the live limit of the family of a strategy, and how much of it is used now. */
lm_limit_use lm_live_limits_of(const lm_live_limits *limits, uint32_t strategy);

/* Frees what lm_live_limits_read allocated. */
void lm_live_limits_finish(lm_live_limits *limits);

#endif

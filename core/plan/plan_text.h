/* plan_text.h - a plan as text in the environment of a program.
 *
 * `loam run` compiles the policy and puts its plan into the environment. The program that it then
 * executes, and the programs that this program starts, read the plan and need not compile again.
 *
 * Only some plans can be passed on in this way: the plan is for all sites, it reads only the
 * request and the live bytes of its tag, and every machine can serve its strategies. Any other
 * policy is compiled by each process for itself. */
#ifndef LM_PLAN_TEXT_H
#define LM_PLAN_TEXT_H

#include "heap/strategy.h"
#include "plan/plan.h"

/* The most bytes of a plan, and the most characters of its text with the NUL: every child has the
 * text in its environment. */
enum { LM_PLAN_TEXT_BYTES = 4096, LM_PLAN_TEXT_SIZE = 4096, LM_PLAN_TEXT_NAME = 64 };

/* A plan that was read from text. */
typedef struct lm_plan_text {
  char policy[LM_PLAN_TEXT_NAME]; /* the name of the policy */
  bool applies_live;
  const void *image; /* the plan's image (plan.h), in `bytes`; it names strategies by their ids */
  size_t size;       /* bytes of the image */
  _Alignas(8) unsigned char bytes[LM_PLAN_TEXT_BYTES];
} lm_plan_text;

/* The bytes of a text begin with this head. The head is followed by `members` strategies, and these
 * by the plan's image, which names strategies by their index in the list. */
enum { LM_PLAN_TEXT_MAGIC = 0x6c637931, LM_PLAN_TEXT_MEMBERS = 16 };

typedef struct lm_plan_text_head {
  uint32_t magic, members;
  char policy[LM_PLAN_TEXT_NAME];
  uint64_t applies_live;
} lm_plan_text_head;

typedef struct lm_plan_text_member {
  char name[LM_STRATEGY_NAME];
  uint64_t align, limit;
  uint32_t guard;
  uint8_t kind, huge, zero, prefault;
} lm_plan_text_member;

/* Tells whether strategies of this kind exist on every machine. */
LM_INLINE bool lm_plan_text_has_kind(lm_kind kind) {
  return kind == LM_KIND_HOST || kind == LM_KIND_SYSTEM || kind == LM_KIND_DENY;
}

/* Reads a plan from text and interns its strategies. Returns false if the text was not written by
 * lm_plan_text_write (cli/plan_text_write.h) of this version. Does not check the image:
 * lm_plan_make does that. */
bool lm_plan_text_read(const char *text, lm_plan_text *out);

#endif

/* plan_text.h - a plan as text, for the environment: `loam run` has compiled the policy for the
 * program that it becomes, and for those that this starts.
 *
 * Carried are plans that are every site's, that ask nothing but the request, and end in memory that
 * every machine has: what else a load asks, the machine or Lua, it has to ask where it happens. */
#ifndef LM_PLAN_TEXT_H
#define LM_PLAN_TEXT_H

#include "heap/strategy.h"
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

/* False: the text was not written by lm_plan_text_write (cli/plan_text_write.h) of this version.
 * The image is not checked yet: lm_plan_make does that. */
bool lm_plan_text_read(const char *text, lm_plan_text *out);

/* Writes the policy image of a plan that came as text in `carried`; `text` is the policy's text, of
 * `length` bytes. Returns the image in lm_metadata memory, which the caller frees; NULL if
 * `carried` cannot be used or there is no memory. */
void *lm_plan_text_image(const char *carried, const char *text, size_t length, size_t *size);

#endif

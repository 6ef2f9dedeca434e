/* bad_free.c - tells the host of a free or realloc that is wrong: which block it was, and whose. */
#include "engine/bad_free.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "engine/record.h"
#include "engine/stats.h"
#include "heap/freed_log.h"
#include "os/error.h"

enum { WORDS = 1024 };

/* Returns whether a token names a site. */
static bool is_known(lm_token token) { return (token & ~LM_TOKEN_COUNTED) != LM_TOKEN_NONE; }

/* Counts a bad free and tells the host, with the tag of the scope in which it happened, if any.
 * `token` names the site of the block; LM_TOKEN_NONE if loam does not know the block. */
static void LM_PRINTF(3, 4) tell(lm_token token, const void *p, const char *format, ...) {
  char words[WORDS];
  const loam_site *under = lm_thread_self ? lm_thread_self->site : NULL;
  uint64_t generation = is_known(token) ? lm_site_generation_of(lm_site_token_slot(token))
                                        : atomic_load(&lm_site_generation);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(words, sizeof words, format, arguments);
  va_end(arguments);
  lm_stats_bump(&lm_stats_bad_frees);
  lm_error_event(LOAM_EVENT_BAD_FREE, generation, p, "%s%s%s%s", words,
                 under ? "; freed under tag '" : "", under ? under->where.tag : "",
                 under ? "'" : "");
}

static const char *bytes_word(size_t n) { return n == 1 ? "byte" : "bytes"; }

/* Describes a block, live or freed, in at most WORDS bytes. */
static const char *describe(char *words, const lm_object *object) {
  lm_token token = object->token;
  const char *name = lm_strategy_at(object->strategy)->desc.name;
  if (is_known(token))
    snprintf(words, WORDS, "%zu %s of tag '%s' and strategy '%s', decided by generation %" PRIu64,
             object->size, bytes_word(object->size), lm_site_of(token)->where.tag, name,
             lm_site_generation_of(lm_site_token_slot(token)));
  else
    snprintf(words, WORDS, "%zu %s of strategy '%s'", object->size, bytes_word(object->size), name);
  return words;
}

/* `what` was called with p, which points into this object; `state` is "block" or "freed block". */
static void tell_object(const char *what, const void *p, const lm_object *object,
                        const char *state) {
  lm_assert((const char *)p >= (const char *)object->base);
  char whose[WORDS], into[48] = "";
  size_t offset = (size_t)((const char *)p - (const char *)object->base);
  if (offset) snprintf(into, sizeof into, "%zu %s into ", offset, bytes_word(offset));
  tell(object->token, p, "%s of %p, %sa %s of %s", what, p, into, state, describe(whose, object));
}

/* `what` was done to the address `at`, which is beside this block. `of` is the word between the
 * two, and `p` the pointer of the event. */
static void tell_beside(const char *what, const char *of, const char *at, const void *p,
                        const lm_object *object) {
  char whose[WORDS];
  const char *start = object->base, *end = start + object->size;
  lm_assert(at < start || at >= end);
  size_t distance = (size_t)(at < start ? start - at : at - end);
  tell(object->token, p, "%s %s %p, %zu %s %s a block of %s", what, of, (const void *)at, distance,
       bytes_word(distance), at < start ? "before" : "past the end of", describe(whose, object));
}

void lm_bad_free_wrong(const char *what, const void *p) {
  lm_record b;
  lm_object object;
  if (lm_record_find(p, &b))
    tell_object(what, p, &(lm_object){ b.base, b.size, b.token, b.strategy, true, NULL }, "block");
  else if (lm_freed_log_find(p, &object)) tell_object(what, p, &object, "freed block");
  else if (lm_pool_find_beside(p, &object)) tell_beside(what, "of", p, p, &object);
  else
    tell(LM_TOKEN_NONE, p, "%s of %p, %s", what, p,
         lm_pool_owns(p) ? "where no block lives: it was freed before"
                         : "which loam did not allocate");
}

void lm_bad_free_double(const void *p, lm_object *object) {
  if (!object->size && !lm_freed_log_find(p, object))
    tell(LM_TOKEN_NONE, p, "double free of %p", p);
  else if (object->base == p) tell_object("double free", p, object, "block");
  else tell_object("free", p, object, "freed block");
}

void lm_bad_free_damaged(const void *p, const lm_object *object) {
  lm_assert(p == object->base);
  tell_beside("write", "at", object->damage, p, object);
}

void lm_bad_free_check_size(const void *p, size_t size) {
  lm_record b;
  lm_object object;
  char whose[WORDS];
  lm_assert(p && size != SIZE_MAX);
  if (!lm_record_find(p, &b) || b.base != p) return;
  bool is_pool = b.maker == LM_PROVIDER_HEAP && lm_pool_find(p, &object);
  if (is_pool ? lm_pool_fits_request(&object, size) : size <= b.size) return;
  object = (lm_object){ b.base, b.size, b.token, b.strategy, true, NULL };
  tell(b.token, p, "free of %p with size %zu: the block has %s", p, size, describe(whose, &object));
}

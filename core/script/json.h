/* json.h - text that grows, and JSON written into it; memory from lm_metadata_alloc alone.
 *
 *   lm_json out = { 0 };
 *   lm_json_open(&out, NULL, '{');
 *   lm_json_text(&out, "tag", tag);
 *   lm_json_close(&out, '}');
 *   ... out.text, out.length ...
 *   lm_json_finish(&out);
 *
 * A key of NULL makes a member of an array, or the outermost value. When memory runs out, `failed`
 * is set, what follows is ignored and the text is whatever fitted: ask at the end. */
#ifndef LM_JSON_H
#define LM_JSON_H

#include "os/base.h"

/* Zeroed, it is empty. */
typedef struct lm_json {
  char *text; /* terminated once anything was written */
  size_t length, capacity;
  bool failed;
  bool follows; /* the next value needs a comma before it */
} lm_json;

void lm_json_finish(lm_json *json);

void lm_json_raw(lm_json *json, const char *text, size_t length);
void lm_json_open(lm_json *json, const char *key, char bracket);
void lm_json_close(lm_json *json, char bracket);
/* NULL is null. Bytes that are not UTF-8 are taken for Latin-1. */
void lm_json_text(lm_json *json, const char *key, const char *text);
void lm_json_text_n(lm_json *json, const char *key, const char *text, size_t length);
void lm_json_int(lm_json *json, const char *key, int64_t n);
void lm_json_uint(lm_json *json, const char *key, uint64_t n);
void lm_json_bool(lm_json *json, const char *key, bool value);

/* Whether all of it is well-formed UTF-8. */
bool lm_json_is_utf8(const char *text, size_t length);

#endif

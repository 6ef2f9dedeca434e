/* json.h - text that grows, and JSON written into it. Its memory comes from lm_metadata_alloc,
 * never from malloc.
 *
 *   lm_json out = { 0 };
 *   lm_json_open(&out, NULL, '{');
 *   lm_json_text(&out, "tag", tag);
 *   lm_json_close(&out, '}');
 *   ... out.text, out.length ...
 *   lm_json_finish(&out);
 *
 * A key of NULL writes a member of an array, or the outermost value. When memory runs out, `failed`
 * is set, later calls do nothing, and the text holds what fitted. So the caller checks `failed`
 * once, at the end. One thread at a time may use an lm_json. */
#ifndef LM_JSON_H
#define LM_JSON_H

#include "os/base.h"

/* A zeroed lm_json is empty and ready for use.
 * Law: text is NULL and length = capacity = 0; or length < capacity and text[length] = 0. */
typedef struct lm_json {
  char *text; /* NULL until something is written, then ended by a NUL */
  size_t length, capacity;
  bool failed;
  bool follows; /* the next value needs a comma before it */
} lm_json;

/* Frees the text and makes the lm_json empty again. */
void lm_json_finish(lm_json *json);

/* Appends `length` bytes without a change: no comma, no escape sequences. */
void lm_json_raw(lm_json *json, const char *text, size_t length);
/* Shortens the text to its first `length` bytes. */
void lm_json_cut(lm_json *json, size_t length);
/* Opens an object or an array; `bracket` is '{' or '['. */
void lm_json_open(lm_json *json, const char *key, char bracket);
/* Closes an object or an array; `bracket` is '}' or ']'. */
void lm_json_close(lm_json *json, char bracket);
/* Writes a string, or null if `text` is NULL. A byte that is not part of UTF-8 is read
 * as Latin-1. */
void lm_json_text(lm_json *json, const char *key, const char *text);
/* Writes a string of `length` bytes, which may contain NUL. */
void lm_json_text_n(lm_json *json, const char *key, const char *text, size_t length);
void lm_json_int(lm_json *json, const char *key, int64_t n);
void lm_json_uint(lm_json *json, const char *key, uint64_t n);
void lm_json_bool(lm_json *json, const char *key, bool value);

/* Tells whether all bytes of the text are well-formed UTF-8. */
bool lm_json_is_utf8(const char *text, size_t length);

/* Checks the law of lm_json. */
bool lm_json_is_valid(const lm_json *json);

#endif

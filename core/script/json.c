/* json.c - text that grows, and JSON written into it. */
#include "script/json.h"

#include <stdio.h>
#include <string.h>

#include "heap/pool.h"

void lm_json_finish(lm_json *json) {
  lm_metadata_free(json->text);
  *json = (lm_json){ 0 };
}

bool lm_json_is_valid(const lm_json *json) {
  if (!json->text) return !json->length && !json->capacity;
  return json->length < json->capacity && !json->text[json->length];
}

/* Makes room for `more` bytes and a NUL. False: there is no memory, now or in an earlier call. */
static bool reserve(lm_json *json, size_t more) {
  lm_assert(lm_json_is_valid(json));
  if (json->failed) return false;
  size_t needed = json->length + more + 1;
  if (needed <= json->capacity) return true;
  size_t capacity = json->capacity ? json->capacity : 256;
  while (capacity < needed) capacity *= 2;
  char *text = lm_metadata_realloc(json->text, capacity);
  if (!text) {
    json->failed = true;
    return false;
  }
  json->text = text;
  json->capacity = capacity;
  return true;
}

void lm_json_raw(lm_json *json, const char *text, size_t length) {
  if (!reserve(json, length)) return;
  memcpy(json->text + json->length, text, length);
  json->length += length;
  json->text[json->length] = 0;
  lm_assert(lm_json_is_valid(json));
}

void lm_json_cut(lm_json *json, size_t length) {
  lm_assert(length <= json->length);
  json->length = length;
  if (json->text) json->text[length] = 0;
}

/* The length of the well-formed UTF-8 sequence at `s`, of which `left` bytes may be read; 0: there
 * is none. */
static size_t utf8_length(const unsigned char *s, size_t left) {
  lm_assert(left > 0);
  size_t n = s[0] < 0x80                   ? 1
             : s[0] >= 0xc2 && s[0] < 0xe0 ? 2
             : (s[0] & 0xf0) == 0xe0       ? 3
             : s[0] >= 0xf0 && s[0] < 0xf5 ? 4
                                           : 0;
  if (!n || n > left) return 0;
  for (size_t i = 1; i < n; i++)
    if ((s[i] & 0xc0) != 0x80) return 0;
  if (s[0] == 0xe0 && s[1] < 0xa0) return 0; /* a longer form than the character needs */
  if (s[0] == 0xed && s[1] > 0x9f) return 0; /* a surrogate */
  if (s[0] == 0xf0 && s[1] < 0x90) return 0;
  if (s[0] == 0xf4 && s[1] > 0x8f) return 0; /* after the last character of Unicode */
  return n;
}

bool lm_json_is_utf8(const char *text, size_t length) {
  const unsigned char *s = (const unsigned char *)text;
  for (size_t i = 0, n; i < length; i += n) {
    n = utf8_length(s + i, length - i);
    if (!n) return false;
  }
  return true;
}

/* Writes the escape sequence of a character below 256. */
static void escape(lm_json *json, unsigned char c) {
  static const char plain[] = "\"\\\b\f\n\r\t", letter[] = "\"\\bfnrt";
  const char *known = c ? strchr(plain, c) : NULL;
  char text[8];
  int n = known ? snprintf(text, sizeof text, "\\%c", letter[known - plain])
                : snprintf(text, sizeof text, "\\u%04x", c);
  lm_json_raw(json, text, (size_t)n);
}

/* Tells whether the sequence of `n` bytes is a control character from U+0080 to U+009F. JSON allows
 * them, but terminals obey them, and some texts come from other users. */
static bool is_control(const unsigned char *s, size_t n) {
  return n == 2 && s[0] == 0xc2 && s[1] < 0xa0;
}

static void write_quoted(lm_json *json, const char *text, size_t length) {
  const unsigned char *s = (const unsigned char *)text;
  lm_json_raw(json, "\"", 1);
  for (size_t i = 0; i < length;) {
    size_t n = utf8_length(s + i, length - i);
    if (!n || s[i] < ' ' || s[i] == '"' || s[i] == '\\' || s[i] == 0x7f) {
      escape(json, s[i++]);
    } else if (is_control(s + i, n)) {
      escape(json, s[i + 1]); /* the second byte of a control character */
      i += n;
    } else {
      lm_json_raw(json, text + i, n);
      i += n;
    }
  }
  lm_json_raw(json, "\"", 1);
}

/* Writes the comma and the key before a value, where they are needed. */
static void write_key(lm_json *json, const char *key) {
  if (json->follows) lm_json_raw(json, ",", 1);
  json->follows = true;
  if (!key) return;
  write_quoted(json, key, strlen(key));
  lm_json_raw(json, ":", 1);
}

void lm_json_open(lm_json *json, const char *key, char bracket) {
  lm_assert(bracket == '{' || bracket == '[');
  write_key(json, key);
  lm_json_raw(json, &bracket, 1);
  json->follows = false;
}

void lm_json_close(lm_json *json, char bracket) {
  lm_assert(bracket == '}' || bracket == ']');
  lm_json_raw(json, &bracket, 1);
  json->follows = true;
}

void lm_json_text_n(lm_json *json, const char *key, const char *text, size_t length) {
  write_key(json, key);
  write_quoted(json, text, length);
}

void lm_json_text(lm_json *json, const char *key, const char *text) {
  if (text) {
    lm_json_text_n(json, key, text, strlen(text));
  } else {
    write_key(json, key);
    lm_json_raw(json, "null", 4);
  }
}

void lm_json_int(lm_json *json, const char *key, int64_t n) {
  char text[24];
  write_key(json, key);
  lm_json_raw(json, text, (size_t)snprintf(text, sizeof text, "%lld", (long long)n));
}

void lm_json_uint(lm_json *json, const char *key, uint64_t n) {
  char text[24];
  write_key(json, key);
  lm_json_raw(json, text, (size_t)snprintf(text, sizeof text, "%llu", (unsigned long long)n));
}

void lm_json_bool(lm_json *json, const char *key, bool value) {
  write_key(json, key);
  lm_json_raw(json, value ? "true" : "false", value ? 4 : 5);
}

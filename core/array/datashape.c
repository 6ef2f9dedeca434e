/* datashape.c - makes types from text in the datashape language: a recursive-descent parser.
 *
 * There is one function for each rule of this grammar. "#" begins a comment, which ends with the
 * line.
 *
 *   type      = dimension "*" type | value
 *   dimension = number | "var" | "fixed" [ "[" number "]" ]
 *   value     = "?" value | "option" "[" value "]" | "pointer" "[" type "]" | struct | tuple | name
 *             | "string" "[" number [ "," encoding ] "]" | "string" "[" encoding "]"
 *             | "complex" "[" ( "float32" | "float64" ) "]"
 *             | ( "datetime" | "timedelta" ) "[" [ "unit" "=" ] unit "]"
 *             | "decimal" "[" [ "precision" "=" ] number [ "," [ "scale" "=" ] number ] "]"
 *             | "categorical" "[" argument { "," argument } "]"
 *   argument  = [ ( "categories" | "values" ) "=" ] "[" quoted { "," quoted } [ "," ] "]"
 *             | [ "type" "=" ] "string" | "ordered" "=" ( "True" | "False" )
 *   unit      = "'s'" | "'ms'" | "'us'" | "'ns'"
 *   encoding  = a quoted name of UTF-8
 *   struct    = "{" field { "," field } [ "," ] "}"
 *   field     = ( name | quoted ) ":" type
 *   tuple     = "(" type { "," type } [ "," ] ")"
 *
 * A tuple becomes a struct whose fields have the names "0", "1" and so on. A categorical has a list
 * of values, and may have one argument of each other form. */
#include "array/type.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "os/error.h"

/* ---- Tokens */

/* The kinds of token. UNCLOSED is a quoted name without its closing quote. */
typedef enum token_kind { END, NUMBER, NAME, QUOTED, UNCLOSED, PUNCTUATION } token_kind;

/* Law: `kind`, `at` and `length` describe the next token: all `length` bytes from `at` on are in
 * `text`. The length is 0 if and only if the kind is END; then `at` is the terminator of the text.
 * depth <= LM_TYPE_DEPTH. */
typedef struct parser {
  const char *text; /* the whole text, with a terminator */
  token_kind kind;
  const char *at;
  size_t length;
  unsigned depth; /* how many parse_type calls are active */
} parser;

/* Returns whether the law of a parser holds, as far as the next token shows it. */
static inline bool parser_is_valid(const parser *p) {
  if (p->at < p->text || p->depth > LM_TYPE_DEPTH) return false;
  if (p->kind == END) return !p->length && !*p->at;
  return p->length > 0 && !memchr(p->at, 0, p->length);
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_word(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

/* Returns the end of the white space and comments at `s`. */
static const char *skip_space(const char *s) {
  for (;;) {
    s += strspn(s, " \t\r\n");
    if (*s != '#') return s;
    s += strcspn(s, "\n");
  }
}

/* Returns the address of the closing quote of the name at `s`, or of the terminator. A backslash
 * takes the next character literally. */
static const char *skip_quoted(const char *s) {
  char quote = *s++;
  while (*s && *s != quote) s += s[0] == '\\' && s[1] ? 2 : 1;
  return s;
}

/* Moves to the next token. A token that is not a word or a name is one character, which may be
 * several bytes of UTF-8. */
static void advance(parser *p) {
  const char *s = p->at = skip_space(p->at + p->length);
  if (!*s) {
    p->kind = END;
  } else if (is_word(*s)) {
    p->kind = is_digit(*s) ? NUMBER : NAME;
    while (is_word(*s)) s++;
  } else if (*s == '\'' || *s == '"') {
    s = skip_quoted(s);
    p->kind = *s ? QUOTED : UNCLOSED;
    if (*s) s++;
  } else {
    p->kind = PUNCTUATION;
    do s++;
    while ((*s & 0xc0) == 0x80); /* the further bytes of one character */
  }
  p->length = (size_t)(s - p->at);
  lm_verify(parser_is_valid(p));
}

static bool is_token(const parser *p, const char *text) {
  return p->length == strlen(text) && !memcmp(p->at, text, p->length);
}

/* ---- Error words */

/* Computes the line and the column of `at`, in characters of UTF-8, from 1. */
static void locate(const char *text, const char *at, size_t *line, size_t *column) {
  *line = *column = 1;
  for (; text < at; text++) {
    if (*text == '\n') {
      ++*line;
      *column = 1;
    } else if ((*text & 0xc0) != 0x80) {
      ++*column;
    }
  }
}

/* Fails with LOAM_EINVAL and words that name the place `at` in the text. */
static loam_status fail_at(const parser *p, const char *at, const char *format, ...)
    LM_PRINTF(3, 4);

static loam_status fail_at(const parser *p, const char *at, const char *format, ...) {
  char shown[LM_TYPE_WORDS], where[64], what[512];
  size_t line, column;
  locate(p->text, at, &line, &column);
  if (line > 1) snprintf(where, sizeof where, "line %zu, column %zu", line, column);
  else snprintf(where, sizeof where, "column %zu", column);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(what, sizeof what, format, arguments);
  va_end(arguments);
  return lm_error(LOAM_EINVAL, "type %s: %s: %s", lm_error_quote(shown, sizeof shown, p->text),
                  where, what);
}

/* Writes a description of the next token for a message to `out`, and returns `out`. */
static const char *describe_token(const parser *p, char out[LM_TYPE_WORDS]) {
  char text[LM_TYPE_WORDS];
  if (p->kind == END) return strcpy(out, "the end");
  size_t length = p->length < sizeof text ? p->length : sizeof text - 1;
  memcpy(text, p->at, length);
  text[length] = 0;
  return lm_error_quote(out, LM_TYPE_WORDS, text);
}

static loam_status fail_expected(const parser *p, const char *what) {
  char shown[LM_TYPE_WORDS];
  return fail_at(p, p->at, "expected %s, found %s", what, describe_token(p, shown));
}

static loam_status fail_memory(void) { return lm_error(LOAM_ENOMEM, "no memory for a type"); }

/* Passes a status of type.c through. If type.c refused the type, adds the place where the type
 * begins to the error words. */
static loam_status with_place(const parser *p, const char *at, loam_status status) {
  return status == LOAM_EINVAL ? fail_at(p, at, "%s", loam_error()) : status;
}

/* Moves past the token `text`. Another token fails with words that say that `what` is expected. */
static loam_status expect(parser *p, const char *text, const char *what) {
  if (!is_token(p, text)) return fail_expected(p, what);
  advance(p);
  return LOAM_OK;
}

static loam_status parse_count(parser *p, size_t *out);

/* Fails because datashape has `words` and loam leaves it out. */
static loam_status fail_left_out(const parser *p, const char *at, const char *words,
                                 const char *instead) {
  return fail_at(p, at, "\"%s\" is a part of datashape that loam leaves out: write %s", words,
                 instead);
}

/* ---- Names of types */

typedef struct type_name {
  const char *name;
  loam_type_kind kind;
} type_name;

#define NAMED(kind, name, size, align) { name, kind },
static const type_name names[] = { LOAM_TYPE_LIST(NAMED){ "int", LOAM_TYPE_INT32 },
                                   { "real", LOAM_TYPE_FLOAT64 },
                                   { "complex", LOAM_TYPE_COMPLEX128 },
                                   { "intptr", LOAM_TYPE_INT64 },
                                   { "uintptr", LOAM_TYPE_UINT64 } };
static const char *const keywords[] = { "var",    "fixed",   "pointer",
                                        "option", "decimal", "categorical" };

/* Returns how many letters of `a` have to be changed, added or left out to get `b` (the Levenshtein
 * distance, by dynamic programming over two rows). Returns LONGEST if a word is longer than
 * that. */
static unsigned distance(const char *a, size_t a_length, const char *b) {
  enum { LONGEST = 15 };
  unsigned row[LONGEST + 1];
  size_t n = strlen(b);
  lm_assert(n);
  if (a_length > LONGEST || n > LONGEST) return LONGEST;
  for (size_t k = 0; k <= n; k++) row[k] = (unsigned)k;
  for (size_t i = 1; i <= a_length; i++) {
    unsigned corner = row[0];
    row[0] = (unsigned)i;
    for (size_t k = 1; k <= n; k++) {
      unsigned best = corner + (a[i - 1] != b[k - 1]);
      corner = row[k];
      if (row[k] + 1 < best) best = row[k] + 1;
      if (row[k - 1] + 1 < best) best = row[k - 1] + 1;
      row[k] = best;
    }
  }
  return row[n];
}

/* Returns the known word that is nearest to the next token, or NULL if none is near. */
static const char *nearest_word(const parser *p) {
  const char *best = NULL;
  unsigned least = p->length < 4 ? 2 : 3; /* with so many changes a word is not near */
  for (size_t i = 0; i < LM_COUNT(names) + LM_COUNT(keywords); i++) {
    const char *word = i < LM_COUNT(names) ? names[i].name : keywords[i - LM_COUNT(names)];
    unsigned changes = distance(p->at, p->length, word);
    if (changes >= least) continue;
    least = changes;
    best = word;
  }
  return best;
}

/* Parses the name of an encoding. Text is UTF-8, and no other encoding is accepted. */
static loam_status parse_encoding(parser *p) {
  static const char *const words[] = { "utf8", "utf-8", "U8" };
  if (p->kind == UNCLOSED) return fail_at(p, p->at, "this quote has no end");
  for (size_t i = 0; i < LM_COUNT(words) && p->kind == QUOTED; i++)
    if (p->length == strlen(words[i]) + 2 && !memcmp(p->at + 1, words[i], p->length - 2)) {
      advance(p);
      return LOAM_OK;
    }
  return fail_expected(p, "the encoding 'utf8'");
}

/* Parses the end of `"string" "[" number [ "," encoding ] "]"` or `"string" "[" encoding "]"` from
 * the bracket on; `start` is where it begins. */
static loam_status parse_string(parser *p, const char *start, loam_type **out) {
  size_t count = 0;
  advance(p);
  bool is_fixed = p->kind != QUOTED && p->kind != UNCLOSED;
  loam_status status = is_fixed ? parse_count(p, &count) : parse_encoding(p);
  if (!status && is_fixed && is_token(p, ",")) {
    advance(p);
    status = parse_encoding(p);
  }
  if (!status) status = expect(p, "]", "\"]\" after the number of bytes");
  if (status) return status;
  if (is_fixed) return with_place(p, start, lm_type_fixed_string(count, out));
  *out = lm_type_plain(LOAM_TYPE_STRING);
  return LOAM_OK;
}

/* Parses the end of `"complex" "[" ( "float32" | "float64" ) "]"` from the bracket on. */
static loam_status parse_complex(parser *p, loam_type **out) {
  advance(p);
  bool is_single = is_token(p, "float32");
  if (!is_single && !is_token(p, "float64")) return fail_expected(p, "float32 or float64");
  advance(p);
  *out = lm_type_plain(is_single ? LOAM_TYPE_COMPLEX64 : LOAM_TYPE_COMPLEX128);
  return expect(p, "]", "\"]\" after the type of the parts");
}

/* Moves past `word "="`, if that is next. */
static loam_status skip_key(parser *p, const char *word) {
  if (!is_token(p, word)) return LOAM_OK;
  advance(p);
  return expect(p, "=", "\"=\"");
}

/* Parses the end of `name "[" [ "unit" "=" ] unit "]"` from the bracket on. `kind` is
 * LOAM_TYPE_DATETIME or LOAM_TYPE_TIMEDELTA; the kinds of its units follow it in one order. */
static loam_status parse_unit(parser *p, loam_type_kind kind, loam_type **out) {
  static const type_name units[] = { { "'s'", LOAM_TYPE_DATETIME_S },
                                     { "'ms'", LOAM_TYPE_DATETIME_MS },
                                     { "'us'", LOAM_TYPE_DATETIME },
                                     { "'ns'", LOAM_TYPE_DATETIME_NS } };
  advance(p);
  loam_status status = skip_key(p, "unit");
  if (status) return status;
  if (is_token(p, "tz"))
    return fail_left_out(p, p->at, "tz", "the datetimes in UTC, and keep the zone elsewhere");
  if (p->kind == UNCLOSED) return fail_at(p, p->at, "this quote has no end");
  for (size_t i = 0; i < LM_COUNT(units) && p->kind == QUOTED; i++) {
    const char *unit = units[i].name;
    if (p->length != strlen(unit) || memcmp(p->at + 1, unit + 1, p->length - 2) != 0) continue;
    advance(p);
    *out = lm_type_plain(units[i].kind - LOAM_TYPE_DATETIME + kind);
    return expect(p, "]", "\"]\" after the unit");
  }
  return fail_expected(p, "the unit 's', 'ms', 'us' or 'ns'");
}

/* Parses `"decimal" "[" [ "precision" "=" ] number [ "," [ "scale" "=" ] number ] "]"`. */
static loam_status parse_decimal(parser *p, loam_type **out) {
  const char *start = p->at;
  size_t digits = 0, scale = 0;
  advance(p);
  loam_status status = expect(p, "[", "\"[\" and the number of digits");
  if (!status) status = skip_key(p, "precision");
  if (!status) status = parse_count(p, &digits);
  if (!status && is_token(p, ",")) {
    advance(p);
    status = skip_key(p, "scale");
    if (!status) status = parse_count(p, &scale);
  }
  if (!status) status = expect(p, "]", "\"]\" after the number of digits");
  return status ? status : with_place(p, start, lm_type_decimal(digits, scale, out));
}

/* ---- Categories */

/* Writes the next token, a word or a quoted name, to `to` without quotes and escapes, and then a
 * NUL. There is room for length + 1 bytes. Returns the address behind the NUL. */
static char *put_unquoted(const parser *p, char *to) {
  lm_assert(p->kind == NAME || p->kind == QUOTED);
  bool is_quoted = p->kind == QUOTED;
  const char *s = p->at + is_quoted, *end = p->at + p->length - is_quoted;
  while (s < end) {
    if (is_quoted && *s == '\\') s++;
    *to++ = *s++;
  }
  *to++ = 0;
  return to;
}

/* The arguments of a categorical that were parsed so far. */
typedef struct categorical {
  parser list;         /* a copy of the parser at the first category */
  size_t count, bytes; /* the categories, 0 before their list; bytes of their tokens */
  bool has_type, has_order, is_ordered;
} categorical;

/* Parses `"[" quoted { "," quoted } [ "," ] "]"`. Only counts the categories. */
static loam_status parse_categories(parser *p, categorical *c) {
  loam_status status = expect(p, "[", "the list of categories, type=string or ordered=True");
  c->list = *p;
  while (!status) {
    if (p->kind == UNCLOSED) return fail_at(p, p->at, "this quote has no end");
    if (p->kind != QUOTED) return fail_expected(p, "a category in quotes");
    c->count++;
    c->bytes += p->length;
    advance(p);
    if (!is_token(p, "]")) status = expect(p, ",", "\",\" or \"]\" after a category");
    if (!status && is_token(p, "]")) break;
  }
  if (!status) advance(p);
  return status;
}

/* Parses one argument of a categorical. It must not be of a form that stood there before. */
static loam_status parse_argument(parser *p, categorical *c) {
  loam_status status = LOAM_OK;
  if (is_token(p, "ordered") && !c->has_order) {
    c->has_order = true;
    status = skip_key(p, "ordered");
    c->is_ordered = is_token(p, "True");
    if (!status && !c->is_ordered && !is_token(p, "False"))
      return fail_expected(p, "True or False");
    if (!status) advance(p);
    return status;
  }
  if ((is_token(p, "type") || is_token(p, "string")) && !c->has_type) {
    c->has_type = true;
    status = skip_key(p, "type");
    return status ? status : expect(p, "string", "string, the type of all categories");
  }
  if (c->count) return fail_expected(p, "type=string or ordered=True, each once");
  status = skip_key(p, is_token(p, "values") ? "values" : "categories");
  return status ? status : parse_categories(p, c);
}

/* Makes a categorical type of the arguments; `start` is where it begins. Reads the categories a
 * second time, now that their number is known. */
static loam_status make_categorical(const categorical *c, const char *start, loam_type **out) {
  const char **name = loam_malloc(lm_type_site(), c->count * sizeof *name + c->bytes);
  if (!name) return fail_memory();
  char *letters = (char *)(name + c->count);
  const char *repeated_at = start;
  size_t repeated;
  parser p = c->list;
  for (size_t i = 0; i < c->count; i++, advance(&p)) {
    name[i] = letters;
    letters = put_unquoted(&p, letters);
    advance(&p);
  }
  loam_status status = lm_type_categorical(c->count, name, c->is_ordered, &repeated, out);
  p = c->list;
  for (size_t i = 0; repeated < c->count && i <= repeated; i++, advance(&p)) {
    repeated_at = p.at;
    advance(&p);
  }
  loam_free(name);
  return with_place(&c->list, repeated_at, status);
}

/* Parses `"categorical" "[" argument { "," argument } "]"`. */
static loam_status parse_categorical(parser *p, loam_type **out) {
  const char *start = p->at;
  categorical c = { .count = 0 };
  advance(p);
  loam_status status = expect(p, "[", "\"[\" and the list of categories");
  while (!status) {
    status = parse_argument(p, &c);
    if (!status && is_token(p, "]")) break;
    if (!status) status = expect(p, ",", "\",\" or \"]\" in a categorical");
  }
  if (status) return status;
  if (!c.count) return fail_expected(p, "\",\" and the list of categories");
  advance(p);
  return make_categorical(&c, start, out);
}

/* ---- Other names */

/* A type of datashape that loam leaves out, and what to write instead. */
typedef struct omission {
  const char *name, *instead;
} omission;

/* Returns what to write instead of the name that is the next token; NULL: datashape has no such
 * type. Datashape's type variables begin with an upper-case letter. */
static const char *find_instead(const parser *p) {
  static const omission left_out[] = {
    { "units", "timedelta, or a number, and keep the unit in the name of a field" },
    { "null", "a struct with the fields that there are" },
    { "json", "string" },
    { "char", "string[1]" },
    { "object", "bytes, or the type of the values" },
    { "void", "a struct with the fields that there are" },
    { "map", "var * {key: K, value: V}, with types for K and V" },
  };
  for (size_t i = 0; i < LM_COUNT(left_out); i++)
    if (is_token(p, left_out[i].name)) return left_out[i].instead;
  bool is_variable = p->kind == NAME && *p->at >= 'A' && *p->at <= 'Z';
  return is_variable ? "a number, fixed or var for a dimension, or the name of a type" : NULL;
}

/* Refuses `"bytes" "[" number "]"`, of which "bytes" is read; the words have the number. */
static loam_status fail_fixed_bytes(parser *p, const char *start) {
  char instead[64];
  advance(p);
  bool has_count = p->kind == NUMBER && p->length < 32;
  snprintf(instead, sizeof instead, "%.*s * uint8", has_count ? (int)p->length : 1,
           has_count ? p->at : "4");
  return fail_left_out(p, start, "bytes[", instead);
}

/* Parses the name of a plain type, and the types that it begins. */
static loam_status parse_name(parser *p, loam_type **out) {
  for (size_t i = 0; i < LM_COUNT(names); i++) {
    if (!is_token(p, names[i].name)) continue;
    const char *start = p->at;
    advance(p);
    bool has_bracket = is_token(p, "[");
    if (has_bracket && names[i].kind == LOAM_TYPE_STRING) return parse_string(p, start, out);
    if (has_bracket && names[i].kind == LOAM_TYPE_BYTES) return fail_fixed_bytes(p, start);
    if (has_bracket &&
        (names[i].kind == LOAM_TYPE_DATETIME || names[i].kind == LOAM_TYPE_TIMEDELTA))
      return parse_unit(p, names[i].kind, out);
    if (has_bracket && !strcmp(names[i].name, "complex")) return parse_complex(p, out);
    *out = lm_type_plain(names[i].kind);
    return LOAM_OK;
  }
  char shown[LM_TYPE_WORDS];
  const char *meant = nearest_word(p);
  describe_token(p, shown);
  const char *instead = find_instead(p);
  if (instead)
    return fail_at(p, p->at, "%s is a part of datashape that loam leaves out: write %s", shown,
                   instead);
  if (meant) return fail_at(p, p->at, "no type is called %s; is \"%s\" meant?", shown, meant);
  return fail_at(p, p->at, "no type is called %s", shown);
}

/* ---- Dimensions */

static loam_status parse_type(parser *p, loam_type **out);

static loam_status parse_count(parser *p, size_t *out) {
  size_t count = 0;
  if (p->kind != NUMBER) return fail_expected(p, "a number of elements");
  for (size_t i = 0; i < p->length; i++) {
    if (!is_digit(p->at[i])) return fail_expected(p, "a number of elements");
    if (count > LM_SIZE_MAX) return fail_at(p, p->at, "no address space has as many elements");
    count = 10 * count + (size_t)(p->at[i] - '0');
  }
  advance(p);
  *out = count;
  return LOAM_OK;
}

/* Parses the `"*" type` behind a dimension. */
static loam_status parse_element(parser *p, loam_type **out) {
  loam_status status = expect(p, "*", "\"*\" after a dimension");
  return status ? status : parse_type(p, out);
}

/* Parses `"fixed" [ "[" number "]" ]`; without a number, the count is LOAM_ANY. */
static loam_status parse_bracketed_count(parser *p, size_t *out) {
  advance(p);
  *out = LOAM_ANY;
  if (is_token(p, "*")) return LOAM_OK;
  loam_status status = expect(p, "[", "\"[\" or \"*\" after \"fixed\"");
  if (!status) status = parse_count(p, out);
  return status ? status : expect(p, "]", "\"]\" after the number of elements");
}

/* Parses a fixed dimension in either notation, and its element type. */
static loam_status parse_fixed(parser *p, loam_type **out) {
  const char *start = p->at;
  size_t count = 0;
  loam_type *element = NULL;
  loam_status status = p->kind == NAME ? parse_bracketed_count(p, &count) : parse_count(p, &count);
  if (!status) status = parse_element(p, &element);
  if (status) return status;
  if (count == LOAM_ANY) return with_place(p, start, lm_type_symbolic(element, out));
  return with_place(p, start, lm_type_fixed(count, element, out));
}

static loam_status parse_var(parser *p, loam_type **out) {
  const char *start = p->at;
  loam_type *element;
  advance(p);
  loam_status status = parse_element(p, &element);
  return status ? status : with_place(p, start, lm_type_var(element, out));
}

/* ---- Values */

/* Parses `?type`. lm_type_option refuses types that cannot be missing. */
static loam_status parse_option(parser *p, loam_type **out) {
  const char *start = p->at;
  loam_type *value;
  advance(p);
  loam_status status = parse_type(p, &value);
  return status ? status : with_place(p, start, lm_type_option(value, out));
}

/* Parses `option[type]` or `pointer[type]`; `make` makes the type from the inner one. */
static loam_status parse_bracketed(parser *p, loam_status (*make)(loam_type *, loam_type **),
                                   loam_type **out) {
  const char *start = p->at;
  loam_type *inner;
  advance(p);
  loam_status status = expect(p, "[", "\"[\"");
  if (!status) status = parse_type(p, &inner);
  if (status) return status;
  status = expect(p, "]", "\"]\"");
  if (!status) return with_place(p, start, make(inner, out));
  loam_type_release(inner);
  return status;
}

/* The fields that were parsed so far. Their names stand one after another in `letters`.
 *
 * Law: count <= capacity, the length of `type` and `name`. The first `count` elements of `type` are
 * references. The first `count` elements of `name` are below `used`. The last byte of `letters` is
 * a NUL; without letters, `used` is 0. */
typedef struct fields {
  size_t count, capacity;
  size_t used; /* bytes of `letters` */
  loam_type **type;
  size_t *name; /* offsets into `letters`; not addresses, because `letters` moves when it grows */
  char *letters;
} fields;

/* Returns whether the law of fields holds: each of the first `count` names and types is there, and
 * `letters` ends with a NUL, so that each name ends. */
static inline bool fields_is_valid(const fields *f) {
  if (f->count > f->capacity || !f->used != !f->letters) return false;
  if (f->used && f->letters[f->used - 1]) return false;
  for (size_t i = 0; i < f->count; i++)
    if (!f->type[i] || f->name[i] >= f->used) return false;
  return true;
}

/* Makes room for one more field. */
static loam_status reserve_field(fields *f) {
  if (f->count < f->capacity) return LOAM_OK;
  size_t capacity = f->capacity ? 2 * f->capacity : 8;
  loam_type **type = loam_realloc(lm_type_site(), f->type, capacity * sizeof *type);
  if (type) f->type = type;
  size_t *name = type ? loam_realloc(lm_type_site(), f->name, capacity * sizeof *name) : NULL;
  if (!name) return fail_memory();
  f->name = name;
  f->capacity = capacity;
  return LOAM_OK;
}

/* Adds the next token to the names, without quotes and escapes. It is counted by parse_field. */
static loam_status add_name(const parser *p, fields *f) {
  lm_assert(f->count < f->capacity);
  char *letters = loam_realloc(lm_type_site(), f->letters, f->used + p->length + 1);
  if (!letters) return fail_memory();
  f->letters = letters;
  f->name[f->count] = f->used;
  f->used = (size_t)(put_unquoted(p, letters + f->used) - letters);
  return LOAM_OK;
}

/* Parses the name of a field and refuses a name that an earlier field has. */
static loam_status parse_field_name(parser *p, fields *f) {
  if (p->kind == UNCLOSED) return fail_at(p, p->at, "this quote has no end");
  if (p->kind != NAME && p->kind != QUOTED)
    return fail_expected(p, f->count ? "a field's name" : "a field's name after \"{\"");
  if (f->count == LM_TYPE_FIELDS)
    return fail_at(p, p->at, "a struct has at most %d fields", LM_TYPE_FIELDS);
  loam_status status = reserve_field(f);
  if (!status) status = add_name(p, f);
  if (status) return status;
  const char *name = f->letters + f->name[f->count];
  if (!*name) return fail_at(p, p->at, "a field's name is empty");
  for (size_t i = 0; i < f->count; i++) {
    if (strcmp(f->letters + f->name[i], name) != 0) continue;
    char shown[LM_TYPE_WORDS];
    return fail_at(p, p->at, "the struct has a field %s already",
                   lm_error_quote(shown, sizeof shown, name));
  }
  advance(p);
  return LOAM_OK;
}

static loam_status parse_field(parser *p, fields *f) {
  loam_status status = parse_field_name(p, f);
  if (!status) status = expect(p, ":", "\":\" after the field's name");
  if (!status) status = parse_type(p, &f->type[f->count]);
  if (!status) f->count++;
  return status;
}

/* Parses the fields of a struct up to the closing brace, after the opening one. */
static loam_status parse_fields(parser *p, fields *f) {
  do {
    loam_status status = parse_field(p, f);
    if (!status && !is_token(p, "}")) status = expect(p, ",", "\",\" or \"}\" after a field");
    if (status) return status;
  } while (!is_token(p, "}"));
  advance(p);
  return LOAM_OK;
}

static void release_types(const fields *f) {
  for (size_t i = 0; i < f->count; i++) loam_type_release(f->type[i]);
}

/* Makes the struct type; takes over the references in `f`, on failure too. */
static loam_status make_struct(const fields *f, loam_type **out) {
  const char **name = loam_malloc(lm_type_site(), f->count * sizeof *name);
  if (!name) {
    release_types(f);
    return fail_memory();
  }
  for (size_t i = 0; i < f->count; i++) name[i] = f->letters + f->name[i];
  loam_status status = lm_type_struct(f->count, name, f->type, out);
  loam_free(name);
  return status;
}

/* Parses a member of a tuple, and gives it its number as a name. */
static loam_status parse_member(parser *p, fields *f) {
  enum { LONGEST = 24 };
  loam_status status = reserve_field(f);
  char *letters = status ? NULL : loam_realloc(lm_type_site(), f->letters, f->used + LONGEST);
  if (!letters) return status ? status : fail_memory();
  f->letters = letters;
  f->name[f->count] = f->used;
  f->used += (size_t)snprintf(letters + f->used, LONGEST, "%zu", f->count) + 1;
  status = parse_type(p, &f->type[f->count]);
  if (!status) f->count++;
  return status;
}

/* Parses the members of a tuple up to the closing bracket, after the opening one. */
static loam_status parse_members(parser *p, fields *f) {
  do {
    loam_status status = parse_member(p, f);
    if (!status && !is_token(p, ")")) status = expect(p, ",", "\",\" or \")\" after a member");
    if (status) return status;
  } while (!is_token(p, ")"));
  advance(p);
  return LOAM_OK;
}

/* Parses a struct or a tuple. */
static loam_status parse_struct(parser *p, loam_type **out) {
  const char *start = p->at;
  fields f = { 0 };
  bool is_tuple = is_token(p, "(");
  advance(p);
  loam_status status = is_tuple ? parse_members(p, &f) : parse_fields(p, &f);
  lm_verify(fields_is_valid(&f));
  if (status) release_types(&f);
  else status = with_place(p, start, make_struct(&f, out));
  loam_free(f.type);
  loam_free(f.name);
  loam_free(f.letters);
  return status;
}

/* Chooses the rule by the next token. */
static loam_status parse_token(parser *p, loam_type **out) {
  if (p->kind == NUMBER || is_token(p, "fixed")) return parse_fixed(p, out);
  if (is_token(p, "var")) return parse_var(p, out);
  if (is_token(p, "?")) return parse_option(p, out);
  if (is_token(p, "option")) return parse_bracketed(p, lm_type_option, out);
  if (is_token(p, "pointer")) return parse_bracketed(p, lm_type_pointer, out);
  if (is_token(p, "{") || is_token(p, "(")) return parse_struct(p, out);
  if (is_token(p, "decimal")) return parse_decimal(p, out);
  if (is_token(p, "categorical")) return parse_categorical(p, out);
  if (p->kind == NAME) return parse_name(p, out);
  if (is_token(p, ".")) return fail_left_out(p, p->at, "...", "fixed or var for each dimension");
  return fail_expected(p, "a type");
}

/* Parses a type. *out is a reference for the caller. */
static loam_status parse_type(parser *p, loam_type **out) {
  if (p->depth == LM_TYPE_DEPTH)
    return fail_at(p, p->at, "the type is more than %d levels deep", LM_TYPE_DEPTH);
  p->depth++;
  lm_verify(parser_is_valid(p));
  loam_status status = parse_token(p, out);
  lm_assert(p->depth > 0);
  p->depth--;
  return status;
}

loam_status loam_type_parse(const char *text, loam_type **out) {
  if (!text || !out) return lm_error_missing(text ? "out" : "text");
  parser p = { .text = text, .at = text };
  loam_type *type;
  advance(&p);
  loam_status status = parse_type(&p, &type);
  if (status) return status;
  if (p.kind == END) {
    *out = type;
    return LOAM_OK;
  }
  loam_type_release(type);
  return fail_expected(&p, is_token(&p, "*") ? "the end; a dimension is a number or \"var\""
                                             : "the end of the type");
}

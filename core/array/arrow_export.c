/* arrow_export.c - arrays as Arrow's, a column at a time.
 *
 * A column is the values of one place in the type, found as runs: so many of them, at equal
 * distances. Rows and fields of a column's values are columns again. Numbers that make one dense
 * run are passed as they are; what Arrow keeps beside them, offsets and bits, is made. */
#include <stdio.h>
#include <string.h>

#include "array/arrow.h"
#include "array/missing.h"
#include "os/error.h"
#include "script/json.h"

typedef struct run {
  const char *first;
  size_t count;
  ptrdiff_t stride;
} run;

typedef struct column {
  const loam_type *type;
  const size_t *meta;
  size_t count; /* of values, in all runs */
  run *run;
  size_t runs, capacity;
} column;

/* What is exported, for all of its nodes. */
typedef struct work {
  const loam_array *source;
  loam_site *site;
  bool may_copy;
} work;

static loam_status refuse(const column *c, const char *why) {
  char words[LM_TYPE_WORDS];
  return lm_error(LOAM_EUNSUPPORTED, "%s: %s", lm_type_words(words, c->type), why);
}

/* ---- Columns ------------------------------------------------------------------------------ */

/* Whether the values go on where the last run ends. */
static bool join(run *last, const char *first, size_t count, ptrdiff_t stride) {
  ptrdiff_t far = (ptrdiff_t)((uintptr_t)first - (uintptr_t)last->first);
  ptrdiff_t apart = last->count > 1 ? last->stride : far;
  if (far != (ptrdiff_t)last->count * apart) return false;
  if (count > 1 && stride != apart) return false;
  last->stride = apart;
  last->count += count;
  return true;
}

static loam_status push(const work *w, column *c, const char *first, size_t count,
                        ptrdiff_t stride) {
  if (!count) return LOAM_OK;
  c->count += count;
  if (c->runs && join(&c->run[c->runs - 1], first, count, stride)) return LOAM_OK;
  if (c->runs == c->capacity) {
    size_t capacity = c->capacity ? 2 * c->capacity : 4;
    run *grown = loam_realloc(w->site, c->run, capacity * sizeof *grown);
    if (!grown) return LOAM_ENOMEM;
    c->run = grown;
    c->capacity = capacity;
  }
  c->run[c->runs++] = (run){ first, count, stride };
  return LOAM_OK;
}

static bool is_dense(const column *c, size_t each) {
  return !c->runs || (c->runs == 1 && (c->count == 1 || c->run->stride == (ptrdiff_t)each));
}

/* One value after the other; NULL at the end. */
typedef struct cursor {
  const column *c;
  size_t run, value;
} cursor;

static const char *next(cursor *at) {
  if (at->run == at->c->runs) return NULL;
  const run *r = &at->c->run[at->run];
  const char *value = r->first + (ptrdiff_t)at->value * r->stride;
  if (++at->value == r->count) {
    at->run++;
    at->value = 0;
  }
  return value;
}

/* ---- Nodes -------------------------------------------------------------------------------- */

/* What a node of ours keeps, whoever has moved it where. */
typedef struct kept {
  loam_array *source;
  const void *buffer[3];
  void *made[3];
} kept;

static void end_array(struct ArrowArray *a) {
  kept *k = a->private_data;
  for (int64_t i = 0; i < a->n_children; i++) {
    struct ArrowArray *child = a->children[i];
    if (child && child->release) child->release(child);
    loam_free(child);
  }
  loam_free(a->children);
  for (size_t i = 0; i < LM_COUNT(k->made); i++) loam_free(k->made[i]);
  loam_array_release(k->source);
  loam_free(k);
  a->release = NULL;
}

static void end_schema(struct ArrowSchema *s) {
  for (int64_t i = 0; i < s->n_children; i++) {
    struct ArrowSchema *child = s->children[i];
    if (child && child->release) child->release(child);
    loam_free(child);
  }
  loam_free(s->children);
  loam_free(s->private_data);
  s->release = NULL;
}

/* A node, as its parent and its schema see it. */
typedef struct node {
  struct ArrowSchema *schema;
  struct ArrowArray *array;
} node;

enum { FORMAT = 24 };

static loam_status set_schema(const work *w, struct ArrowSchema *s, const char *format,
                              const char *name, bool is_nullable) {
  char *text = loam_malloc(w->site, FORMAT + strlen(name) + 1);
  if (!text) return LOAM_ENOMEM;
  snprintf(text, FORMAT, "%s", format);
  strcpy(text + FORMAT, name);
  *s = (struct ArrowSchema){ .format = text,
                             .name = text + FORMAT,
                             .flags = is_nullable ? ARROW_NULLABLE : 0,
                             .release = end_schema,
                             .private_data = text };
  return LOAM_OK;
}

static loam_status set_array(const work *w, struct ArrowArray *a, size_t length, int buffers) {
  kept *k = loam_calloc(w->site, 1, sizeof *k);
  if (!k) return LOAM_ENOMEM;
  k->source = loam_array_retain(w->source);
  *a = (struct ArrowArray){ .length = (int64_t)length,
                            .n_buffers = buffers,
                            .buffers = k->buffer,
                            .release = end_array,
                            .private_data = k };
  return LOAM_OK;
}

static void end_node(node n) {
  if (n.schema->release) n.schema->release(n.schema);
  if (n.array->release) n.array->release(n.array);
}

static loam_status set_node(const work *w, node n, const char *format, const char *name,
                            size_t length, int buffers, bool is_nullable) {
  *n.array = (struct ArrowArray){ .release = NULL };
  *n.schema = (struct ArrowSchema){ .release = NULL };
  loam_status status = set_schema(w, n.schema, format, name, is_nullable);
  if (!status) status = set_array(w, n.array, length, buffers);
  return status;
}

static loam_status add_children(const work *w, node n, size_t count) {
  n.schema->children = loam_calloc(w->site, count, sizeof *n.schema->children);
  n.array->children = loam_calloc(w->site, count, sizeof *n.array->children);
  if (!n.schema->children || !n.array->children) return LOAM_ENOMEM;
  n.schema->n_children = n.array->n_children = (int64_t)count;
  for (size_t i = 0; i < count; i++) {
    n.schema->children[i] = loam_calloc(w->site, 1, sizeof **n.schema->children);
    n.array->children[i] = loam_calloc(w->site, 1, sizeof **n.array->children);
    if (!n.schema->children[i] || !n.array->children[i]) return LOAM_ENOMEM;
  }
  return LOAM_OK;
}

static node child_of(node n, size_t i) {
  return (node){ n.schema->children[i], n.array->children[i] };
}

/* A buffer of the node's own; zeroed. */
static void *make_buffer(const work *w, node n, int which, size_t size) {
  kept *k = n.array->private_data;
  void *made = loam_calloc(w->site, 1, size ? size : 1);
  k->buffer[which] = k->made[which] = made;
  return made;
}

static void pass_buffer(node n, int which, const void *data) {
  static const char nothing[8];
  ((kept *)n.array->private_data)->buffer[which] = data ? data : nothing;
}

static void set_format(node n, const char *format) {
  snprintf(n.schema->private_data, FORMAT, "%s", format);
}

/* ---- Values ------------------------------------------------------------------------------- */

/* Bits for what is there. Without any that is missing there is no buffer. */
static loam_status put_validity(const work *w, const column *c, const loam_type *value, node n) {
  uint8_t *bits = make_buffer(w, n, 0, (c->count + 7) / 8);
  if (!bits) return LOAM_ENOMEM;
  cursor at = { .c = c };
  const char *data;
  for (size_t i = 0; (data = next(&at)); i++) {
    if (lm_missing_is(value, data)) n.array->null_count++;
    else bits[i / 8] |= (uint8_t)(1u << i % 8);
  }
  return LOAM_OK;
}

static loam_status put_bools(const work *w, const column *c, node n) {
  if (!w->may_copy) return refuse(c, "Arrow has a bit for each bool, which needs a copy");
  uint8_t *bits = make_buffer(w, n, 1, (c->count + 7) / 8);
  if (!bits) return LOAM_ENOMEM;
  cursor at = { .c = c };
  const char *data;
  for (size_t i = 0; (data = next(&at)); i++)
    if (*data == 1) bits[i / 8] |= (uint8_t)(1u << i % 8);
  return LOAM_OK;
}

static loam_status put_numbers(const work *w, const column *c, size_t each, node n) {
  if (is_dense(c, each)) {
    pass_buffer(n, 1, c->runs ? c->run->first : NULL);
    return LOAM_OK;
  }
  if (!w->may_copy) return refuse(c, "values do not follow one another, which needs a copy");
  char *to = make_buffer(w, n, 1, c->count * each);
  if (!to) return LOAM_ENOMEM;
  cursor at = { .c = c };
  const char *data;
  for (; (data = next(&at)); to += each) memcpy(to, data, each);
  return LOAM_OK;
}

static loam_status put_scalars(const work *w, const column *c, const loam_type *value, node n) {
  char letter[] = { lm_arrow_letter(value->kind), 0 };
  if (!*letter) return refuse(c, "Arrow has no such numbers");
  set_format(n, letter);
  if (value->kind == LOAM_TYPE_BOOL) return put_bools(w, c, n);
  return put_numbers(w, c, value->size, n);
}

/* ---- Offsets ---- */

/* Where each value's part begins, and the last one's ends: 32 bits where that is enough. */
typedef struct offsets {
  bool is_wide;
  void *at;
  size_t i;
} offsets;

static loam_status begin_offsets(const work *w, const column *c, size_t total, node n,
                                 offsets *out) {
  *out = (offsets){ .is_wide = total > INT32_MAX };
  size_t each = out->is_wide ? sizeof(int64_t) : sizeof(int32_t);
  out->at = make_buffer(w, n, 1, (c->count + 1) * each);
  return out->at ? LOAM_OK : LOAM_ENOMEM;
}

static void put_offset(offsets *o, size_t offset) {
  if (o->is_wide) ((int64_t *)o->at)[o->i++] = (int64_t)offset;
  else ((int32_t *)o->at)[o->i++] = (int32_t)offset;
}

static size_t piece_size(const char *data) { return ((const lm_piece *)data)->size; }

static loam_status put_piece_offsets(const work *w, const column *c, node n, bool *is_wide,
                                     size_t *total) {
  const char *data;
  *total = 0;
  for (cursor at = { .c = c }; (data = next(&at));) *total += piece_size(data);
  offsets o;
  loam_status status = begin_offsets(w, c, *total, n, &o);
  if (status) return status;
  size_t end = 0;
  put_offset(&o, end);
  for (cursor at = { .c = c }; (data = next(&at));) put_offset(&o, end += piece_size(data));
  *is_wide = o.is_wide;
  return LOAM_OK;
}

/* ---- Text ---- */

static loam_status check_text(const column *c, const loam_type *value) {
  const char *data;
  if (value->kind == LOAM_TYPE_BYTES) return LOAM_OK;
  for (cursor at = { .c = c }; (data = next(&at));) {
    const lm_piece *piece = (const lm_piece *)data;
    if (!lm_json_is_utf8(piece->begin, piece->size))
      return refuse(c, "not all of the text is UTF-8; as bytes it could be passed");
  }
  return LOAM_OK;
}

/* Whether each begins where the one before it ends. */
static bool follow_each_other(const column *c, const char **first) {
  const char *end = *first = NULL, *data;
  for (cursor at = { .c = c }; (data = next(&at));) {
    const lm_piece *piece = (const lm_piece *)data;
    if (!piece->size) continue;
    if (end && piece->begin != end) return false;
    if (!end) *first = piece->begin;
    end = piece->begin + piece->size;
  }
  return true;
}

static loam_status gather_text(const work *w, const column *c, size_t total, node n) {
  char *to = make_buffer(w, n, 2, total);
  if (!to) return LOAM_ENOMEM;
  const char *data;
  for (cursor at = { .c = c }; (data = next(&at)); to += piece_size(data))
    if (piece_size(data)) memcpy(to, ((const lm_piece *)data)->begin, piece_size(data));
  return LOAM_OK;
}

static loam_status put_text(const work *w, const column *c, const loam_type *value, node n) {
  bool is_wide;
  size_t total;
  const char *first;
  loam_status status = check_text(c, value);
  if (!status) status = put_piece_offsets(w, c, n, &is_wide, &total);
  if (status) return status;
  bool is_string = value->kind == LOAM_TYPE_STRING;
  set_format(n, is_wide ? (is_string ? "U" : "Z") : is_string ? "u" : "z");
  if (follow_each_other(c, &first)) {
    pass_buffer(n, 2, first);
    return LOAM_OK;
  }
  return w->may_copy ? gather_text(w, c, total, n)
                     : refuse(c, "text stands in pieces, which needs a copy");
}

/* ---- What has parts ----------------------------------------------------------------------- */

static loam_status put_column(const work *w, const column *c, const char *name, node n);

/* The column of a part, and its end. */
static loam_status put_part(const work *w, column *part, loam_status status, const char *name,
                            node n) {
  if (!status) status = put_column(w, part, name, n);
  loam_free(part->run);
  return status;
}

static loam_status put_fixed(const work *w, const column *c, node n) {
  const lm_fixed_layout *m = lm_layout_fixed(c->meta);
  column part = { .type = c->type->element, .meta = m->element };
  char format[FORMAT];
  snprintf(format, sizeof format, "+w:%zu", m->size);
  set_format(n, format);
  if (m->size > INT32_MAX) return refuse(c, "Arrow's lists of one size have at most 2147483647");
  loam_status status = add_children(w, n, 1);
  if (status) return status;
  const char *data;
  for (cursor at = { .c = c }; !status && (data = next(&at));)
    status = push(w, &part, data, m->size, m->stride);
  return put_part(w, &part, status, "item", child_of(n, 0));
}

static loam_status put_var(const work *w, const column *c, node n) {
  const lm_var_layout *m = lm_layout_var(c->meta);
  column part = { .type = c->type->element, .meta = m->element };
  bool is_wide;
  size_t total;
  loam_status status = put_piece_offsets(w, c, n, &is_wide, &total);
  if (!status) status = add_children(w, n, 1);
  if (status) return status;
  set_format(n, is_wide ? "+L" : "+l");
  const char *data;
  for (cursor at = { .c = c }; !status && (data = next(&at));) {
    const lm_piece *piece = (const lm_piece *)data;
    status = push(w, &part, lm_layout_first(m, piece), piece->size, m->stride);
  }
  return put_part(w, &part, status, "item", child_of(n, 0));
}

static loam_status put_field(const work *w, const column *c, size_t i, node n) {
  const lm_field *f = &c->type->fields[i];
  column part = { .type = f->type, .meta = lm_layout_field(c->type, c->meta, i) };
  loam_status status = LOAM_OK;
  for (size_t k = 0; k < c->runs && !status; k++)
    status = push(w, &part, c->run[k].first + lm_layout_offset(c->meta, i), c->run[k].count,
                  c->run[k].stride);
  return put_part(w, &part, status, f->name, n);
}

static loam_status put_struct(const work *w, const column *c, node n) {
  set_format(n, "+s");
  loam_status status = add_children(w, n, c->type->count);
  for (size_t i = 0; i < c->type->count && !status; i++)
    status = put_field(w, c, i, child_of(n, i));
  return status;
}

/* The targets stand for the pointers. */
static loam_status put_targets(const work *w, const column *c, const char *name, node n) {
  const lm_pointer_layout *m = lm_layout_pointer(c->meta);
  column part = { .type = c->type->element, .meta = m->target };
  loam_status status = LOAM_OK;
  const char *data, *target;
  for (cursor at = { .c = c }; !status && (data = next(&at));)
    status = lm_layout_follow(c->type, m, data, &target) ? push(w, &part, target, 1, 0)
                                                         : refuse(c, "a pointer is NULL");
  return put_part(w, &part, status, name, n);
}

static int buffers_of(loam_type_kind kind) {
  switch (kind) {
    case LOAM_TYPE_STRING:
    case LOAM_TYPE_BYTES: return 3;
    case LOAM_TYPE_FIXED:
    case LOAM_TYPE_STRUCT: return 1;
    default: return 2;
  }
}

static loam_status put_value(const work *w, const column *c, const loam_type *value, node n) {
  switch (value->kind) {
    case LOAM_TYPE_FIXED: return put_fixed(w, c, n);
    case LOAM_TYPE_VAR: return put_var(w, c, n);
    case LOAM_TYPE_STRUCT: return put_struct(w, c, n);
    case LOAM_TYPE_STRING:
    case LOAM_TYPE_BYTES: return put_text(w, c, value, n);
    default: return put_scalars(w, c, value, n);
  }
}

/* On failure the node may be half made: its root ends it. */
static loam_status put_column(const work *w, const column *c, const char *name, node n) {
  if (c->type->kind == LOAM_TYPE_POINTER) return put_targets(w, c, name, n);
  bool is_option = c->type->kind == LOAM_TYPE_OPTION;
  const loam_type *value = is_option ? c->type->element : c->type;
  loam_status status = set_node(w, n, "", name, c->count, buffers_of(value->kind), is_option);
  if (!status && is_option) status = put_validity(w, c, value, n);
  return status ? status : put_value(w, c, value, n);
}

/* ---- The whole ---------------------------------------------------------------------------- */

static loam_status put_row(const work *w, lm_array_cursor spot, const char *name, node n,
                           size_t *count) {
  lm_array_row row;
  loam_status status = lm_array_dimension(spot, &row);
  if (status) return status;
  column c = { .type = row.first.type, .meta = row.first.meta };
  *count = row.count;
  status = push(w, &c, row.first.data, row.count, row.stride);
  return put_part(w, &c, status, name, n);
}

/* A struct of columns of one length is a table. */
static loam_status put_table(const work *w, lm_array_cursor spot, node n) {
  const loam_type *type = spot.type;
  loam_status status = set_node(w, n, "+s", "", 0, 1, false);
  if (!status) status = add_children(w, n, type->count);
  for (size_t i = 0; i < type->count && !status; i++) {
    size_t count = 0;
    lm_array_cursor field = { type->fields[i].type, lm_layout_field(type, spot.meta, i),
                              spot.data + lm_layout_offset(spot.meta, i), spot.owner };
    status = put_row(w, field, type->fields[i].name, child_of(n, i), &count);
    if (!status && i && (int64_t)count != n.array->length)
      status = lm_error(LOAM_EUNSUPPORTED,
                        "field \"%s\" has %zu elements, \"%s\" has %lld: the columns of a table "
                        "have as many",
                        type->fields[i].name, count, type->fields[0].name,
                        (long long)n.array->length);
    if (!i) n.array->length = (int64_t)count;
  }
  return status;
}

loam_status loam_array_to_arrow(const loam_array *array, int may_copy, struct ArrowSchema *schema,
                                struct ArrowArray *out) {
  if (!array || !schema || !out) return lm_error(LOAM_EINVAL, "array, schema or out: it is NULL");
  work w = { array, array->block.site, may_copy != 0 };
  struct ArrowSchema made_schema = { .release = NULL };
  struct ArrowArray made_array = { .release = NULL };
  node n = { &made_schema, &made_array };
  lm_array_cursor spot = lm_array_start(array);
  size_t count;
  loam_status status = lm_array_follow_all(&spot);
  if (!status)
    status = spot.type->kind == LOAM_TYPE_STRUCT ? put_table(&w, spot, n)
                                                 : put_row(&w, spot, "", n, &count);
  if (status) {
    end_node(n);
    return status;
  }
  *schema = made_schema;
  *out = made_array;
  return LOAM_OK;
}

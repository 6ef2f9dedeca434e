/* arrow_export.c - exports arrays through Arrow's C data interface.
 *
 * The tree of an array's type becomes a tree of Arrow nodes. A node has a column: all values of one
 * place in the type. A column is a list of runs; the values of a run are equal distances apart. The
 * elements of rows and the fields of structs in a column are columns again.
 *
 * Numbers that make one dense run are shared. Everything that Arrow orders in another way than loam
 * is made here: offsets of lists and text, validity bits, bools. The codes of a categorical are
 * numbers, and its categories become a dictionary: a node beside the children. */
#include <stdio.h>
#include <string.h>

#include "array/arrow.h"
#include "array/missing.h"
#include "os/error.h"
#include "script/json.h"

/* `count` values, `stride` bytes apart. The stride of a single value is not used. */
typedef struct run {
  const char *first;
  size_t count;
  ptrdiff_t stride;
} run;

/* The values of one place in the type.
 *
 * Law: `count` is the sum of the counts of the runs; runs <= capacity; no run is empty. */
typedef struct column {
  const loam_type *type;
  const size_t *meta;
  size_t count; /* values in all runs */
  run *run;     /* an allocation of `capacity` runs; whoever makes the column frees it */
  size_t runs, capacity;
} column;

/* Returns whether the law of a column holds. Walks all runs. */
static inline bool column_is_valid(const column *c) {
  size_t count = 0;
  if (c->runs > c->capacity || !c->run != !c->capacity) return false;
  for (size_t i = 0; i < c->runs; count += c->run[i++].count)
    if (!c->run[i].count) return false;
  return count == c->count;
}

/* One export, for all of its nodes. */
typedef struct job {
  const loam_array *source;
  loam_site *site; /* of everything that the export allocates */
  bool may_copy;
} job;

/* Fails because Arrow cannot express a column. */
static loam_status refuse(const column *c, const char *why) {
  char words[LM_TYPE_WORDS];
  return lm_error(LOAM_EUNSUPPORTED, "%s: %s", lm_type_words(words, c->type), why);
}

/* ---- Columns ------------------------------------------------------------------------------ */

/* Extends the last run by a run, if its values continue at the same stride. Returns whether it
 * did. */
static bool extend_run(run *last, const char *first, size_t count, ptrdiff_t stride) {
  ptrdiff_t distance = (ptrdiff_t)((uintptr_t)first - (uintptr_t)last->first);
  lm_assert(last->count && count);
  ptrdiff_t stride_now = last->count > 1 ? last->stride : distance;
  if (distance != (ptrdiff_t)last->count * stride_now) return false;
  if (count > 1 && stride != stride_now) return false;
  last->stride = stride_now;
  last->count += count;
  return true;
}

/* Adds a run to a column. Fails with LOAM_ENOMEM; the caller still frees the runs. */
static loam_status add_run(const job *w, column *c, const char *first, size_t count,
                           ptrdiff_t stride) {
  if (!count) return LOAM_OK;
  if (c->runs && extend_run(&c->run[c->runs - 1], first, count, stride)) {
    c->count += count;
    return LOAM_OK;
  }
  if (c->runs == c->capacity) {
    size_t capacity = c->capacity ? 2 * c->capacity : 4;
    run *grown = loam_realloc(w->site, c->run, capacity * sizeof *grown);
    if (!grown) return LOAM_ENOMEM;
    c->run = grown;
    c->capacity = capacity;
  }
  lm_assert(c->runs < c->capacity);
  c->run[c->runs++] = (run){ first, count, stride };
  c->count += count;
  return LOAM_OK;
}

/* Returns whether the values follow one another without gaps, if each has `each` bytes. */
static bool is_dense(const column *c, size_t each) {
  return !c->runs || (c->runs == 1 && (c->count == 1 || c->run->stride == (ptrdiff_t)each));
}

/* Reads the values of a column in order. The next value is number `value` of run number `run`.
 *
 * Law: run < c->runs and value < c->run[run].count; or, after the last value, run == c->runs and
 * value == 0. */
typedef struct reader {
  const column *c;
  size_t run, value;
} reader;

LM_INLINE bool reader_is_valid(const reader *at) {
  if (at->run >= at->c->runs) return at->run == at->c->runs && !at->value;
  return at->value < at->c->run[at->run].count;
}

/* Sets *out to the address of the next value, which may be NULL if values of the column have no
 * bytes. Returns false after the last value. */
static bool next_value(reader *at, const char **out) {
  lm_assert(reader_is_valid(at));
  if (at->run == at->c->runs) return false;
  const run *r = &at->c->run[at->run];
  *out = r->first ? r->first + (ptrdiff_t)at->value * r->stride : NULL;
  if (++at->value == r->count) {
    at->run++;
    at->value = 0;
  }
  return true;
}

/* ---- Nodes -------------------------------------------------------------------------------- */

/* The memory of an exported Arrow array (its private_data). The importing library may move the
 * Arrow struct, but this memory stays where it is. */
typedef struct node_memory {
  loam_array *source;    /* a reference: shared buffers point into its data */
  const void *buffer[3]; /* the buffers that Arrow sees */
  void *copy[3];         /* the buffers that were made here, NULL for shared ones */
} node_memory;

/* Releases a child or the dictionary of an exported array. A child or a dictionary that the
 * importing library has moved away has no release function any more. */
static void release_array_part(struct ArrowArray *part) {
  if (part && part->release) part->release(part);
  loam_free(part);
}

/* The release function of exported arrays. Arrow calls it once, in any thread. */
static void release_array(struct ArrowArray *a) {
  node_memory *memory = a->private_data;
  for (int64_t i = 0; i < a->n_children; i++) release_array_part(a->children[i]);
  loam_free(a->children);
  release_array_part(a->dictionary);
  for (size_t i = 0; i < LM_COUNT(memory->copy); i++) loam_free(memory->copy[i]);
  loam_array_release(memory->source);
  loam_free(memory);
  a->release = NULL;
}

/* Like release_array_part, for schemas. */
static void release_schema_part(struct ArrowSchema *part) {
  if (part && part->release) part->release(part);
  loam_free(part);
}

/* The release function of exported schemas. */
static void release_schema(struct ArrowSchema *s) {
  for (int64_t i = 0; i < s->n_children; i++) release_schema_part(s->children[i]);
  loam_free(s->children);
  release_schema_part(s->dictionary);
  loam_free(s->private_data);
  s->release = NULL;
}

/* A node of the exported tree: its schema and its array. */
typedef struct node {
  struct ArrowSchema *schema;
  struct ArrowArray *array;
} node;

/* The bytes that are reserved for a format, with its terminator. The longest format is "+w:" with a
 * number of 20 digits. */
enum { FORMAT = 24 };

/* Initializes a schema. Its format and its name are one allocation, private_data. */
static loam_status init_schema(const job *w, struct ArrowSchema *s, const char *name,
                               bool is_nullable) {
  char *text = loam_malloc(w->site, FORMAT + strlen(name) + 1);
  if (!text) return LOAM_ENOMEM;
  text[0] = 0;
  strcpy(text + FORMAT, name);
  *s = (struct ArrowSchema){ .format = text,
                             .name = text + FORMAT,
                             .flags = is_nullable ? ARROW_FLAG_NULLABLE : 0,
                             .release = release_schema,
                             .private_data = text };
  return LOAM_OK;
}

/* Initializes an Arrow array without children, whose buffers are still NULL. */
static loam_status init_array(const job *w, struct ArrowArray *a, size_t length, int buffers) {
  node_memory *memory = loam_calloc(w->site, 1, sizeof *memory);
  if (!memory) return LOAM_ENOMEM;
  memory->source = loam_array_retain(w->source);
  *a = (struct ArrowArray){ .length = (int64_t)length,
                            .n_buffers = buffers,
                            .buffers = memory->buffer,
                            .release = release_array,
                            .private_data = memory };
  return LOAM_OK;
}

/* Releases the schema and the array of a node, those that are initialized. */
static void release_node(node n) {
  if (n.schema->release) n.schema->release(n.schema);
  if (n.array->release) n.array->release(n.array);
}

/* The properties of a new node. */
typedef struct node_shape {
  const char *name;
  size_t length; /* elements */
  int buffers;
  bool is_nullable; /* values may be missing */
} node_shape;

/* Initializes a node without children. Its format is "" until set_format. On failure either struct
 * may be initialized: release_node accepts that. */
static loam_status init_node(const job *w, node n, const node_shape *shape) {
  lm_assert(shape->buffers >= 1 && shape->buffers <= 3);
  *n.array = (struct ArrowArray){ .release = NULL };
  *n.schema = (struct ArrowSchema){ .release = NULL };
  loam_status status = init_schema(w, n.schema, shape->name, shape->is_nullable);
  if (!status) status = init_array(w, n.array, shape->length, shape->buffers);
  return status;
}

/* Gives an initialized node `count` children, all zero. */
static loam_status add_children(const job *w, node n, size_t count) {
  n.schema->children = loam_calloc(w->site, count, sizeof *n.schema->children);
  n.array->children = loam_calloc(w->site, count, sizeof *n.array->children);
  if (!n.schema->children || !n.array->children) return LOAM_ENOMEM;
  lm_assert(!n.schema->n_children && !n.array->n_children);
  n.schema->n_children = n.array->n_children = (int64_t)count;
  for (size_t i = 0; i < count; i++) {
    n.schema->children[i] = loam_calloc(w->site, 1, sizeof **n.schema->children);
    n.array->children[i] = loam_calloc(w->site, 1, sizeof **n.array->children);
    if (!n.schema->children[i] || !n.array->children[i]) return LOAM_ENOMEM;
  }
  return LOAM_OK;
}

/* Gives an initialized node a dictionary, all zero, and sets *out to it. */
static loam_status add_dictionary(const job *w, node n, node *out) {
  lm_assert(!n.schema->dictionary && !n.array->dictionary);
  n.schema->dictionary = loam_calloc(w->site, 1, sizeof *n.schema->dictionary);
  n.array->dictionary = loam_calloc(w->site, 1, sizeof *n.array->dictionary);
  *out = (node){ n.schema->dictionary, n.array->dictionary };
  return out->schema && out->array ? LOAM_OK : LOAM_ENOMEM;
}

static node child_of(node n, size_t i) {
  return (node){ n.schema->children[i], n.array->children[i] };
}

/* Makes buffer `which` of a node: `size` bytes of zeros. Returns NULL without memory. */
static void *make_buffer(const job *w, node n, int which, size_t size) {
  lm_assert(which < n.array->n_buffers);
  node_memory *memory = n.array->private_data;
  void *made = loam_calloc(w->site, 1, size ? size : 1);
  memory->buffer[which] = memory->copy[which] = made;
  return made;
}

/* Lets buffer `which` of a node be memory of the array. Arrow wants an address even without
 * data. */
static void share_buffer(node n, int which, const void *data) {
  static const char nothing[8];
  lm_assert(which < n.array->n_buffers);
  ((node_memory *)n.array->private_data)->buffer[which] = data ? data : nothing;
}

/* Sets the format of a node. */
static void set_format(node n, const char *format) {
  snprintf(n.schema->private_data, FORMAT, "%s", format);
}

/* ---- Values ------------------------------------------------------------------------------- */

/* Makes the validity buffer of an option: one bit for each value, 1 if it is not missing. Counts
 * the missing values. */
static loam_status put_validity(const job *w, const column *c, const loam_type *value, node n) {
  uint8_t *bits = make_buffer(w, n, 0, (c->count + 7) / 8);
  if (!bits) return LOAM_ENOMEM;
  reader at = { .c = c };
  const char *data;
  for (size_t i = 0; next_value(&at, &data); i++) {
    if (lm_missing_is(value, data)) n.array->null_count++;
    else bits[i / 8] |= (uint8_t)(1u << i % 8);
  }
  return LOAM_OK;
}

/* Makes the buffer of bools, one bit for each. */
static loam_status put_bools(const job *w, const column *c, node n) {
  if (!w->may_copy) return refuse(c, "Arrow has a bit for each bool, which needs a copy");
  uint8_t *bits = make_buffer(w, n, 1, (c->count + 7) / 8);
  if (!bits) return LOAM_ENOMEM;
  reader at = { .c = c };
  const char *data;
  for (size_t i = 0; next_value(&at, &data); i++)
    if (*data == 1) bits[i / 8] |= (uint8_t)(1u << i % 8);
  return LOAM_OK;
}

/* Shares the numbers of a dense column; copies those of any other column. */
static loam_status put_numbers(const job *w, const column *c, size_t each, node n) {
  if (is_dense(c, each)) {
    share_buffer(n, 1, c->runs ? c->run->first : NULL);
    return LOAM_OK;
  }
  if (!w->may_copy) return refuse(c, "values do not follow one another, which needs a copy");
  char *to = make_buffer(w, n, 1, c->count * each);
  if (!to) return LOAM_ENOMEM;
  reader at = { .c = c };
  const char *data;
  for (; next_value(&at, &data); to += each) memcpy(to, data, each);
  return LOAM_OK;
}

/* Exports a column of scalars or decimals: sets the format, and shares or copies the values. */
static loam_status put_scalars(const job *w, const column *c, const loam_type *value, node n) {
  const char *format = lm_arrow_format(value->kind);
  char decimal[FORMAT];
  snprintf(decimal, sizeof decimal, "d:%zu,%zu", value->count, value->scale);
  if (value->kind == LOAM_TYPE_DECIMAL) format = decimal;
  if (!*format) return refuse(c, "Arrow has no such values");
  set_format(n, format);
  if (value->kind == LOAM_TYPE_BOOL) return put_bools(w, c, n);
  return put_numbers(w, c, value->size, n);
}

/* ---- Offsets ---- */

/* The offset buffer of lists and text, while it is written: where the part of each value begins,
 * and where the last one ends. Offsets have 32 bits if the total fits, and else 64 bits. */
typedef struct offsets {
  bool is_wide;
  void *at;
  size_t i;
} offsets;

/* Makes an offset buffer whose last offset will be `total`. */
static loam_status begin_offsets(const job *w, const column *c, size_t total, node n,
                                 offsets *out) {
  *out = (offsets){ .is_wide = total > INT32_MAX };
  size_t each = out->is_wide ? sizeof(int64_t) : sizeof(int32_t);
  out->at = make_buffer(w, n, 1, (c->count + 1) * each);
  return out->at ? LOAM_OK : LOAM_ENOMEM;
}

/* Writes the next offset. */
static void put_offset(offsets *o, size_t offset) {
  lm_assert(o->is_wide || offset <= INT32_MAX);
  if (o->is_wide) ((int64_t *)o->at)[o->i++] = (int64_t)offset;
  else ((int32_t *)o->at)[o->i++] = (int32_t)offset;
}

/* Returns the size of the piece that is the value at `data`. */
static size_t piece_size(const char *data) { return ((const lm_piece *)data)->size; }

/* Makes the offset buffer of a column of pieces. *total is the sum of their sizes. */
static loam_status put_piece_offsets(const job *w, const column *c, node n, bool *is_wide,
                                     size_t *total) {
  const char *data;
  *total = 0;
  for (reader at = { .c = c }; next_value(&at, &data);) *total += piece_size(data);
  offsets o;
  loam_status status = begin_offsets(w, c, *total, n, &o);
  if (status) return status;
  size_t end = 0;
  put_offset(&o, end);
  for (reader at = { .c = c }; next_value(&at, &data);) put_offset(&o, end += piece_size(data));
  lm_assert(end == *total && o.i == c->count + 1);
  *is_wide = o.is_wide;
  return LOAM_OK;
}

/* ---- Text ---- */

/* Checks that strings are UTF-8, which Arrow requires. */
static loam_status check_text(const column *c, const loam_type *value) {
  const char *data;
  if (value->kind == LOAM_TYPE_BYTES) return LOAM_OK;
  for (reader at = { .c = c }; next_value(&at, &data);) {
    const lm_piece *piece = (const lm_piece *)data;
    if (!lm_json_is_utf8(piece->begin, piece->size))
      return refuse(c, "not all of the text is UTF-8; as bytes it could be exported");
  }
  return LOAM_OK;
}

/* Returns whether each text begins where the text before it ends; *first is then the beginning of
 * all of them, NULL if there is none. */
static bool is_contiguous_text(const column *c, const char **first) {
  const char *end = *first = NULL, *data;
  for (reader at = { .c = c }; next_value(&at, &data);) {
    const lm_piece *piece = (const lm_piece *)data;
    if (!piece->size) continue;
    if (end && piece->begin != end) return false;
    if (!end) *first = piece->begin;
    end = piece->begin + piece->size;
  }
  return true;
}

/* Copies all texts into one buffer. */
static loam_status copy_text(const job *w, const column *c, size_t total, node n) {
  char *to = make_buffer(w, n, 2, total);
  if (!to) return LOAM_ENOMEM;
  const char *data;
  for (reader at = { .c = c }; next_value(&at, &data); to += piece_size(data))
    if (piece_size(data)) memcpy(to, ((const lm_piece *)data)->begin, piece_size(data));
  return LOAM_OK;
}

/* Exports a column of strings or bytes: offsets, and the text, which is shared if it is
 * contiguous. */
static loam_status put_text(const job *w, const column *c, const loam_type *value, node n) {
  bool is_wide;
  size_t total;
  const char *first;
  loam_status status = check_text(c, value);
  if (!status) status = put_piece_offsets(w, c, n, &is_wide, &total);
  if (status) return status;
  bool is_string = value->kind == LOAM_TYPE_STRING;
  set_format(n, is_wide ? (is_string ? "U" : "Z") : is_string ? "u" : "z");
  if (is_contiguous_text(c, &first)) {
    share_buffer(n, 2, first);
    return LOAM_OK;
  }
  return w->may_copy ? copy_text(w, c, total, n)
                     : refuse(c, "text stands in pieces, which needs a copy");
}

/* ---- Categories ---- */

/* Checks that each value is missing or has the code of a category. A library that imports the array
 * would look up any other code beyond the end of the dictionary. */
static loam_status check_codes(const column *c, const loam_type *value, bool is_option) {
  reader at = { .c = c };
  const char *data;
  for (size_t i = 0; next_value(&at, &data); i++) {
    if (lm_type_category(value, data) || (is_option && lm_missing_is(value, data))) continue;
    char words[LM_TYPE_WORDS];
    return lm_error(LOAM_EUNSUPPORTED, "%s: value %zu has the code %u, which no category has",
                    lm_type_words(words, value), i, (unsigned)lm_type_code(value, data));
  }
  return LOAM_OK;
}

/* Fills in an initialized dictionary with the names of the categories, as strings. */
static loam_status fill_dictionary(const job *w, const loam_type *value, node n) {
  size_t total = 0;
  for (size_t i = 0; i < value->count; i++) total += strlen(value->categories[i]);
  lm_assert(total <= LM_TYPE_TEXT);
  set_format(n, "u");
  int32_t *begin = make_buffer(w, n, 1, (value->count + 1) * sizeof *begin);
  char *text = make_buffer(w, n, 2, total);
  if (!begin || !text) return LOAM_ENOMEM;
  for (size_t i = 0, end = 0; i < value->count; i++) {
    size_t length = strlen(value->categories[i]);
    memcpy(text + end, value->categories[i], length);
    begin[i + 1] = (int32_t)(end += length);
  }
  return LOAM_OK;
}

/* Exports a column of categoricals: their codes are indices into a dictionary of strings. */
static loam_status put_categories(const job *w, const column *c, const loam_type *value, node n) {
  node dictionary;
  if (!lm_json_is_utf8(value->text, value->text_length))
    return refuse(c, "not all categories are UTF-8, which Arrow requires");
  loam_status status = check_codes(c, value, n.schema->flags & ARROW_FLAG_NULLABLE);
  if (!status) status = add_dictionary(w, n, &dictionary);
  if (!status)
    status = init_node(w, dictionary,
                       &(node_shape){ .name = "", .length = value->count, .buffers = 3 });
  if (!status) status = fill_dictionary(w, value, dictionary);
  if (status) return status;
  if (value->is_ordered) n.schema->flags |= ARROW_FLAG_DICTIONARY_ORDERED;
  set_format(n, lm_arrow_format(value->size == 1 ? LOAM_TYPE_UINT8 : LOAM_TYPE_UINT16));
  return put_numbers(w, c, value->size, n);
}

/* ---- Nodes with children ------------------------------------------------------------------ */

/* Exports a column as a node. On failure the node may be incomplete; the caller releases the
 * root. */
static loam_status put_column(const job *w, const column *c, const char *name, node n);

/* Exports the column of a part, unless `status` is a failure, and frees the runs of the column. */
static loam_status put_and_free(const job *w, column *part, loam_status status, const char *name,
                                node n) {
  lm_verify(column_is_valid(part));
  if (!status) status = put_column(w, part, name, n);
  loam_free(part->run);
  return status;
}

/* Exports a column of fixed dimensions as a list of one size, whose child has all elements. */
static loam_status put_fixed(const job *w, const column *c, node n) {
  const lm_fixed_layout *m = lm_layout_fixed(c->meta);
  column part = { .type = c->type->element, .meta = m->element };
  char format[FORMAT];
  snprintf(format, sizeof format, "+w:%zu", m->size);
  set_format(n, format);
  if (m->size > INT32_MAX)
    return refuse(c, "Arrow's lists of one size have at most 2147483647 elements");
  loam_status status = add_children(w, n, 1);
  if (status) return status;
  const char *data;
  for (reader at = { .c = c }; !status && next_value(&at, &data);)
    status = add_run(w, &part, data, m->size, m->stride);
  return put_and_free(w, &part, status, "item", child_of(n, 0));
}

/* Exports a column of var dimensions as a list with offsets, whose child has all elements. */
static loam_status put_var(const job *w, const column *c, node n) {
  const lm_var_layout *m = lm_layout_var(c->meta);
  column part = { .type = c->type->element, .meta = m->element };
  bool is_wide;
  size_t total;
  loam_status status = put_piece_offsets(w, c, n, &is_wide, &total);
  if (!status) status = add_children(w, n, 1);
  if (status) return status;
  set_format(n, is_wide ? "+L" : "+l");
  const char *data;
  for (reader at = { .c = c }; !status && next_value(&at, &data);) {
    const lm_piece *piece = (const lm_piece *)data;
    status = add_run(w, &part, lm_layout_first(m, piece), piece->size, m->stride);
  }
  return put_and_free(w, &part, status, "item", child_of(n, 0));
}

/* Exports field `i` of a column of structs as the node `n`. */
static loam_status put_field(const job *w, const column *c, size_t i, node n) {
  const lm_field *f = &c->type->fields[i];
  column part = { .type = f->type, .meta = lm_layout_field(c->type, c->meta, i) };
  ptrdiff_t offset = (ptrdiff_t)lm_layout_offset(c->meta, i);
  loam_status status = LOAM_OK;
  for (size_t k = 0; k < c->runs && !status; k++)
    status = add_run(w, &part, lm_layout_move((char *)c->run[k].first, offset), c->run[k].count,
                     c->run[k].stride);
  return put_and_free(w, &part, status, f->name, n);
}

/* Exports a column of structs: a child for each field. */
static loam_status put_struct(const job *w, const column *c, node n) {
  set_format(n, "+s");
  loam_status status = add_children(w, n, c->type->count);
  for (size_t i = 0; i < c->type->count && !status; i++)
    status = put_field(w, c, i, child_of(n, i));
  return status;
}

/* Exports a column of pointers as the column of their targets: Arrow has no pointers. */
static loam_status put_targets(const job *w, const column *c, const char *name, node n) {
  const lm_pointer_layout *m = lm_layout_pointer(c->meta);
  column part = { .type = c->type->element, .meta = m->target };
  loam_status status = LOAM_OK;
  const char *data;
  char *target;
  for (reader at = { .c = c }; !status && next_value(&at, &data);)
    status = lm_layout_follow(c->type, m, data, &target) ? add_run(w, &part, target, 1, 0)
                                                         : refuse(c, "a pointer is NULL");
  return put_and_free(w, &part, status, name, n);
}

/* Returns the number of buffers that Arrow requires for a kind of value. */
static int count_buffers(loam_type_kind kind) {
  switch (kind) {
    case LOAM_TYPE_STRING:
    case LOAM_TYPE_BYTES: return 3;
    case LOAM_TYPE_FIXED:
    case LOAM_TYPE_STRUCT: return 1;
    default: return 2;
  }
}

/* Fills in a node by the kind of its values, of the type `value`. */
static loam_status put_value(const job *w, const column *c, const loam_type *value, node n) {
  switch (value->kind) {
    case LOAM_TYPE_FIXED: return put_fixed(w, c, n);
    case LOAM_TYPE_VAR: return put_var(w, c, n);
    case LOAM_TYPE_STRUCT: return put_struct(w, c, n);
    case LOAM_TYPE_STRING:
    case LOAM_TYPE_BYTES: return put_text(w, c, value, n);
    case LOAM_TYPE_CATEGORICAL: return put_categories(w, c, value, n);
    default: return put_scalars(w, c, value, n);
  }
}

static loam_status put_column(const job *w, const column *c, const char *name, node n) {
  if (c->type->kind == LOAM_TYPE_POINTER) return put_targets(w, c, name, n);
  bool is_option = c->type->kind == LOAM_TYPE_OPTION;
  const loam_type *value = is_option ? c->type->element : c->type;
  loam_status status = init_node(
      w, n, &(node_shape){ name, c->count, count_buffers(value->kind), is_option });
  if (!status && is_option) status = put_validity(w, c, value, n);
  if (status || !is_option) return status ? status : put_value(w, c, value, n);
  column values = *c;
  values.type = value;
  return put_value(w, &values, value, n);
}

/* ---- The root ----------------------------------------------------------------------------- */

/* Exports the elements of the dimension at a cursor as a node; *count is their number. */
static loam_status put_row(const job *w, lm_array_cursor spot, const char *name, node n,
                           size_t *count) {
  lm_array_row row;
  loam_status status = lm_array_dimension(spot, &row);
  if (status) return status;
  column c = { .type = row.first.type, .meta = row.first.meta };
  *count = row.count;
  status = add_run(w, &c, row.first.data, row.count, row.stride);
  return put_and_free(w, &c, status, name, n);
}

/* Exports a struct of dimensions as a table: a node whose children are the columns. They have to
 * have one length. */
static loam_status put_table(const job *w, lm_array_cursor spot, node n) {
  const loam_type *type = spot.type;
  loam_status status = init_node(w, n, &(node_shape){ .name = "", .buffers = 1 });
  if (!status) set_format(n, "+s");
  if (!status) status = add_children(w, n, type->count);
  for (size_t i = 0; i < type->count && !status; i++) {
    size_t count = 0;
    ptrdiff_t offset = (ptrdiff_t)lm_layout_offset(spot.meta, i);
    lm_array_cursor field = { type->fields[i].type, lm_layout_field(type, spot.meta, i),
                              lm_layout_move(spot.data, offset), spot.owner };
    status = put_row(w, field, type->fields[i].name, child_of(n, i), &count);
    if (!status && i && (int64_t)count != n.array->length)
      status = lm_error(LOAM_EUNSUPPORTED,
                        "field \"%s\" has %zu elements, \"%s\" has %lld: the columns of a table "
                        "have one length",
                        type->fields[i].name, count, type->fields[0].name,
                        (long long)n.array->length);
    if (!i) n.array->length = (int64_t)count;
  }
  return status;
}

loam_status loam_array_to_arrow(const loam_array *array, int may_copy, struct ArrowSchema *schema,
                                struct ArrowArray *out) {
  if (!array || !schema || !out)
    return lm_error_missing(!array ? "array" : schema ? "out" : "schema");
  job w = { array, array->block.site, may_copy != 0 };
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
    release_node(n);
    return status;
  }
  *schema = made_schema;
  *out = made_array;
  return LOAM_OK;
}

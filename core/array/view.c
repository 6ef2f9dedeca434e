/* view.c - views: indexing, slicing and selecting fields, with nothing copied.
 *
 * What is left of a type when its dimensions are indexed from the left, and its metadata:
 *
 *   a fixed dimension   at an index: its element, further on; over a range: fixed, with another
 *                       size and stride
 *   a pointer           that comes first is followed; any other stays, and what is selected of its
 *                       target moves its offset
 *   a var dimension     that comes first is one row in memory, so it becomes fixed; any other
 *                       stays where it is taken whole, and else becomes a pointer to the element
 *                       or to the range, for which every row has to have them
 *   a struct            of which fields are selected: the field, its offset added to whatever
 *                       offset comes before it; or a struct of some fields with their offsets
 *
 * So the result is always a type of the same language. It is made in two passes: `derive` makes the
 * type and can fail, `fill` writes the metadata and cannot. */
#include <stdio.h>
#include <string.h>

#include "array/array.h"
#include "os/error.h"

/* An index, once it is known how many elements there are. */
typedef struct step {
  size_t start, count;
  ptrdiff_t step;
  bool takes;    /* one element: the dimension goes */
  bool is_whole; /* every element as it is */
} step;

typedef struct view {
  const loam_array *array;
  const loam_index *index;
  size_t indices;
  const char *const *name;
  size_t names;   /* 0: no fields are selected */
  bool is_single; /* the field itself, not a struct of one field */
  char *data;     /* of the result, and who owns it */
  loam_block *owner;
  step step[LM_TYPE_DEPTH]; /* by index */
} view;

/* What is told of a place in the tree: how many indices lie behind, whether no range does, and
 * whether offsets move the data of the array itself. */
typedef struct at {
  size_t index;
  bool is_first, is_direct;
} at;

static bool is_done(const view *v, at where) { return where.index == v->indices && !v->names; }

/* ---- Indices ------------------------------------------------------------------------------ */

static loam_status resolve_one(int64_t start, size_t count, size_t which, step *out) {
  int64_t n = (int64_t)count, i = start < 0 ? start + n : start;
  if (i < 0 || i >= n)
    return lm_error(LOAM_EINVAL, "index %zu is %lld: there %s %zu element%s", which + 1,
                    (long long)start, count == 1 ? "is" : "are", count, count == 1 ? "" : "s");
  *out = (step){ (size_t)i, 1, 1, true, false };
  return LOAM_OK;
}

static int64_t clamp(int64_t i, int64_t low, int64_t high) {
  return i < low ? low : i > high ? high : i;
}

/* As Python does: what is beyond the ends is cut off; a step back begins at the end. */
static loam_status resolve(const loam_index *x, size_t count, size_t which, step *out) {
  if (!x->step) return resolve_one(x->start, count, which, out);
  if (x->step == INT64_MIN)
    return lm_error(LOAM_EINVAL, "index %zu: a step of %lld", which + 1, (long long)x->step);
  int64_t n = (int64_t)count, s = x->step, low = s < 0 ? -1 : 0, high = s < 0 ? n - 1 : n;
  int64_t start = x->start, stop = x->stop;
  start = start == LOAM_OPEN ? (s < 0 ? high : low)
                             : clamp(start < 0 ? start + n : start, low, high);
  stop = stop == LOAM_OPEN ? (s < 0 ? low : high) : clamp(stop < 0 ? stop + n : stop, low, high);
  int64_t far = s < 0 ? start - stop : stop - start, by = s < 0 ? -s : s;
  size_t length = far > 0 ? (size_t)((far - 1) / by + 1) : 0;
  if (length <= 1) s = 1; /* as good as any, and no stride is multiplied beyond all addresses */
  *out = (step){ length ? (size_t)start : 0, length, s, false, length == count && s == 1 };
  return LOAM_OK;
}

/* Every element whatever their number. */
static bool is_open(const loam_index *x) {
  return x->step == 1 && (x->start == LOAM_OPEN || !x->start) && x->stop == LOAM_OPEN;
}

/* ---- Rows that are indexed together ------------------------------------------------------- */

/* One index for all the rows that the indices before it have left: it has to come to the same
 * elements in each. */
typedef struct rows {
  const view *v;
  size_t which; /* the index */
  size_t seen;
  step step; /* for the first of them, which has this many elements: */
  size_t first;
  loam_status status;
} rows;

static void look_at_row(rows *r, size_t count) {
  step s;
  if (r->status) return;
  const loam_index *x = &r->v->index[r->which];
  r->status = resolve(x, count, r->which, &s);
  if (r->status) {
    char why[256];
    snprintf(why, sizeof why, "%s", loam_error());
    lm_error(r->status, "%s in row %zu", why, r->seen);
  } else if (!r->seen++) {
    r->step = s;
    r->first = count;
  } else if (s.start != r->step.start || s.count != r->step.count) {
    r->status = lm_error(
        LOAM_EINVAL,
        "index %zu: of the %zu elements of row %zu it takes others than of the %zu "
        "of row 0; index each row by itself",
        r->which + 1, count, r->seen - 1, r->first);
  }
}

static void look(rows *r, const loam_type *type, const size_t *meta, const char *data,
                 size_t index);

static void look_along(rows *r, const loam_type *type, const size_t *meta, const char *data,
                       ptrdiff_t stride, const step *s, size_t index) {
  for (size_t i = 0; i < s->count && !r->status; i++) {
    ptrdiff_t element = (ptrdiff_t)s->start + (ptrdiff_t)i * s->step;
    look(r, type, meta, data + element * stride, index + 1);
  }
}

static void look_at_var(rows *r, const loam_type *type, const size_t *meta, const char *data,
                        size_t index) {
  const lm_var_layout *m = lm_layout_var(meta);
  const lm_piece *piece = (const lm_piece *)data;
  if (index == r->which) {
    look_at_row(r, piece->size);
    return;
  }
  step s = r->v->step[index];
  if (s.is_whole) s.count = piece->size;
  if (!s.count) return;
  look_along(r, type->element, m->element, lm_layout_first(m, piece), m->stride, &s, index);
}

/* Behind a NULL pointer there is no row; it is refused when it is followed. */
static void look(rows *r, const loam_type *type, const size_t *meta, const char *data,
                 size_t index) {
  if (type->kind == LOAM_TYPE_VAR) {
    look_at_var(r, type, meta, data, index);
  } else if (type->kind == LOAM_TYPE_POINTER) {
    const lm_pointer_layout *m = lm_layout_pointer(meta);
    const char *target;
    if (lm_layout_follow(type, m, data, &target)) look(r, type->element, m->target, target, index);
  } else {
    const lm_fixed_layout *m = lm_layout_fixed(meta);
    look_along(r, type->element, m->element, data, m->stride, &r->v->step[index], index);
  }
}

static loam_status resolve_rows(view *v, size_t which, step *out) {
  rows r = { .v = v, .which = which };
  if (!v->index[which].step) r.step = (step){ 0, 1, 1, true, false };
  look(&r, v->array->type, v->array->meta, v->array->data, 0);
  *out = r.step;
  return r.status;
}

/* ---- Pass one: the type ------------------------------------------------------------------- */

static loam_status derive(view *v, const loam_type *type, const size_t *meta, at where,
                          loam_type **out);

/* The type around what is left of an element. */
static loam_status derive_within(view *v, const loam_type *element, const size_t *meta, at where,
                                 loam_status (*around)(loam_type *, loam_type **),
                                 loam_type **out) {
  loam_type *inner;
  loam_status status = derive(v, element, meta, where, &inner);
  return status ? status : around(inner, out);
}

static loam_status keep(loam_type *inner, loam_type **out) {
  *out = inner;
  return LOAM_OK;
}

/* A row that stands at `first`, by the next index; without one it is taken whole. */
static loam_status derive_row(view *v, const lm_array_row *row, at where, loam_type **out) {
  step s = { 0, row->count, 1, false, true };
  if (where.index < v->indices) {
    loam_status status = resolve(&v->index[where.index], row->count, where.index, &s);
    if (status) return status;
    v->step[where.index++] = s;
  }
  if (where.is_direct) v->data += (ptrdiff_t)s.start * row->stride;
  if (!s.takes) where.is_first = false;
  if (s.takes) return derive_within(v, row->first.type, row->first.meta, where, keep, out);
  loam_type *inner;
  loam_status status = derive(v, row->first.type, row->first.meta, where, &inner);
  return status ? status : lm_type_fixed(s.count, inner, out);
}

static loam_status derive_pointer(view *v, const loam_type *type, const size_t *meta, at where,
                                  loam_type **out) {
  const lm_pointer_layout *m = lm_layout_pointer(meta);
  if (where.is_first) {
    lm_array_cursor spot = { type, meta, v->data, v->owner };
    loam_status status = lm_array_follow(&spot);
    if (status) return status;
    v->data = spot.data;
    v->owner = spot.owner;
    return derive(v, type->element, m->target, where, out);
  }
  where.is_direct = false;
  return derive_within(v, type->element, m->target, where, lm_type_pointer, out);
}

static loam_status derive_var(view *v, const loam_type *type, const size_t *meta, at where,
                              loam_type **out) {
  const lm_var_layout *m = lm_layout_var(meta);
  bool has_index = where.index < v->indices;
  if (where.is_first && has_index) {
    lm_array_cursor spot = { type, meta, v->data, v->owner };
    lm_array_row row;
    loam_status status = lm_array_dimension(spot, &row);
    if (status) return status;
    v->data = row.first.data;
    v->owner = row.first.owner;
    return derive_row(v, &row, where, out);
  }
  where.is_first = where.is_direct = false;
  if (!has_index) return derive_within(v, type->element, m->element, where, lm_type_var, out);
  step *s = &v->step[where.index];
  if (is_open(&v->index[where.index])) {
    *s = (step){ .step = 1, .is_whole = true };
    where.index++;
    return derive_within(v, type->element, m->element, where, lm_type_var, out);
  }
  loam_status status = resolve_rows(v, where.index++, s);
  loam_type *inner;
  if (!status) status = derive(v, type->element, m->element, where, &inner);
  if (!status && !s->takes) status = lm_type_fixed(s->count, inner, &inner);
  return status ? status : lm_type_pointer(inner, out);
}

static loam_status find_field(const loam_type *type, const char *name, size_t *out) {
  char words[LM_TYPE_WORDS], shown[LM_TYPE_WORDS];
  long i = lm_type_find(type, name);
  if (i < 0)
    return lm_error(LOAM_EINVAL, "field %s: %s has none of that name",
                    lm_error_quote(shown, sizeof shown, name), lm_type_words(words, type));
  *out = (size_t)i;
  return LOAM_OK;
}

static loam_status derive_fields(view *v, const loam_type *type, loam_type **out) {
  loam_type **types = loam_malloc(lm_type_site(), v->names * sizeof *types);
  if (!types) return LOAM_ENOMEM;
  loam_status status = LOAM_OK;
  size_t n = 0, field = 0;
  for (; n < v->names && !status; n++) {
    status = find_field(type, v->name[n], &field);
    if (!status) types[n] = loam_type_retain(type->fields[field].type);
  }
  if (!status) status = lm_type_struct(v->names, v->name, types, out);
  else
    for (n--; n > 0; n--) loam_type_release(types[n - 1]);
  loam_free(types);
  return status;
}

static loam_status derive_struct(view *v, const loam_type *type, const size_t *meta, at where,
                                 loam_type **out) {
  size_t field = 0;
  if (!v->is_single) return derive_fields(v, type, out);
  loam_status status = find_field(type, v->name[0], &field);
  if (status) return status;
  if (where.is_direct) v->data += lm_layout_offset(meta, field);
  *out = loam_type_retain(type->fields[field].type);
  return LOAM_OK;
}

static loam_status fail_at_value(const view *v, const loam_type *type, at where) {
  char words[LM_TYPE_WORDS];
  lm_type_words(words, type);
  if (where.index < v->indices)
    return lm_error(LOAM_EINVAL, "index %zu: %s has no dimension", where.index + 1, words);
  return lm_error(LOAM_EINVAL, "%s has no fields", words);
}

static loam_status derive(view *v, const loam_type *type, const size_t *meta, at where,
                          loam_type **out) {
  if (is_done(v, where)) {
    *out = loam_type_retain(type);
    return LOAM_OK;
  }
  bool has_index = where.index < v->indices;
  switch (type->kind) {
    case LOAM_TYPE_POINTER: return derive_pointer(v, type, meta, where, out);
    case LOAM_TYPE_VAR: return derive_var(v, type, meta, where, out);
    case LOAM_TYPE_FIXED: {
      const lm_fixed_layout *m = lm_layout_fixed(meta);
      lm_array_row row = { m->size, m->stride, { type->element, m->element, NULL, NULL } };
      return derive_row(v, &row, where, out);
    }
    case LOAM_TYPE_STRUCT:
      if (!has_index) return derive_struct(v, type, meta, where, out);
      break;
    default: break;
  }
  return fail_at_value(v, type, where);
}

/* ---- Pass two: the metadata --------------------------------------------------------------- */

/* `base` is the offset that what is selected further on moves. */
static void fill(const view *v, const loam_type *type, const size_t *meta, at where,
                 ptrdiff_t *base, size_t *to);

static step step_at(const view *v, at *where, size_t count) {
  if (where->index < v->indices) return v->step[where->index++];
  return (step){ 0, count, 1, false, true };
}

static void fill_row(const view *v, const loam_type *element, const size_t *meta, at where,
                     const step *s, ptrdiff_t stride, ptrdiff_t *base, size_t *to) {
  *base += (ptrdiff_t)s->start * stride;
  if (!s->takes) {
    lm_fixed_layout *m = (lm_fixed_layout *)to;
    m->size = s->count;
    m->stride = stride * s->step;
    where.is_first = false;
    to = m->element;
  }
  fill(v, element, meta, where, base, to);
}

static void fill_pointer(const view *v, const loam_type *type, const size_t *meta, at where,
                         ptrdiff_t *base, size_t *to) {
  const lm_pointer_layout *from = lm_layout_pointer(meta);
  if (where.is_first) {
    fill(v, type->element, from->target, where, base, to);
    return;
  }
  lm_pointer_layout *m = (lm_pointer_layout *)to;
  m->block = loam_block_retain(from->block);
  m->offset = from->offset;
  fill(v, type->element, from->target, where, &m->offset, m->target);
}

static void fill_var(const view *v, const loam_type *type, const size_t *meta, at where,
                     ptrdiff_t *base, size_t *to) {
  const lm_var_layout *from = lm_layout_var(meta);
  bool has_index = where.index < v->indices;
  if (where.is_first && has_index) {
    step s = step_at(v, &where, 0);
    fill_row(v, type->element, from->element, where, &s, from->stride, base, to);
    return;
  }
  where.is_first = false;
  if (!has_index || is_open(&v->index[where.index])) {
    lm_var_layout *m = (lm_var_layout *)to;
    where.index += has_index;
    m->block = loam_block_retain(from->block);
    m->stride = from->stride;
    m->offset = from->offset;
    fill(v, type->element, from->element, where, &m->offset, m->element);
    return;
  }
  lm_pointer_layout *m = (lm_pointer_layout *)to;
  step s = step_at(v, &where, 0);
  m->block = loam_block_retain(from->block);
  m->offset = from->offset;
  fill_row(v, type->element, from->element, where, &s, from->stride, &m->offset, m->target);
}

/* Of the fields, in the order of the names; the metadata of each as they were. */
static void fill_struct(const view *v, const loam_type *type, const size_t *meta, ptrdiff_t *base,
                        size_t *to) {
  size_t *next = to + v->names;
  for (size_t i = 0; i < v->names; i++) {
    size_t field = (size_t)lm_type_find(type, v->name[i]);
    const loam_type *t = type->fields[field].type;
    size_t offset = lm_layout_offset(meta, field);
    if (v->is_single) {
      *base += (ptrdiff_t)offset;
      next = to;
    } else {
      to[i] = offset;
    }
    lm_layout_copy(next, lm_layout_field(type, meta, field), t);
    next += t->meta / sizeof *next;
  }
}

static void fill(const view *v, const loam_type *type, const size_t *meta, at where,
                 ptrdiff_t *base, size_t *to) {
  if (is_done(v, where)) {
    lm_layout_copy(to, meta, type);
    return;
  }
  switch (type->kind) {
    case LOAM_TYPE_POINTER: fill_pointer(v, type, meta, where, base, to); break;
    case LOAM_TYPE_VAR: fill_var(v, type, meta, where, base, to); break;
    case LOAM_TYPE_FIXED: {
      const lm_fixed_layout *m = lm_layout_fixed(meta);
      step s = step_at(v, &where, m->size);
      fill_row(v, type->element, m->element, where, &s, m->stride, base, to);
      break;
    }
    default: fill_struct(v, type, meta, base, to); /* nothing else has been derived */
  }
}

/* ---- Views -------------------------------------------------------------------------------- */

static loam_status make(view *v, loam_array **out) {
  const loam_array *parent = v->array;
  lm_array_cursor root = lm_array_start(parent);
  at where = { 0, true, true };
  loam_type *type;
  v->data = root.data;
  v->owner = root.owner;
  loam_status status = derive(v, root.type, root.meta, where, &type);
  if (status) return status;
  loam_array *made = lm_array_make(parent->block.site, type, loam_block_retain(v->owner), v->data,
                                   0);
  if (!made) return LOAM_ENOMEM;
  ptrdiff_t moved = 0; /* that v->data already are */
  fill(v, root.type, root.meta, where, &moved, made->meta);
  made->is_readonly = parent->is_readonly;
  lm_verify(lm_array_is_valid(made));
  *out = made;
  return LOAM_OK;
}

loam_status loam_array_index(const loam_array *array, size_t count, const loam_index *index,
                             loam_array **out) {
  if (!array || !out || (count && !index))
    return lm_error(LOAM_EINVAL, "array, index or out: it is NULL");
  if (count > LM_TYPE_DEPTH)
    return lm_error(LOAM_EINVAL, "%zu indices: no array has as many dimensions", count);
  view v = { .array = array, .index = index, .indices = count };
  return make(&v, out);
}

loam_status loam_array_field(const loam_array *array, const char *name, loam_array **out) {
  if (!array || !name || !out) return lm_error(LOAM_EINVAL, "array, name or out: it is NULL");
  view v = { .array = array, .name = &name, .names = 1, .is_single = true };
  return make(&v, out);
}

loam_status loam_array_fields(const loam_array *array, size_t count, const char *const *names,
                              loam_array **out) {
  if (!array || !names || !out) return lm_error(LOAM_EINVAL, "array, names or out: it is NULL");
  if (!count) return lm_error(LOAM_EINVAL, "no field is named");
  view v = { .array = array, .name = names, .names = count };
  return make(&v, out);
}

loam_status loam_array_follow(const loam_array *array, loam_array **out) {
  if (!array || !out) return lm_error(LOAM_EINVAL, "array or out: it is NULL");
  lm_array_cursor spot = lm_array_start(array);
  char words[LM_TYPE_WORDS];
  if (spot.type->kind != LOAM_TYPE_POINTER)
    return lm_error(LOAM_EINVAL, "type %s: it is not a pointer", lm_type_words(words, spot.type));
  loam_status status = lm_array_follow(&spot);
  if (status) return status;
  loam_array *made = lm_array_make(array->block.site, loam_type_retain(spot.type),
                                   loam_block_retain(spot.owner), spot.data, 0);
  if (!made) return LOAM_ENOMEM;
  lm_layout_copy(made->meta, spot.meta, spot.type);
  made->is_readonly = array->is_readonly;
  *out = made;
  return LOAM_OK;
}

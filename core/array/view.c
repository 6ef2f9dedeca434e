/* view.c - views of arrays by indices, ranges and field names. No data are copied.
 *
 * The indices select from the dimensions of the type, from the left. The kinds of type become:
 *
 *   a fixed dimension   at an index: its element, at another address; over a range: a fixed
 *                       dimension with another size and stride
 *   a pointer           before any range it is followed; after a range it stays a pointer, whose
 *                       offset grows by the offset of the selected part of its target
 *   a var dimension     before any range it is one row in memory and becomes a fixed dimension;
 *                       after a range it stays a var dimension if every element is selected, and
 *                       else becomes a pointer to the selected element or range, which every row
 *                       needs to have
 *   an option           before any range it is its value, if that is not missing; after a range
 *                       nothing of it can be selected
 *   a struct            one field: the field, whose offset is added to the nearest offset before
 *                       it; several fields: a struct of these fields with their offsets
 *
 * So a view always has a type of the datashape language. A view is made in two passes: `derive`
 * makes the type and can fail; `fill` writes the metadata and cannot fail. */
#include <stdio.h>
#include <string.h>

#include "array/array.h"
#include "os/error.h"

/* An index, resolved for a known number of elements.
 *
 * Law: `takes` implies count == 1 and not is_whole. `is_whole` implies start == 0 and step == 1.
 *      If count is 0, start is 0; if count > 1, step is not 0. */
typedef struct step {
  size_t start, count; /* the first element, and how many elements are selected */
  ptrdiff_t step;      /* from one selected element to the next, in elements */
  bool takes;          /* one element is selected by its index: the dimension is removed */
  bool is_whole;       /* every element is selected, in order */
} step;

LM_INLINE bool step_is_valid(const step *s) {
  if (s->takes && (s->count != 1 || s->is_whole)) return false;
  if (s->is_whole && (s->start || s->step != 1)) return false;
  return s->count ? s->count == 1 || s->step : !s->start;
}

/* A view that is being made. */
typedef struct view {
  const loam_array *array;
  const loam_index *index;
  size_t indices;
  const char *const *name;
  size_t names;             /* 0: no fields are selected */
  bool is_single;           /* the view is of one field, not of a struct of fields */
  uint64_t part_targets;    /* of the view, as in loam_array */
  uint64_t parts_left;      /* of the array: bit 0 is for the next pointer that `derive` reaches */
  unsigned pointers;        /* how many pointers `derive` has put into the type of the view */
  char *data;               /* the address of the view's data, as far as `derive` has come */
  loam_block *owner;        /* the owner of the memory at `data`; not retained */
  step step[LM_TYPE_DEPTH]; /* for each index, from `derive` for `fill` */
} view;

/* A place in the tree of the array's type, and how the indices lead to it. */
typedef struct place {
  const loam_type *type;
  const size_t *meta;
  size_t index;   /* how many indices are used before this place */
  bool is_first;  /* no range is before this place, so there is only one value in memory */
  bool is_direct; /* no offset of a var dimension or a pointer is before: offsets move v->data */
} place;

/* Returns the place of a part of the value at `at`. No index is used between the two places. */
static place part_of(place at, const loam_type *type, const size_t *meta) {
  at.type = type;
  at.meta = meta;
  return at;
}

/* Returns whether an index is left for the next dimension. */
static bool has_index(const view *v, place at) { return at.index < v->indices; }

/* Returns whether nothing more is selected: the view has the type and metadata of the place. */
static bool is_done(const view *v, place at) { return !has_index(v, at) && !v->names; }

/* ---- Indices ------------------------------------------------------------------------------ */

/* Resolves the index of one element. `which` is the number of the index, from 0, for messages. */
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

/* Resolves an index or a range as Python does: a range is cut off at both ends, and with a negative
 * step it begins at the end by default. */
static loam_status resolve(const loam_index *x, size_t count, size_t which, step *out) {
  if (!x->step) return resolve_one(x->start, count, which, out);
  if (x->step == INT64_MIN)
    return lm_error(LOAM_EINVAL, "index %zu: a step of %lld", which + 1, (long long)x->step);
  int64_t n = (int64_t)count, s = x->step, low = s < 0 ? -1 : 0, high = s < 0 ? n - 1 : n;
  int64_t start = x->start, stop = x->stop;
  start = start == LOAM_OPEN ? (s < 0 ? high : low)
                             : clamp(start < 0 ? start + n : start, low, high);
  stop = stop == LOAM_OPEN ? (s < 0 ? low : high) : clamp(stop < 0 ? stop + n : stop, low, high);
  int64_t distance = s < 0 ? start - stop : stop - start, by = s < 0 ? -s : s;
  size_t length = distance > 0 ? (size_t)((distance - 1) / by + 1) : 0;
  lm_assert(length <= count);
  if (length <= 1) s = 1; /* not used; a stride times a huge step would overflow */
  *out = (step){ length ? (size_t)start : 0, length, s, false, length == count && s == 1 };
  lm_assert(step_is_valid(out));
  return LOAM_OK;
}

/* Returns whether a range selects every element of any row. */
static bool is_open(const loam_index *x) {
  return x->step == 1 && (x->start == LOAM_OPEN || !x->start) && x->stop == LOAM_OPEN;
}

/* ---- One index for many rows -------------------------------------------------------------- */

/* The check that index `which` selects the same elements in every row to which the indices before
 * it lead. */
typedef struct rows {
  const view *v;
  size_t which; /* the number of the index, from 0 */
  size_t seen;  /* how many rows were checked */
  step step;    /* the index, resolved for row 0 */
  size_t first; /* the number of elements of row 0 */
  loam_status status;
} rows;

/* Checks the next row, which has `count` elements. */
static void check_row(rows *r, size_t count) {
  step s;
  lm_assert(r->which < r->v->indices);
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
        "index %zu selects other elements of row %zu, which has %zu, than of row 0, which has %zu; "
        "index each row by itself",
        r->which + 1, r->seen - 1, count, r->first);
  }
}

/* Checks all rows at and behind a cursor, before which `index` indices are used. */
static void check_rows(rows *r, lm_array_cursor spot, size_t index);

/* Checks the elements of a row that an index selects. */
static void check_selected(rows *r, const lm_array_row *row, const step *s, size_t index) {
  lm_assert(step_is_valid(s) && (s->is_whole || !s->count || s->start < row->count));
  lm_array_cursor element = row->first;
  for (size_t i = 0; i < s->count && !r->status; i++) {
    ptrdiff_t number = (ptrdiff_t)s->start + (ptrdiff_t)i * s->step;
    element.data = lm_layout_move(row->first.data, number * row->stride);
    check_rows(r, element, index + 1);
  }
}

/* Checks the rows behind a pointer. A NULL pointer leads to no row: it stays in the view, and is
 * refused when the view is followed. */
static void check_target(rows *r, lm_array_cursor spot, size_t index) {
  const lm_pointer_layout *m = lm_layout_pointer(spot.meta);
  lm_array_cursor target = { spot.type->element, m->target, NULL, m->block };
  if (lm_layout_follow(spot.type, m, spot.data, &target.data)) check_rows(r, target, index);
}

static void check_rows(rows *r, lm_array_cursor spot, size_t index) {
  if (spot.type->kind == LOAM_TYPE_OPTION) spot.type = spot.type->element; /* it is not missing */
  if (spot.type->kind == LOAM_TYPE_POINTER) {
    check_target(r, spot, index);
    return;
  }
  lm_array_row row = lm_array_row_at(spot);
  bool is_var = spot.type->kind == LOAM_TYPE_VAR;
  if (is_var && index == r->which) {
    check_row(r, row.count);
    return;
  }
  step s = r->v->step[index];
  if (is_var && s.is_whole) s.count = row.count; /* each row has a count of its own */
  check_selected(r, &row, &s, index);
}

/* Resolves index `which` for all rows of a var dimension. Without any row, nothing is selected. */
static loam_status resolve_rows(view *v, size_t which, step *out) {
  rows r = { .v = v, .which = which };
  if (!v->index[which].step) r.step = (step){ 0, 1, 1, true, false };
  check_rows(&r, lm_array_start(v->array), 0);
  *out = r.step;
  lm_assert(step_is_valid(out));
  return r.status;
}

/* ---- Pass one: the type ------------------------------------------------------------------- */

/* Makes the type of a view of the value at a place. *out is a reference for the caller. */
static loam_status derive(view *v, place at, loam_type **out);

/* Derives the type of a part, and then the type around it by `wrap`. */
static loam_status derive_within(view *v, place part,
                                 loam_status (*wrap)(loam_type *, loam_type **), loam_type **out) {
  loam_type *inner;
  loam_status status = derive(v, part, &inner);
  return status ? status : wrap(inner, out);
}

/* Derives the type of a row by the next index; without an index it is taken whole. */
static loam_status derive_row(view *v, const lm_array_row *row, place at, loam_type **out) {
  step s = { 0, row->count, 1, false, true };
  if (has_index(v, at)) {
    loam_status status = resolve(&v->index[at.index], row->count, at.index, &s);
    if (status) return status;
    v->step[at.index++] = s;
  }
  if (at.is_direct) v->data = lm_layout_move(v->data, (ptrdiff_t)s.start * row->stride);
  place element = part_of(at, row->first.type, row->first.meta);
  if (s.takes) return derive(v, element, out);
  element.is_first = false;
  loam_type *inner;
  loam_status status = derive(v, element, &inner);
  return status ? status : lm_type_fixed(s.count, inner, out);
}

/* Refuses an index or a field name at a value that has neither dimensions nor fields. */
static loam_status fail_at_value(const view *v, place at) {
  char words[LM_TYPE_WORDS];
  lm_type_words(words, at.type);
  if (has_index(v, at))
    return lm_error(LOAM_EINVAL, "index %zu: %s has no dimension", at.index + 1, words);
  return lm_error(LOAM_EINVAL, "%s has no fields", words);
}

/* Before any range an option of a value with parts is that value, if it is not missing. */
static loam_status derive_option(view *v, place at, loam_type **out) {
  char words[LM_TYPE_WORDS];
  if (!lm_type_is_followed(at.type)) return fail_at_value(v, at);
  if (!at.is_first)
    return lm_error(LOAM_EINVAL, "%s: some may be missing; take one of them first",
                    lm_type_words(words, at.type));
  lm_array_cursor spot = { at.type, at.meta, v->data, v->owner };
  loam_status status = lm_array_follow(&spot);
  return status ? status : derive(v, part_of(at, at.type->element, at.meta), out);
}

static loam_status derive_pointer(view *v, place at, loam_type **out) {
  const lm_pointer_layout *m = lm_layout_pointer(at.meta);
  place target = part_of(at, at.type->element, m->target);
  bool was_part = v->parts_left & 1;
  v->parts_left >>= 1;
  if (at.is_first) {
    lm_array_cursor spot = { at.type, at.meta, v->data, v->owner };
    loam_status status = lm_array_follow(&spot);
    if (status) return status;
    v->data = spot.data;
    v->owner = spot.owner;
    return derive(v, target, out);
  }
  target.is_direct = false;
  unsigned number = v->pointers++;
  loam_type *inner;
  loam_status status = derive(v, target, &inner);
  if (status) return status;
  bool is_part = was_part || inner->size < at.type->element->size;
  v->part_targets |= (uint64_t)is_part << number;
  return lm_type_pointer(inner, out);
}

/* A var dimension before any range is one row: its elements are where its piece says. */
static loam_status derive_first_var(view *v, place at, loam_type **out) {
  lm_array_row row = lm_array_row_at((lm_array_cursor){ at.type, at.meta, v->data, v->owner });
  v->data = row.first.data;
  v->owner = row.first.owner;
  return derive_row(v, &row, at, out);
}

static loam_status derive_var(view *v, place at, loam_type **out) {
  const lm_var_layout *m = lm_layout_var(at.meta);
  if (at.is_first && has_index(v, at)) return derive_first_var(v, at, out);
  place element = part_of(at, at.type->element, m->element);
  element.is_first = element.is_direct = false;
  if (!has_index(v, at)) return derive_within(v, element, lm_type_var, out);
  step *s = &v->step[element.index++];
  if (is_open(&v->index[at.index])) {
    *s = (step){ .step = 1, .is_whole = true };
    return derive_within(v, element, lm_type_var, out);
  }
  loam_status status = resolve_rows(v, at.index, s);
  loam_type *inner;
  v->part_targets |= (uint64_t)1 << v->pointers++; /* the pointer leads to a part of the row */
  if (!status) status = derive(v, element, &inner);
  if (!status && !s->takes) status = lm_type_fixed(s->count, inner, &inner);
  return status ? status : lm_type_pointer(inner, out);
}

/* Finds a field of a struct type by its name. */
static loam_status find_field(const loam_type *type, const char *name, size_t *out) {
  lm_assert(type->kind == LOAM_TYPE_STRUCT);
  char words[LM_TYPE_WORDS], shown[LM_TYPE_WORDS];
  long i = lm_type_find(type, name);
  if (i < 0)
    return lm_error(LOAM_EINVAL, "field %s: %s has no field of that name",
                    lm_error_quote(shown, sizeof shown, name), lm_type_words(words, type));
  *out = (size_t)i;
  return LOAM_OK;
}

/* Makes a struct type of the selected fields. */
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

static loam_status derive_struct(view *v, place at, loam_type **out) {
  size_t field = 0;
  if (!v->is_single) return derive_fields(v, at.type, out);
  loam_status status = find_field(at.type, v->name[0], &field);
  if (status) return status;
  if (at.is_direct) v->data = lm_layout_move(v->data, (ptrdiff_t)lm_layout_offset(at.meta, field));
  *out = loam_type_retain(at.type->fields[field].type);
  return LOAM_OK;
}

static loam_status derive(view *v, place at, loam_type **out) {
  lm_assert(at.index <= v->indices);
  if (is_done(v, at)) {
    v->part_targets |= v->parts_left << v->pointers;
    *out = loam_type_retain(at.type);
    return LOAM_OK;
  }
  switch (at.type->kind) {
    case LOAM_TYPE_POINTER: return derive_pointer(v, at, out);
    case LOAM_TYPE_OPTION: return derive_option(v, at, out);
    case LOAM_TYPE_VAR: return derive_var(v, at, out);
    case LOAM_TYPE_FIXED: {
      const lm_fixed_layout *m = lm_layout_fixed(at.meta);
      lm_array_row row = { m->size, m->stride, { at.type->element, m->element, NULL, NULL } };
      return derive_row(v, &row, at, out);
    }
    case LOAM_TYPE_STRUCT:
      if (!has_index(v, at)) return derive_struct(v, at, out);
      break;
    default: break;
  }
  return fail_at_value(v, at);
}

/* ---- Pass two: the metadata --------------------------------------------------------------- */

/* The address `meta` at which metadata of the view are written. `base` is the nearest offset before
 * them, to which offsets of selected elements and fields are added. */
typedef struct output {
  ptrdiff_t *base;
  size_t *meta;
} output;

/* Writes the metadata of a view of the value at a place. */
static void fill(const view *v, place at, output to);

/* Writes the metadata of a row of which `s` selects elements; `element` is the place of its
 * elements, which are `stride` bytes apart. */
static void fill_row(const view *v, place element, const step *s, ptrdiff_t stride, output to) {
  *to.base += (ptrdiff_t)s->start * stride;
  if (!s->takes) {
    lm_fixed_layout *m = (lm_fixed_layout *)to.meta;
    m->size = s->count;
    m->stride = stride * s->step;
    element.is_first = false;
    to.meta = m->element;
  }
  fill(v, element, to);
}

static void fill_fixed(const view *v, place at, output to) {
  const lm_fixed_layout *m = lm_layout_fixed(at.meta);
  place element = part_of(at, at.type->element, m->element);
  step s = { 0, m->size, 1, false, true };
  if (has_index(v, at)) s = v->step[element.index++];
  fill_row(v, element, &s, m->stride, to);
}

/* Begins the metadata of a pointer in the view. Returns where the metadata of its target go. */
static output begin_pointer(loam_block *block, ptrdiff_t offset, output to) {
  lm_pointer_layout *m = (lm_pointer_layout *)to.meta;
  m->block = loam_block_retain(block);
  m->offset = offset;
  return (output){ &m->offset, m->target };
}

static void fill_pointer(const view *v, place at, output to) {
  const lm_pointer_layout *from = lm_layout_pointer(at.meta);
  if (!at.is_first) to = begin_pointer(from->block, from->offset, to);
  fill(v, part_of(at, at.type->element, from->target), to);
}

/* Copies the metadata of a var dimension that is taken whole. */
static void fill_whole_var(const view *v, place element, const lm_var_layout *from, output to) {
  lm_var_layout *m = (lm_var_layout *)to.meta;
  m->block = loam_block_retain(from->block);
  m->stride = from->stride;
  m->offset = from->offset;
  fill(v, element, (output){ &m->offset, m->element });
}

static void fill_var(const view *v, place at, output to) {
  const lm_var_layout *from = lm_layout_var(at.meta);
  place element = part_of(at, at.type->element, from->element);
  const step *s = &v->step[at.index];
  element.index += has_index(v, at);
  if (at.is_first && has_index(v, at)) {
    fill_row(v, element, s, from->stride, to);
    return;
  }
  element.is_first = false;
  if (!has_index(v, at) || is_open(&v->index[at.index])) fill_whole_var(v, element, from, to);
  else fill_row(v, element, s, from->stride, begin_pointer(from->block, from->offset, to));
}

/* Writes the metadata of the selected fields, in the order of their names. The metadata of each
 * field are copied unchanged. */
static void fill_struct(const view *v, place at, output to) {
  size_t *next = to.meta + v->names;
  for (size_t i = 0; i < v->names; i++) {
    size_t field = (size_t)lm_type_find(at.type, v->name[i]);
    lm_assert(field < at.type->count);
    const loam_type *type = at.type->fields[field].type;
    size_t offset = lm_layout_offset(at.meta, field);
    if (v->is_single) {
      *to.base += (ptrdiff_t)offset;
      next = to.meta;
    } else {
      to.meta[i] = offset;
    }
    lm_layout_copy(next, lm_layout_field(at.type, at.meta, field), type);
    next += type->meta / sizeof *next;
  }
}

static void fill(const view *v, place at, output to) {
  if (is_done(v, at)) {
    lm_layout_copy(to.meta, at.meta, at.type);
    return;
  }
  switch (at.type->kind) {
    case LOAM_TYPE_POINTER: fill_pointer(v, at, to); break;
    case LOAM_TYPE_OPTION: fill(v, part_of(at, at.type->element, at.meta), to); break;
    case LOAM_TYPE_VAR: fill_var(v, at, to); break;
    case LOAM_TYPE_FIXED: fill_fixed(v, at, to); break;
    default:
      lm_assert(at.type->kind == LOAM_TYPE_STRUCT); /* derive has refused all other kinds */
      fill_struct(v, at, to);
  }
}

/* ---- Views -------------------------------------------------------------------------------- */

/* Makes the view that `v` describes; `v->data` and `v->owner` are set here. */
static loam_status make_view(view *v, loam_array **out) {
  const loam_array *parent = v->array;
  lm_array_cursor root = lm_array_start(parent);
  place start = { root.type, root.meta, 0, true, true };
  loam_type *type;
  v->data = root.data;
  v->owner = root.owner;
  v->parts_left = parent->part_targets;
  loam_status status = derive(v, start, &type);
  if (status) return status;
  lm_assert(type && v->owner);
  loam_array *made = lm_array_make(parent->block.site, type, loam_block_retain(v->owner), v->data,
                                   0);
  if (!made) return LOAM_ENOMEM;
  ptrdiff_t moved = 0; /* not used: `derive` has added these offsets to v->data */
  fill(v, start, (output){ &moved, made->meta });
  made->is_readonly = parent->is_readonly;
  made->part_targets = v->part_targets;
  lm_verify(lm_array_is_valid(made));
  *out = made;
  return LOAM_OK;
}

loam_status loam_array_index(const loam_array *array, size_t count, const loam_index *index,
                             loam_array **out) {
  if (!array || !out || (count && !index))
    return lm_error_missing(!array ? "array" : out ? "index" : "out");
  if (count > LM_TYPE_DEPTH)
    return lm_error(LOAM_EINVAL, "%zu indices: no array has as many dimensions", count);
  view v = { .array = array, .index = index, .indices = count };
  return make_view(&v, out);
}

loam_status loam_array_field(const loam_array *array, const char *name, loam_array **out) {
  if (!array || !name || !out) return lm_error_missing(!array ? "array" : name ? "out" : "name");
  view v = { .array = array, .name = &name, .names = 1, .is_single = true };
  return make_view(&v, out);
}

loam_status loam_array_fields(const loam_array *array, size_t count, const char *const *names,
                              loam_array **out) {
  if (!array || !names || !out) return lm_error_missing(!array ? "array" : names ? "out" : "names");
  if (!count) return lm_error(LOAM_EINVAL, "no field is named");
  view v = { .array = array, .name = names, .names = count };
  return make_view(&v, out);
}

loam_status loam_array_follow(const loam_array *array, loam_array **out) {
  if (!array || !out) return lm_error_missing(array ? "out" : "array");
  lm_array_cursor spot = lm_array_start(array);
  char words[LM_TYPE_WORDS];
  if (!lm_type_is_followed(spot.type))
    return lm_error(LOAM_EINVAL, "type %s: it is not a pointer", lm_type_words(words, spot.type));
  loam_status status = lm_array_follow(&spot);
  if (status) return status;
  loam_array *made = lm_array_make(array->block.site, loam_type_retain(spot.type),
                                   loam_block_retain(spot.owner), spot.data, 0);
  if (!made) return LOAM_ENOMEM;
  lm_layout_copy(made->meta, spot.meta, spot.type);
  made->is_readonly = array->is_readonly;
  bool was_pointer = array->type->kind == LOAM_TYPE_POINTER;
  made->part_targets = array->part_targets >> was_pointer;
  lm_verify(lm_array_is_valid(made));
  *out = made;
  return LOAM_OK;
}

/* Makes the type of `n` fixed dimensions in reverse, around the element type; `shape` has the sizes
 * in the present order. */
static loam_status reverse_type(const loam_type *element, size_t n, const size_t *shape,
                                loam_type **out) {
  loam_type *type = loam_type_retain(element);
  loam_status status = LOAM_OK;
  for (size_t i = 0; i < n && !status; i++) status = lm_type_fixed(shape[i], type, &type);
  if (!status) *out = type;
  return status;
}

loam_status loam_array_transpose(const loam_array *array, loam_array **out) {
  size_t shape[LM_TYPE_DEPTH];
  int64_t strides[LM_TYPE_DEPTH];
  loam_type *type;
  if (!array || !out) return lm_error_missing("array or out");
  size_t n = loam_array_dims(array, LM_TYPE_DEPTH, shape, strides);
  lm_array_cursor element = lm_array_start(array);
  for (size_t i = 0; i < n; i++) {
    element.type = element.type->element;
    element.meta = lm_layout_fixed(element.meta)->element;
  }
  loam_status status = reverse_type(element.type, n, shape, &type);
  if (status) return status;
  loam_array *made = lm_array_make(array->block.site, type, loam_block_retain(element.owner),
                                   array->data, 0);
  if (!made) return LOAM_ENOMEM;
  size_t *meta = made->meta;
  for (size_t i = n; i-- > 0; meta = ((lm_fixed_layout *)meta)->element)
    *(lm_fixed_layout *)meta = (lm_fixed_layout){ .size = shape[i], .stride = strides[i] };
  lm_layout_copy(meta, element.meta, element.type);
  made->is_readonly = array->is_readonly;
  made->part_targets = array->part_targets;
  lm_verify(lm_array_is_valid(made));
  *out = made;
  return LOAM_OK;
}

loam_status loam_array_readonly(const loam_array *array, loam_array **out) {
  loam_array *made;
  if (!out) return lm_error_missing("out");
  loam_status status = loam_array_index(array, 0, NULL, &made);
  if (status) return status;
  made->is_readonly = true;
  *out = made;
  return LOAM_OK;
}

/* views.c - makes random arrays and takes random indices, ranges and fields of them. Compares each
 * with a model, which keeps every value in a tree of its own and copies the tree for each view.
 * Sends each array through Arrow and back. Parses the text of each type again, also with wrong
 * characters in it. Arguments: the number of arrays (3000), and a seed. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "array/arrow.h"
#include "array/type.h"
#include "loam.h"
#include "os/base.h"

static uint64_t seed = 11;
static int64_t roll(int64_t n) {
  seed = seed * 6364136223846793005u + 1442695040888963407u;
  return (int64_t)(seed >> 33) % n;
}

/* ---- The model ---- */

typedef enum node_kind { LIST, RECORD, NUMBER, TEXT, NOTHING } node_kind;

enum { MOST = 8 }; /* elements of a list */

typedef struct node {
  node_kind kind;
  int n, value;
  struct node *child[MOST];
  const char *name[MOST]; /* the fields of a record */
} node;

/* The nodes of one round. */
static node nodes[200000];
static int used;

static node *make(node_kind kind, int value) {
  lm_require(used < (int)LM_COUNT(nodes));
  nodes[used] = (node){ .kind = kind, .value = value };
  return &nodes[used++];
}

static char text[2][1 << 20]; /* of the model, and of the array */
static size_t length[2];

static void say(const char *format, ...) LM_PRINTF(1, 2);
static void say(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  length[0] += (size_t)vsprintf(text[0] + length[0], format, arguments);
  va_end(arguments);
}

static void print_node(const node *t) {
  if (t->kind == NUMBER) say("%d", t->value);
  else if (t->kind == TEXT) say("\"%d\"", t->value);
  else if (t->kind == NOTHING) say("null");
  else {
    say(t->kind == LIST ? "[" : "{");
    for (int i = 0; i < t->n; i++) {
      if (i) say(",");
      if (t->kind == RECORD) say("\"%s\":", t->name[i]);
      print_node(t->child[i]);
    }
    say(t->kind == LIST ? "]" : "}");
  }
}

/* Finds the elements of `n` that an index or a range selects, as Python's manual defines it.
 * Returns how many there are, or -1 if an index is out of range. */
static int choose(const loam_index *x, int n, int *which) {
  int64_t i = x->start, j = x->stop, k = x->step, count = 0;
  if (k == 0) {
    which[0] = (int)(i < 0 ? i + n : i);
    return which[0] < 0 || which[0] >= n ? -1 : 1;
  }
  if (i == LOAM_OPEN) i = k > 0 ? 0 : n - 1;
  else if (i < 0) i += n;
  if (j == LOAM_OPEN) j = k > 0 ? n : -1;
  else if (j < 0 && (j += n) < -1) j = -1;
  while (k > 0 && i < 0) i = 0;
  while (k < 0 && i > n - 1) i = n - 1;
  for (; i >= 0 && i < n && (k > 0 ? i < j : i > j); i += k) which[count++] = (int)i;
  return (int)count;
}

/* The selection that all rows of a dimension must have in common. */
typedef struct dimension {
  int rows, count, which[MOST];
  bool differ, is_beyond;
} dimension;

static dimension dims[16];

static bool is_whole(const loam_index *x) {
  return x->step == 1 && (x->start == LOAM_OPEN || x->start == 0) && x->stop == LOAM_OPEN;
}

static void agree(dimension *d, const int *which, int count) {
  if (count < 0) d->is_beyond = true;
  if (!d->rows++) {
    d->count = count;
    memcpy(d->which, which, sizeof d->which);
  } else if (count != d->count || (count > 0 && which[0] != d->which[0])) {
    d->differ = true;
  }
}

static node *cut(const node *t, int n, const loam_index *x, int depth) {
  if (!n) return (node *)t;
  int which[MOST] = { 0 }, count = choose(x, t->n, which);
  agree(&dims[depth], which, count);
  if (count < 0) return NULL;
  if (!x->step) return cut(t->child[which[0]], n - 1, x + 1, depth + 1);
  node *list = make(LIST, 0);
  list->n = count;
  for (int i = 0; i < count; i++) list->child[i] = cut(t->child[which[i]], n - 1, x + 1, depth + 1);
  return list;
}

static node *select_fields(const node *t, int n, const char *const *names) {
  node *made = make(t->kind, 0);
  if (t->kind == LIST) {
    made->n = t->n;
    for (int i = 0; i < t->n; i++) made->child[i] = select_fields(t->child[i], n, names);
    return made;
  }
  for (int k = 0; k < (n ? n : 1); k++) {
    for (int i = 0; i < t->n; i++) {
      if (strcmp(t->name[i], names[k]) != 0) continue;
      if (!n) return t->child[i];
      made->name[k] = t->name[i];
      made->child[k] = t->child[i];
    }
  }
  made->n = n;
  return made;
}

/* ---- Random types and their values ---- */

static char type_text[1 << 16];

static void add(const char *word) { strcat(type_text, word); }

/* Writes a categorical type. One in 20 has 255 to 258 categories: 256 is the most that codes of one
 * byte can number. */
static void write_categorical(void) {
  char name[16];
  bool is_optional = roll(2);
  int count = (int)(roll(20) ? 1 + roll(9) : 255 + roll(4));
  if (is_optional && count == 256) count++; /* else no code is left for a missing value */
  add(is_optional ? "?categorical[[" : "categorical[[");
  for (int i = 0; i < count; i++) {
    sprintf(name, i ? ", '%d'" : "'%d'", i);
    add(name);
  }
  add(roll(2) ? "], ordered=True]" : "]]");
}

static void write_type(int depth) {
  static const char *const scalars[] = { "int32", "?int16", "float64", "string", "uint8" };
  bool is_optional = depth <= 4 && !roll(8); /* only a row or a struct is optional here */
  int64_t what = depth > 4 ? 9 : is_optional ? roll(6 + (depth > 0)) : roll(10);
  char number[32];
  if (is_optional) add("?");
  if (is_optional && what == 6) what++;
  if (what < 3) {
    sprintf(number, "%d * ", (int)(1 + roll(4)));
    add(number);
    write_type(depth + 1);
  } else if (what < 6) {
    add("var * ");
    write_type(depth + 1);
  } else if (what < 7) {
    add("pointer[");
    write_type(depth + 1);
    add("]");
  } else if (what < 8 && depth) {
    add("{a: ");
    write_type(depth + 2);
    add(", b: ");
    write_type(depth + 2);
    add(", c: int64}");
  } else if (roll(6)) {
    add(scalars[roll(LM_COUNT(scalars))]);
  } else {
    write_categorical();
  }
}

static void must(loam_status status) {
  if (!status) return;
  fprintf(stderr, "%s: %s\n", type_text, loam_error());
  abort();
}

/* Checks that the text of a type is a datashape of an equal type. */
static void parse_again(const loam_type *type) {
  loam_type *again;
  must(loam_type_parse(loam_type_text(type), &again));
  lm_require(loam_type_equal(type, again) && lm_type_is_valid(again));
  loam_type_release(again);
}

/* Parses the text of the type with a few wrong characters. The parser may refuse it, or accept it
 * as another type. */
static void parse_misspelt(void) {
  static const char characters[] = "[]{}()'\"\\,=*? 1a";
  static char text_now[sizeof type_text];
  loam_type *type;
  strcpy(text_now, type_text);
  for (int64_t i = roll(4); i >= 0; i--)
    text_now[roll((int64_t)strlen(text_now))] = characters[roll(sizeof characters - 1)];
  loam_status status = loam_type_parse(text_now, &type);
  lm_require(!status || status == LOAM_EINVAL);
  if (status) return;
  parse_again(type);
  loam_type_release(type);
}

static node *fill(loam_array *a, const loam_type *type);

static node *fill_dimension(loam_array *a, const struct loam_type_info *info) {
  node *list = make(LIST, 0);
  list->n = (int)info->count;
  if (info->kind == LOAM_TYPE_VAR) {
    list->n = (int)roll(5);
    if (roll(2)) must(loam_array_resize(a, (size_t)roll(9)));
    must(loam_array_resize(a, (size_t)list->n));
  }
  for (int i = 0; i < list->n; i++) {
    loam_array *element;
    must(loam_array_index(a, 1, &LOAM_AT(i), &element));
    list->child[i] = fill(element, info->element);
    loam_array_release(element);
  }
  return list;
}

static node *fill_struct(loam_array *a, const loam_type *type, size_t count) {
  node *record = make(RECORD, 0);
  record->n = (int)count;
  for (size_t i = 0; i < count; i++) {
    struct loam_type_field f;
    loam_array *field;
    must(loam_type_field(type, i, &f));
    must(loam_array_field(a, f.name, &field));
    record->name[i] = strcmp(f.name, "a") ? strcmp(f.name, "b") ? "c" : "b" : "a";
    record->child[i] = fill(field, f.type);
    loam_array_release(field);
  }
  return record;
}

/* Fills a pointer, or an optional row or struct. In one of four cases an optional one is
 * missing. */
static node *fill_target(loam_array *a, const struct loam_type_info *info) {
  loam_array *target;
  bool is_option = info->kind == LOAM_TYPE_OPTION;
  if (is_option && roll(2)) must(loam_array_omit(a));
  must(loam_array_resize(a, 1));
  must(loam_array_follow(a, &target));
  node *made = fill(target, info->element);
  loam_array_release(target);
  if (!is_option || roll(4)) return made;
  must(loam_array_omit(a));
  return make(NOTHING, 0);
}

static bool is_compound(const loam_type *type) {
  struct loam_type_info info;
  must(loam_type_info(type, &info));
  return info.kind == LOAM_TYPE_FIXED || info.kind == LOAM_TYPE_VAR ||
         info.kind == LOAM_TYPE_STRUCT;
}

static node *fill_text(loam_array *a) {
  char digits[16];
  int value = (int)roll(1000);
  must(loam_array_set_text(a, digits, (size_t)sprintf(digits, "%d", value)));
  return make(TEXT, value);
}

/* Fills a categorical. In one of four cases an optional one is missing. */
static node *fill_category(loam_array *a, const loam_type *type, bool is_option) {
  struct loam_type_info info;
  struct loam_type_field category;
  must(loam_type_info(type, &info));
  int value = (int)roll((int64_t)info.count);
  must(loam_type_field(type, (size_t)value, &category));
  must(loam_array_set_text(a, category.name, strlen(category.name)));
  if (!is_option || roll(4)) return make(TEXT, value);
  must(loam_array_omit(a));
  return make(NOTHING, 0);
}

static bool is_categorical(const loam_type *type) {
  struct loam_type_info info;
  must(loam_type_info(type, &info));
  return info.kind == LOAM_TYPE_CATEGORICAL;
}

static node *fill_scalar(loam_array *a, loam_type_kind kind) {
  void *data = loam_array_at(a, 0, NULL);
  int value = (int)roll(100);
  switch (kind) {
    case LOAM_TYPE_INT32: *(int32_t *)data = value; break;
    case LOAM_TYPE_INT64: *(int64_t *)data = value; break;
    case LOAM_TYPE_UINT8: *(uint8_t *)data = (uint8_t)value; break;
    case LOAM_TYPE_FLOAT64: *(double *)data = value; break;
    default: *(int16_t *)data = value < 20 ? INT16_MIN : (int16_t)value;
  }
  return make(kind == LOAM_TYPE_OPTION && value < 20 ? NOTHING : NUMBER, value);
}

static node *fill(loam_array *a, const loam_type *type) {
  struct loam_type_info info;
  must(loam_type_info(type, &info));
  switch (info.kind) {
    case LOAM_TYPE_FIXED:
    case LOAM_TYPE_VAR: return fill_dimension(a, &info);
    case LOAM_TYPE_STRUCT: return fill_struct(a, type, info.count);
    case LOAM_TYPE_POINTER: return fill_target(a, &info);
    case LOAM_TYPE_OPTION:
      if (is_categorical(info.element)) return fill_category(a, info.element, true);
      return is_compound(info.element) ? fill_target(a, &info) : fill_scalar(a, info.kind);
    case LOAM_TYPE_CATEGORICAL: return fill_category(a, type, false);
    case LOAM_TYPE_STRING: return fill_text(a);
    default: return fill_scalar(a, info.kind);
  }
}

/* ---- Random views ---- */

static void keep_text(void *ctx, const char *part, size_t size) {
  (void)ctx;
  memcpy(text[1] + length[1], part, size);
  length[1] += size;
}

static void compare(const loam_array *a, const node *t) {
  length[0] = length[1] = 0;
  print_node(t);
  must(loam_array_json(a, keep_text, NULL));
  if (length[0] == length[1] && !memcmp(text[0], text[1], length[0])) return;
  fprintf(stderr, "%s as %s:\nmodel %.*s\narray %.*s\n", type_text,
          loam_type_text(loam_array_type(a)), (int)length[0], text[0], (int)length[1], text[1]);
  abort();
}

static int64_t some_end(void) { return roll(3) ? roll(13) - 6 : LOAM_OPEN; }

static loam_index some_index(void) {
  if (roll(2)) return LOAM_AT(roll(4) ? roll(3) : roll(11) - 5);
  if (roll(3) == 0) return LOAM_ALL;
  int64_t step = roll(7) - 3;
  return (loam_index){ some_end(), some_end(), step ? step : 1 };
}

/* The model's verdict on a view. A view may fail if the model saw no row: then the type alone
 * decides. */
typedef enum verdict { MUST_WORK, MUST_FAIL, MAY_FAIL } verdict;

static verdict judge(int n, const loam_index *x) {
  for (int i = 0; i < n; i++) {
    if (dims[i].is_beyond) return MUST_FAIL;
    if (dims[i].differ && !is_whole(&x[i])) return MUST_FAIL;
    if (!dims[i].rows) return MAY_FAIL;
  }
  return MUST_WORK;
}

static int depth_of(const loam_type *type) {
  struct loam_type_info info;
  int n = 0;
  for (;; type = info.element) {
    must(loam_type_info(type, &info));
    if (info.kind == LOAM_TYPE_FIXED || info.kind == LOAM_TYPE_VAR) n++;
    else if (info.kind != LOAM_TYPE_POINTER) return n;
  }
}

static long worked, failed;

static bool index_both(loam_array **a, node **t) {
  loam_index x[16];
  loam_array *view;
  int most = depth_of(loam_array_type(*a)), n = (int)roll(most + 1);
  for (int i = 0; i < n; i++) x[i] = some_index();
  memset(dims, 0, sizeof dims);
  node *cut_out = cut(*t, n, x, 0);
  verdict v = judge(n, x);
  loam_status status = loam_array_index(*a, (size_t)n, x, &view);
  if ((status && v == MUST_WORK) || (!status && v == MUST_FAIL)) {
    fprintf(stderr, "%s as %s: %s\n", type_text, loam_type_text(loam_array_type(*a)),
            status ? loam_error() : "an impossible view was made");
    for (int i = 0; i < n; i++)
      fprintf(stderr, "  %ld:%ld:%ld\n", x[i].start, x[i].stop, x[i].step);
    abort();
  }
  failed += status != LOAM_OK;
  if (status) return false;
  loam_array_release(*a);
  *a = view;
  *t = cut_out;
  return true;
}

/* Returns whether the elements below all dimensions are structs with this field. */
static bool has_field(const loam_type *type, const char *name) {
  struct loam_type_info info;
  struct loam_type_field f;
  for (;; type = info.element) {
    must(loam_type_info(type, &info));
    if (info.kind == LOAM_TYPE_STRUCT) break;
    if (!info.element || info.kind == LOAM_TYPE_OPTION) return false;
  }
  for (size_t i = 0; i < info.count; i++) {
    must(loam_type_field(type, i, &f));
    if (!strcmp(f.name, name)) return true;
  }
  return false;
}

static bool select_both(loam_array **a, node **t) {
  static const char *const names[] = { "c", "a", "b" };
  int first = (int)roll(2), n = (int)roll(3);
  const loam_type *type = loam_array_type(*a);
  if (!has_field(type, names[first]) || (n == 2 && !has_field(type, names[first + 1])))
    return false;
  loam_array *view;
  if (n) must(loam_array_fields(*a, (size_t)n, names + first, &view));
  else must(loam_array_field(*a, names[first], &view));
  node *selected = select_fields(*t, n, names + first);
  loam_array_release(*a);
  *a = view;
  *t = selected;
  return true;
}

/* ---- Through Arrow and back ---- */

static long exchanged;

static bool has_struct_within(const loam_type *type, bool is_within) {
  struct loam_type_info info;
  struct loam_type_field f;
  must(loam_type_info(type, &info));
  if (info.kind != LOAM_TYPE_STRUCT)
    return info.element &&
           has_struct_within(info.element, info.kind != LOAM_TYPE_POINTER || is_within);
  bool has = is_within;
  for (size_t i = 0; i < info.count; i++) {
    must(loam_type_field(type, i, &f));
    if (has_struct_within(f.type, true)) has = true;
  }
  return has;
}

/* Returns whether the text of a type has an optional struct or an optional row of a fixed size. */
static bool has_optional_row(const char *type) {
  for (; (type = strchr(type, '?')); type++)
    if (type[1] == '{' || (type[1] >= '0' && type[1] <= '9')) return true;
  return false;
}

/* Exports an array to Arrow, imports it again and compares it with the model. There are exceptions.
 * A row of structs comes back as a table, which is not compared. loam need not import structs that
 * are deeper in dimensions, or optional rows of a fixed size. */
static void exchange(const loam_array *a, const node *t) {
  struct ArrowSchema schema;
  struct ArrowArray array;
  loam_array *back;
  if (loam_array_to_arrow(a, 1, &schema, &array)) {
    const loam_type *type = loam_array_type(a);
    const char *words = loam_type_text(type);
    bool may_be_null = has_optional_row(words) &&
                       strstr(words, "pointer["); /* a missing row has pointers without a target */
    if (depth_of(type) && !strchr(words, '{') && !may_be_null) must(LOAM_EINTERNAL);
    return;
  }
  if (loam_array_from_arrow(&schema, &array, 1, &back)) {
    const loam_type *type = loam_array_type(a);
    if (!has_struct_within(type, false) && !has_optional_row(loam_type_text(type)))
      must(LOAM_EINTERNAL);
    schema.release(&schema);
    array.release(&array);
    return;
  }
  if (t->kind == RECORD || loam_type_text(loam_array_type(back))[0] != '{') {
    exchanged++;
    compare(back, t);
  }
  loam_array_release(back);
}

static void play(void) {
  loam_type *type;
  loam_array *a;
  type_text[0] = 0;
  used = 0;
  write_type(0);
  must(loam_type_parse(type_text, &type));
  parse_again(type);
  parse_misspelt();
  must(loam_array_new_in(NULL, type, (int)roll(4), &a));
  node *t = fill(a, type);
  loam_type_release(type);
  compare(a, t);
  exchange(a, t);
  for (int64_t i = roll(6); i > 0; i--) {
    bool changed = roll(3) ? index_both(&a, &t) : select_both(&a, &t);
    if (!changed) continue;
    worked++;
    compare(a, t);
    exchange(a, t);
  }
  loam_array_release(a);
}

static void add_live(void *sum, const loam_stats_row *row) { *(uint64_t *)sum += row->live_blocks; }

int main(int argc, char **argv) {
  long count = argc > 1 ? atol(argv[1]) : 3000;
  if (argc > 2) seed = strtoull(argv[2], NULL, 10);
  for (long i = 0; i < count; i++) play();
  uint64_t live = 0;
  must(loam_stats_by(LOAM_BY_TAG, add_live, &live));
  lm_require(live == 0);
  printf("%ld arrays: %ld views as the model's, %ld refused as it says, %ld through Arrow\n", count,
         worked, failed, exchanged);
}

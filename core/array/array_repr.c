/* array_repr.c - describes an array for debugging: its type, metadata tree, data and blocks. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "array/array.h"
#include "os/error.h"
#include "script/json.h"

/* The lines so far, and how deep the next line is indented. */
typedef struct description {
  lm_json text;
  int depth;
} description;

/* Adds an indented line; a long line is cut. */
static void line(description *p, const char *format, ...) LM_PRINTF(2, 3);

static void line(description *p, const char *format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  int n = vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  lm_assert(n >= 0 && p->depth >= 0);
  for (int i = 0; i < p->depth; i++) lm_json_raw(&p->text, "  ", 2);
  lm_json_raw(&p->text, text, (size_t)n < sizeof text ? (size_t)n : sizeof text - 1);
  lm_json_raw(&p->text, "\n", 1);
}

static const char *plural(size_t n) { return n == 1 ? "" : "s"; }

static const char *kind_name(loam_block_kind kind) {
  switch (kind) {
    case LOAM_BLOCK_EMBEDDED: return "embedded";
    case LOAM_BLOCK_OWNED: return "owned";
    case LOAM_BLOCK_EXTERNAL: return "external";
    case LOAM_BLOCK_SLICE: return "slice";
    case LOAM_BLOCK_POOLED: return "pooled";
  }
  return "unknown";
}

/* Adds a line about a block, which may be NULL. */
static void show_block(description *p, const loam_block *b) {
  if (!b) {
    line(p, "block: none");
    return;
  }
  char tag[LM_TYPE_WORDS];
  size_t refs = loam_block_refcount(b), size = loam_block_size(b);
  line(p, "block: %s at %p, %zu byte%s, %zu reference%s, tag %s%s",
       lm_array_is_block(b) ? "array" : kind_name(loam_block_kind_of(b)), (const void *)b, size,
       plural(size), refs, plural(refs), lm_error_quote(tag, sizeof tag, loam_block_tag(b)),
       b->is_readonly ? ", read-only" : "");
}

/* ---- Metadata */

/* Adds lines about the metadata of a type. */
static void show(description *p, const loam_type *type, const size_t *meta);

/* Adds lines about the metadata of a part, one level deeper. */
static void show_within(description *p, const loam_type *type, const size_t *meta) {
  p->depth++;
  show(p, type, meta);
  p->depth--;
  lm_assert(p->depth >= 0);
}

static void show_fixed(description *p, const loam_type *type, const size_t *meta) {
  const lm_fixed_layout *m = lm_layout_fixed(meta);
  lm_assert(m->size == type->count);
  line(p, "fixed: %zu element%s, stride %td", m->size, plural(m->size), m->stride);
  show_within(p, type->element, m->element);
}

static void show_var(description *p, const loam_type *type, const size_t *meta) {
  const lm_var_layout *m = lm_layout_var(meta);
  line(p, "var: stride %td, offset %td", m->stride, m->offset);
  p->depth++;
  show_block(p, m->block);
  show(p, type->element, m->element);
  p->depth--;
}

static void show_pointer(description *p, const loam_type *type, const size_t *meta) {
  const lm_pointer_layout *m = lm_layout_pointer(meta);
  line(p, "pointer: offset %td", m->offset);
  p->depth++;
  show_block(p, m->block);
  show(p, type->element, m->target);
  p->depth--;
}

static void show_struct(description *p, const loam_type *type, const size_t *meta) {
  line(p, "struct: %zu field%s", type->count, plural(type->count));
  p->depth++;
  for (size_t i = 0; i < type->count; i++) {
    char name[LM_TYPE_WORDS];
    line(p, "field %s: offset %zu", lm_error_quote(name, sizeof name, type->fields[i].name),
         lm_layout_offset(meta, i));
    show_within(p, type->fields[i].type, lm_layout_field(type, meta, i));
  }
  p->depth--;
}

static void show(description *p, const loam_type *type, const size_t *meta) {
  switch (type->kind) {
    case LOAM_TYPE_FIXED: show_fixed(p, type, meta); break;
    case LOAM_TYPE_VAR: show_var(p, type, meta); break;
    case LOAM_TYPE_POINTER: show_pointer(p, type, meta); break;
    case LOAM_TYPE_STRUCT: show_struct(p, type, meta); break;
    case LOAM_TYPE_OPTION:
      line(p, "option");
      show_within(p, type->element, meta);
      break;
    default:
      line(p, "%s", type->text);
      if (!lm_type_is_text(type->kind)) break;
      p->depth++;
      show_block(p, lm_layout_text(meta)->block);
      p->depth--;
  }
}

/* ---- The array */

static void show_data(description *p, const loam_array *a) {
  line(p, "data: %p%s", (void *)a->data, a->owner ? "" : ", in the array itself");
  if (!a->owner) return;
  p->depth++;
  show_block(p, a->owner);
  p->depth--;
}

/* Adds lines about a type. Plain types are not counted. */
static void show_type(description *p, const loam_type *type) {
  size_t refs = atomic_load_explicit(&type->refs, memory_order_relaxed);
  line(p, "type: %s", type->text);
  p->depth++;
  if (lm_type_is_plain(type->kind)) line(p, "at %p, static", (const void *)type);
  else line(p, "at %p, %zu reference%s", (const void *)type, refs, plural(refs));
  p->depth--;
}

static void show_array(description *p, const loam_array *a) {
  size_t refs = loam_block_refcount(&a->block);
  line(p, "array at %p, %zu reference%s", (const void *)a, refs, plural(refs));
  p->depth++;
  show_type(p, a->type);
  line(p, "access: %s", a->is_readonly ? "read" : "read, write");
  line(p, "metadata: %zu byte%s", a->type->meta, plural(a->type->meta));
  show_within(p, a->type, a->meta);
  show_data(p, a);
}

loam_status loam_array_repr(const loam_array *array, loam_write_fn write, void *ctx) {
  if (!array || !write) return lm_error_missing(array ? "write" : "array");
  description p = { .depth = 0 };
  show_array(&p, array);
  loam_status status = p.text.failed ? lm_error(LOAM_ENOMEM, "no memory for the text") : LOAM_OK;
  if (!status) write(ctx, p.text.text, p.text.length);
  lm_json_finish(&p.text);
  return status;
}

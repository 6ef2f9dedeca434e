/* sites.c - the Python function that allocates, as a site.
 *
 * The function is the one in the innermost frame whose module is not part of NumPy. The names in a
 * code object are read once and kept in a table, with a reference to the code object; the
 * interpreter's lock guards the table. A call without that lock (NumPy makes some) has no site. */
#include "sites.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { FRAMES = 32, TAG = 256 };

struct sites {
  char tag[TAG];      /* "": the tag is made of module and function */
  loam_site *unnamed; /* used when there is no memory for a site */
};

/* The site of a code object under a tag. */
typedef struct known {
  PyObject *code; /* NULL: a free place */
  const sites *by;
  loam_site *site; /* NULL: the code is NumPy's own; the caller's frame decides */
} known;

/* Open addressing; never more than half full; a power of two. */
static struct {
  known *at;
  size_t size, used;
} table;

/* ---- The table */

static known *place(known *at, size_t size, const PyObject *code, const sites *by) {
  size_t i = (((uintptr_t)code >> 4) * 31 + ((uintptr_t)by >> 4)) & (size - 1);
  while (at[i].code && (at[i].code != code || at[i].by != by)) i = (i + 1) & (size - 1);
  return &at[i];
}

static int grow(void) {
  size_t size = table.size ? 2 * table.size : 256;
  known *bigger = calloc(size, sizeof *bigger);
  if (!bigger) return 0;
  for (size_t i = 0; i < table.size; i++)
    if (table.at[i].code) *place(bigger, size, table.at[i].code, table.at[i].by) = table.at[i];
  free(table.at);
  table.at = bigger;
  table.size = size;
  return 1;
}

/* ---- Frames */

static const char *text_of(PyObject *text) {
  const char *utf8 = text && PyUnicode_Check(text) ? PyUnicode_AsUTF8(text) : NULL;
  return utf8 ? utf8 : "";
}

/* Writes "numpy.MODULE.FUNCTION" without the brackets that Python puts around names such as
 * <lambda>. */
static void write_tag(char *tag, const char *module, const char *function) {
  static const char locals[] = "<locals>.";
  char whole[2 * TAG];
  size_t n = 0;
  snprintf(whole, sizeof whole, "numpy.%.*s.%s", TAG, module, function);
  for (const char *c = whole; *c && n < TAG - 1; c++) {
    if (!strncmp(c, locals, sizeof locals - 1)) c += sizeof locals - 1;
    if (*c != '<' && *c != '>') tag[n++] = *c;
  }
  tag[n] = 0;
}

static loam_site *site_of(const sites *s, PyFrameObject *frame, PyObject *code) {
  char tag[TAG];
  PyObject *globals = PyFrame_GetGlobals(frame);
  const char *module = text_of(PyDict_GetItemString(globals, "__name__"));
  PyObject *function = PyObject_GetAttrString(code, "co_qualname");
  PyObject *file = PyObject_GetAttrString(code, "co_filename");
  loam_site *site = NULL;
  if (strncmp(module, "numpy", 5) != 0 || (module[5] && module[5] != '.')) {
    write_tag(tag, module, text_of(function));
    loam_where where = { *s->tag ? s->tag : tag, text_of(file), text_of(function), module,
                         ((PyCodeObject *)code)->co_firstlineno };
    site = loam_site_at(&where);
    if (!site) site = s->unnamed;
  }
  Py_XDECREF(file);
  Py_XDECREF(function);
  Py_DECREF(globals);
  return site;
}

/* Keeps an exception that is being raised, and raises none. */
static known *learn(const sites *s, PyFrameObject *frame, PyObject *code) {
  PyObject *type, *value, *traceback;
  if (2 * table.used >= table.size && !grow()) return NULL;
  PyErr_Fetch(&type, &value, &traceback);
  loam_site *site = site_of(s, frame, code);
  PyErr_Restore(type, value, traceback);
  known *k = place(table.at, table.size, code, s);
  if (!k->code) {
    Py_INCREF(code);
    *k = (known){ code, s, site };
    table.used++;
  }
  return k;
}

/* Returns NULL if the frame is NumPy's own. */
static loam_site *site_at(const sites *s, PyFrameObject *frame) {
  PyObject *code = (PyObject *)PyFrame_GetCode(frame);
  known *k = table.size ? place(table.at, table.size, code, s) : NULL;
  if (!k || !k->code) k = learn(s, frame, code);
  loam_site *site = k ? k->site : s->unnamed;
  Py_DECREF(code);
  return site;
}

static loam_site *walk(const sites *s) {
  loam_site *site = NULL;
  PyFrameObject *frame = PyThreadState_GetFrame(PyThreadState_Get());
  for (int i = 0; frame && !site && i < FRAMES; i++) {
    site = site_at(s, frame);
    PyFrameObject *caller = site ? NULL : PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = caller;
  }
  Py_XDECREF(frame);
  return site;
}

/* Python makes an object for each frame that is read. This must not start a garbage collection in
 * the middle of an allocation. */
loam_site *sites_here(const sites *s) {
  if (!binding_has_lock()) return NULL;
  int was_enabled = PyGC_Disable();
  loam_site *site = walk(s);
  if (was_enabled) PyGC_Enable();
  return site;
}

const sites *sites_make(const char *tag, loam_site *unnamed) {
  sites *s = calloc(1, sizeof *s);
  if (!s) return NULL;
  snprintf(s->tag, sizeof s->tag, "%s", tag);
  s->unnamed = unnamed;
  return s;
}

/* sites.c - the Python function that allocates, as a site.
 *
 * The function is the one in the innermost frame whose module is not part of NumPy. The names in a
 * code object are read once. The site that they give hangs on the code object, in the interpreter's
 * place for data of extensions, and ends with it. The interpreter's lock guards it. A call without
 * that lock (NumPy makes some) has no site. */
#include "sites.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
/* Python 3.12 has these functions under new names. */
#if PY_VERSION_HEX < 0x030c0000
#define PyUnstable_Eval_RequestCodeExtraIndex _PyEval_RequestCodeExtraIndex
#define PyUnstable_Code_GetExtra _PyCode_GetExtra
#define PyUnstable_Code_SetExtra _PyCode_SetExtra
#endif

enum { FRAMES = 32, TAG = 256 };

struct sites {
  char tag[TAG];      /* "": the tag is made of module and function */
  loam_site *unnamed; /* used when there is no memory for a site */
};

/* ---- What is known of code objects */

/* The site of a code object under a description. */
typedef struct known {
  struct known *next; /* of the same code object */
  const sites *by;
  loam_site *site; /* NULL: the code is NumPy's own; the caller's frame decides */
} known;

/* The number of loam's place in a code object; -1: there is none, and nothing is kept. */
static Py_ssize_t place = -1;

static void forget(void *first) {
  for (known *k = first, *next; k; k = next) {
    next = k->next;
    free(k);
  }
}

static known *first_of(PyObject *code) {
  void *first = NULL;
  if (place < 0 || PyUnstable_Code_GetExtra(code, place, &first)) return NULL;
  return first;
}

/* Keeps a site, if there is memory for it. The first entry stays where it is, because the
 * interpreter ends an entry that another one replaces. */
static void keep(PyObject *code, const sites *by, loam_site *site) {
  known *first = first_of(code), *k = place < 0 ? NULL : malloc(sizeof *k);
  if (!k) return;
  *k = (known){ first ? first->next : NULL, by, site };
  if (first) first->next = k;
  else if (PyUnstable_Code_SetExtra(code, place, k)) free(k);
}

/* ---- Frames */

static const char *text_of(PyObject *text) {
  const char *utf8 = text && PyUnicode_Check(text) ? PyUnicode_AsUTF8(text) : NULL;
  return utf8 ? utf8 : "";
}

/* Returns whether a byte of UTF-8 is inside a character, behind its first byte. */
static bool is_inside(char byte) { return ((unsigned char)byte & 0xc0) == 0x80; }

/* Writes "numpy.MODULE.FUNCTION" without the brackets that Python puts around names such as
 * <lambda>. A text that is too long is cut behind a whole character. */
static void write_tag(char *tag, const char *module, const char *function) {
  static const char locals[] = "<locals>.";
  char whole[2 * TAG];
  size_t n = 0;
  snprintf(whole, sizeof whole, "numpy.%.*s.%s", TAG, module, function);
  const char *c = whole;
  while (*c && n < TAG - 1) {
    bool is_skipped = !strncmp(c, locals, sizeof locals - 1);
    if (!is_skipped && *c != '<' && *c != '>') tag[n++] = *c;
    c += is_skipped ? sizeof locals - 1 : 1;
  }
  if (is_inside(*c))
    while (is_inside(tag[--n])) {
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
static loam_site *learn(const sites *s, PyFrameObject *frame, PyObject *code) {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  loam_site *site = site_of(s, frame, code);
  keep(code, s, site);
  PyErr_Restore(type, value, traceback);
  return site;
}

/* Returns NULL if the frame is NumPy's own. */
static loam_site *site_at(const sites *s, PyFrameObject *frame) {
  PyObject *code = (PyObject *)PyFrame_GetCode(frame);
  const known *k = first_of(code);
  while (k && k->by != s) k = k->next;
  loam_site *site = k ? k->site : learn(s, frame, code);
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
  if (place < 0) place = PyUnstable_Eval_RequestCodeExtraIndex(forget);
  snprintf(s->tag, sizeof s->tag, "%s", tag);
  s->unnamed = unnamed;
  return s;
}

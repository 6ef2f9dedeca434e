/* tags.c - how a context enters a tag and leaves it.
 *
 * Python runs the handlers of signals between two instructions of Python code, in the main thread.
 * A handler may raise an exception there, such as KeyboardInterrupt. In an __enter__ or __exit__ of
 * Python code, that would leave a tag in force for good. So both are C code, in which no handler
 * runs. A new tag asks Python code first, before anything has changed. If Python has no memory for
 * a token, a tag may still be left half: a context variable may change, and its call fail. */
#include "tags.h"

#include "entries.h"

/* What a context keeps of a tag that it has entered: a tuple of the tag, the token that takes
 * `current` back, the token that takes NumPy's handler back or None, and the tag's key in
 * `everywhere` or None. */
enum { TAG, TOKEN, OF_NUMPY, KEY, FIELDS };

static PyObject *current;    /* context variable: the name of the innermost tag, or None */
static PyObject *entered;    /* context variable: a tuple of such tuples, the outermost first */
static PyObject *everywhere; /* dict: tags that hold everywhere, by their keys, the latest last */
static PyObject *prepare;    /* function of loam.tags */

PyObject *tags_current(void) {
  PyObject *value = NULL;
  return PyContextVar_Get(current, NULL, &value) ? NULL : value;
}

/* Returns the name of the tag in force everywhere, or None. */
static PyObject *find_everywhere(void) {
  PyObject *key, *tag = NULL;
  for (Py_ssize_t i = 0; PyDict_Next(everywhere, &i, &key, &tag);) {
  }
  if (!tag) return Py_NewRef(Py_None);
  Py_INCREF(tag); /* reading the name may run code that leaves the tag */
  PyObject *name = PyObject_GetAttrString(tag, "name");
  Py_DECREF(tag);
  return name;
}

/* Tells the C functions of entries.h the tags that are in force now. */
static int tell(void) {
  PyObject *own = tags_current(), *all = own ? find_everywhere() : NULL;
  int status = all ? entries_tell(own, all) : -1;
  Py_XDECREF(all);
  Py_XDECREF(own);
  return status;
}

/* ---- Leaving */

/* Gives a variable the value from before a token. If the token was used already, the variable has
 * that value: an interrupt has ended leave_numpy() of loam.tags, which uses tokens of NumPy's. */
static int reset(PyObject *variable, PyObject *token) {
  if (!PyContextVar_Reset(variable, token)) return 0;
  if (!PyErr_ExceptionMatches(PyExc_RuntimeError)) return -1;
  PyErr_Clear();
  return 0;
}

/* Gives a variable the value that it had before an entry. If later entries are in force, the
 * variable keeps its value: then the token that this function returns gives it the earlier one.
 * Sets ValueError if another context made the entry. None stands for no token. */
static PyObject *take_back(PyObject *token, bool is_last) {
  if (token == Py_None) return Py_NewRef(token);
  PyObject *variable = PyObject_GetAttrString(token, "var"), *now = NULL, *kept = NULL;
  if (variable && !PyContextVar_Get(variable, NULL, &now) && !reset(variable, token))
    kept = is_last ? Py_NewRef(token) : PyContextVar_Set(variable, now);
  Py_XDECREF(now);
  Py_XDECREF(variable);
  return kept;
}

/* Returns the entry behind a removed one. Its tokens bring back the values from before both. */
static PyObject *follow(PyObject *entry, PyObject *token, PyObject *of_numpy) {
  if (of_numpy == Py_None) of_numpy = PyTuple_GET_ITEM(entry, OF_NUMPY);
  return PyTuple_Pack(FIELDS, PyTuple_GET_ITEM(entry, TAG), token, of_numpy,
                      PyTuple_GET_ITEM(entry, KEY));
}

/* Returns the entries without the one at `at`, whose variables were taken back. */
static PyObject *without(PyObject *entries, Py_ssize_t at, PyObject *token, PyObject *of_numpy) {
  Py_ssize_t count = PyTuple_GET_SIZE(entries);
  PyObject *rest = PyTuple_New(count - 1);
  for (Py_ssize_t i = 0; rest && i < count - 1; i++) {
    PyObject *entry = PyTuple_GET_ITEM(entries, i < at ? i : i + 1);
    entry = i == at ? follow(entry, token, of_numpy) : Py_NewRef(entry);
    if (entry) PyTuple_SET_ITEM(rest, i, entry);
    else Py_CLEAR(rest);
  }
  return rest;
}

/* Removes the entry at `at`. Generators may leave their tags in another order than they entered
 * them, so the entry may have others behind it. */
static int remove_entry(PyObject *entries, Py_ssize_t at) {
  PyObject *entry = PyTuple_GET_ITEM(entries, at), *key = PyTuple_GET_ITEM(entry, KEY);
  bool is_last = at == PyTuple_GET_SIZE(entries) - 1;
  PyObject *token = take_back(PyTuple_GET_ITEM(entry, TOKEN), is_last);
  PyObject *of_numpy = token ? take_back(PyTuple_GET_ITEM(entry, OF_NUMPY), is_last) : NULL;
  PyObject *rest = of_numpy ? without(entries, at, token, of_numpy) : NULL;
  PyObject *done = rest ? PyContextVar_Set(entered, rest) : NULL;
  int status = done ? 0 : -1;
  if (done && key != Py_None) status = PyDict_DelItem(everywhere, key);
  Py_XDECREF(done);
  Py_XDECREF(rest);
  Py_XDECREF(of_numpy);
  Py_XDECREF(token);
  return status;
}

/* Leaves the latest entry of a tag in this context. Sets ValueError if there is none. */
static int leave(PyObject *tag) {
  PyObject *entries = NULL;
  if (PyContextVar_Get(entered, NULL, &entries)) return -1;
  Py_ssize_t at = PyTuple_GET_SIZE(entries) - 1;
  while (at >= 0 && PyTuple_GET_ITEM(PyTuple_GET_ITEM(entries, at), TAG) != tag) at--;
  if (at < 0) PyErr_SetNone(PyExc_ValueError);
  int status = at < 0 || remove_entry(entries, at) ? -1 : tell();
  Py_DECREF(entries);
  return status;
}

/* ---- Entering */

/* Adds an entry. */
static int add_entry(PyObject *tag, PyObject *token, PyObject *of_numpy, PyObject *key) {
  PyObject *entries = NULL, *all = NULL, *done = NULL;
  PyObject *entry = PyTuple_Pack(FIELDS, tag, token, of_numpy, key);
  PyObject *one = entry ? PyTuple_Pack(1, entry) : NULL;
  if (one && !PyContextVar_Get(entered, NULL, &entries)) all = PySequence_Concat(entries, one);
  if (all) done = PyContextVar_Set(entered, all);
  Py_XDECREF(all);
  Py_XDECREF(entries);
  Py_XDECREF(one);
  Py_XDECREF(entry);
  Py_XDECREF(done);
  return done ? 0 : -1;
}

/* Sets a variable, if `pair` is a variable and a value and not None. Returns the token, or None. */
static PyObject *set_pair(PyObject *pair) {
  if (pair == Py_None) return Py_NewRef(pair);
  return PyContextVar_Set(PyTuple_GET_ITEM(pair, 0), PyTuple_GET_ITEM(pair, 1));
}

/* Enters a tag. On failure, takes back what has changed. */
static int enter(PyObject *tag, PyObject *name, PyObject *key, PyObject *pair) {
  PyObject *token = PyContextVar_Set(current, name), *of_numpy = token ? set_pair(pair) : NULL;
  int status = of_numpy ? add_entry(tag, token, of_numpy, key) : -1;
  if (status) {
    PyObject *type, *value, *traceback;
    PyErr_Fetch(&type, &value, &traceback);
    if (of_numpy && of_numpy != Py_None) PyContextVar_Reset(PyTuple_GET_ITEM(pair, 0), of_numpy);
    if (token) PyContextVar_Reset(current, token);
    PyErr_Restore(type, value, traceback);
  }
  Py_XDECREF(of_numpy);
  Py_XDECREF(token);
  return status;
}

/* ---- The base of loam.tag */

/* Returns a new key of `everywhere`, or None for a tag that holds in its context only. */
static PyObject *make_key(PyObject *tag) {
  PyObject *holds = PyObject_GetAttrString(tag, "everywhere");
  int is_everywhere = holds ? PyObject_IsTrue(holds) : -1;
  Py_XDECREF(holds);
  if (is_everywhere < 0) return NULL;
  return is_everywhere ? PyObject_CallNoArgs((PyObject *)&PyBaseObject_Type) : Py_NewRef(Py_None);
}

/* Makes a tag with a key hold everywhere, and tells of the entry. On failure the tag is left. */
static int announce(PyObject *tag, PyObject *key) {
  bool has_failed = key != Py_None && PyDict_SetItem(everywhere, key, tag);
  if (!has_failed && !tell()) return 0;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  if (leave(tag)) PyErr_Clear();
  PyErr_Restore(type, value, traceback);
  return -1;
}

/* Objects are made here. That must not start a garbage collection, whose finalizers could leave
 * tags of this context in the middle of the change. */
static PyObject *scope_enter(PyObject *self, PyObject *none) {
  (void)none;
  PyObject *name = PyObject_GetAttrString(self, "name"), *key = name ? make_key(self) : NULL;
  PyObject *pair = key ? PyObject_CallOneArg(prepare, name) : NULL;
  int was_enabled = PyGC_Disable();
  int status = pair && !enter(self, name, key, pair) ? announce(self, key) : -1;
  if (was_enabled) PyGC_Enable();
  Py_XDECREF(pair);
  Py_XDECREF(key);
  Py_XDECREF(name);
  return status ? NULL : Py_NewRef(self);
}

static PyObject *scope_exit(PyObject *self, PyObject *exception) {
  (void)exception;
  int was_enabled = PyGC_Disable(), status = leave(self);
  if (was_enabled) PyGC_Enable();
  if (!status) Py_RETURN_NONE;
  if (PyErr_ExceptionMatches(PyExc_ValueError)) {
    PyErr_Clear();
    PyErr_Format(PyExc_RuntimeError,
                 "%R is left where it was not entered: another thread or task entered it; an "
                 "asynchronous generator that is left early is to be closed, as by "
                 "contextlib.aclosing",
                 self);
  }
  return NULL;
}

static PyMethodDef methods[] = {
  { "__enter__", scope_enter, METH_NOARGS, "Enters the tag in this context, and returns it." },
  { "__exit__", scope_exit, METH_VARARGS,
    "Leaves the tag. RuntimeError if this context has not entered it." },
  { 0 },
};

static PyType_Slot slots[] = { { Py_tp_methods, methods }, { 0, NULL } };

static PyType_Spec spec = { .name = "loam._loam.Scope",
                            .basicsize = sizeof(PyObject),
                            .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                            .slots = slots };

/* ---- The module */

/* tags_start(prepare): from now on prepare(name) is called before a tag is entered. It returns None
 * or a pair: NumPy's context variable, and the value that it is to have inside the tag. */
static PyObject *tags_start(PyObject *self, PyObject *function) {
  (void)self;
  Py_XSETREF(prepare, Py_NewRef(function));
  Py_RETURN_NONE;
}

/* tags_tell(): makes tags available, from now on, to C functions that are called without the
 * interpreter's lock. */
static PyObject *tags_tell(PyObject *self, PyObject *none) {
  (void)self;
  (void)none;
  entries_listen();
  if (tell()) return NULL;
  Py_RETURN_NONE;
}

PyMethodDef tags_methods[] = {
  { "tags_start", tags_start, METH_O, NULL },
  { "tags_tell", tags_tell, METH_NOARGS, NULL },
  { 0 },
};

/* The variables live as long as the process: the package may be imported again inside a tag. */
static int make_variables(void) {
  PyObject *nothing = PyTuple_New(0);
  if (!current) current = PyContextVar_New("loam.tag", Py_None);
  if (!entered && nothing) entered = PyContextVar_New("loam.entered", nothing);
  if (!everywhere) everywhere = PyDict_New();
  Py_XDECREF(nothing);
  return current && entered && everywhere ? 0 : -1;
}

int tags_add(PyObject *module) {
  if (make_variables()) return -1;
  PyObject *type = PyType_FromSpec(&spec);
  int status = type ? PyModule_AddObjectRef(module, "Scope", type) : -1;
  Py_XDECREF(type);
  if (status || PyModule_AddObjectRef(module, "tags_current", current)) return -1;
  if (PyModule_AddObjectRef(module, "tags_entered", entered)) return -1;
  return PyModule_AddObjectRef(module, "tags_everywhere", everywhere);
}

/* figures.c - figures of live memory, and the owner of an address. */
#include "binding.h"

static PyObject *number(uint64_t n) { return PyLong_FromUnsignedLongLong(n); }

static PyObject *totals(PyObject *self, PyObject *none) {
  (void)self;
  (void)none;
  struct loam_stats s;
  loam_status status = loam_stats(&s);
  if (status) return binding_fail(status);
  PyObject *d = PyDict_New();
  d = binding_put(d, "generation", number(s.generation));
  d = binding_put(d, "live_bytes", number(s.live_bytes));
  d = binding_put(d, "live_blocks", number(s.live_blocks));
  d = binding_put(d, "total_bytes", number(s.total_bytes));
  d = binding_put(d, "total_blocks", number(s.total_blocks));
  d = binding_put(d, "reserved_bytes", number(s.reserved_bytes));
  d = binding_put(d, "region_bytes", number(s.region_bytes));
  d = binding_put(d, "metadata_bytes", number(s.metadata_bytes));
  d = binding_put(d, "denied", number(s.denied));
  d = binding_put(d, "fallbacks", number(s.fallbacks));
  d = binding_put(d, "failed", number(s.failed));
  d = binding_put(d, "bad_frees", number(s.bad_frees));
  d = binding_put(d, "threads", number(s.threads));
  d = binding_put(d, "sites", number(s.sites));
  return binding_put(d, "strategies", number(s.strategies));
}

/* ---- Rows */

typedef struct table {
  PyObject *rows; /* NULL: an exception is set */
  int keys;
} table;

static PyObject *row_of(int keys, const loam_stats_row *row) {
  PyObject *d = PyDict_New();
  if (keys & LOAM_BY_TAG) d = binding_put(d, "tag", binding_text(row->tag));
  if (keys & LOAM_BY_STRATEGY) {
    d = binding_put(d, "strategy", binding_text(row->strategy));
    d = binding_put(d, "kind", binding_text(row->kind));
  }
  if (keys & LOAM_BY_GENERATION) d = binding_put(d, "generation", number(row->generation));
  d = binding_put(d, "live_bytes", number(row->live_bytes));
  d = binding_put(d, "live_blocks", number(row->live_blocks));
  if (keys & LOAM_BY_GENERATION) return d;
  d = binding_put(d, "total_bytes", number(row->total_bytes));
  return binding_put(d, "total_blocks", number(row->total_blocks));
}

static void add_row(void *ctx, const loam_stats_row *row) {
  table *t = ctx;
  if (!t->rows) return;
  PyObject *made = row_of(t->keys, row);
  if (!made || PyList_Append(t->rows, made)) Py_CLEAR(t->rows);
  Py_XDECREF(made);
}

static PyObject *stats_by(PyObject *self, PyObject *given) {
  (void)self;
  long keys = PyLong_AsLong(given);
  if (keys == -1 && PyErr_Occurred()) return NULL;
  table t = { PyList_New(0), (int)keys };
  loam_status status = t.rows ? loam_stats_by((int)keys, add_row, &t) : LOAM_OK;
  if (!status) return t.rows;
  Py_CLEAR(t.rows);
  return binding_fail(status);
}

/* ---- Owners */

/* owner(address): returns a tuple in the order of loam.Owner's fields; None if the address is in no
 * live block. */
static PyObject *owner(PyObject *self, PyObject *given) {
  (void)self;
  loam_owner_info o;
  void *address = PyLong_AsVoidPtr(given);
  if (!address && PyErr_Occurred()) return NULL;
  if (loam_owner(address, &o)) Py_RETURN_NONE;
  return Py_BuildValue(
      "(NNNNiNNNKNniNI)", binding_text(o.tag), binding_text(o.file), binding_text(o.func),
      binding_text(o.module), o.line, binding_text(o.strategy), binding_text(o.kind),
      binding_text(o.handler), (unsigned long long)o.generation, PyLong_FromVoidPtr(o.base),
      (Py_ssize_t)o.size, o.device, PyLong_FromVoidPtr(o.stream), o.handler_version);
}

/* address_of(object): returns the address of the first byte of an object's buffer, in any layout.
 * TypeError for an object without a buffer. */
static PyObject *address_of(PyObject *self, PyObject *given) {
  (void)self;
  Py_buffer view;
  if (!PyObject_CheckBuffer(given))
    return PyErr_Format(PyExc_TypeError, "an array, a buffer or an address is needed, not %s",
                        Py_TYPE(given)->tp_name);
  if (PyObject_GetBuffer(given, &view, PyBUF_FULL_RO)) return NULL;
  PyObject *address = PyLong_FromVoidPtr(view.buf);
  PyBuffer_Release(&view);
  return address;
}

/* ---- Blocks with counted references */

static const char *const kinds[] = { "", "embedded", "owned", "external", "slice", "pooled" };

/* block_stats(): returns a dict of kinds of blocks; each value is a tuple of the blocks that were
 * ever made and ended. */
static PyObject *block_stats(PyObject *self, PyObject *none) {
  (void)self;
  (void)none;
  struct loam_block_stats s;
  loam_status status = loam_block_stats(&s);
  if (status) return binding_fail(status);
  PyObject *d = PyDict_New();
  for (size_t i = 1; i < sizeof kinds / sizeof kinds[0]; i++)
    d = binding_put(
        d, kinds[i],
        Py_BuildValue("(KK)", (unsigned long long)s.made[i], (unsigned long long)s.ended[i]));
  return d;
}

static void add_leak(void *ctx, const char *tag, uint64_t blocks, uint64_t bytes) {
  PyObject **rows = ctx, *row = PyDict_New();
  row = binding_put(row, "tag", binding_text(tag));
  row = binding_put(row, "blocks", number(blocks));
  row = binding_put(row, "bytes", number(bytes));
  if (*rows && (!row || PyList_Append(*rows, row))) Py_CLEAR(*rows);
  Py_XDECREF(row);
}

/* block_leaks(): returns a list of dicts, one for each tag that has live blocks. */
static PyObject *block_leaks(PyObject *self, PyObject *none) {
  (void)self;
  (void)none;
  PyObject *rows = PyList_New(0);
  loam_status status = rows ? loam_block_leaks(add_leak, &rows) : LOAM_OK;
  if (!status) return rows;
  Py_CLEAR(rows);
  return binding_fail(status);
}

PyMethodDef figures_methods[] = {
  { "totals", totals, METH_NOARGS, NULL },
  { "stats_by", stats_by, METH_O, NULL },
  { "owner", owner, METH_O, NULL },
  { "address_of", address_of, METH_O, NULL },
  { "block_stats", block_stats, METH_NOARGS, NULL },
  { "block_leaks", block_leaks, METH_NOARGS, NULL },
  { 0 },
};

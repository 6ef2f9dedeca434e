/* nrt.c - a tag's memory for Numba: an NRT_ExternalAllocator, which has the layout of
 * loam_nrt_allocator.
 *
 * Numba puts a header of 48 bytes, the MemInfo, before the data. The block begins 16 bytes before
 * the header, so that the data begin on a cache line. Numba gets the address of the header. */
#include "binding.h"

#include <stdlib.h>

enum { LINE = 64, HEADER = 48, LEAD = LINE - HEADER };

static void *nrt_malloc(size_t size, void *site) {
  if (size > SIZE_MAX - LEAD) return NULL;
  char *whole = loam_aligned_alloc(site, LINE, size + LEAD);
  return whole ? whole + LEAD : NULL;
}

static void nrt_free(void *ptr, void *site) {
  (void)site;
  if (ptr) loam_free((char *)ptr - LEAD);
}

/* Numba's runtime does not call this. Another caller may get a block whose data do not begin on a
 * cache line. */
static void *nrt_realloc(void *ptr, size_t size, void *site) {
  if (!ptr) return nrt_malloc(size, site);
  if (size > SIZE_MAX - LEAD) return NULL;
  char *whole = loam_realloc(NULL, (char *)ptr - LEAD, size + LEAD);
  return whole ? whole + LEAD : NULL;
}

/* nrt_allocator(tag): returns the address of the tag's table, which is never freed, because blocks
 * may outlive everything else. */
static PyObject *nrt_allocator_of(PyObject *self, PyObject *tag) {
  (void)self;
  const char *name = binding_utf8(tag);
  loam_site *site = name ? loam_site_get(name) : NULL;
  if (!site) return name ? binding_fail(LOAM_EINVAL) : NULL;
  loam_nrt_allocator *made = malloc(sizeof *made);
  if (!made) return PyErr_NoMemory();
  *made = (loam_nrt_allocator){ nrt_malloc, nrt_realloc, nrt_free, site };
  return PyLong_FromVoidPtr(made);
}

static PyObject *nrt_api(PyObject *self, PyObject *none) {
  (void)self;
  (void)none;
  return PyLong_FromVoidPtr((void *)loam_nrt_api());
}

PyMethodDef nrt_methods[] = {
  { "nrt_api", nrt_api, METH_NOARGS,
    "nrt_api()\n--\n\n"
    "Returns the address of loam's table of NRT's functions, a loam_nrt of loam.h, for C code." },
  { "nrt_allocator", nrt_allocator_of, METH_O, NULL },
  { 0 },
};

/* torch.c - the C functions through which PyTorch allocates and frees CUDA memory of loam, and the
 * statistics of that memory.
 *
 * loam/torch.py passes the addresses of these functions to PyTorch's CUDAPluggableAllocator. An
 * allocator of that kind has no statistics, so this file counts what PyTorch's own allocator would
 * count. */
#include "entries.h"

#include <limits.h>
#include <pthread.h>
#include <search.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "throw.h"

EXPORT void *loam_torch_alloc(Py_ssize_t size, int device, void *stream);
EXPORT void loam_torch_free(void *ptr, Py_ssize_t size, int device, void *stream);
EXPORT void loam_torch_record(void *ptr, void *stream);
EXPORT void loam_torch_trim(void);

/* ---- Figures */

enum { DEVICES = 64 }; /* devices with other numbers share the last row of `figures` */

/* For each device: the live bytes and blocks that PyTorch has requested, the most that were live,
 * all that were ever requested, and the failed requests. Relaxed: no other data depend on them. */
static struct {
  atomic_llong bytes, blocks, most_bytes, most_blocks, made_bytes, made_blocks, failures;
} figures[DEVICES];

static int row_of(int device) { return device >= 0 && device < DEVICES ? device : DEVICES - 1; }

static void add(atomic_llong *sum, atomic_llong *most, atomic_llong *made, long long n) {
  long long now = atomic_fetch_add_explicit(sum, n, memory_order_relaxed) + n;
  long long high = atomic_load_explicit(most, memory_order_relaxed);
  atomic_fetch_add_explicit(made, n, memory_order_relaxed);
  while (now > high && !atomic_compare_exchange_weak_explicit(
                           most, &high, now, memory_order_relaxed, memory_order_relaxed)) {
  }
}

static void count_alloc(int device, Py_ssize_t size) {
  int row = row_of(device);
  add(&figures[row].bytes, &figures[row].most_bytes, &figures[row].made_bytes, size);
  add(&figures[row].blocks, &figures[row].most_blocks, &figures[row].made_blocks, 1);
}

static void count_free(int device, Py_ssize_t size) {
  int row = row_of(device);
  atomic_fetch_sub_explicit(&figures[row].bytes, size, memory_order_relaxed);
  atomic_fetch_sub_explicit(&figures[row].blocks, 1, memory_order_relaxed);
}

/* Returns the row of a device that Python names by its number. Returns -1 and sets an exception if
 * no device can have that number. */
static int row_of_number(PyObject *number) {
  long device = PyLong_AsLong(number);
  if (device == -1 && PyErr_Occurred()) return -1;
  if (device >= 0 && device <= INT_MAX) return row_of((int)device);
  PyErr_Format(PyExc_ValueError, "device %ld: there is no such device", device);
  return -1;
}

/* torch_figures(device): returns seven numbers for a device, in the order of loam/torch.py: live
 * bytes, most live bytes, bytes ever allocated, live blocks, most live blocks, blocks ever
 * allocated, and failed allocations. The most is counted since the last reset of peaks. */
static PyObject *torch_figures(PyObject *self, PyObject *number) {
  (void)self;
  int row = row_of_number(number);
  if (row < 0) return NULL;
  return Py_BuildValue("LLLLLLL", atomic_load(&figures[row].bytes),
                       atomic_load(&figures[row].most_bytes), atomic_load(&figures[row].made_bytes),
                       atomic_load(&figures[row].blocks), atomic_load(&figures[row].most_blocks),
                       atomic_load(&figures[row].made_blocks), atomic_load(&figures[row].failures));
}

/* torch_reset_peaks(device): sets the most live bytes and the most live blocks of a device to the
 * bytes and blocks that are live now. */
static PyObject *torch_reset_peaks(PyObject *self, PyObject *number) {
  (void)self;
  int row = row_of_number(number);
  if (row < 0) return NULL;
  atomic_store(&figures[row].most_bytes, atomic_load(&figures[row].bytes));
  atomic_store(&figures[row].most_blocks, atomic_load(&figures[row].blocks));
  Py_RETURN_NONE;
}

/* ---- Memory */

/* Counts a failed allocation and throws the C++ exception that PyTorch throws when memory runs out.
 * A result of NULL would not do: PyTorch does not check the pointer that it gets. If PyTorch's
 * exception is not available, another one is thrown (throw.h). So the message begins with "CUDA out
 * of memory": programs search the message of any exception for these words. */
static void fail(Py_ssize_t size, int device) {
  char words[640];
  atomic_fetch_add_explicit(&figures[row_of(device)].failures, 1, memory_order_relaxed);
  snprintf(words, sizeof words, "CUDA out of memory. Tried to allocate %zd bytes on device %d. %s",
           size, device, loam_error());
  throw_out_of_memory(words);
}

EXPORT void *loam_torch_alloc(Py_ssize_t size, int device, void *stream) {
  if (size <= 0) return NULL;
  void *ptr = entries_allocate(entries_site("torch.data"), (size_t)size, device, stream);
  if (ptr) count_alloc(device, size);
  else fail(size, device);
  return ptr;
}

/* The shared blocks: those that PyTorch uses on other streams besides the stream of the allocation.
 * PyTorch reports them with loam_torch_record when a program calls Tensor.record_stream. */
static struct {
  pthread_mutex_t lock;
  void *tree; /* binary tree (tsearch) of the addresses of live shared blocks; under `lock` */
  /* Number of blocks in `tree`. Relaxed: a block is recorded before it is freed, so the thread that
   * frees a shared block does not read 0. */
  atomic_size_t live;
  /* There was no memory to record a shared block, so from then on any block may be shared. */
  atomic_bool all;
} shared = { .lock = PTHREAD_MUTEX_INITIALIZER };

static int compare(const void *left, const void *right) {
  return (uintptr_t)left < (uintptr_t)right ? -1 : (uintptr_t)left > (uintptr_t)right;
}

/* Tells whether a block was allocated on this stream. CU_STREAM_PER_THREAD means another stream in
 * each thread, so it equals no stream here. */
static bool is_own_stream(const void *ptr, const void *stream) {
  enum { STREAM_PER_THREAD = 2 };
  loam_owner_info info;
  return (uintptr_t)stream != STREAM_PER_THREAD && loam_owner(ptr, &info) == LOAM_OK &&
         info.stream == stream;
}

/* Records that the block at `ptr` is also used on `stream`. PyTorch calls it in any thread. Does
 * nothing for the block's own stream, and for NULL, which an empty tensor has. */
EXPORT void loam_torch_record(void *ptr, void *stream) {
  if (!ptr || is_own_stream(ptr, stream)) return;
  pthread_mutex_lock(&shared.lock);
  if (!tfind(ptr, &shared.tree, compare)) {
    if (!tsearch(ptr, &shared.tree, compare)) atomic_store(&shared.all, true);
    else atomic_fetch_add_explicit(&shared.live, 1, memory_order_relaxed);
  }
  pthread_mutex_unlock(&shared.lock);
}

/* Returns whether the block at `ptr`, which is being freed, may be shared, and forgets it. */
static bool take_shared(void *ptr) {
  bool all = atomic_load_explicit(&shared.all, memory_order_relaxed);
  if (!atomic_load_explicit(&shared.live, memory_order_relaxed)) return all;
  pthread_mutex_lock(&shared.lock);
  bool is_shared = tdelete(ptr, &shared.tree, compare);
  if (is_shared) atomic_fetch_sub_explicit(&shared.live, 1, memory_order_relaxed);
  pthread_mutex_unlock(&shared.lock);
  return is_shared || all;
}

/* Frees a block. Work on several streams may still use a shared block, so the manager's memfree
 * puts it aside, and gives the memory back after all work of the device is done. Does nothing for
 * NULL, which PyTorch got for 0 bytes.
 *
 * This function does not release the interpreter's lock. PyTorch itself releases the lock before it
 * destroys the tensor of a Python object. Other C++ code may free memory while it holds the lock
 * and a mutex; to release the lock there could deadlock with a thread that waits for the mutex. */
EXPORT void loam_torch_free(void *ptr, Py_ssize_t size, int device, void *stream) {
  if (!ptr) return;
  count_free(device, size);
  if (take_shared(ptr)) {
    const loam_manager *m = loam_manager_get();
    m->memfree(m->ctx, device, ptr, (size_t)size);
  } else {
    loam_device_free(ptr, stream);
  }
}

EXPORT void loam_torch_trim(void) { loam_device_trim(-1); }

/* torch_entries(path): `path` is a library of PyTorch that the process has loaded. Looks up
 * PyTorch's exceptions in it, for loam_torch_alloc, and returns the addresses of loam_torch_record
 * and loam_torch_trim. */
static PyObject *torch_entries(PyObject *self, PyObject *path) {
  (void)self;
  const char *utf8 = PyUnicode_AsUTF8(path);
  if (!utf8) return NULL;
  throw_learn(utf8);
  return Py_BuildValue("NN", PyLong_FromVoidPtr((void *)loam_torch_record),
                       PyLong_FromVoidPtr((void *)loam_torch_trim));
}

PyMethodDef torch_methods[] = {
  { "torch_entries", torch_entries, METH_O, NULL },
  { "torch_figures", torch_figures, METH_O, NULL },
  { "torch_reset_peaks", torch_reset_peaks, METH_O, NULL },
  { 0 },
};

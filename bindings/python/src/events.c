/* events.c - events, from the threads in which they happen to the thread that logs them.
 *
 * The callback may run in any thread, inside a free, with or without the interpreter's lock, and
 * while the interpreter ends. So it only pushes a copy on a list and posts a semaphore. It takes no
 * lock, so the list is whole after a fork. A Python thread waits for the semaphore and takes the
 * list. */
#include "binding.h"

#include <errno.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

typedef struct event {
  struct event *next; /* older */
  loam_event_kind kind;
  uint64_t generation;
  const void *pointer;
  char message[]; /* terminated */
} event;

static _Atomic(event *) newest;
static sem_t arrived;

/* Writes an event that cannot be logged any more, or that comes from a signal handler: with one
 * call that is allowed there. */
static void write_out(const char *message) {
  static const char prefix[] = "loam: ";
  struct iovec parts[] = { { (void *)prefix, sizeof prefix - 1 },
                           { (void *)message, strlen(message) },
                           { (void *)"\n", 1 } };
  if (writev(STDERR_FILENO, parts, 3) < 0) return; /* no reader: nothing to do */
}

/* Once the interpreter has ended, only errors of the program are reported. */
static int is_urgent(loam_event_kind kind) {
  if (kind == LOAM_EVENT_FAULT) return 1;
  return (kind == LOAM_EVENT_BAD_FREE || kind == LOAM_EVENT_LEAK) && !Py_IsInitialized();
}

/* The callback for events. Release pairs with the acquire in events_take. */
static void push(void *ctx, const loam_event *told) {
  (void)ctx;
  if (is_urgent(told->kind)) return write_out(told->message);
  size_t length = strlen(told->message);
  event *e = malloc(sizeof *e + length + 1);
  if (!e) return;
  e->kind = told->kind;
  e->generation = told->generation;
  e->pointer = told->pointer;
  memcpy(e->message, told->message, length + 1);
  e->next = atomic_load_explicit(&newest, memory_order_relaxed);
  while (!atomic_compare_exchange_weak_explicit(&newest, &e->next, e, memory_order_release,
                                                memory_order_relaxed))
    ;
  sem_post(&arrived);
}

static PyObject *events_start(PyObject *self, PyObject *none) {
  (void)self;
  (void)none;
  if (binding_is_preloaded()) /* the preload library reports events and handles bad frees */
    Py_RETURN_FALSE;
  sem_init(&arrived, 0, 0);
  loam_on_event(push, NULL);
  Py_RETURN_TRUE;
}

/* events_wait(): waits until an event has happened. Signals do not interrupt it: Python handles
 * them in the main thread. */
static PyObject *events_wait(PyObject *self, PyObject *none) {
  (void)self;
  (void)none;
  Py_BEGIN_ALLOW_THREADS;
  while (sem_wait(&arrived) && errno == EINTR)
    ;
  Py_END_ALLOW_THREADS;
  Py_RETURN_NONE;
}

/* ---- Taking events */

static event *oldest_first(event *e) {
  event *first = NULL;
  while (e) {
    event *older = e->next;
    e->next = first;
    first = e;
    e = older;
  }
  return first;
}

/* Appends an event to the list and frees it. `list` and the result may be NULL, with an exception
 * set. */
static PyObject *append(PyObject *list, event *e) {
  PyObject *row = !list ? NULL
                        : Py_BuildValue("(iKNN)", (int)e->kind, (unsigned long long)e->generation,
                                        PyLong_FromVoidPtr((void *)e->pointer),
                                        binding_text(e->message));
  if (!row || PyList_Append(list, row)) Py_CLEAR(list);
  Py_XDECREF(row);
  free(e);
  return list;
}

static PyObject *events_take(PyObject *self, PyObject *none) {
  (void)self;
  (void)none;
  PyObject *list = PyList_New(0);
  event *e = oldest_first(atomic_exchange_explicit(&newest, NULL, memory_order_acquire));
  while (e) {
    event *later = e->next;
    list = append(list, e);
    e = later;
  }
  return list;
}

PyMethodDef events_methods[] = {
  { "events_start", events_start, METH_NOARGS, NULL },
  { "events_wait", events_wait, METH_NOARGS, NULL },
  { "events_take", events_take, METH_NOARGS, NULL },
  { 0 },
};

/* events.c - events, from the threads in which they happen to the thread that logs them.
 *
 * The callback may run in any thread, inside a free, with or without the interpreter's lock, and
 * while the interpreter ends. So it only pushes a copy on a list and posts a semaphore. It takes no
 * lock, so the list is whole after a fork. A Python thread waits for the semaphore and takes the
 * list.
 *
 * A process whose main thread ends by itself, and does not call exit, ends with its last thread. A
 * child of a fork is such a process if a thread made it and returns. Its last thread must not be
 * the one that waits for events, so that thread ends after the main thread. */
#define _GNU_SOURCE 1
#include "binding.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
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

/* Release pairs with the acquire in events_wait. */
static atomic_bool is_main_ended;

/* Writes an event that cannot be logged any more, or that comes from a signal handler: with one
 * call that is allowed there. */
static void write_out(const char *message) {
  static const char prefix[] = "loam: ";
  struct iovec parts[] = { { (void *)prefix, sizeof prefix - 1 },
                           { (void *)message, strlen(message) },
                           { (void *)"\n", 1 } };
  if (writev(STDERR_FILENO, parts, 3) < 0) return; /* no reader: nothing to do */
}

/* Once the interpreter has ended, these are reported: errors of the program, the report at exit,
 * which LOAM_REPORT=stderr asks for, and that the file of LOAM_REPORT cannot be written. */
static int is_urgent(loam_event_kind kind) {
  if (kind == LOAM_EVENT_FAULT || kind == LOAM_EVENT_REPORT) return 1;
  bool is_error = kind == LOAM_EVENT_BAD_FREE || kind == LOAM_EVENT_LEAK;
  return (is_error || kind == LOAM_EVENT_ENVIRONMENT) && !Py_IsInitialized();
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

/* The destructor of a key that the main thread alone has set. */
static void note_main_end(void *set) {
  (void)set;
  atomic_store_explicit(&is_main_ended, true, memory_order_release);
  sem_post(&arrived);
}

/* Sets the key, if the caller is the main thread. In a forked child that is the thread that forked.
 * The interpreter's lock guards `has_key`. */
static void watch_main_end(void) {
  static pthread_key_t key;
  static bool has_key;
  if (gettid() != getpid()) return;
  if (!has_key) has_key = pthread_key_create(&key, note_main_end) == 0;
  if (has_key) pthread_setspecific(key, &arrived);
}

/* events_start(): makes loam report events here. Returns False if the preload library reports them.
 * A forked child calls it again, in its main thread, if it is to have a thread that waits. */
static PyObject *events_start(PyObject *self, PyObject *none) {
  (void)self;
  (void)none;
  if (binding_is_preloaded()) /* the preload library reports events and handles bad frees */
    Py_RETURN_FALSE;
  sem_init(&arrived, 0, 0);
  atomic_store_explicit(&is_main_ended, false, memory_order_relaxed);
  watch_main_end();
  loam_on_event(push, NULL);
  Py_RETURN_TRUE;
}

/* events_wait(): waits until an event has happened, and returns True. Returns False once the main
 * thread has ended. Signals do not interrupt it: Python handles them in the main thread. */
static PyObject *events_wait(PyObject *self, PyObject *none) {
  (void)self;
  (void)none;
  Py_BEGIN_ALLOW_THREADS;
  while (sem_wait(&arrived) && errno == EINTR)
    ;
  Py_END_ALLOW_THREADS;
  return PyBool_FromLong(!atomic_load_explicit(&is_main_ended, memory_order_acquire));
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

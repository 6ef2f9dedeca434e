/* handler.c - the registry of handlers: a list that only grows, read without a lock. */
#include "device/handler.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "os/error.h"
#include "os/thread.h"
#include "pages/metadata.h"

typedef struct entry {
  struct entry *next;                    /* older */
  _Atomic(const loam_handler *) handler; /* the last of this name */
  char name[sizeof((loam_handler *)0)->name];
} entry;

/* Under the lock: writes. Acquire pairs with the release of whoever wrote the pointer. */
static struct {
  lm_lock lock;
  _Atomic(entry *) first;
} registry;

static entry *find(const char *name) {
  entry *e = atomic_load_explicit(&registry.first, memory_order_acquire);
  while (e && strcmp(e->name, name) != 0) e = e->next;
  return e;
}

const loam_handler *lm_handler_find(const char *name) {
  entry *e = find(name);
  return e ? atomic_load_explicit(&e->handler, memory_order_acquire) : NULL;
}

/* ---- Registration */

static const char *missing_function(const loam_allocator *a) {
  if (!a->malloc) return "malloc";
  if (!a->calloc) return "calloc";
  if (!a->realloc) return "realloc";
  return a->free ? NULL : "free";
}

loam_status lm_handler_check(const loam_handler *h) {
  if (!h) return lm_error(LOAM_EINVAL, "the handler is NULL");
  if (!memchr(h->name, 0, sizeof h->name))
    return lm_error(LOAM_EINVAL, "the handler's name is not terminated within its %zu bytes",
                    sizeof h->name);
  if (!h->name[0]) return lm_error(LOAM_EINVAL, "the handler's name is empty");
  char name[sizeof h->name + 8];
  lm_error_quote(name, sizeof name, h->name);
  if (!h->version) return lm_error(LOAM_EINVAL, "handler %s: version 0; the first is 1", name);
  const char *missing = missing_function(&h->allocator);
  return missing ? lm_error(LOAM_EINVAL, "handler %s: its %s is NULL", name, missing) : LOAM_OK;
}

/* Puts `e` first, or, if somebody registered the name meanwhile, replaces there: false. */
static bool put(entry *e, const loam_handler *handler) {
  lm_lock_take(&registry.lock);
  entry *same = find(handler->name);
  if (same) {
    atomic_store_explicit(&same->handler, handler, memory_order_release);
  } else {
    e->next = atomic_load_explicit(&registry.first, memory_order_relaxed);
    atomic_store_explicit(&registry.first, e, memory_order_release);
  }
  lm_lock_drop(&registry.lock);
  return !same;
}

loam_status loam_handler_register(const loam_handler *handler) {
  loam_status status = lm_handler_check(handler);
  if (status) return status;
  entry *e = lm_metadata_alloc(sizeof *e);
  if (!e) return lm_error(LOAM_ENOMEM, "no memory to register handler \"%s\"", handler->name);
  lm_thread_add_fork_lock(&registry.lock);
  strcpy(e->name, handler->name);
  atomic_store_explicit(&e->handler, handler, memory_order_relaxed);
  if (!put(e, handler)) lm_metadata_free(e);
  return LOAM_OK;
}

/* ---- The host's own allocator */

static const loam_system libc = {
  malloc, calloc, realloc, free, aligned_alloc, malloc_usable_size
};

static loam_system given;
static _Atomic(const loam_system *) current = &libc;

const loam_system *lm_handler_system(void) {
  return atomic_load_explicit(&current, memory_order_acquire); /* pairs with the release below */
}

void lm_handler_set_system(const loam_system *system) {
  if (system) given = *system;
  atomic_store_explicit(&current, system ? &given : &libc, memory_order_release);
}

/* handler.c - the registry of handlers: a list that only grows and is read without a lock; and the
 * host's own allocator. */
#include "device/handler.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "os/error.h"
#include "os/thread.h"
#include "pages/metadata.h"

/* A name, and the handler that was last registered under it. Law: handler is not NULL once the
 * entry is in the list; no two entries have one name. */
typedef struct entry {
  struct entry *next; /* an older entry; constant once the entry is in the list */
  /* Written with a release, which pairs with the acquire of a thread that reads it. */
  _Atomic(const loam_handler *) handler;
  char name[sizeof((loam_handler *)0)->name];
} entry;

static struct {
  lm_lock lock; /* held by a thread that changes the list or an entry, or `tables` */
  /* The release of the thread that adds an entry pairs with the acquire of a thread that
   * searches. */
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

/* Adds `e` to the list and returns true. If the list has an entry of this name, replaces that
 * entry's handler and returns false. */
static bool add_or_replace(entry *e, const loam_handler *handler) {
  lm_assert(!strcmp(e->name, handler->name));
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
  if (!add_or_replace(e, handler)) lm_metadata_free(e);
  lm_verify(lm_handler_is_valid());
  return LOAM_OK;
}

bool lm_handler_is_valid(void) {
  const entry *e = atomic_load_explicit(&registry.first, memory_order_acquire);
  for (; e; e = e->next)
    if (!lm_handler_find(e->name) || find(e->name) != e) return false;
  return true;
}

/* ---- The host's own allocator */

static const loam_system libc = {
  malloc, calloc, realloc, free, aligned_alloc, malloc_usable_size
};

/* A copy of a table that a host gave. It is constant and lives as long as the process, because a
 * block is freed by the table that made it. Law: no two copies are equal. */
typedef struct given {
  loam_system system;
  struct given *older;
} given;

static given *tables; /* all copies; guarded by registry.lock */
/* The release of lm_handler_set_system pairs with the acquire of lm_handler_system. */
static _Atomic(const loam_system *) current = &libc;

const loam_system *lm_handler_system(void) {
  return atomic_load_explicit(&current, memory_order_acquire);
}

/* Returns the copy of a table, and makes it if need be. NULL: there is no memory for it. */
static const loam_system *copy_locked(const loam_system *system) {
  given *g = tables;
  while (g && memcmp(&g->system, system, sizeof *system) != 0) g = g->older;
  if (g) return &g->system;
  if (!(g = lm_metadata_alloc(sizeof *g))) return NULL;
  *g = (given){ *system, tables };
  tables = g;
  return &g->system;
}

bool lm_handler_set_system(const loam_system *system) {
  const loam_system *copy = &libc;
  if (system && memcmp(system, &libc, sizeof libc) != 0) {
    lm_thread_add_fork_lock(&registry.lock);
    lm_lock_take(&registry.lock);
    copy = copy_locked(system);
    lm_lock_drop(&registry.lock);
  }
  if (copy) atomic_store_explicit(&current, copy, memory_order_release);
  return copy;
}

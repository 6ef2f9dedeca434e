/* handler_api.c - loam itself as a handler, and the handler that a thread has set. */
#include "api/handler_api.h"

#include <errno.h>

#include "device/handler.h"
#include "engine/engine.h"
#include "os/error.h"
#include "os/memory_hook.h"

/* ---- Sites as handlers -------------------------------------------------------------------- */

static void *site_malloc(void *ctx, size_t size) { return loam_malloc(ctx, size); }
static void *site_calloc(void *ctx, size_t count, size_t size) {
  return loam_calloc(ctx, count, size);
}
static void *site_realloc(void *ctx, void *ptr, size_t size) {
  return loam_realloc(ctx, ptr, size);
}
static void site_free(void *ctx, void *ptr, size_t size) {
  (void)ctx, (void)size; /* a guess: NumPy's may be of an array that shares the memory */
  loam_free(ptr);
}

/* ctx is the site: NULL, the current scope's. */
static const loam_handler scope_handler = {
  "loam", 1, { NULL, site_malloc, site_calloc, site_realloc, site_free }
};

const loam_handler *loam_handler_of(loam_site *site) {
  if (!site) return &scope_handler;
  loam_handler *found = atomic_load_explicit(&site->handler, memory_order_acquire);
  if (found) return found;
  lm_assert(site->index >= LM_SITE_FIRST);
  loam_handler *made = lm_metadata_alloc(sizeof *made);
  if (!made) return lm_error_null("tag '%s': no memory for its handler", site->where.tag);
  *made = scope_handler;
  made->allocator.ctx = site;
  /* Whoever is first; release pairs with the acquire above. */
  if (atomic_compare_exchange_strong_explicit(&site->handler, &found, made, memory_order_acq_rel,
                                              memory_order_acquire))
    return made;
  lm_metadata_free(made);
  return found;
}

/* ---- The handler of a thread -------------------------------------------------------------- */

const loam_handler *loam_handler_get(void) {
  lm_thread *t = lm_thread_get();
  return t && t->handler ? t->handler : &scope_handler;
}

const loam_handler *loam_handler_set(const loam_handler *handler) {
  if (handler && lm_handler_check(handler)) return NULL;
  const loam_handler *previous = loam_handler_get();
  lm_assert(previous);
  lm_thread *t = lm_thread_get();
  if (t) t->handler = handler == &scope_handler ? NULL : handler;
  return previous;
}

const loam_handler *lm_handler_api_for_data(loam_site **site) {
  const lm_thread *t = lm_thread_self_or_empty;
  const loam_handler *h = t->inside ? NULL : t->handler;
  if (!h || h->allocator.malloc != site_malloc) return h;
  if (h->allocator.ctx) *site = h->allocator.ctx;
  return NULL;
}

void *lm_handler_api_realloc(const loam_handler *handler, loam_site *site, void *ptr, size_t size) {
  int before = errno;
  lm_assert(handler && ptr);
  void *p = lm_engine_serve(&(lm_request){ .site = site, .size = size, .handler = handler }, ptr);
  if (p && lm_memory_hook_is_wanted()) lm_memory_hook_call(ptr, p, size);
  errno = p ? before : ENOMEM;
  return p;
}

/* manager.c - who memory of devices comes from: see manager.h. */
#include "device/manager.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "device/defer.h"
#include "os/error.h"
#include "os/sys.h"
#include "os/thread.h"

enum { ALIGN = 256 };

/* ---- Which one is in effect */

static struct {
  lm_lock lock;
  const loam_manager *given;          /* by loam_manager_set; NULL: none */
  loam_manager whole;                 /* what was given, completed: written before `live` */
  char why[512];                      /* there is none */
  _Atomic(const loam_manager *) live; /* release once it is whole; pairs with the acquire in seal */
  _Atomic bool failed;                /* as `live`, of `why` */
} manager;

/* The library that LOAM_MANAGER names may ask for memory before it has brought its manager. */
static _Thread_local bool is_loading __attribute__((tls_model("initial-exec")));

static const char *named(void) {
  const char *name = lm_sys_getenv("LOAM_MANAGER");
  return name && *name ? name : NULL;
}

/* Entries that make no sense without each other; of a plug-in that is as large as ours. */
static const char *half_pair(const loam_manager *m) {
  if (!m->memalloc != !m->memfree) return "memalloc and memfree";
  if (!m->memhostalloc != !m->memhostfree) return "memhostalloc and memhostfree";
  if (!m->mempin != !m->memunpin) return "mempin and memunpin";
  if (!m->open_ipc_handle != !m->close_ipc_handle) return "open_ipc_handle and close_ipc_handle";
  if (!m->defer_enter != !m->defer_leave) return "defer_enter and defer_leave";
  if (!m->memalloc_async != !m->memfree_async) return "memalloc_async and memfree_async";
  if (!m->memalloc_managed != !m->memfree_managed) return "memalloc_managed and memfree_managed";
  return NULL;
}

/* A copy of what is there of it: it may have been built with an older header. */
static loam_manager read_table(const loam_manager *m) {
  loam_manager out = { 0 };
  memcpy(&out, m, m->size < sizeof out ? m->size : sizeof out);
  return out;
}

static loam_status check(const loam_manager *m) {
  enum { LEAST = offsetof(loam_manager, initialize) };
  if (m->size < LEAST)
    return lm_error(LOAM_EINVAL, "a manager's size is %zu, less than %d", m->size, LEAST);
  const char *name = m->name ? m->name : "";
  if (m->interface_version != LM_MANAGER_INTERFACE)
    return lm_error(LOAM_EUNSUPPORTED, "manager \"%.100s\" has interface version %d: loam has %d",
                    name, m->interface_version, LM_MANAGER_INTERFACE);
  loam_manager table = read_table(m);
  const char *half = half_pair(&table);
  if (half) return lm_error(LOAM_EINVAL, "manager \"%.100s\": of %s only one is there", name, half);
  return LOAM_OK;
}

/* Device memory of somebody's is not asked of the driver either when a stream is named. */
static loam_status memalloc_in_order(void *ctx, int device, size_t size, void *stream, void **out) {
  (void)stream;
  return manager.whole.memalloc(ctx, device, size, out);
}

static void memfree_in_order(void *ctx, int device, void *at, size_t size, void *stream) {
  (void)stream;
  manager.whole.memfree(ctx, device, at, size);
}

#define COMPLETE(entry) \
  if (!whole->entry) whole->entry = lm_manager_driver.entry

static void complete(loam_manager *whole) {
  if (whole->memalloc && !whole->memalloc_async) {
    whole->memalloc_async = memalloc_in_order;
    whole->memfree_async = memfree_in_order;
  }
  COMPLETE(initialize);
  COMPLETE(memalloc);
  COMPLETE(memfree);
  COMPLETE(memhostalloc);
  COMPLETE(memhostfree);
  COMPLETE(mempin);
  COMPLETE(memunpin);
  COMPLETE(get_memory_info);
  COMPLETE(get_ipc_handle);
  COMPLETE(open_ipc_handle);
  COMPLETE(close_ipc_handle);
  COMPLETE(reset);
  COMPLETE(defer_enter);
  COMPLETE(defer_leave);
  COMPLETE(memalloc_async);
  COMPLETE(memfree_async);
  COMPLETE(memalloc_managed);
  COMPLETE(memfree_managed);
}

/* The manager of the library; NULL, with words. Its handle is kept. */
static const loam_manager *load(const char *name) {
  void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (!library) return lm_error_null("LOAM_MANAGER: %s", dlerror());
  loam_manager_plugin_fn plugin = (loam_manager_plugin_fn)dlsym(library, "loam_manager_plugin");
  if (!plugin) return lm_error_null("LOAM_MANAGER=%s: it exports no loam_manager_plugin", name);
  const loam_manager *m = plugin(&lm_manager_driver);
  if (!m) return lm_error_null("LOAM_MANAGER=%s: its loam_manager_plugin gives no manager", name);
  if (check(m) == LOAM_OK) return m;
  char why[sizeof manager.why];
  snprintf(why, sizeof why, "%s", loam_error());
  return lm_error_null("LOAM_MANAGER=%s: %s", name, why);
}

static const loam_manager *choose_locked(void) {
  const char *name = named();
  if (!name) return manager.given ? manager.given : &lm_manager_driver;
  is_loading = true;
  const loam_manager *m = load(name);
  is_loading = false;
  return m;
}

static void after_fork(void) { lm_lock_renew(&manager.lock); }

/* Plug-ins put their own frees off as well. */
static void tell_deferred(bool begins) {
  const loam_manager *m = &manager.whole;
  if (begins) m->defer_enter(m->ctx);
  else m->defer_leave(m->ctx);
}

static void seal_locked(void) {
  const loam_manager *m = choose_locked();
  if (!m) {
    snprintf(manager.why, sizeof manager.why, "%s", loam_error());
    atomic_store_explicit(&manager.failed, true, memory_order_release);
    return;
  }
  manager.whole = read_table(m);
  if (!manager.whole.name) manager.whole.name = "";
  complete(&manager.whole);
  atomic_store_explicit(&lm_defer_on_change, tell_deferred, memory_order_release);
  atomic_store_explicit(&manager.live, &manager.whole, memory_order_release);
}

/* A hook only renews the lock in a child: a library that is loaded may fork. */
static void take(void) {
  static _Atomic bool is_hooked;
  if (!atomic_exchange(&is_hooked, true))
    lm_thread_add_hooks(&(lm_thread_hooks){ .fork_child = after_fork });
  lm_lock_take(&manager.lock);
}

static const loam_manager *live(void) {
  return atomic_load_explicit(&manager.live, memory_order_acquire);
}

static bool has_failed(void) { return atomic_load_explicit(&manager.failed, memory_order_acquire); }

static const loam_manager *seal(void) {
  const loam_manager *m = live();
  if (lm_likely(m != NULL)) return m;
  if (is_loading) return lm_error_null("the manager that LOAM_MANAGER names is being loaded");
  if (!has_failed()) {
    take();
    if (!live() && !has_failed()) seal_locked();
    lm_lock_drop(&manager.lock);
  }
  return has_failed() ? lm_error_null("%s", manager.why) : live();
}

loam_status lm_manager_set(const loam_manager *m) {
  loam_status status = m ? check(m) : LOAM_OK;
  if (status != LOAM_OK) return status;
  if (named()) {
    (void)lm_error_event(LOAM_EVENT_MANAGER, 0, NULL,
                         "manager \"%.100s\" is not taken: LOAM_MANAGER names %s",
                         m && m->name ? m->name : "", named());
    return LOAM_OK;
  }
  take();
  bool late = live();
  if (!late) manager.given = m;
  lm_lock_drop(&manager.lock);
  if (!late) return LOAM_OK;
  return lm_error(LOAM_ESTATE, "memory of a device was asked for already: manager \"%s\" stays",
                  live()->name);
}

/* ---- Devices */

static _Atomic uint32_t ready; /* bits of those that were initialized; relaxed: twice is nothing */

static lm_gpu_result result_of(loam_status status) {
  switch (status) {
    case LOAM_OK: return LM_GPU_OK;
    case LOAM_ENOMEM: return LM_GPU_NO_MEMORY;
    case LOAM_EUNSUPPORTED: return LM_GPU_UNSUPPORTED;
    case LOAM_ESTATE: return LM_GPU_BROKEN;
    default: return LM_GPU_FAILED;
  }
}

/* A driver has said why; others may or may not. */
static lm_gpu_result tell(bool is_own, loam_status status, const char *what, size_t size,
                          int device) {
  if (status == LOAM_OK || is_own) return result_of(status);
  lm_error(status, "manager \"%s\": %s of %zu bytes on device %d: %s", manager.whole.name, what,
           size, device, loam_status_text(status));
  return result_of(status);
}

static bool initialize(const loam_manager *m, int device) {
  lm_gpu_info info;
  if (!lm_gpu_has(device)) return false;
  if (lm_gpu()->info(device, &info) == LM_GPU_OK) lm_defer_total(device, info.total);
  loam_status status = m->initialize(m->ctx, device);
  if (tell(m->initialize == lm_manager_driver.initialize, status, "initialize", 0, device) !=
      LM_GPU_OK)
    return false;
  atomic_fetch_or_explicit(&ready, 1u << device, memory_order_relaxed);
  return true;
}

const loam_manager *lm_manager(int device) {
  const loam_manager *m = seal();
  if (!m || lm_gpu_is_barred()) return NULL;
  uint32_t known = atomic_load_explicit(&ready, memory_order_relaxed);
  bool is_ready = device >= 0 && device < LM_DEVICES_MAX && known >> device & 1;
  return is_ready || initialize(m, device) ? m : NULL;
}

bool lm_manager_is_custom(lm_manager_kind kind) {
  const loam_manager *m = seal();
  if (!m) return true;
  if (kind == LM_MANAGER_DEVICE) return m->memalloc != lm_manager_driver.memalloc;
  if (kind == LM_MANAGER_MANAGED) return m->memalloc_managed != lm_manager_driver.memalloc_managed;
  return m->memhostalloc != lm_manager_driver.memhostalloc;
}

/* ---- Memory */

static const char *const verbs[] = { "memalloc", "memalloc_managed", "memhostalloc" };

static loam_status ask(const loam_manager *m, lm_manager_kind kind, int device, size_t size,
                       unsigned flags, void **out) {
  if (kind == LM_MANAGER_DEVICE) return m->memalloc(m->ctx, device, size, out);
  if (kind == LM_MANAGER_MANAGED) return m->memalloc_managed(m->ctx, device, size, out);
  return m->memhostalloc(m->ctx, device, size, flags, out);
}

static void end(int kind, int device, void *at, size_t size) {
  const loam_manager *m = live();
  if (kind == LM_MANAGER_DEVICE) m->memfree(m->ctx, device, at, size);
  else if (kind == LM_MANAGER_MANAGED) m->memfree_managed(m->ctx, device, at, size);
  else m->memhostfree(m->ctx, device, at, size);
}

static lm_defer queue = { .end = end };

/* What a table of somebody's gives is looked at. */
static lm_gpu_result refuse(lm_manager_kind kind, int device, void *at, size_t size) {
  lm_error(LOAM_EINTERNAL, "manager \"%s\": %s gave %p, which is not %s", manager.whole.name,
           verbs[kind], at, at ? "aligned to 256 bytes" : "an address");
  if (at) end(kind, device, at, size);
  return LM_GPU_FAILED;
}

static lm_gpu_result try_alloc(const loam_manager *m, lm_manager_kind kind, int device, size_t size,
                               unsigned flags, void **out) {
  void *at = NULL;
  loam_status status = ask(m, kind, device, size, flags, &at);
  lm_gpu_result result = tell(!lm_manager_is_custom(kind), status, verbs[kind], size, device);
  if (result != LM_GPU_OK) return result;
  if (!at || (uintptr_t)at % (kind == LM_MANAGER_HOST ? 1 : ALIGN) != 0)
    return refuse(kind, device, at, size);
  *out = at;
  return LM_GPU_OK;
}

lm_gpu_result lm_manager_alloc(lm_manager_kind kind, int device, size_t size, unsigned flags,
                               void **out) {
  const loam_manager *m = lm_manager(device);
  if (!m) return lm_gpu_is_barred() ? LM_GPU_FORKED : LM_GPU_UNSUPPORTED;
  lm_gpu_result result = try_alloc(m, kind, device, size, flags, out);
  if (result != LM_GPU_NO_MEMORY || !lm_manager_flush(device)) return result;
  return try_alloc(m, kind, device, size, flags, out);
}

void lm_manager_free(lm_manager_kind kind, int device, void *at, size_t size) {
  lm_defer_free(&queue, (int)kind, device, at, size);
}

size_t lm_manager_flush(int device) { return lm_defer_flush(&queue, device); }

void lm_manager_reset(int device) {
  const loam_manager *m = live();
  if (!m || device < 0 || device >= LM_DEVICES_MAX) return;
  (void)lm_defer_drain(&queue, device);
  (void)m->reset(m->ctx, device);
  atomic_fetch_and_explicit(&ready, ~(1u << device), memory_order_relaxed);
}

/* manager.c - chooses the manager, and allocates and frees by it: see manager.h. */
#include "device/manager.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "device/defer.h"
#include "device/driver_pool.h"
#include "os/error.h"
#include "os/sys.h"
#include "os/thread.h"

enum { ALIGN = 256 }; /* of device memory, in bytes, as loam.h says */

/* ---- The choice of the manager */

/* Law: all entries of `completed` are set once `in_effect` points to it. */
static LM_SPARSE struct {
  lm_lock lock;              /* long; guards `given` and `why`, and is held while the choice is
                                made */
  const loam_manager *given; /* by loam_manager_set; NULL: none */
  loam_manager completed;    /* a copy of the chosen table; constant once it is in effect */
  char why[512];             /* why there is no manager; constant once `failed` */
  /* NULL, or &completed. The release, after `completed` is written, pairs with the acquire in
   * in_effect(). */
  _Atomic(const loam_manager *) in_effect;
  /* There is no manager. The release, after `why` is written, pairs with the acquire in
   * has_failed(). */
  _Atomic bool failed;
} manager;

/* This thread is loading the library that LOAM_MANAGER names. The library may allocate before it
 * has returned its manager. */
static _Thread_local bool is_loading __attribute__((tls_model("initial-exec")));

/* Returns the library that LOAM_MANAGER names; NULL: none. */
static const char *library_name(void) {
  const char *name = lm_sys_getenv("LOAM_MANAGER");
  return name && *name ? name : NULL;
}

/* Returns the names of two entries that belong together and of which a table has only one; NULL if
 * it has both or none of each pair. */
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

/* Copies a table. It may be smaller than ours, if it was built with an older header: entries that
 * it lacks are NULL in the copy. */
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

/* The entries memalloc_async and memfree_async of a manager that allocates device memory but has
 * none: requests that name a stream go to its memalloc and memfree, and not to the driver. */
static loam_status memalloc_any_stream(void *ctx, int device, size_t size, void *stream,
                                       void **out) {
  (void)stream;
  return manager.completed.memalloc(ctx, device, size, out);
}

static void memfree_any_stream(void *ctx, int device, void *at, size_t size, void *stream) {
  (void)stream;
  manager.completed.memfree(ctx, device, at, size);
}

#define COMPLETE(entry) \
  if (!m->entry) m->entry = lm_manager_driver.entry

/* Fills the entries that a table lacks with the driver's. */
static void complete(loam_manager *m) {
  if (m->memalloc && !m->memalloc_async) {
    m->memalloc_async = memalloc_any_stream;
    m->memfree_async = memfree_any_stream;
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

/* Loads a library and returns its manager; the library is never closed. NULL: the thread's error
 * words say why not. */
static const loam_manager *load(const char *name) {
  void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (!library) return lm_error_null("LOAM_MANAGER: %s", dlerror());
  loam_manager_plugin_fn plugin = (loam_manager_plugin_fn)dlsym(library, "loam_manager_plugin");
  if (!plugin) return lm_error_null("LOAM_MANAGER=%s: it exports no loam_manager_plugin", name);
  const loam_manager *m = plugin(&lm_manager_driver);
  if (!m)
    return lm_error_null("LOAM_MANAGER=%s: its loam_manager_plugin returned no manager", name);
  if (check(m) == LOAM_OK) return m;
  char why[sizeof manager.why];
  snprintf(why, sizeof why, "%s", loam_error());
  return lm_error_null("LOAM_MANAGER=%s: %s", name, why);
}

/* Returns the table of the library in LOAM_MANAGER, of the host, or of the driver. NULL: the
 * library has none, and the error words say why. */
static const loam_manager *choose_locked(void) {
  const char *name = library_name();
  if (!name) return manager.given ? manager.given : &lm_manager_driver;
  is_loading = true;
  const loam_manager *m = load(name);
  is_loading = false;
  return m;
}

/* Calls of the manager's defer_enter that no call of its defer_leave has followed yet. Relaxed: a
 * count that orders nothing. */
static _Atomic int passed_on;

/* Tells the manager when cleanup is deferred: a plug-in may defer frees of its own. The end of a
 * section that began before the manager was chosen is not passed on. */
static void pass_on_deferral(bool begins) {
  const loam_manager *m = &manager.completed;
  int depth = atomic_load_explicit(&passed_on, memory_order_relaxed);
  if (begins) {
    atomic_fetch_add_explicit(&passed_on, 1, memory_order_relaxed);
    m->defer_enter(m->ctx);
    return;
  }
  while (depth > 0 &&
         !atomic_compare_exchange_weak_explicit(&passed_on, &depth, depth - 1, memory_order_relaxed,
                                                memory_order_relaxed))
    continue;
  if (depth > 0) m->defer_leave(m->ctx);
}

/* Chooses the manager, completes its table and puts that in effect. The choice, or the failure,
 * lasts as long as the process. */
static void put_in_effect_locked(void) {
  lm_assert(!manager.in_effect && !manager.failed);
  const loam_manager *m = choose_locked();
  if (!m) {
    snprintf(manager.why, sizeof manager.why, "%s", loam_error());
    atomic_store_explicit(&manager.failed, true, memory_order_release);
    return;
  }
  manager.completed = read_table(m);
  if (!manager.completed.name) manager.completed.name = "";
  complete(&manager.completed);
  atomic_store_explicit(&lm_defer_on_change, pass_on_deferral, memory_order_release);
  atomic_store_explicit(&manager.in_effect, &manager.completed, memory_order_release);
  lm_assert(lm_manager_is_valid());
}

/* A library may take long to load, and may itself fork. A fork waits for neither. A child that is
 * forked meanwhile has no manager in effect, and chooses one itself. */
static lm_lock_suspended take_lock(void) {
  lm_thread_add_fork_lock(&manager.lock);
  return lm_lock_take_long(&manager.lock);
}

static const loam_manager *in_effect(void) {
  return atomic_load_explicit(&manager.in_effect, memory_order_acquire);
}

static bool has_failed(void) { return atomic_load_explicit(&manager.failed, memory_order_acquire); }

/* Returns the manager; chooses it if need be. NULL: the error words say why there is none. */
static const loam_manager *choose_once(void) {
  const loam_manager *m = in_effect();
  if (lm_likely(m != NULL)) return m;
  if (is_loading) return lm_error_null("the manager that LOAM_MANAGER names is being loaded");
  if (!has_failed()) {
    lm_lock_suspended section = take_lock();
    if (!in_effect() && !has_failed()) put_in_effect_locked();
    lm_lock_drop_long(&manager.lock, section);
  }
  return has_failed() ? lm_error_null("%s", manager.why) : in_effect();
}

loam_status lm_manager_set(const loam_manager *m) {
  loam_status status = m ? check(m) : LOAM_OK;
  if (status != LOAM_OK) return status;
  if (library_name()) {
    (void)lm_error_event(LOAM_EVENT_MANAGER, 0, NULL,
                         "manager \"%.100s\" is not taken: LOAM_MANAGER names %s",
                         m && m->name ? m->name : "", library_name());
    return LOAM_OK;
  }
  lm_lock_suspended section = take_lock();
  bool late = in_effect();
  if (!late) manager.given = m;
  lm_lock_drop_long(&manager.lock, section);
  if (!late) return LOAM_OK;
  return lm_error(LOAM_ESTATE, "memory of a device was asked for already: manager \"%s\" stays",
                  in_effect()->name);
}

bool lm_manager_is_valid(void) {
  const loam_manager *m = in_effect();
  return !m || (m->name && m->initialize && m->memalloc && m->memfree && m->memhostalloc &&
                m->memhostfree && m->mempin && m->memunpin && m->get_memory_info &&
                m->get_ipc_handle && m->open_ipc_handle && m->close_ipc_handle && m->reset &&
                m->defer_enter && m->defer_leave && m->memalloc_async && m->memfree_async &&
                m->memalloc_managed && m->memfree_managed);
}

/* ---- Devices */

/* A bit for each device that the manager was initialized for. Relaxed: two threads may both
 * initialize a device, which managers allow. */
static _Atomic uint32_t ready;

static lm_gpu_result result_of(loam_status status) {
  switch (status) {
    case LOAM_OK: return LM_GPU_OK;
    case LOAM_ENOMEM: return LM_GPU_NO_MEMORY;
    case LOAM_EUNSUPPORTED: return LM_GPU_UNSUPPORTED;
    case LOAM_ESTATE: return LM_GPU_BROKEN;
    default: return LM_GPU_FAILED;
  }
}

/* Returns the result for a status of the manager. The driver has set error words itself; for
 * another manager, which may not have, this sets them. LOAM_ESTATE of the driver means that a
 * context is destroyed or broken and its memory is lost; another manager may return it for any
 * reason. */
static lm_gpu_result report(bool is_driver, loam_status status, const char *what, size_t size,
                            int device) {
  if (status == LOAM_OK || is_driver) return result_of(status);
  lm_error(status, "manager \"%s\": %s of %zu bytes on device %d: %s", manager.completed.name, what,
           size, device, loam_status_text(status));
  return status == LOAM_ESTATE ? LM_GPU_FAILED : result_of(status);
}

/* This thread is calling get_memory_info of a table. The table may call loam_device_memory. */
static _Thread_local bool is_asking __attribute__((tls_model("initial-exec")));

/* Returns whether a status is one of loam.h: a table may return any number. */
static bool is_status(int status) {
  switch (status) {
#define IS_STATUS(name, value, words) case value:
    LOAM_STATUS_LIST(IS_STATUS)
#undef IS_STATUS
    return true;
    default: return false;
  }
}

/* Calls get_memory_info of a table, which may be the driver's. Returns LOAM_EINTERNAL for a status
 * that loam.h does not have. */
static loam_status ask_memory(const loam_manager *m, int device, size_t *free, size_t *total) {
  *free = *total = 0;
  is_asking = true;
  loam_status status = m->get_memory_info(m->ctx, device, free, total);
  is_asking = false;
  if (status != LOAM_OK && m->get_memory_info != lm_manager_driver.get_memory_info)
    lm_error(status, "manager \"%s\": get_memory_info of device %d: %s", m->name, device,
             loam_status_text(status));
  return is_status(status) ? status : LOAM_EINTERNAL;
}

/* Tells the deferred frees how much memory the device has: their limit is a part of that. */
static void limit_deferral(const loam_manager *m, int device) {
  lm_gpu_info info;
  size_t free, total;
  bool is_custom = m->get_memory_info != lm_manager_driver.get_memory_info;
  if (is_custom && ask_memory(m, device, &free, &total) == LOAM_OK) lm_defer_total(device, total);
  else if (lm_gpu()->info(device, &info) == LM_GPU_OK) lm_defer_total(device, info.total);
}

/* Initializes the manager for a device. Returns false, with error words, if that fails. */
static bool initialize(const loam_manager *m, int device) {
  if (!lm_gpu_has(device)) return false;
  loam_status status = m->initialize(m->ctx, device);
  if (status != LOAM_OK && m->initialize != lm_manager_driver.initialize)
    lm_error(status, "manager \"%s\": initialize of device %d: %s", m->name, device,
             loam_status_text(status));
  if (status != LOAM_OK) return false;
  limit_deferral(m, device);
  atomic_fetch_or_explicit(&ready, 1u << device, memory_order_relaxed);
  return true;
}

const loam_manager *lm_manager(int device) {
  const loam_manager *m = lm_gpu_is_barred() ? NULL : choose_once();
  if (!m) return NULL;
  uint32_t known = atomic_load_explicit(&ready, memory_order_relaxed);
  bool is_ready = device >= 0 && device < LM_DEVICES_MAX && known >> device & 1;
  return is_ready || initialize(m, device) ? m : NULL;
}

/* Returns whether another manager than the driver may be in effect, now or at the first request. */
static bool has_choice(void) {
  if (in_effect() || has_failed() || library_name()) return true;
  lm_lock_suspended section = take_lock();
  bool is_given = manager.given;
  lm_lock_drop_long(&manager.lock, section);
  return is_given;
}

loam_status lm_manager_memory(int device, size_t *free, size_t *total) {
  const lm_gpu_ops *gpu = lm_gpu();
  lm_assert(free && total);
  if (!gpu) return lm_gpu_is_barred() ? LOAM_ESTATE : LOAM_EUNSUPPORTED;
  if (is_asking || is_loading || !has_choice())
    return lm_gpu_status(gpu->memory(device, free, total));
  const loam_manager *m = lm_manager(device);
  return m ? ask_memory(m, device, free, total) : LOAM_EUNSUPPORTED;
}

static lm_gpu_result memory_for_gauge(int device, size_t *free, size_t *total) {
  return result_of(lm_manager_memory(device, free, total));
}

void lm_manager_watch(unsigned device) {
  lm_gpu_read_memory_by(memory_for_gauge);
  lm_gpu_watch(device);
}

bool lm_manager_is_custom(lm_manager_kind kind) {
  const loam_manager *m = choose_once();
  if (!m) return true;
  if (kind == LM_MANAGER_DEVICE) return m->memalloc != lm_manager_driver.memalloc;
  if (kind == LM_MANAGER_MANAGED) return m->memalloc_managed != lm_manager_driver.memalloc_managed;
  return m->memhostalloc != lm_manager_driver.memhostalloc;
}

/* ---- Memory */

/* The names of the entries that allocate memory of each lm_manager_kind, for messages. */
static const char *const entries[] = { "memalloc", "memalloc_managed", "memhostalloc" };

/* A request for memory. */
typedef struct request {
  lm_manager_kind kind;
  int device;
  size_t size;
  unsigned flags; /* LM_MANAGER_HOST */
} request;

static loam_status call_manager(const loam_manager *m, const request *r, void **out) {
  lm_assert(r->kind < LM_MANAGER_KINDS);
  if (r->kind == LM_MANAGER_DEVICE) return m->memalloc(m->ctx, r->device, r->size, out);
  if (r->kind == LM_MANAGER_MANAGED) return m->memalloc_managed(m->ctx, r->device, r->size, out);
  return m->memhostalloc(m->ctx, r->device, r->size, r->flags, out);
}

/* Frees a piece of memory now. */
static void free_now(int kind, int device, void *at, size_t size) {
  const loam_manager *m = in_effect();
  lm_assert(m && kind >= 0 && kind < LM_MANAGER_KINDS);
  if (kind == LM_MANAGER_DEVICE) m->memfree(m->ctx, device, at, size);
  else if (kind == LM_MANAGER_MANAGED) m->memfree_managed(m->ctx, device, at, size);
  else m->memhostfree(m->ctx, device, at, size);
}

/* Freed memory that waits until the work on its device has ended. */
static lm_defer queue = { .end = free_now };

/* Refuses memory of a manager that broke its promise, and returns the memory to it. */
static lm_gpu_result refuse(const request *r, void *at) {
  lm_error(LOAM_EINTERNAL, "manager \"%s\": %s gave %p, which is not %s", manager.completed.name,
           entries[r->kind], at, at ? "aligned to 256 bytes" : "an address");
  if (at) free_now((int)r->kind, r->device, at, r->size);
  return LM_GPU_FAILED;
}

static lm_gpu_result try_alloc(const loam_manager *m, const request *r, void **out) {
  void *at = NULL;
  loam_status status = call_manager(m, r, &at);
  lm_gpu_result result = report(!lm_manager_is_custom(r->kind), status, entries[r->kind], r->size,
                                r->device);
  if (result != LM_GPU_OK) return result;
  if (!at || (uintptr_t)at % (r->kind == LM_MANAGER_HOST ? 1 : ALIGN) != 0) return refuse(r, at);
  *out = at;
  return LM_GPU_OK;
}

lm_gpu_result lm_manager_alloc(lm_manager_kind kind, int device, size_t size, unsigned flags,
                               void **out) {
  lm_assert(size > 0 && out);
  request r = { .kind = kind, .device = device, .size = size, .flags = flags };
  const loam_manager *m = lm_manager(device);
  if (!m) return lm_gpu_is_barred() ? LM_GPU_FORKED : LM_GPU_UNSUPPORTED;
  lm_gpu_result result = try_alloc(m, &r, out);
  if (result != LM_GPU_NO_MEMORY) return result;
  size_t freed = lm_manager_flush(device);
  freed += lm_driver_pool_make_room(device);
  return freed ? try_alloc(m, &r, out) : result;
}

void lm_manager_free(lm_manager_kind kind, int device, void *at, size_t size) {
  lm_assert(kind < LM_MANAGER_KINDS && device >= 0 && device < LM_DEVICES_MAX);
  lm_defer_free(&queue, (int)kind, device, at, size);
}

size_t lm_manager_flush(int device) { return lm_defer_flush(&queue, device); }

void lm_manager_reset(int device) {
  const loam_manager *m = in_effect();
  if (!m || device < 0 || device >= LM_DEVICES_MAX) return;
  (void)lm_defer_drain(&queue, device);
  (void)m->reset(m->ctx, device);
  atomic_fetch_and_explicit(&ready, ~(1u << device), memory_order_relaxed);
}

/* defer.c - frees of device memory that are collected and done together: see defer.h. */
#include "device/defer.h"

#include "os/error.h"
#include "os/thread.h"
#include "pages/metadata.h"

/* One piece of memory that is to be freed. */
typedef struct lm_pending {
  struct lm_pending *next;
  int kind;
  void *at;
  size_t size;
} lm_pending;

void (*_Atomic lm_defer_on_change)(bool begins);

/* Relaxed, all four: they are settings and a count that order nothing. A free that runs at the same
 * time as loam_defer_enter may be done or deferred. */
static _Atomic int deferred; /* calls of loam_defer_enter without loam_defer_leave */
static _Atomic int most_count = 10;
static _Atomic double most_ratio = 0.2;
static LM_SPARSE _Atomic uint64_t total[LM_DEVICES_MAX]; /* bytes of memory of each device */

/* The list of all queues that were ever used. The release of the thread that adds a queue pairs
 * with the acquire of a thread that walks the list. */
static _Atomic(lm_defer *) queues;

static bool is_deferred(void) { return atomic_load_explicit(&deferred, memory_order_relaxed) > 0; }

void lm_defer_total(int device, uint64_t bytes) {
  lm_assert(device >= 0 && device < LM_DEVICES_MAX);
  atomic_store_explicit(&total[device], bytes, memory_order_relaxed);
}

/* Takes the pending list of a device, and its bytes. */
static lm_pending *take_all(lm_defer *queue, int device, size_t *bytes) {
  lm_lock_take(&queue->lock);
  lm_pending *first = queue->of[device].first;
  *bytes = queue->of[device].bytes;
  queue->of[device].first = NULL;
  queue->of[device].count = queue->of[device].bytes = 0;
  lm_lock_drop(&queue->lock);
  return first;
}

/* Puts pieces that take_all has taken into the list again. */
static void put_back(lm_defer *queue, int device, lm_pending *first) {
  lm_pending *last = first;
  size_t count = 1, bytes = first->size;
  for (; last->next; last = last->next, count++) bytes += last->next->size;
  lm_lock_take(&queue->lock);
  last->next = queue->of[device].first;
  queue->of[device].first = first;
  queue->of[device].count += count;
  queue->of[device].bytes += bytes;
  lm_lock_drop(&queue->lock);
}

/* Frees the pieces of a list that take_all has taken. */
static void end_all(lm_defer *queue, int device, lm_pending *p) {
  lm_assert(queue->end);
  while (p) {
    lm_pending *next = p->next;
    queue->end(p->kind, device, p->at, p->size);
    lm_metadata_free(p);
    p = next;
  }
}

size_t lm_defer_drain(lm_defer *queue, int device) {
  size_t bytes;
  lm_assert(device >= 0 && device < LM_DEVICES_MAX);
  end_all(queue, device, take_all(queue, device, &bytes));
  return bytes;
}

/* The list is taken before the wait. A piece that is added during the wait may still be in use by
 * newer work: it stays for the next time. */
static size_t flush_one(lm_defer *queue, int device) {
  size_t bytes;
  lm_pending *p = take_all(queue, device, &bytes);
  if (p && queue->before && !queue->before(device)) {
    put_back(queue, device, p);
    return 0;
  }
  end_all(queue, device, p);
  return bytes;
}

size_t lm_defer_flush(lm_defer *queue, int device) {
  size_t bytes = 0;
  if (device >= LM_DEVICES_MAX) return 0;
  int first = device < 0 ? 0 : device, last = device < 0 ? LM_DEVICES_MAX - 1 : device;
  if (is_deferred() || lm_gpu_is_barred()) return 0;
  for (int i = first; i <= last; i++) bytes += flush_one(queue, i);
  return bytes;
}

size_t lm_defer_flush_in_use(int device) {
  size_t bytes = 0;
  lm_defer *queue = atomic_load_explicit(&queues, memory_order_acquire);
  for (; queue; queue = queue->next)
    if (queue->before) bytes += lm_defer_flush(queue, device);
  return bytes;
}

static bool is_over_limit_locked(const lm_defer *queue, int device) {
  double size = (double)atomic_load_explicit(&total[device], memory_order_relaxed);
  size_t count = (size_t)atomic_load_explicit(&most_count, memory_order_relaxed);
  double ratio = atomic_load_explicit(&most_ratio, memory_order_relaxed);
  return queue->of[device].count > count || (double)queue->of[device].bytes > size * ratio;
}

static bool is_over_limit(lm_defer *queue, int device) {
  lm_lock_take(&queue->lock);
  bool over = is_over_limit_locked(queue, device);
  lm_lock_drop(&queue->lock);
  return over;
}

/* Adds a piece; returns whether more is pending now than the limits allow. */
static bool push(lm_defer *queue, int device, lm_pending *p) {
  lm_assert(device >= 0 && device < LM_DEVICES_MAX);
  lm_lock_take(&queue->lock);
  p->next = queue->of[device].first;
  queue->of[device].first = p;
  queue->of[device].count++;
  queue->of[device].bytes += p->size;
  bool over = is_over_limit_locked(queue, device);
  lm_lock_drop(&queue->lock);
  return over;
}

static void add_to_list_once(lm_defer *queue) {
  if (atomic_exchange_explicit(&queue->listed, true, memory_order_relaxed)) return;
  lm_thread_add_fork_lock(&queue->lock);
  queue->next = atomic_load_explicit(&queues, memory_order_relaxed);
  while (!atomic_compare_exchange_weak_explicit(&queues, &queue->next, queue, memory_order_release,
                                                memory_order_relaxed)) {
  }
}

void lm_defer_free(lm_defer *queue, int kind, int device, void *at, size_t size) {
  if (!at || lm_gpu_is_barred()) return;
  lm_pending *p = lm_metadata_alloc(sizeof *p);
  if (!p) {
    if (!queue->before || queue->before(device)) queue->end(kind, device, at, size);
    return;
  }
  add_to_list_once(queue);
  *p = (lm_pending){ NULL, kind, at, size };
  if (push(queue, device, p)) (void)lm_defer_flush(queue, device);
  lm_verify(lm_defer_is_valid(queue));
}

bool lm_defer_is_valid(lm_defer *queue) {
  bool valid = true;
  lm_lock_take(&queue->lock);
  for (int device = 0; device < LM_DEVICES_MAX; device++) {
    size_t count = 0, bytes = 0;
    for (const lm_pending *p = queue->of[device].first; p; p = p->next, count++) bytes += p->size;
    valid = valid && count == queue->of[device].count && bytes == queue->of[device].bytes;
  }
  lm_lock_drop(&queue->lock);
  return valid;
}

/* ---- Limits, and cleanup that the host defers */

void loam_defer_limit(int count, double ratio) {
  if (count >= 0) atomic_store_explicit(&most_count, count, memory_order_relaxed);
  if (ratio >= 0) atomic_store_explicit(&most_ratio, ratio, memory_order_relaxed);
}

static void notify(bool begins) {
  void (*on_change)(bool) = atomic_load_explicit(&lm_defer_on_change, memory_order_acquire);
  if (on_change) on_change(begins);
}

void loam_defer_enter(void) {
  atomic_fetch_add_explicit(&deferred, 1, memory_order_relaxed);
  notify(true);
}

loam_status loam_defer_leave(void) {
  int depth = atomic_load_explicit(&deferred, memory_order_relaxed);
  do {
    if (depth <= 0)
      return lm_error(LOAM_ESTATE,
                      "loam_defer_leave without loam_defer_enter: cleanup is not deferred");
  } while (!atomic_compare_exchange_weak_explicit(&deferred, &depth, depth - 1,
                                                  memory_order_relaxed, memory_order_relaxed));
  notify(false);
  lm_defer *queue = atomic_load_explicit(&queues, memory_order_acquire);
  for (; queue; queue = queue->next)
    for (int device = 0; device < LM_DEVICES_MAX; device++)
      if (is_over_limit(queue, device)) (void)lm_defer_flush(queue, device);
  return LOAM_OK;
}

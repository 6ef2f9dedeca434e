/* manager_defer.c - what goes back to a manager is collected: freeing waits for all work.
 * Pending on a device are at most `most` pieces and `most_ratio` of its memory; while cleanup is
 * deferred, any number. */
#include "error.h"
#include "manager.h"
#include "own.h"
#include "thread.h"

typedef struct pending {
  struct pending *next;
  lm_manager_kind kind;
  void *at;
  size_t size;
} pending;

static struct {
  lm_lock lock;
  struct {
    pending *first;
    size_t count, bytes;
  } of[LM_DEVICES_MAX];
} queue;

static _Atomic int deferred; /* relaxed: who begins to defer is not helped by what others do */
static _Atomic int most = 10;
static _Atomic double most_ratio = 0.2;

static bool is_deferred(void) { return atomic_load_explicit(&deferred, memory_order_relaxed) > 0; }

size_t lm_manager_drain(int device) {
  lm_lock_take(&queue.lock);
  pending *p = queue.of[device].first;
  size_t bytes = queue.of[device].bytes;
  queue.of[device].first = NULL;
  queue.of[device].count = queue.of[device].bytes = 0;
  lm_lock_drop(&queue.lock);
  while (p) {
    pending *next = p->next;
    lm_manager_end(p->kind, device, p->at, p->size);
    lm_own_free(p);
    p = next;
  }
  return bytes;
}

size_t lm_manager_flush(int device) {
  size_t bytes = 0;
  int first = device < 0 ? 0 : device, last = device < 0 ? LM_DEVICES_MAX - 1 : device;
  if (is_deferred() || lm_gpu_is_barred()) return 0;
  for (int i = first; i <= last; i++) bytes += lm_manager_drain(i);
  return bytes;
}

static bool is_over_locked(int device) {
  double size = (double)lm_manager_total(device);
  return queue.of[device].count > (size_t)atomic_load_explicit(&most, memory_order_relaxed) ||
         (double)queue.of[device].bytes >
             size * atomic_load_explicit(&most_ratio, memory_order_relaxed);
}

static bool is_over(int device) {
  lm_lock_take(&queue.lock);
  bool over = is_over_locked(device);
  lm_lock_drop(&queue.lock);
  return over;
}

static bool push(int device, pending *p) {
  lm_lock_take(&queue.lock);
  p->next = queue.of[device].first;
  queue.of[device].first = p;
  queue.of[device].count++;
  queue.of[device].bytes += p->size;
  bool over = is_over_locked(device);
  lm_lock_drop(&queue.lock);
  return over;
}

/* Without memory for the note it is freed at once: late would be never. */
void lm_manager_free(lm_manager_kind kind, int device, void *at, size_t size) {
  if (!at || lm_gpu_is_barred()) return;
  pending *p = lm_own_alloc(sizeof *p);
  if (!p) {
    lm_manager_end(kind, device, at, size);
    return;
  }
  lm_thread_leaf(&queue.lock);
  *p = (pending){ NULL, kind, at, size };
  if (push(device, p)) (void)lm_manager_flush(device);
}

void loam_defer_limit(int count, double ratio) {
  if (count >= 0) atomic_store_explicit(&most, count, memory_order_relaxed);
  if (ratio >= 0) atomic_store_explicit(&most_ratio, ratio, memory_order_relaxed);
}

void loam_defer_enter(void) {
  atomic_fetch_add_explicit(&deferred, 1, memory_order_relaxed);
  lm_manager_defer(true);
}

loam_status loam_defer_leave(void) {
  int depth = atomic_load_explicit(&deferred, memory_order_relaxed);
  do {
    if (depth <= 0) return lm_fail(LOAM_ESTATE, "cleanup is not deferred");
  } while (!atomic_compare_exchange_weak_explicit(&deferred, &depth, depth - 1,
                                                  memory_order_relaxed, memory_order_relaxed));
  lm_manager_defer(false);
  for (int i = 0; i < LM_DEVICES_MAX; i++)
    if (is_over(i)) (void)lm_manager_flush(i);
  return LOAM_OK;
}

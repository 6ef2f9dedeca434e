/* gpu.c - the machine's devices: their driver, found once, and never touched again by a fork; what
 * is free on them, read by a thread of its own. */
#include "gpu/gpu.h"

#include <stdio.h>
#include <stdlib.h>

#include "os/error.h"
#include "os/numa.h"
#include "os/thread.h"

/* `found` is written once, under the lock, by the thread that makes this START. */
typedef enum progress { NOT_YET, STARTING, READY } progress;

static struct {
  lm_lock lock;
  _Atomic progress
      progress;        /* release when `found` is written; pairs with the acquire in is_ready */
  _Atomic bool forked; /* relaxed: set before the child has a second thread */
  lm_gpu_machine found;
} machine;

/* A driver that starts allocates, and so may ask for itself. */
static _Thread_local bool is_starting __attribute__((tls_model("initial-exec")));

static const char FORKED[] = "a fork cannot use the GPU that a parent process started: start the "
                             "process anew (exec, or the spawn method of multiprocessing)";

static bool is_ready(void) {
  return atomic_load_explicit(&machine.progress, memory_order_acquire) == READY;
}

static bool is_forked(void) { return atomic_load_explicit(&machine.forked, memory_order_relaxed); }

/* ---- Loam's own threads: while a process ends, a driver may not be called by others */

static struct {
  pthread_mutex_t lock;
  bool ended;
} visits = { .lock = PTHREAD_MUTEX_INITIALIZER };

bool lm_gpu_begin(void) {
  if (!lm_gpu_started()) return false;
  pthread_mutex_lock(&visits.lock);
  if (!visits.ended) return true;
  pthread_mutex_unlock(&visits.lock);
  return false;
}

void lm_gpu_end(void) { pthread_mutex_unlock(&visits.lock); }

/* Waits for the one that is there. */
static void end_visits(void) {
  pthread_mutex_lock(&visits.lock);
  visits.ended = true;
  pthread_mutex_unlock(&visits.lock);
}

/* ---- Finding it */

static void forget_reader(void);

/* The lock is not taken around fork: the driver itself forks while it starts. */
static void after_fork(void) {
  bool is_touched = atomic_load_explicit(&machine.progress, memory_order_relaxed) != NOT_YET;
  if (is_touched && (!is_ready() || machine.found.ops))
    atomic_store_explicit(&machine.forked, true, memory_order_relaxed);
  forget_reader();
  pthread_mutex_init(&visits.lock, NULL);
  lm_lock_renew(&machine.lock);
}

static void find_locked(void) {
  lm_thread_add_hooks(&(lm_thread_hooks){ .fork_child = after_fork });
  atomic_store_explicit(&machine.progress, STARTING, memory_order_relaxed);
  is_starting = true;
  lm_gpu_cuda_find(&machine.found);
  is_starting = false;
  if (machine.found.ops) atexit(end_visits); /* before what the driver does then */
  atomic_store_explicit(&machine.progress, READY, memory_order_release);
}

static void get_ready(void) {
  if (lm_likely(is_ready()) || is_starting || is_forked()) return;
  lm_lock_take(&machine.lock);
  if (!is_ready()) find_locked();
  lm_lock_drop(&machine.lock);
}

const lm_gpu_ops *lm_gpu_started(void) {
  return is_ready() && !is_forked() ? machine.found.ops : NULL;
}

bool lm_gpu_is_found(void) { return is_ready() && machine.found.ops; }

const lm_gpu_ops *lm_gpu(void) {
  get_ready();
  return lm_gpu_started();
}

const lm_gpu_machine *lm_gpu_found(void) {
  get_ready();
  return &machine.found;
}

const char *lm_gpu_why(void) {
  get_ready();
  if (is_forked()) return FORKED;
  return is_ready() ? machine.found.why : "the driver is being started";
}

bool lm_gpu_is_barred(void) {
  if (lm_likely(!is_forked())) return false;
  lm_error(LOAM_ESTATE, "%s", FORKED);
  return true;
}

int lm_gpu_count(void) { return lm_gpu() ? machine.found.count : 0; }

const char *lm_gpu_text(char *buffer, size_t size) {
  char numbers[64];
  int count = lm_gpu_count();
  snprintf(buffer, size, "%s %s", count == 1 ? "device" : "devices",
           lm_numa_text(((uint64_t)1 << count) - 1, numbers, sizeof numbers));
  return buffer;
}

bool lm_gpu_has(int device) {
  char text[80];
  if (device >= 0 && device < lm_gpu_count()) return true;
  if (!lm_gpu()) lm_error(LOAM_EUNSUPPORTED, "device %d: %s", device, lm_gpu_why());
  else
    lm_error(LOAM_EINVAL, "device %d: this machine has %s", device, lm_gpu_text(text, sizeof text));
  return false;
}

/* ---- Nodes */

/* Of each device, the node + 2; 0: not asked. Relaxed: asked twice it is the same. */
static _Atomic int node_of[LM_DEVICES_MAX];
static _Atomic bool is_spread;

int lm_gpu_node(int device) {
  lm_gpu_info info;
  int known = atomic_load_explicit(&node_of[device], memory_order_relaxed);
  if (known) return known - 2;
  const lm_gpu_ops *gpu = lm_gpu();
  if (!gpu || gpu->info(device, &info) != LM_GPU_OK) return -1;
  int node = info.node >= 0 && lm_numa_has((unsigned)info.node) ? info.node : -1;
  atomic_store_explicit(&node_of[device], node + 2, memory_order_relaxed);
  for (int other = 0; other < device; other++)
    if (lm_gpu_node(other) != node) atomic_store_explicit(&is_spread, true, memory_order_relaxed);
  if (device + 1 < lm_gpu_count()) (void)lm_gpu_node(device + 1);
  return node;
}

bool lm_gpu_is_spread(void) { return atomic_load_explicit(&is_spread, memory_order_relaxed); }

loam_status lm_gpu_status(lm_gpu_result result) {
  switch (result) {
    case LM_GPU_OK: return LOAM_OK;
    case LM_GPU_NO_MEMORY: return LOAM_ENOMEM;
    case LM_GPU_UNSUPPORTED: return LOAM_EUNSUPPORTED;
    case LM_GPU_FAILED: return LOAM_EINVAL;
    default: return LOAM_ESTATE;
  }
}

/* ---- Gauges */

int lm_gpu_current(void) {
  const lm_gpu_ops *ops = lm_gpu_started();
  return ops ? ops->current() : -1;
}

enum { PERIOD_MS = 80 }; /* and what a reading takes */

/* One thread for the process, from the first wish until its end. The end waits for it: a driver
 * may not be called while it shuts down, and it was loaded before. */
static struct {
  pthread_mutex_t lock;
  pthread_cond_t bell;
  pthread_t thread;
  bool runs, ends;
  _Atomic uint32_t watched;
  _Atomic uint64_t free[LM_DEVICES_MAX]; /* relaxed: a hint */
} reader = { .lock = PTHREAD_MUTEX_INITIALIZER, .bell = PTHREAD_COND_INITIALIZER };

static void read_free(unsigned device) {
  size_t free, total;
  const lm_gpu_ops *ops = lm_gpu_started();
  bool known = ops && ops->memory((int)device, &free, &total) == LM_GPU_OK;
  atomic_store_explicit(&reader.free[device], known ? free : 0, memory_order_relaxed);
}

static void read_all(void) {
  uint32_t left = atomic_load_explicit(&reader.watched, memory_order_relaxed);
  for (; left; left &= left - 1) read_free((unsigned)__builtin_ctz(left));
}

static bool rest_locked(void) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_nsec += PERIOD_MS * 1000000;
  until.tv_sec += until.tv_nsec / 1000000000;
  until.tv_nsec %= 1000000000;
  if (!reader.ends) pthread_cond_timedwait(&reader.bell, &reader.lock, &until);
  return !reader.ends;
}

static void *keep_reading(void *unused) {
  bool goes_on = true;
  while (goes_on) {
    read_all();
    pthread_mutex_lock(&reader.lock);
    goes_on = rest_locked();
    pthread_mutex_unlock(&reader.lock);
  }
  return unused;
}

static void end_reader(void) {
  pthread_mutex_lock(&reader.lock);
  bool runs = reader.runs;
  reader.ends = true;
  reader.runs = false;
  pthread_cond_signal(&reader.bell);
  pthread_mutex_unlock(&reader.lock);
  if (runs) pthread_join(reader.thread, NULL);
}

static void forget_reader(void) {
  pthread_mutex_init(&reader.lock, NULL);
  pthread_cond_init(&reader.bell, NULL);
  reader.runs = false;
}

static void start_reader_locked(void) {
  if (!reader.runs && !reader.ends)
    reader.runs = lm_thread_start(&reader.thread, keep_reading) == 0;
}

void lm_gpu_watch(unsigned device) {
  static _Atomic bool ends_in_time;
  if (!lm_gpu() || device >= (unsigned)machine.found.count) return;
  if (atomic_fetch_or(&reader.watched, 1u << device) >> device & 1) return;
  read_free(device);
  if (!atomic_exchange(&ends_in_time, true)) atexit(end_reader);
  pthread_mutex_lock(&reader.lock);
  start_reader_locked();
  pthread_mutex_unlock(&reader.lock);
}

uint64_t lm_gpu_free(unsigned device) {
  if (device >= LM_DEVICES_MAX) return 0;
  return atomic_load_explicit(&reader.free[device], memory_order_relaxed);
}

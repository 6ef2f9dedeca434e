/* gpu.c - the GPU driver of this process: it is found once, and a forked child never calls it.
 * Another thread reads how much memory of each device is free. */
#include "gpu/gpu.h"

#include <stdio.h>
#include <stdlib.h>

#include "os/error.h"
#include "os/numa.h"
#include "os/thread.h"

/* How far the search for a driver is. */
typedef enum progress { NOT_YET, STARTING, READY } progress;

static LM_SPARSE struct {
  lm_lock lock; /* long; held by the one thread that searches, and that writes `found` */
  /* The release that makes it READY, after `found` is written, pairs with the acquire in is_ready.
   * STARTING is stored and read relaxed: only a forked child looks for it. */
  _Atomic progress progress;
  lm_gpu_machine found; /* constant once progress is READY */
} machine;

/* This thread is starting the driver. A driver allocates while it starts, and an allocation may
 * call lm_gpu: that call must not wait for the lock that this thread holds. */
static _Thread_local bool is_starting __attribute__((tls_model("initial-exec")));

static bool is_ready(void) {
  return atomic_load_explicit(&machine.progress, memory_order_acquire) == READY;
}

/* ---- Driver calls by loam's own threads: no such call may run while the process ends */

static struct {
  pthread_mutex_t lock; /* held from lm_gpu_begin to lm_gpu_end */
  bool ended;           /* the process ends: no further calls */
} own_calls = { .lock = PTHREAD_MUTEX_INITIALIZER };

bool lm_gpu_begin(void) {
  if (!lm_gpu_started()) return false;
  pthread_mutex_lock(&own_calls.lock);
  if (!own_calls.ended) return true;
  pthread_mutex_unlock(&own_calls.lock);
  return false;
}

void lm_gpu_end(void) { pthread_mutex_unlock(&own_calls.lock); }

/* An exit handler. Waits for the thread that is between lm_gpu_begin and lm_gpu_end. */
static void forbid_own_calls(void) {
  pthread_mutex_lock(&own_calls.lock);
  own_calls.ended = true;
  pthread_mutex_unlock(&own_calls.lock);
}

/* ---- The search for a driver */

static void forget_reader(void);

/* Runs in a forked child. A search that another thread has begun never ends there: the child then
 * has no driver. */
static void after_fork(void) {
  bool has_begun = atomic_load_explicit(&machine.progress, memory_order_relaxed) != NOT_YET;
  if (has_begun && (!is_ready() || machine.found.ops)) lm_gpu_set_forked();
  forget_reader();
  pthread_mutex_init(&own_calls.lock, NULL);
}

static void find_locked(void) {
  lm_assert(!is_starting && !is_ready());
  lm_thread_add_hooks(&(lm_thread_hooks){ .fork_child = after_fork });
  atomic_store_explicit(&machine.progress, STARTING, memory_order_relaxed);
  is_starting = true;
  lm_gpu_cuda_find(&machine.found);
  is_starting = false;
  lm_require(lm_gpu_machine_is_valid(&machine.found));
  /* Exit handlers run in the reverse order of their registration. The driver has registered its own
   * while it was loaded, so this one runs before them. */
  if (machine.found.ops) atexit(forbid_own_calls);
  atomic_store_explicit(&machine.progress, READY, memory_order_release);
}

/* A driver may take seconds to start, and may itself fork. A fork waits for neither. */
static void find_once(void) {
  if (lm_likely(is_ready()) || is_starting || lm_gpu_is_forked()) return;
  lm_thread_add_fork_lock(&machine.lock);
  lm_lock_suspended section = lm_lock_take_long(&machine.lock);
  if (!is_ready()) find_locked();
  lm_lock_drop_long(&machine.lock, section);
}

const lm_gpu_ops *lm_gpu_started(void) {
  return is_ready() && !lm_gpu_is_forked() ? machine.found.ops : NULL;
}

bool lm_gpu_is_found(void) { return is_ready() && machine.found.ops; }

const lm_gpu_ops *lm_gpu(void) {
  find_once();
  return lm_gpu_started();
}

/* In a child that was forked during the search, `found` may be half written. */
const lm_gpu_machine *lm_gpu_found(void) {
  static const lm_gpu_machine nothing;
  find_once();
  return is_ready() ? &machine.found : &nothing;
}

const char *lm_gpu_why(void) {
  find_once();
  if (lm_gpu_is_forked()) return lm_gpu_forked_text();
  return is_ready() ? machine.found.why : "the driver is being started";
}

int lm_gpu_count(void) { return lm_gpu() ? machine.found.count : 0; }

bool lm_gpu_has(int device) {
  int count = lm_gpu_count();
  if (device >= 0 && device < count) return true;
  if (count) lm_gpu_refuse_device(device, count);
  else lm_error(LOAM_EUNSUPPORTED, "device %d: %s", device, lm_gpu_why());
  return false;
}

/* ---- NUMA nodes of devices */

/* Relaxed, both: two threads that read a node from the driver store equal values. */
static _Atomic int node_of[LM_DEVICES_MAX]; /* by device: its node + 2; 0: not read yet */
static _Atomic bool is_spread;              /* two devices have different nodes */

int lm_gpu_node(int device) {
  lm_gpu_info info;
  lm_assert(device >= 0 && device < LM_DEVICES_MAX);
  int known = atomic_load_explicit(&node_of[device], memory_order_relaxed);
  if (known) return known - 2;
  const lm_gpu_ops *gpu = lm_gpu();
  if (!gpu || gpu->info(device, &info) != LM_GPU_OK) return -1;
  lm_assert(device < machine.found.count);
  int node = info.node >= 0 && lm_numa_has((unsigned)info.node) ? info.node : -1;
  atomic_store_explicit(&node_of[device], node + 2, memory_order_relaxed);
  for (int other = 0; other < device; other++)
    if (lm_gpu_node(other) != node) atomic_store_explicit(&is_spread, true, memory_order_relaxed);
  if (device + 1 < lm_gpu_count()) (void)lm_gpu_node(device + 1);
  return node;
}

bool lm_gpu_is_spread(void) { return atomic_load_explicit(&is_spread, memory_order_relaxed); }

/* ---- Gauges */

int lm_gpu_current(void) {
  const lm_gpu_ops *ops = lm_gpu_started();
  return ops ? ops->current() : -1;
}

enum { PERIOD_MS = 80 }; /* time between two readings */

/* The thread that reads the free memory of devices. It runs from the first lm_gpu_watch to the end
 * of the process. The process ends by an exit handler that waits for it, because no thread may call
 * a driver that shuts down. */
static struct {
  pthread_mutex_t lock; /* guards the four fields below */
  pthread_cond_t wake;  /* signalled when `ends` is set; made by start_reader_locked */
  pthread_t thread;
  bool runs, ends;
  _Atomic uint32_t watched;              /* one bit for each device; relaxed: the reader sees a new
                                            bit one period later at worst */
  _Atomic uint64_t free[LM_DEVICES_MAX]; /* bytes; relaxed: a figure that orders nothing */
} reader = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* What says how much memory is free; NULL: the driver. The release of lm_gpu_read_memory_by pairs
 * with the acquire of the thread that calls it. */
static _Atomic(lm_gpu_memory_fn *) read_memory;

void lm_gpu_read_memory_by(lm_gpu_memory_fn *read) {
  atomic_store_explicit(&read_memory, read, memory_order_release);
}

static void read_free(unsigned device) {
  size_t free, total;
  lm_assert(device < LM_DEVICES_MAX);
  const lm_gpu_ops *ops = lm_gpu_started();
  lm_gpu_memory_fn *read = atomic_load_explicit(&read_memory, memory_order_acquire);
  if (ops && !read) read = ops->memory;
  bool known = ops && read((int)device, &free, &total) == LM_GPU_OK;
  atomic_store_explicit(&reader.free[device], known ? free : 0, memory_order_relaxed);
}

static void read_all(void) {
  uint32_t left = atomic_load_explicit(&reader.watched, memory_order_relaxed);
  for (; left; left &= left - 1) read_free((unsigned)__builtin_ctz(left));
}

/* Sleeps for a period. Returns false when the thread has to end. */
static bool sleep_locked(void) {
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_nsec += PERIOD_MS * 1000000;
  until.tv_sec += until.tv_nsec / 1000000000;
  until.tv_nsec %= 1000000000;
  if (!reader.ends) pthread_cond_timedwait(&reader.wake, &reader.lock, &until);
  return !reader.ends;
}

static void *run_reader(void *unused) {
  bool must_go_on = true;
  while (must_go_on) {
    read_all();
    pthread_mutex_lock(&reader.lock);
    must_go_on = sleep_locked();
    pthread_mutex_unlock(&reader.lock);
  }
  return unused;
}

static void end_reader(void) {
  pthread_mutex_lock(&reader.lock);
  bool runs = reader.runs;
  reader.ends = true;
  reader.runs = false;
  if (runs) pthread_cond_signal(&reader.wake);
  pthread_mutex_unlock(&reader.lock);
  if (runs) pthread_join(reader.thread, NULL);
}

/* In a forked child, which has no such thread. */
static void forget_reader(void) {
  pthread_mutex_init(&reader.lock, NULL);
  reader.runs = false;
}

/* Starts the thread, unless it runs already or the process ends. Its sleep is measured by a clock
 * that cannot be set. */
static void start_reader_locked(void) {
  pthread_condattr_t attributes;
  if (reader.runs || reader.ends) return;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(&reader.wake, &attributes);
  pthread_condattr_destroy(&attributes);
  reader.runs = lm_thread_start(&reader.thread, run_reader) == 0;
}

void lm_gpu_watch(unsigned device) {
  static _Atomic bool has_exit_handler;
  if (!lm_gpu() || device >= (unsigned)machine.found.count) return;
  lm_assert(device < LM_DEVICES_MAX);
  if (atomic_fetch_or(&reader.watched, 1u << device) >> device & 1) return;
  read_free(device);
  if (!atomic_exchange(&has_exit_handler, true)) atexit(end_reader);
  pthread_mutex_lock(&reader.lock);
  start_reader_locked();
  pthread_mutex_unlock(&reader.lock);
}

uint64_t lm_gpu_free(unsigned device) {
  if (device >= LM_DEVICES_MAX) return 0;
  return atomic_load_explicit(&reader.free[device], memory_order_relaxed);
}

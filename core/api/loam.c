/* loam.c - the public functions: check arguments, start on first use, call in. */
#include "loam.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "api/front.h"
#include "device/handler.h"
#include "engine/block_watch.h"
#include "engine/engine.h"
#include "engine/guard_fault.h"
#include "engine/placement_audit.h"
#include "heap/pool.h"
#include "heap/sweep.h"
#include "os/error.h"
#include "os/memory_hook.h"
#include "os/sys.h"
#include "os/version.h"
#include "pages/provided.h"
#include "service/control.h"
#include "service/machine.h"
#include "service/policy.h"

/* ---- Life --------------------------------------------------------------------------------- */

/* Nobody waits for a start: the thread that starts may need what a waiting one holds (the loader's
 * lock, say). What others allocate meanwhile, and what the start itself does, has the default. */
enum { COLD, STARTING, RUNNING, STOPPED };

static _Atomic uint32_t state = COLD;
static _Atomic pid_t starter; /* of STARTING, which a forked child inherits without the thread */

/* Whether a variable is 1, not 0. What is neither is told, and taken for the usual: a misspelt wish
 * would else be one that nobody heard. */
static bool is_on(const char *name, bool usual) {
  const char *value = lm_sys_getenv(name);
  if (!value || !*value) return usual;
  if (!strcmp(value, "0") || !strcmp(value, "1")) return *value == '1';
  lm_error_event(LOAM_EVENT_ENVIRONMENT, 0, NULL, "%s=%.100s: it may be %s; taken as %d", name,
                 value, usual ? "1|0" : "0|1", usual);
  return usual;
}

static const char *missing_function(const loam_system *s) {
  if (!s->malloc) return "malloc";
  if (!s->calloc) return "calloc";
  if (!s->realloc) return "realloc";
  if (!s->free) return "free";
  if (!s->aligned_alloc) return "aligned_alloc";
  return s->usable_size ? NULL : "usable_size";
}

/* The fields that the host knew when it was compiled. */
static loam_status read_config(const loam_config *given, loam_config *out) {
  *out = (loam_config){ .size = sizeof *out };
  if (!given) return LOAM_OK;
  if (given->size < offsetof(loam_config, control))
    return lm_error(LOAM_EINVAL, "loam_config.size %zu: it is sizeof(loam_config)", given->size);
  memcpy(out, given, given->size < sizeof *out ? given->size : sizeof *out);
  const char *missing = out->system ? missing_function(out->system) : NULL;
  if (missing) return lm_error(LOAM_EINVAL, "loam_config.system: it has no %s", missing);
  return LOAM_OK;
}

static bool wants_socket(const loam_config *config) {
  return config->control ? config->control > 0 : is_on("LOAM_CONTROL", true);
}

/* A policy that a lenient host's start refuses has been told as an event. */
static loam_status start_policy(const loam_config *config) {
  if (!config->policy) return LOAM_OK;
  loam_status status = config->watch ? lm_policy_load_followed(config->policy, false)
                                     : lm_policy_load_file(config->policy, false);
  if (status && !config->lenient) return status;
  if (config->watch) status = lm_control_watch(config->policy);
  return config->lenient ? LOAM_OK : status;
}

static loam_status start_as(const loam_config *config) {
  lm_script_limits limits = { config->max_leaves, config->step_ms, config->step_bytes };
  lm_policy_start();
  if (config->leaks || is_on("LOAM_LEAKS", false)) lm_block_watch_want(LM_BLOCK_WATCH_LIST, true);
  lm_policy_set_limits(&limits);
  lm_handler_set_system(config->system);
  lm_guard_fault_enable(config->guard_report);
  loam_status status = start_policy(config);
  if (status) return status;
  (void)lm_control_start(config->control_dir, wants_socket(config)); /* its failure is an event */
  return LOAM_OK;
}

static bool begin_from(uint32_t from) {
  if (!atomic_compare_exchange_strong_explicit(&state, &from, STARTING, memory_order_acq_rel,
                                               memory_order_relaxed))
    return false;
  atomic_store_explicit(&starter, getpid(), memory_order_relaxed);
  return true;
}

static loam_status start(const loam_config *config) {
  uint32_t before = atomic_load_explicit(&state, memory_order_acquire);
  if ((before != COLD && before != STOPPED) || !begin_from(before))
    return lm_error(LOAM_ESTATE, "loam is started already");
  loam_status status = start_as(config);
  atomic_store_explicit(&state, status ? before : RUNNING, memory_order_release);
  return status;
}

/* Calmly: a start that nobody ends would be waited for. */
loam_status loam_start(const loam_config *given) {
  loam_config config;
  loam_status status = read_config(given, &config);
  if (status) return status;
  lm_sys_cancel_off();
  status = start(&config);
  lm_sys_cancel_restore();
  return status;
}

static void start_from_environment(void) {
  /* A child of a fork in the middle of a start: begin again. */
  uint32_t dead = STARTING;
  if (atomic_load_explicit(&state, memory_order_relaxed) == STARTING &&
      atomic_load_explicit(&starter, memory_order_relaxed) != getpid())
    atomic_compare_exchange_strong(&state, &dead, COLD);
  if (!begin_from(COLD)) return;
  loam_config config = { .size = sizeof config, .lenient = 1 };
  const char *policy = lm_sys_getenv("LOAM_POLICY");
  if (policy && *policy) config.policy = policy;
  config.watch = is_on("LOAM_WATCH", false);
  (void)start_as(&config);
  atomic_store_explicit(&state, RUNNING, memory_order_release);
}

static LM_NOINLINE void start_calmly(void) {
  lm_sys_cancel_off();
  start_from_environment();
  lm_sys_cancel_restore();
}

/* What every slow path begins with. */
static void awake(void) {
  uint32_t now = atomic_load_explicit(&state, memory_order_acquire);
  if (lm_unlikely(now == COLD || now == STARTING)) start_calmly();
  lm_control_wake_if_asleep();
}

void loam_stop(void) {
  uint32_t running = RUNNING;
  if (!atomic_compare_exchange_strong_explicit(&state, &running, STOPPED, memory_order_acq_rel,
                                               memory_order_relaxed))
    return;
  lm_control_stop();
}

const char *loam_version(void) { return LM_VERSION; }

/* ---- Policy ------------------------------------------------------------------------------- */

static loam_status null_argument(const char *name) {
  return lm_error(LOAM_EINVAL, "%s: it is NULL", name);
}

loam_status loam_policy_load(const char *path) {
  if (!path) return null_argument("path");
  awake();
  return lm_policy_load_file(path, false);
}

loam_status loam_policy_load_text(const char *name, const char *text) {
  if (!text) return null_argument("text");
  awake();
  return lm_policy_load(name ? name : "text", "", text, strlen(text));
}

loam_status loam_policy_watch(const char *path) {
  awake();
  loam_status loaded = path ? lm_policy_load_followed(path, false) : LOAM_OK;
  char words[LM_ERROR_SIZE];
  size_t length = strnlen(loam_error(), sizeof words - 1);
  memcpy(words, loam_error(), length);
  words[length] = 0;
  loam_status watched = lm_control_watch(path);
  return loaded ? lm_error(loaded, "%s", words) : watched;
}

loam_status loam_policy_inspect(const char *path, const char *query, loam_write_fn write,
                                void *ctx) {
  char *text;
  size_t length;
  if (!path || !query || !write) return null_argument("path, query or write");
  loam_status status = lm_policy_file_read(path, LM_READ_TO_INSPECT, &text, &length);
  if (status) return status;
  status = lm_script_inspect(path, text, length, query, lm_policy_limits(), write, ctx);
  lm_metadata_free(text);
  return status;
}

loam_status loam_policy_info(struct loam_policy_info *out) {
  if (!out) return null_argument("out");
  awake();
  lm_policy_info_get(out);
  return LOAM_OK;
}

/* ---- Sites -------------------------------------------------------------------------------- */

static const char *or_empty(const char *text) { return text ? text : ""; }

/* As lm_site_get, before a start as well. */
static loam_site *site_of(const loam_where *where) {
  lm_policy_start();
  return lm_site_get(where);
}

loam_site *loam_site_get(const char *tag) {
  return site_of(&(loam_where){ or_empty(tag), "", "", "", 0 });
}

loam_site *loam_site_at(const loam_where *w) {
  if (!w) return NULL;
  return site_of(&(loam_where){ or_empty(w->tag), or_empty(w->file), or_empty(w->func),
                                or_empty(w->module), w->line });
}

static void use_scope(lm_thread *t, loam_site *site) {
  t->site = site;
  t->scoped = site ? LM_SCOPED : 0;
}

void loam_scope_enter(loam_site *site) {
  lm_thread *t = lm_thread_get();
  if (!t) return;
  if (t->depth < LM_SCOPES) use_scope(t, t->scope[t->depth] = site);
  t->depth++;
}

void loam_scope_leave(void) {
  lm_thread *t = lm_thread_get();
  if (!t || !t->depth) return;
  t->depth--;
  if (t->depth < LM_SCOPES) use_scope(t, t->depth ? t->scope[t->depth - 1] : NULL);
}

loam_site *loam_scope_get(void) {
  lm_thread *t = lm_thread_get();
  return t ? t->site : NULL;
}

/* ---- Memory ------------------------------------------------------------------------------- */

/* What the slow paths end in. Success leaves errno as it was, whatever system calls it took. */
static void *answer(void *from, void *to, size_t size, int before) {
  if (lm_unlikely(lm_memory_hook_is_wanted()) && to) lm_memory_hook_call(from, to, size);
  errno = to ? before : ENOMEM;
  return to;
}

static LM_NOINLINE void *alloc_slow(loam_site *site, size_t size, size_t align, bool zero) {
  int before = errno;
  awake();
  return answer(NULL, lm_engine_alloc(site, size, align, zero), size, before);
}

/* Nothing to do but to allocate. */
static bool is_plain(void) {
  return atomic_load_explicit(&state, memory_order_relaxed) == RUNNING &&
         !lm_memory_hook_is_wanted();
}

LM_INLINE void *decided_or_slow(loam_site *site, size_t size, bool zero, uintptr_t code) {
  lm_thread *t = lm_thread_self;
  lm_control_wake_if_asleep();
  if (lm_likely(t && is_plain())) {
    loam_site *whose = site ? site : lm_engine_scope(t);
    void *p = lm_engine_decided(t, whose, size, zero, code);
    if (lm_likely(p != NULL)) return p;
  }
  return alloc_slow(site, size, 16, zero);
}

static LM_NOINLINE void *malloc_slow(loam_site *site, size_t size, uintptr_t code) {
  return decided_or_slow(site, size, false, code);
}

static LM_NOINLINE void *malloc_large(loam_site *site, size_t size) {
  lm_thread *t = lm_thread_self_or_empty;
  if (lm_unlikely(size > LM_LARGE_MAX)) return malloc_slow(site, size, 0);
  return lm_engine_take_large(site ? site : lm_engine_scope(t), size, t, malloc_slow);
}

LM_HOT void *loam_malloc(loam_site *site, size_t size) {
  lm_thread *t = lm_thread_self_or_empty;
  if (lm_unlikely(size > LM_SMALL_MAX)) return malloc_large(site, size);
  if (!site) site = lm_engine_scope(t);
  uint64_t key = lm_engine_key(t, site, size);
  lm_lane *lane = lm_engine_lane(t, key);
  if (lm_unlikely(lane->key != key)) return lm_engine_missed(site, size, t, lane, key, malloc_slow);
  void *p = lm_engine_take_at(t, lane);
  return lm_likely(p != NULL) ? p : lm_engine_emptied(site, size, t, malloc_slow);
}

/* From the lane that is known by the code, for a small size; NULL: it has nothing. */
LM_INLINE void *take_by_code(lm_thread *t, size_t size, const void *code) {
  unsigned step = lm_class_step(size);
  lm_lane *lane = lm_engine_code_lane(t, (uintptr_t)code, step);
  uint64_t key = lm_engine_code_key(t, (uintptr_t)code, step);
  return lm_likely(lane->key == key) ? lm_engine_take_at(t, lane) : NULL;
}

LM_HOT void *loam_code_malloc(size_t size, const void *code, loam_code_fn miss) {
  lm_thread *t = lm_thread_self_or_empty;
  if (lm_unlikely(size > LM_SMALL_MAX)) return miss(size, code);
  unsigned step = lm_class_step(size);
  lm_lane *lane = lm_engine_code_lane(t, (uintptr_t)code, step);
  uint64_t key = lm_engine_code_key(t, (uintptr_t)code, step);
  if (lm_unlikely(lane->key != key)) return lm_engine_code_missed(code, size, t, lane, key, miss);
  void *p = lm_engine_take_at(t, lane);
  return lm_likely(p != NULL) ? p : lm_engine_code_emptied(size, code, miss, t);
}

static void *nothing(size_t size, const void *code) {
  (void)size;
  (void)code;
  return NULL;
}

static LM_NOINLINE void *code_missed_zeroed(size_t size, const void *code, loam_code_fn miss,
                                            lm_thread *t) {
  void *p = lm_engine_code_emptied(size, code, nothing, t);
  return p ? memset(p, 0, size) : miss(size, code);
}

/* What a lane can be known by; 0: nothing. */
static uintptr_t learnt(const void *code, const loam_site *site) {
  return site && (uintptr_t)code >> LM_LANE_CODE_BITS == 0 ? (uintptr_t)code : 0;
}

void *loam_code_learn(size_t size, const void *code, loam_site *site) {
  loam_site *scope = loam_scope_get();
  if (size > LM_SMALL_MAX) return malloc_large(scope ? scope : site, size);
  if (scope) return loam_malloc(scope, size);
  return malloc_slow(site, size, learnt(code, site));
}

/* Where a policy tells zeroed requests from others, no lane is known by code. */
LM_HOT void *loam_code_calloc(size_t size, const void *code, loam_code_fn miss) {
  lm_thread *t = lm_thread_self_or_empty;
  if (lm_unlikely(size > LM_SMALL_MAX)) return miss(size, code);
  void *p = take_by_code(t, size, code);
  return lm_likely(p != NULL) ? memset(p, 0, size) : code_missed_zeroed(size, code, miss, t);
}

void *loam_code_learn_zeroed(size_t size, const void *code, loam_site *site) {
  loam_site *scope = loam_scope_get();
  if (scope) return loam_calloc(scope, 1, size);
  return decided_or_slow(site, size, true, size > LM_SMALL_MAX ? 0 : learnt(code, site));
}

void loam_code_forget(void) { lm_thread_set_slow_all(LM_SLOW_STALE); }

static LM_NOINLINE void *calloc_slow(loam_site *site, size_t size, uintptr_t code) {
  (void)code;
  return alloc_slow(site, size, 16, true);
}

static LM_NOINLINE void *calloc_emptied(loam_site *site, lm_lane *lane, size_t size, uint64_t key) {
  void *p = lm_engine_other(lm_thread_self_or_empty, lane, key, site, size);
  return p ? memset(p, 0, size) : calloc_slow(site, size, 0);
}

LM_HOT void *loam_calloc(loam_site *site, size_t count, size_t size) {
  size_t bytes;
  lm_thread *t = lm_thread_self_or_empty;
  if (!lm_mul(count, size, &bytes)) {
    lm_error_null("%zu times %zu bytes: no address space is that large", count, size);
    return answer(NULL, NULL, 0, 0);
  }
  if (lm_unlikely(bytes > LM_SMALL_MAX)) return calloc_slow(site, bytes, 0);
  if (!site) site = lm_engine_scope(t);
  uint64_t key = lm_engine_key(t, site, bytes);
  lm_lane *lane = lm_engine_lane(t, key);
  if (lm_unlikely(lane->key != key))
    return lm_engine_missed_zeroed(site, bytes, t, lane, key, calloc_slow);
  void *p = lm_engine_take_at(t, lane);
  return lm_likely(p != NULL) ? memset(p, 0, bytes) : calloc_emptied(site, lane, bytes, key);
}

static LM_NOINLINE void *aligned_slow(loam_site *site, size_t size, size_t alignment) {
  lm_thread *t = lm_thread_self;
  if (lm_is_pow2(alignment)) {
    lm_pool_note_oversized(size, alignment);
    bool quick = t && is_plain();
    void *p = quick ? lm_engine_aligned(t, site ? site : lm_engine_scope(t), size, alignment)
                    : NULL;
    return p ? p : alloc_slow(site, size, alignment, false);
  }
  lm_error(LOAM_EINVAL, "alignment %zu: it is not a power of two", alignment);
  errno = EINVAL;
  return NULL;
}

static void *aligned_asked(loam_site *site, size_t size, uintptr_t code) {
  (void)code;
  return aligned_slow(site, size, (size_t)lm_thread_self_or_empty->asking);
}

/* Not from the lane at its place, at once. */
static LM_JUMPED void *aligned_missed(loam_site *site, size_t alignment, size_t size, lm_thread *t,
                                      lm_lane *lane, uint64_t key) {
  uint64_t apart = lane->key - key;
  lm_load_fence();
  if (lm_likely(apart == LM_LANE_ASKS || apart == LM_LANE_COUNTED || !apart)) {
    t->asking = (const void *)alignment;
    if (lm_likely(apart == LM_LANE_ASKS))
      return lm_engine_asked(site, size, t, lane, key - lm_engine_aligned_part(size),
                             aligned_asked);
    return lm_engine_opened(site, size, t, lane, aligned_asked);
  }
  lm_thread_leave(t);
  return aligned_slow(site, size, alignment);
}

LM_HOT void *loam_aligned_alloc(loam_site *site, size_t alignment, size_t size) {
  lm_thread *t = lm_thread_self_or_empty;
  size_t whole = lm_align_up(size, alignment);
  if (lm_unlikely(!lm_engine_can_align(alignment, whole)))
    return aligned_slow(site, size, alignment);
  if (!site) site = lm_engine_scope(t);
  uint64_t key = lm_engine_key(t, site, whole) + lm_engine_aligned_part(size);
  lm_lane *lane = lm_engine_lane(t, key);
  void *p = lm_likely(lane->key == key) ? lm_engine_take_at(t, lane) : NULL;
  return lm_likely(p != NULL) ? p : aligned_missed(site, alignment, size, t, lane, key);
}

/* Whom to name if the call turns out to be wrong. */
static void note_caller(const void *caller) {
  lm_thread *t = lm_thread_get();
  if (t) t->caller = caller;
}

void *lm_front_realloc(loam_site *site, void *ptr, size_t size, const void *caller) {
  lm_thread *t = lm_thread_self;
  if (lm_likely(t && size <= LM_LARGE_MAX && is_plain())) {
    void *p = lm_engine_again(t, site, ptr, size);
    if (lm_likely(p != NULL)) return p;
  }
  int before = errno;
  awake();
  note_caller(caller);
  return answer(ptr, lm_engine_realloc(site, ptr, size), size, before);
}

/* Before the start loam has little, and a thread may not be able to have an area yet. */
static bool is_early(const void *ptr) {
  return atomic_load_explicit(&state, memory_order_relaxed) != RUNNING && !loam_owns(ptr);
}

static LM_NOINLINE void free_slow(void *ptr, size_t guess, const void *caller,
                                  const lm_stream *on) {
  if (!ptr) return;
  int before = errno;
  lm_control_wake_if_asleep();
  if (is_early(ptr) && lm_engine_ask_foreign(ptr)) {
    errno = before;
    return;
  }
  note_caller(caller);
  bool tell = lm_unlikely(lm_memory_hook_is_wanted()) && lm_engine_usable(ptr);
  lm_engine_free_on(ptr, guess, on);
  if (tell) lm_memory_hook_call(ptr, NULL, 0);
  errno = before;
}

static LM_JUMPED void free_far(void *ptr, lm_thread *t, lm_located refused, const void *caller) {
  int before = errno;
  bool done = lm_engine_give_far(t, ptr, refused) || lm_pool_give_full(t, ptr, refused);
  lm_thread_leave(t);
  errno = before;
  if (!done) free_slow(ptr, SIZE_MAX, caller, NULL);
}

/* What is counted, the same as the latest. */
static LM_JUMPED void free_near(void *ptr, lm_thread *t, lm_located refused, const void *caller) {
  if (lm_unlikely(!lm_engine_give_near(t, ptr, refused))) {
    free_far(ptr, t, refused, caller);
    return;
  }
  lm_thread_leave(t);
}

/* Not where the thread looks at once: also whatever it frees of a range that is not whole. */
static LM_JUMPED void free_unmet(void *ptr, lm_thread *t, const void *caller) {
  lm_located met;
  bool is_easy = lm_load_first(uint64_t, &t->epoch) & LM_EPOCH_FAST;
  lm_load_fence();
  if (is_easy) lm_pool_set_reach(t);
  bool done = is_easy && lm_pool_locate(ptr, &met) && lm_pool_give_located(t, ptr, met);
  lm_thread_leave(t);
  if (!done) free_slow(ptr, SIZE_MAX, caller, NULL);
}

/* In 128 bytes: one more line of instructions would be a cycle more. */
LM_HOT void loam_free(void *ptr) {
  lm_thread *t = lm_thread_self_or_empty;
  lm_located met;
  size_t bin;
  lm_thread_begin(t);
  if (lm_unlikely(!lm_pool_locate_fast(t, ptr, &met, &bin)))
    free_unmet(ptr, t, __builtin_return_address(0));
  else if (lm_unlikely(!lm_pool_give_to(t, ptr, met, bin)))
    free_near(ptr, t, met, __builtin_return_address(0));
  else lm_thread_leave(t);
}

void loam_on_foreign(int (*free_it)(void *ptr)) { lm_engine_set_foreign(free_it); }

void loam_free_sized(void *ptr, size_t size) {
  size_t usable = lm_pool_usable(ptr);
  bool fits = size <= usable && (size > usable / 2 || usable <= 64);
  if (lm_likely(usable && fits)) loam_free(ptr); /* a live block: nothing to tell */
  else free_slow(ptr, size, __builtin_return_address(0), NULL);
}

size_t loam_usable_size(const void *ptr) { return lm_engine_usable(ptr); }

LM_HOT size_t loam_live_size(const void *ptr) {
  size_t size = lm_load(uint64_t, &lm_engine_nested) ? 0 : lm_pool_live_size(ptr);
  return lm_likely(size != 0) ? size : lm_engine_usable(ptr);
}

int loam_owns(const void *ptr) {
  lm_provided block;
  return lm_pool_owns(ptr) || lm_provider_find(ptr, &block) || lm_map_reserves(ptr);
}

loam_status loam_owner(const void *ptr, loam_owner_info *out) {
  if (!out) return null_argument("out");
  if (lm_engine_owner(ptr, out)) return LOAM_OK;
  return lm_error(LOAM_EBADPTR, "%p: it is in no live block", ptr);
}

size_t loam_trim(void) { return lm_sweep_trim(); }

/* ---- Device memory ------------------------------------------------------------------------- */

void *lm_front_make(loam_site *site, const lm_wish *wish) {
  int before = errno;
  awake();
  return answer(NULL, lm_engine_make(site, wish), wish->size, before);
}

void *loam_device_alloc(loam_site *site, size_t size, void *stream) {
  return lm_front_make(site, &(lm_wish){ .size = size, .want = LM_WANT_DEVICE, .stream = stream });
}

void *loam_managed_alloc(loam_site *site, size_t size) {
  return lm_front_make(site, &(lm_wish){ .size = size, .want = LM_WANT_MANAGED });
}

void *loam_pinned_alloc(loam_site *site, size_t size, unsigned flags) {
  unsigned all = LOAM_PINNED_MAPPED | LOAM_PINNED_PORTABLE | LOAM_PINNED_WRITE_COMBINED;
  lm_thread *t = lm_thread_self_or_empty;
  if (size <= LM_SMALL_EAGER && !(flags & ~(unsigned)(LOAM_PINNED_MAPPED | LOAM_PINNED_PORTABLE))) {
    void *p = lm_engine_take_pinned(t, site ? site : lm_engine_scope(t), size, flags);
    if (lm_likely(p != NULL)) return p;
  }
  if (!(flags & ~all))
    return lm_front_make(site, &(lm_wish){ .size = size, .want = LM_WANT_PINNED, .flags = flags });
  lm_error(LOAM_EINVAL, "flags %#x: they are a sum of LOAM_PINNED_*", flags);
  errno = EINVAL;
  return NULL;
}

void loam_device_free(void *ptr, void *stream) {
  free_slow(ptr, SIZE_MAX, __builtin_return_address(0), &stream);
}

/* ---- Handlers ----------------------------------------------------------------------------- */

static void *handler_malloc(void *ctx, size_t size) { return loam_malloc(ctx, size); }
static void *handler_calloc(void *ctx, size_t count, size_t size) {
  return loam_calloc(ctx, count, size);
}
static void *handler_realloc(void *ctx, void *ptr, size_t size) {
  return loam_realloc(ctx, ptr, size);
}
static void handler_free(void *ctx, void *ptr, size_t size) {
  (void)ctx;
  (void)size; /* a guess: NumPy's may be of an array that shares the memory */
  loam_free(ptr);
}

/* ctx is the site: NULL, the current scope's. */
static const loam_handler scope_handler = {
  "loam", 1, { NULL, handler_malloc, handler_calloc, handler_realloc, handler_free }
};

const loam_handler *loam_handler_of(loam_site *site) {
  if (!site) return &scope_handler;
  loam_handler *found = atomic_load_explicit(&site->handler, memory_order_acquire);
  if (found) return found;
  loam_handler *made = lm_metadata_alloc(sizeof *made);
  if (!made) {
    lm_error(LOAM_ENOMEM, "tag '%s': no memory for its handler", site->where.tag);
    return NULL;
  }
  *made = scope_handler;
  made->allocator.ctx = site;
  /* Whoever is first; release pairs with the acquire above. */
  if (atomic_compare_exchange_strong_explicit(&site->handler, &found, made, memory_order_acq_rel,
                                              memory_order_acquire))
    return made;
  lm_metadata_free(made);
  return found;
}

const loam_handler *loam_handler_get(void) {
  lm_thread *t = lm_thread_get();
  return t && t->handler ? t->handler : &scope_handler;
}

const loam_handler *loam_handler_set(const loam_handler *handler) {
  if (handler && lm_handler_check(handler)) return NULL;
  const loam_handler *previous = loam_handler_get();
  lm_thread *t = lm_thread_get();
  if (t) t->handler = handler;
  return previous;
}

/* ---- Figures and other processes ---------------------------------------------------------- */

loam_status loam_got_each(loam_got_fn callback, void *ctx) {
  return callback ? lm_placement_audit_each(callback, ctx) : null_argument("callback");
}

loam_status loam_stats(struct loam_stats *out) {
  return out ? lm_stats_get(out) : null_argument("out");
}

loam_status loam_stats_by(int keys, loam_row_fn callback, void *ctx) {
  if (!callback) return null_argument("callback");
  if (keys & ~(LOAM_BY_TAG | LOAM_BY_STRATEGY | LOAM_BY_GENERATION))
    return lm_error(LOAM_EINVAL, "keys %#x: they are a sum of LOAM_BY_*", (unsigned)keys);
  return lm_stats_by(keys, callback, ctx);
}

loam_status loam_stats_each(loam_row_fn callback, void *ctx) {
  return loam_stats_by(LOAM_BY_TAG | LOAM_BY_STRATEGY, callback, ctx);
}

loam_status loam_ask(int pid, const char *request, unsigned timeout_ms, loam_write_fn write,
                     void *ctx) {
  if (!request || !write) return null_argument("request or write");
  return lm_control_ask(pid, request, timeout_ms, write, ctx);
}

loam_status loam_hosts(loam_pid_fn callback, void *ctx) {
  return callback ? lm_control_hosts(callback, ctx) : null_argument("callback");
}

loam_status loam_machine(loam_write_fn write, void *ctx) {
  return write ? lm_machine_tell(write, ctx) : null_argument("write");
}

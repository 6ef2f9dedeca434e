/* stream.c - streams and events, and the order of work: runs work when it may run, and finds work
 * that nothing puts in order. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "state.h"

enum { USES = 4096 };

static struct {
  si_work *head, *tail;
  uint32_t last; /* the number of its latest work */
  bool busy;     /* a host function runs, with no lock held */
  CUstream stream;
} slots[SLOTS];

/* The bytes that work reads or writes. A use is forgotten when the host knows that the work is
 * done. */
static struct use {
  uintptr_t low, high;
  int slot;
  uint32_t number;
  bool writes;
} uses[USES];
static unsigned use_count;

static struct {
  CUstream *streams;
  CUevent *events;
  unsigned stream_count, event_count;
} ever;

static pthread_cond_t call_done = PTHREAD_COND_INITIALIZER;

/* ---- Moments ---- */

static void merge(si_moment *into, const si_moment *from) {
  for (int i = 0; i < SLOTS; i++) {
    if (into->at[i] < from->at[i]) into->at[i] = from->at[i];
  }
}

bool si_is_done(const si_moment *moment) {
  for (int i = 0; i < SLOTS; i++) {
    if (si.done.at[i] < moment->at[i]) return false;
  }
  return true;
}

void si_note_host_knows(const si_moment *moment) { merge(&si.host, moment); }

/* ---- Running ---- */

static void *make_call(void *data) {
  si_work *work = data;
  int slot = work->stream->slot;
  si_in_callback(true);
  if (work->call) work->call(work->data);
  if (work->callback) work->callback(work->stream, CUDA_SUCCESS, work->data);
  pthread_mutex_lock(&si_lock);
  si.done.at[slot] = work->number;
  slots[slot].busy = false;
  free(work);
  si_run();
  pthread_cond_broadcast(&call_done);
  pthread_mutex_unlock(&si_lock);
  return NULL;
}

static void run_head(int slot) {
  si_work *work = slots[slot].head;
  slots[slot].head = work->next;
  if (!work->next) slots[slot].tail = NULL;
  if (work->call || work->callback) {
    slots[slot].busy = true;
    pthread_t thread;
    if (pthread_create(&thread, NULL, make_call, work) != 0) abort();
    pthread_detach(thread);
    return;
  }
  if (work->run) work->run(work);
  si.done.at[slot] = work->number;
  free(work->staged);
  free(work);
}

void si_run(void) {
  bool moved = !si.held;
  while (moved) {
    moved = false;
    for (int i = 0; i < SLOTS; i++) {
      while (slots[i].head && !slots[i].busy && slots[i].head->due <= si.calls &&
             si_is_done(&slots[i].head->need)) {
        run_head(i);
        moved = true;
      }
    }
  }
}

/* Completes all work up to the target, also work that is held back or delayed. */
static void complete_up_to(const si_moment *target) {
  for (int i = 0; i < SLOTS; i++) {
    while (si.done.at[i] < target->at[i]) {
      if (slots[i].busy) {
        pthread_cond_wait(&call_done, &si_lock);
      } else {
        si_moment need = slots[i].head->need;
        complete_up_to(&need);
        if (slots[i].head && !slots[i].busy && si_is_done(&slots[i].head->need)) run_head(i);
      }
    }
  }
}

void si_wait(const si_moment *target) {
  si_moment copy = *target;
  complete_up_to(&copy);
  si_note_host_knows(&copy);
}

void si_drain(CUcontext context, int device) {
  si_moment target;
  memset(&target, 0, sizeof target);
  for (int i = 0; i < SLOTS; i++) {
    CUstream stream = slots[i].stream;
    if (!stream || (context && stream->context != context)) continue;
    if (device < 0 || stream->context->device == device) target.at[i] = slots[i].last;
  }
  si_wait(&target);
}

/* ---- Order ---- */

static void forget_seen_uses(void) {
  unsigned kept = 0;
  for (unsigned i = 0; i < use_count; i++) {
    if (uses[i].number > si.host.at[uses[i].slot]) uses[kept++] = uses[i];
  }
  use_count = kept;
}

static void check_order(CUstream stream, uintptr_t low, size_t size, bool writes) {
  if (size == 0) return;
  for (unsigned i = 0; i < use_count; i++) {
    const struct use *use = &uses[i];
    if (use->high <= low || low + size <= use->low || !(writes || use->writes)) continue;
    if (use->number <= stream->known.at[use->slot] || use->slot == stream->slot) continue;
    si_violate("work on stream %p %s %zu bytes at %#lx, which work of another stream %s: nothing "
               "puts them in order",
               (void *)stream, writes ? "writes" : "reads", size, (unsigned long)low,
               use->writes ? "writes" : "reads");
    return;
  }
}

static void note_use(CUstream stream, uintptr_t low, size_t size, bool writes) {
  if (size == 0) return;
  if (use_count == USES) {
    memmove(uses, uses + USES / 2, USES / 2 * sizeof *uses);
    use_count = USES / 2;
  }
  uses[use_count++] = (struct use){ .low = low,
                                    .high = low + size,
                                    .slot = stream->slot,
                                    .number = slots[stream->slot].last,
                                    .writes = writes };
}

bool si_has_pending(uintptr_t at, size_t size, bool forget) {
  bool pending = false;
  for (unsigned i = 0; i < use_count; i++) {
    struct use *use = &uses[i];
    if (use->high <= at || at + size <= use->low) continue;
    if (use->number > si.done.at[use->slot]) pending = true;
    if (forget) *use = uses[--use_count], i--;
  }
  return pending;
}

si_work *si_work_new(void (*run)(si_work *)) {
  si_work *work = calloc(1, sizeof *work);
  if (!work) abort();
  work->run = run;
  return work;
}

/* Puts the default stream of a context in order with the other streams of the context. They wait
 * for each other, except streams with CU_STREAM_NON_BLOCKING. */
static void merge_default(CUstream stream) {
  CUstream legacy = stream->context->legacy;
  if (stream != legacy) {
    if (!(stream->flags & CU_STREAM_NON_BLOCKING)) merge(&stream->known, &legacy->known);
    return;
  }
  for (int i = 0; i < SLOTS; i++) {
    CUstream other = slots[i].stream;
    if (other && other->context == stream->context && !(other->flags & CU_STREAM_NON_BLOCKING)) {
      merge(&stream->known, &other->known);
    }
  }
}

static bool is_live_range(const si_work *work, uintptr_t at, const char *what) {
  if (work->size == 0 || at == 0 || si_is_covered(at, work->size)) return true;
  si_violate("work %s %zu bytes at %#lx, which are not all allocated", what, work->size,
             (unsigned long)at);
  return false;
}

CUresult si_put(CUstream stream, si_work *work) {
  if (stream == stream->context->legacy &&
      si_capture_of(stream->context, stream, "work on a default stream") != CUDA_SUCCESS) {
    free(work->staged);
    free(work);
    return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
  }
  if (!is_live_range(work, work->to, "writes") || !is_live_range(work, work->from, "reads")) {
    free(work->staged);
    free(work);
    return CUDA_ERROR_ILLEGAL_ADDRESS;
  }
  if (stream->capture) {
    free(work->staged);
    free(work);
    return CUDA_SUCCESS;
  }
  forget_seen_uses();
  merge(&stream->known, &si.host);
  merge_default(stream);
  if (work->to) check_order(stream, work->to, work->size, true);
  if (work->from) check_order(stream, work->from, work->size, false);
  int slot = stream->slot;
  work->stream = stream;
  work->number = ++slots[slot].last;
  work->need = stream->known;
  work->due = si.delay ? si.calls + si.delay : 0;
  stream->known.at[slot] = work->number;
  if (work->to) note_use(stream, work->to, work->size, true);
  if (work->from) note_use(stream, work->from, work->size, false);
  if (slots[slot].tail) slots[slot].tail->next = work;
  else slots[slot].head = work;
  slots[slot].tail = work;
  si_run();
  return CUDA_SUCCESS;
}

/* ---- Streams ---- */

CUstream si_stream_new(CUcontext context, unsigned flags) {
  static unsigned turn; /* the next slot to try: a slot is reused as late as possible */
  for (int i = 0; i < SLOTS; i++) {
    unsigned slot = turn++ % SLOTS;
    if (slots[slot].stream || slots[slot].head || slots[slot].busy) continue;
    CUstream stream = calloc(1, sizeof *stream);
    CUstream *all = realloc(ever.streams, (ever.stream_count + 1) * sizeof *all);
    if (!stream || !all) abort();
    ever.streams = all;
    all[ever.stream_count++] = stream;
    stream->live = true;
    stream->context = context;
    stream->flags = flags;
    stream->slot = (int)slot;
    stream->known.at[slot] = slots[slot].last;
    slots[slot].stream = stream;
    return stream;
  }
  fprintf(stderr, "standin: more than %d streams\n", SLOTS);
  abort();
}

static CUstream per_thread(CUcontext context) {
  for (int i = 0; i < SLOTS; i++) {
    CUstream stream = slots[i].stream;
    if (stream && stream->hidden && stream != context->legacy && stream->context == context &&
        pthread_equal(stream->owner, pthread_self())) {
      return stream;
    }
  }
  CUstream stream = si_stream_new(context, 0);
  stream->hidden = true;
  stream->owner = pthread_self();
  return stream;
}

static bool is_stream(CUstream handle) {
  for (unsigned i = 0; i < ever.stream_count; i++) {
    if (ever.streams[i] == handle) return true;
  }
  return false;
}

CUresult si_stream_of(CUstream handle, CUstream *out) {
  if (!handle || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD) {
    CUcontext context;
    CUresult result = si_current(&context);
    if (result != CUDA_SUCCESS) return result;
    *out = handle == CU_STREAM_PER_THREAD ? per_thread(context) : context->legacy;
    return CUDA_SUCCESS;
  }
  if (!is_stream(handle)) {
    si_violate("%p is no stream", (void *)handle);
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (!handle->context->live) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (!handle->live) {
    si_violate("stream %p is used after it was destroyed", (void *)handle);
    return CUDA_ERROR_INVALID_HANDLE;
  }
  *out = handle;
  return si.devices[handle->context->device].broken;
}

API cuStreamCreateWithPriority(CUstream *out, unsigned flags, int priority) {
  ENTER();
  (void)priority;
  CUcontext context;
  CUresult result = si_current(&context);
  if (!out || flags > CU_STREAM_NON_BLOCKING) LEAVE(CUDA_ERROR_INVALID_VALUE);
  if (result != CUDA_SUCCESS) LEAVE(result);
  *out = si_stream_new(context, flags);
  si.handles++;
  LEAVE(CUDA_SUCCESS);
}

API cuStreamCreate(CUstream *out, unsigned flags) {
  return cuStreamCreateWithPriority(out, flags, 0);
}

static void stream_end(CUstream stream) {
  stream->live = false;
  slots[stream->slot].stream = NULL;
  if (!stream->hidden) si.handles--;
}

/* The work of the stream still completes. */
API cuStreamDestroy_v2(CUstream handle) {
  ENTER();
  if (!is_stream(handle) || handle->hidden) LEAVE(CUDA_ERROR_INVALID_HANDLE);
  if (!handle->context->live) LEAVE(CUDA_ERROR_CONTEXT_IS_DESTROYED);
  CUstream stream;
  CUresult result = si_stream_of(handle, &stream);
  if (result == CUDA_SUCCESS) stream_end(stream);
  LEAVE(result);
}

void si_streams_end(CUcontext context) {
  for (int i = 0; i < SLOTS; i++) {
    if (slots[i].stream && slots[i].stream->context == context) stream_end(slots[i].stream);
  }
  for (unsigned i = 0; i < ever.event_count; i++) {
    CUevent event = ever.events[i];
    if (event->live && event->context == context) {
      event->live = false;
      si.handles--;
    }
  }
}

void si_stream_reset(void) {
  si_drain(NULL, -1);
  for (int i = 0; i < SLOTS; i++) {
    if (slots[i].stream) slots[i].stream->live = false;
    slots[i].stream = NULL;
    slots[i].last = 0;
  }
  for (unsigned i = 0; i < ever.event_count; i++) ever.events[i]->live = false;
  use_count = 0;
}

static si_moment moment_of(CUstream stream) {
  merge_default(stream);
  return stream->known;
}

/* Checks that the host may query a stream or wait for it: neither the stream nor, if it is a
 * default stream, a stream that it waits for is captured. */
static CUresult seen_by_host(CUstream stream, const char *function) {
  if (stream->capture) {
    si_violate("%s of stream %p, which is captured", function, (void *)stream);
    stream->capture = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  bool is_legacy = stream == stream->context->legacy;
  return is_legacy ? si_capture_of(stream->context, stream, function) : CUDA_SUCCESS;
}

API cuStreamSynchronize(CUstream handle) {
  ENTER();
  CUstream stream;
  CUresult result = si_stream_of(handle, &stream);
  if (result == CUDA_SUCCESS) result = seen_by_host(stream, "cuStreamSynchronize");
  if (result == CUDA_SUCCESS) {
    si_moment target = moment_of(stream);
    int device = stream->context->device;
    si_wait(&target);
    si_pool_shrink(device, false);
  }
  LEAVE(result);
}

API cuStreamQuery(CUstream handle) {
  ENTER();
  CUstream stream;
  CUresult result = si_stream_of(handle, &stream);
  if (result == CUDA_SUCCESS) result = seen_by_host(stream, "cuStreamQuery");
  if (result != CUDA_SUCCESS) LEAVE(result);
  si_moment target = moment_of(stream);
  if (!si_is_done(&target)) LEAVE(CUDA_ERROR_NOT_READY);
  si_note_host_knows(&target);
  LEAVE(CUDA_SUCCESS);
}

API cuStreamGetCtx(CUstream handle, CUcontext *out) {
  ENTER();
  CUstream stream;
  CUresult result = si_stream_of(handle, &stream);
  if (result == CUDA_SUCCESS) *out = stream->context;
  LEAVE(result);
}

API cuStreamGetFlags(CUstream handle, unsigned *out) {
  ENTER();
  CUstream stream;
  CUresult result = si_stream_of(handle, &stream);
  if (result == CUDA_SUCCESS) *out = stream->flags;
  LEAVE(result);
}

static CUresult put_call(CUstream handle, CUhostFn call, CUstreamCallback callback, void *data) {
  CUstream stream;
  CUresult result = si_stream_of(handle, &stream);
  if (result != CUDA_SUCCESS) return result;
  si_work *work = si_work_new(NULL);
  work->call = call;
  work->callback = callback;
  work->data = data;
  return si_put(stream, work);
}

API cuLaunchHostFunc(CUstream stream, CUhostFn function, void *data) {
  ENTER();
  LEAVE(function ? put_call(stream, function, NULL, data) : CUDA_ERROR_INVALID_VALUE);
}

API cuStreamAddCallback(CUstream stream, CUstreamCallback callback, void *data, unsigned flags) {
  ENTER();
  if (!callback || flags) LEAVE(CUDA_ERROR_INVALID_VALUE);
  LEAVE(put_call(stream, NULL, callback, data));
}

/* ---- Events ---- */

static CUresult check_event(CUevent event) {
  unsigned i = 0;
  while (i < ever.event_count && ever.events[i] != event) i++;
  if (i == ever.event_count) {
    si_violate("%p is no event", (void *)event);
    return CUDA_ERROR_INVALID_HANDLE;
  }
  if (!event->context->live) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  if (!event->live) {
    si_violate("event %p is used after it was destroyed", (void *)event);
    return CUDA_ERROR_INVALID_HANDLE;
  }
  return si.devices[event->context->device].broken;
}

API cuEventCreate(CUevent *out, unsigned flags) {
  ENTER();
  CUcontext context;
  CUresult result = si_current(&context);
  if (!out || flags > 7) LEAVE(CUDA_ERROR_INVALID_VALUE);
  if (result != CUDA_SUCCESS) LEAVE(result);
  CUevent event = calloc(1, sizeof *event);
  CUevent *all = realloc(ever.events, (ever.event_count + 1) * sizeof *all);
  if (!event || !all) abort();
  ever.events = all;
  all[ever.event_count++] = event;
  event->live = true;
  event->context = context;
  event->flags = flags;
  si.handles++;
  *out = event;
  LEAVE(CUDA_SUCCESS);
}

API cuEventDestroy_v2(CUevent event) {
  ENTER();
  CUresult result = check_event(event);
  if (result == CUDA_SUCCESS) {
    event->live = false;
    si.handles--;
  }
  LEAVE(result);
}

static uint64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

API cuEventRecord(CUevent event, CUstream handle) {
  ENTER();
  CUresult result = check_event(event);
  if (result != CUDA_SUCCESS) LEAVE(result);
  CUstream stream;
  result = si_stream_of(handle, &stream);
  if (result != CUDA_SUCCESS) LEAVE(result);
  if (stream->context != event->context) LEAVE(CUDA_ERROR_INVALID_HANDLE);
  if (stream == stream->context->legacy) {
    result = si_capture_of(stream->context, stream, "cuEventRecord");
    if (result != CUDA_SUCCESS) LEAVE(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  }
  event->captured = stream->capture != CU_STREAM_CAPTURE_STATUS_NONE;
  event->at = moment_of(stream);
  event->recorded = true;
  event->nanoseconds = now();
  LEAVE(CUDA_SUCCESS);
}

/* Checks that an event can complete. A captured event is part of a graph, and never does. */
static CUresult check_can_complete(CUevent event, const char *function) {
  if (!event->captured) return CUDA_SUCCESS;
  si_violate("%s of an event that was captured", function);
  return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

API cuEventQuery(CUevent event) {
  ENTER();
  CUresult result = check_event(event);
  if (result == CUDA_SUCCESS) result = check_can_complete(event, "cuEventQuery");
  if (result != CUDA_SUCCESS) LEAVE(result);
  if (!si_is_done(&event->at)) LEAVE(CUDA_ERROR_NOT_READY);
  si_note_host_knows(&event->at);
  LEAVE(CUDA_SUCCESS);
}

API cuEventSynchronize(CUevent event) {
  ENTER();
  CUresult result = check_event(event);
  if (result == CUDA_SUCCESS) result = check_can_complete(event, "cuEventSynchronize");
  if (result == CUDA_SUCCESS) {
    si_wait(&event->at);
    si_pool_shrink(event->context->device, false);
  }
  LEAVE(result);
}

API cuStreamWaitEvent(CUstream handle, CUevent event, unsigned flags) {
  ENTER();
  CUresult result = check_event(event);
  if (result != CUDA_SUCCESS) LEAVE(result);
  CUstream stream;
  result = si_stream_of(handle, &stream);
  if (flags > 1) LEAVE(CUDA_ERROR_INVALID_VALUE);
  if (result == CUDA_SUCCESS) merge(&stream->known, &event->at);
  LEAVE(result);
}

API cuEventElapsedTime(float *out, CUevent start, CUevent stop) {
  ENTER();
  CUresult result = check_event(start);
  if (result == CUDA_SUCCESS) result = check_event(stop);
  if (result != CUDA_SUCCESS) LEAVE(result);
  bool timed = !((start->flags | stop->flags) & CU_EVENT_DISABLE_TIMING);
  if (!out || !timed || !start->recorded || !stop->recorded) LEAVE(CUDA_ERROR_INVALID_HANDLE);
  if (!si_is_done(&start->at) || !si_is_done(&stop->at)) LEAVE(CUDA_ERROR_NOT_READY);
  *out = (float)(int64_t)(stop->nanoseconds - start->nanoseconds) / 1e6f;
  LEAVE(CUDA_SUCCESS);
}

API cuEventElapsedTime_v2(float *out, CUevent start, CUevent stop) {
  return cuEventElapsedTime(out, start, stop);
}

/* ---- Functions for tests ---- */

CONTROL void standin_hold(void) { si.held = true; }
CONTROL void standin_delay(unsigned calls) { si.delay = calls; }

CONTROL void standin_release(void) {
  pthread_mutex_lock(&si_lock);
  si.held = false;
  unsigned delay = si.delay;
  si_run();
  si.delay = delay;
  pthread_mutex_unlock(&si_lock);
}

CONTROL bool standin_step(CUstream handle) {
  pthread_mutex_lock(&si_lock);
  CUstream stream;
  si_work *head = si_stream_of(handle, &stream) == CUDA_SUCCESS ? slots[stream->slot].head : NULL;
  if (head) {
    si_moment need = head->need;
    need.at[stream->slot] = head->number;
    complete_up_to(&need);
  }
  pthread_mutex_unlock(&si_lock);
  return head;
}

CONTROL unsigned standin_pending(CUstream handle) {
  pthread_mutex_lock(&si_lock);
  CUstream stream;
  unsigned count = 0;
  if (si_stream_of(handle, &stream) == CUDA_SUCCESS) {
    count = slots[stream->slot].last - si.done.at[stream->slot];
  }
  pthread_mutex_unlock(&si_lock);
  return count;
}

static void write_bytes(si_work *work) { memset((void *)work->to, (int)work->byte, work->size); }

static void check_bytes(si_work *work) {
  const unsigned char *bytes = (const unsigned char *)work->from;
  for (size_t i = 0; i < work->size; i++) {
    if (bytes[i] == work->byte) continue;
    si_violate("byte %zu of %zu at %#lx is %#x when the work that reads it runs, and not %#x", i,
               work->size, (unsigned long)work->from, bytes[i], work->byte);
    return;
  }
}

static CUresult launch(CUstream handle, void (*run)(si_work *), uintptr_t to, uintptr_t from,
                       int byte, size_t size) {
  pthread_mutex_lock(&si_lock);
  CUstream stream;
  CUresult result = si_stream_of(handle, &stream);
  if (result != CUDA_SUCCESS) return si_leave(result);
  si_work *work = si_work_new(run);
  work->to = to;
  work->from = from;
  work->byte = (unsigned char)byte;
  work->size = size;
  return si_leave(si_put(stream, work));
}

CONTROL CUresult standin_write(CUstream stream, CUdeviceptr at, int byte, size_t size) {
  return launch(stream, write_bytes, at, 0, byte, size);
}

CONTROL CUresult standin_check(CUstream stream, CUdeviceptr at, int byte, size_t size) {
  return launch(stream, check_bytes, 0, at, byte, size);
}

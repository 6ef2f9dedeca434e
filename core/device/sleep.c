/* sleep.c - device memory that sleeps and wakes: see sleep.h. */
#include "device/sleep.h"

#include <stdio.h>
#include <string.h>

#include "device/device_pool.h"
#include "device/manager.h"
#include "os/error.h"
#include "os/thread.h"
#include "pages/metadata.h"

/* Guards all blocks. A long lock, because copies can take seconds. It is taken before the locks of
 * pools and of provided.h. */
static lm_lock lock;
static lm_sleeper *kept; /* freed blocks whose memory work may still use: lm_sleep_free */

static lm_lock_suspended take_lock(void) {
  lm_thread_add_fork_lock(&lock);
  return lm_lock_take_long(&lock);
}

static void drop_lock(lm_lock_suspended section) { lm_lock_drop_long(&lock, section); }

bool lm_sleeper_is_valid(const lm_sleeper *s) {
  if ((s->is_mapped || s->is_torn) && !s->has_memory) return false;
  return s->at && s->size && !(s->is_mapped && s->is_torn) && (s->is_asleep || s->is_mapped);
}

/* ---- The memory of a block. Each function does nothing for a block that is already in the state
 * that the function makes. */

static lm_gpu_result unmap(const lm_gpu_ops *gpu, lm_sleeper *s) {
  if (!s->is_mapped && !s->is_torn) return LM_GPU_OK;
  lm_gpu_result result = gpu->unmap_only(s->at, s->size);
  if (result == LM_GPU_OK) s->is_mapped = s->is_torn = false;
  return result;
}

static lm_gpu_result map(const lm_gpu_ops *gpu, lm_sleeper *s) {
  if (s->is_mapped) return LM_GPU_OK;
  lm_gpu_result result = unmap(gpu, s);
  if (result != LM_GPU_OK) return result;
  result = s->has_memory ? gpu->map_again(s->device, s->at, s->size, s->handle)
                         : gpu->map(s->device, s->at, s->size, &s->handle);
  s->is_mapped = result == LM_GPU_OK;
  s->is_torn = result == LM_GPU_BROKEN && s->handle;
  s->has_memory |= s->is_mapped || s->is_torn;
  return result;
}

static void free_memory(const lm_gpu_ops *gpu, lm_sleeper *s) {
  if (s->has_memory && !s->is_mapped && !s->is_torn && gpu->end_handle(s->handle) == LM_GPU_OK)
    s->has_memory = false;
}

/* Gives the memory and the addresses of a block back. If the driver refuses to unmap, the addresses
 * stay reserved, because nothing else may come there, and the memory is lost. */
static void give_back(const lm_gpu_ops *gpu, lm_sleeper *s) {
  if (unmap(gpu, s) != LM_GPU_OK) return;
  free_memory(gpu, s);
  (void)gpu->unreserve(s->at, s->size);
}

/* ---- Blocks */

/* Returns the granularity of a device whose driver maps memory that loam may request; 0, with the
 * error words set, if this device has no such memory. */
static size_t granularity_of(int device) {
  lm_device_pool *pool = lm_device_pool_of(device, false);
  if (!pool) return 0;
  if (lm_manager_is_custom(LM_MANAGER_DEVICE)) {
    lm_error(LOAM_EUNSUPPORTED, "device %d: a manager allocates its memory, which cannot sleep",
             device);
    return 0;
  }
  if (lm_device_pool_maps(pool)) return pool->granularity;
  lm_error(LOAM_EUNSUPPORTED,
           "device %d: its driver cannot map memory to reserved addresses, so none can sleep",
           device);
  return 0;
}

/* Makes `synchronize` wait for work in the contexts that may use a block. */
static void track_contexts(const lm_gpu_ops *gpu, int device, lm_stream stream) {
  gpu->track_context(device, gpu->context(device));
  if ((uintptr_t)stream > LM_STREAM_DEFAULT)
    gpu->track_context(device, gpu->stream_context(stream));
}

/* Reserves addresses for a block and maps memory there. Waits for the device only where no work is
 * being captured for a graph. */
static lm_gpu_result make(const lm_gpu_ops *gpu, lm_sleeper *s, lm_stream stream) {
  lm_gpu_result result = gpu->reserve(s->device, s->size, &s->at);
  if (result != LM_GPU_OK) return result;
  result = map(gpu, s);
  if (result == LM_GPU_NO_MEMORY && lm_sleep_make_room(s->device, stream)) result = map(gpu, s);
  if (result != LM_GPU_OK) give_back(gpu, s);
  return result;
}

lm_sleeper *lm_sleep_alloc(int device, size_t size, lm_stream stream) {
  const lm_gpu_ops *gpu = lm_gpu();
  if (!gpu) return lm_error_null("%s", lm_gpu_why());
  if (!lm_manager(device)) return NULL;
  size_t granularity = granularity_of(device);
  if (!granularity) return NULL;
  if (size > SIZE_MAX / 2) return lm_error_null("device %d: no device has %zu bytes", device, size);
  lm_sleeper *s = lm_metadata_alloc(sizeof *s);
  if (!s) return lm_error_null("device %d: no memory to describe a block", device);
  s->device = device;
  s->size = lm_align_up(size ? size : 1, granularity);
  s->context = gpu->context(device);
  if (make(gpu, s, stream) != LM_GPU_OK) {
    lm_metadata_free(s);
    return NULL;
  }
  track_contexts(gpu, device, stream);
  lm_assert(lm_sleeper_is_valid(s));
  return s;
}

/* Ends a block that no work uses. In a forked child there is no driver (`gpu` is NULL), and the
 * memory is the parent's. */
static void end(const lm_gpu_ops *gpu, lm_sleeper *s) {
  if (gpu) give_back(gpu, s);
  lm_sleep_store_end(&s->store, s->size);
  lm_metadata_free(s);
}

/* Waits for work on the stream of the block's allocation. The default stream that each thread has
 * of its own cannot be named in another thread: then this waits for the device. */
static lm_gpu_result wait_for_own(const lm_gpu_ops *gpu, const lm_sleeper *s, lm_stream stream) {
  void *scope;
  if (stream == LM_SLEEP_STREAM) return gpu->synchronize(s->device);
  lm_gpu_result result = gpu->push_context(s->device, s->context, &scope);
  if (result != LM_GPU_OK) return result;
  result = lm_sleep_wait(s->device, stream);
  gpu->pop(scope);
  return result;
}

/* Waits until no work uses a block. Returns false if it cannot wait now, because the stream is
 * captured or the driver refuses to wait. In a forked child (`gpu` is NULL), and in a context that
 * is destroyed, no work is left. */
static bool wait_for_work(const lm_gpu_ops *gpu, const lm_sleeper *s, const lm_stream *on,
                          lm_stream stream) {
  if (!gpu || !s->is_mapped) return true;
  if (!gpu->may_record(s->device, on ? *on : stream)) return false;
  lm_gpu_result result = on ? lm_sleep_wait(s->device, *on) : wait_for_own(gpu, s, stream);
  return result == LM_GPU_OK || result == LM_GPU_GONE;
}

/* Frees the kept memory of a device: all of it, or that which work on one stream may have used. No
 * such work is left. Returns the bytes. */
static size_t end_kept_locked(const lm_gpu_ops *gpu, int device, const lm_stream *on) {
  size_t bytes = 0;
  for (lm_sleeper **at = &kept; *at;) {
    lm_sleeper *s = *at;
    bool is_due = s->device == device && (!on || s->stream == *on);
    if (!is_due) {
      at = &s->next;
      continue;
    }
    *at = s->next;
    bytes += s->size;
    end(gpu, s);
  }
  return bytes;
}

/* Waits for a device that has kept memory, and frees that memory. Returns the bytes: 0 also while a
 * stream of the device is captured, because a wait would spoil the capture. */
static size_t trim_locked(const lm_gpu_ops *gpu, int device) {
  bool has_kept = false;
  for (const lm_sleeper *s = kept; s; s = s->next) has_kept |= s->device == device;
  if (!has_kept || !gpu->may_record(device, NULL)) return 0;
  if (gpu->synchronize(device) != LM_GPU_OK) return 0;
  return end_kept_locked(gpu, device, NULL);
}

size_t lm_sleep_trim(int device) {
  const lm_gpu_ops *gpu = lm_gpu_started();
  size_t bytes = 0;
  if (!gpu) return 0;
  lm_lock_suspended section = take_lock();
  for (int i = 0; i < LM_DEVICES_MAX; i++)
    if (device < 0 || i == device) bytes += trim_locked(gpu, i);
  drop_lock(section);
  return bytes;
}

bool lm_sleep_make_room(int device, lm_stream stream) {
  const lm_gpu_ops *gpu = lm_gpu_started();
  if (!gpu || !gpu->may_record(device, stream)) return false;
  return lm_sleep_trim(device) + lm_device_pool_make_room(device) > 0;
}

/* A stream that was created has a name of its own. So kept memory of that stream is due too, when
 * work on the stream has ended. */
void lm_sleep_free(lm_sleeper *s, const lm_stream *on, lm_stream stream) {
  const lm_gpu_ops *gpu = lm_gpu_started();
  lm_stream of = on ? *on : stream;
  int device = s->device;
  lm_lock_suspended section = take_lock();
  lm_assert(!gpu || lm_sleeper_is_valid(s)); /* a fork may come amid a call of another thread */
  if (wait_for_work(gpu, s, on, stream)) {
    bool has_waited = gpu && s->is_mapped;
    end(gpu, s);
    if (has_waited && (uintptr_t)of > LM_STREAM_DEFAULT) (void)end_kept_locked(gpu, device, &of);
  } else {
    s->stream = of;
    s->next = kept;
    kept = s;
  }
  drop_lock(section);
}

bool lm_sleep_begin_copy(const lm_sleeper *from, const lm_sleeper *to, lm_lock_suspended *section) {
  *section = take_lock();
  return !(from && from->is_asleep) && !(to && to->is_asleep);
}

void lm_sleep_end_copy(lm_lock_suspended section) { drop_lock(section); }

/* ---- A call: the blocks that sleep or wake together */

typedef struct call {
  const lm_gpu_ops *gpu;
  const lm_sleep_choice *choice;
  bool for_asleep;   /* it chooses among the blocks that are asleep, else among the others */
  lm_sleeper *first; /* the chosen blocks */
  uint64_t bytes;    /* of all of them */
  uint32_t devices;  /* a bit for each device that has one */
  lm_sleep_buffer buffer;
} call;

static void choose(void *ctx, lm_provided *block) {
  call *c = ctx;
  lm_sleeper *s = block->sleeper;
  if (!s || s->is_asleep != c->for_asleep || !c->choice->wants(c->choice->ctx, block)) return;
  s->next = c->first;
  c->first = s;
  c->bytes += s->size;
  if (s->size > c->buffer.largest) c->buffer.largest = s->size;
  c->devices |= 1u << s->device;
}

static lm_sleep_memory memory_of(call *c, const lm_sleeper *s) {
  return (lm_sleep_memory){ s->device, s->context, s->at, s->size, &c->buffer };
}

static void set_asleep(lm_sleeper *s, bool is_asleep) {
  s->is_asleep = is_asleep;
  lm_provided_set_asleep((void *)(uintptr_t)s->at, is_asleep);
  lm_assert(lm_sleeper_is_valid(s));
}

/* Waits for the work of the devices that have chosen blocks. Memory that was kept for that work is
 * freed then. */
static loam_status synchronize(const call *c) {
  lm_gpu_result result = LM_GPU_OK;
  for (int i = 0; i < LM_DEVICES_MAX && result == LM_GPU_OK; i++) {
    if (!(c->devices >> i & 1)) continue;
    result = c->gpu->synchronize(i);
    if (result == LM_GPU_OK) (void)end_kept_locked(c->gpu, i, NULL);
  }
  return lm_gpu_status(result);
}

/* Fails if a stream of a device of the chosen blocks is captured for a graph, because a wait for
 * the device would spoil the capture, or if the device is broken. The words that `wait` sets say
 * which. */
static loam_status check_capture(const call *c) {
  for (int i = 0; i < LM_DEVICES_MAX; i++) {
    if (!(c->devices >> i & 1) || c->gpu->may_record(i, NULL)) continue;
    lm_gpu_result result = c->gpu->wait(i);
    if (result != LM_GPU_OK) return result == LM_GPU_FAILED ? LOAM_ESTATE : lm_gpu_status(result);
  }
  return LOAM_OK;
}

/* Begins a call: chooses its blocks, and checks that their devices can be waited for. */
static loam_status begin(call *c) {
  if (lm_gpu_is_barred()) return LOAM_ESTATE;
  c->gpu = lm_gpu_started();
  if (!c->gpu) return LOAM_OK; /* no driver was started, so there is no block */
  lm_provided_each(choose, c);
  return check_capture(c);
}

/* Ends a call that has failed. `words` is the error text from before the undo, which becomes the
 * error text again. `lost` counts the bytes of blocks that the driver did not map again. */
static loam_status fail(loam_status status, const char *words, uint64_t lost) {
  if (!lost) return lm_error(status, "%s", words);
  return lm_error(status, "%s; the driver refuses to undo it for %llu bytes, which are asleep now",
                  words, (unsigned long long)lost);
}

/* ---- To sleep */

static loam_status save_each(call *c, lm_sleep_to to, lm_sleep_file *file) {
  uint64_t offset = 0;
  loam_status status = LOAM_OK;
  for (lm_sleeper *s = c->first; s && status == LOAM_OK; s = s->next) {
    lm_sleep_memory from = memory_of(c, s);
    s->store = (lm_sleep_store){ .to = to, .file = file, .offset = offset };
    offset += s->size;
    status = lm_sleep_store_save(&s->store, &from);
  }
  return status;
}

/* Saves the contents of all blocks, when the work that may write them has ended. */
static loam_status save_all(call *c, lm_sleep_to to, const char *dir) {
  lm_sleep_file *file = NULL;
  loam_status status = synchronize(c);
  if (status == LOAM_OK && to == LM_SLEEP_FILE) status = lm_sleep_file_open(dir, c->bytes, &file);
  if (status == LOAM_OK) status = save_each(c, to, file);
  if (file) lm_sleep_file_leave(file);
  lm_sleep_buffer_end(&c->buffer);
  return status == LOAM_OK ? synchronize(c) : status;
}

static loam_status unmap_all(const call *c) {
  lm_gpu_result result = LM_GPU_OK;
  for (lm_sleeper *s = c->first; s && result == LM_GPU_OK; s = s->next) result = unmap(c->gpu, s);
  return lm_gpu_status(result);
}

/* Gives all blocks the state that they had before the call. A block that the driver does not map
 * again falls asleep, with its contents saved. */
static loam_status undo_put(const call *c, loam_status status) {
  char words[LM_ERROR_SIZE / 2];
  uint64_t lost = 0;
  snprintf(words, sizeof words, "%s", loam_error());
  (void)synchronize(c);
  for (lm_sleeper *s = c->first; s; s = s->next) {
    if (map(c->gpu, s) == LM_GPU_OK) {
      lm_sleep_store_end(&s->store, s->size);
    } else {
      lost += s->size;
      set_asleep(s, true);
    }
  }
  return fail(status, words, lost);
}

static loam_status put(call *c, lm_sleep_to to, const char *dir) {
  loam_status status = begin(c);
  if (status != LOAM_OK || !c->first) return status;
  status = save_all(c, to, dir);
  if (status == LOAM_OK) status = unmap_all(c);
  if (status != LOAM_OK) return undo_put(c, status);
  for (lm_sleeper *s = c->first; s; s = s->next) {
    free_memory(c->gpu, s);
    set_asleep(s, true);
  }
  return LOAM_OK;
}

loam_status lm_sleep_put(const lm_sleep_choice *choice, lm_sleep_to to, const char *dir,
                         size_t *bytes) {
  call c = { .choice = choice };
  lm_lock_suspended section = take_lock();
  loam_status status = put(&c, to, dir);
  drop_lock(section);
  if (status == LOAM_OK) *bytes = c.bytes;
  return status;
}

/* ---- To wake */

static lm_gpu_result map_or_make_room(const lm_gpu_ops *gpu, lm_sleeper *s) {
  lm_gpu_result result = map(gpu, s);
  if (result != LM_GPU_NO_MEMORY) return result;
  size_t given = trim_locked(gpu, s->device);
  return given + lm_device_pool_make_room(s->device) > 0 ? map(gpu, s) : result;
}

static loam_status map_all(const call *c) {
  lm_gpu_result result = LM_GPU_OK;
  for (lm_sleeper *s = c->first; s && result == LM_GPU_OK; s = s->next)
    result = map_or_make_room(c->gpu, s);
  return lm_gpu_status(result);
}

static loam_status load_all(call *c) {
  loam_status status = LOAM_OK;
  for (lm_sleeper *s = c->first; s && status == LOAM_OK; s = s->next) {
    lm_sleep_memory to = memory_of(c, s);
    status = lm_sleep_store_load(&s->store, &to);
  }
  lm_sleep_buffer_end(&c->buffer);
  return status == LOAM_OK ? synchronize(c) : status;
}

static uint64_t bytes_on(const call *c, int device) {
  uint64_t bytes = 0;
  for (const lm_sleeper *s = c->first; s; s = s->next) bytes += s->device == device ? s->size : 0;
  return bytes;
}

/* Appends to the words of a wake which device has less free memory than its blocks need. */
static void append_shortage(const call *c, char *words, size_t size) {
  size_t free, total, length = strlen(words);
  for (int i = 0; i < LM_DEVICES_MAX; i++) {
    uint64_t needed = bytes_on(c, i);
    if (!needed || c->gpu->memory(i, &free, &total) != LM_GPU_OK || free >= needed) continue;
    snprintf(words + length, size - length,
             "; on device %d, %llu bytes are to wake and %zu are free", i,
             (unsigned long long)needed, free);
    return;
  }
}

/* Takes the memory away again: all blocks sleep on. A block that the driver does not unmap has its
 * memory, and sleeps nevertheless. */
static loam_status undo_wake(const call *c, loam_status status) {
  char words[LM_ERROR_SIZE / 2];
  snprintf(words, sizeof words, "%s", loam_error());
  (void)synchronize(c);
  for (lm_sleeper *s = c->first; s; s = s->next)
    if (unmap(c->gpu, s) == LM_GPU_OK) free_memory(c->gpu, s);
  if (status == LOAM_ENOMEM) append_shortage(c, words, sizeof words);
  return fail(status, words, 0);
}

static loam_status wake(call *c) {
  loam_status status = begin(c);
  if (status != LOAM_OK || !c->first) return status;
  status = map_all(c);
  if (status == LOAM_OK) status = load_all(c);
  if (status != LOAM_OK) return undo_wake(c, status);
  for (lm_sleeper *s = c->first; s; s = s->next) {
    lm_sleep_store_end(&s->store, s->size);
    set_asleep(s, false);
  }
  return LOAM_OK;
}

loam_status lm_sleep_wake(const lm_sleep_choice *choice, size_t *bytes) {
  call c = { .choice = choice, .for_asleep = true };
  lm_lock_suspended section = take_lock();
  loam_status status = wake(&c);
  drop_lock(section);
  if (status == LOAM_OK) *bytes = c.bytes;
  return status;
}

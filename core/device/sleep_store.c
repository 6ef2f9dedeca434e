/* sleep_store.c - saves the contents of device memory, and loads them again: see sleep_store.h. */
#include "device/sleep_store.h"

#include <errno.h>
#include <string.h>

#include "device/device_pool_parts.h"
#include "device/pinned.h"
#include "os/error.h"
#include "os/lock.h"
#include "os/sys_file.h"
#include "pages/metadata.h"

#define BUFFER_MOST (16 * LM_MIB)

/* ---- Pinned memory */

/* Takes memory from the context's pool of pinned memory on the device's node. The memory goes past
 * what that pool keeps: it is as large as the blocks, and the pool would keep it for later
 * requests. If the context has ended, the memory is of the context that a call on the device would
 * use. */
static void take_pinned(int device, void *context, size_t size, lm_sleep_pinned *out) {
  void *scope;
  const lm_gpu_ops *gpu = lm_gpu_started();
  lm_gpu_result result = gpu->push_context(device, context, &scope);
  if (result == LM_GPU_GONE) result = gpu->push_context(device, NULL, &scope);
  if (result != LM_GPU_OK) return;
  out->pool = lm_device_pool_of_pinned(device, gpu->host_context(device),
                                       &(lm_pinned_desc){ .is_pinned = true });
  result = out->pool ? lm_device_pool_alloc_chunk(out->pool, size, &out->at) : LM_GPU_FAILED;
  if (result == LM_GPU_NO_MEMORY && lm_pinned_make_room())
    result = lm_device_pool_alloc_chunk(out->pool, size, &out->at);
  if (result != LM_GPU_OK) out->at = NULL;
  gpu->pop(scope);
}

static void free_pinned(lm_sleep_pinned *pinned, size_t size) {
  if (pinned->at) lm_device_pool_free_chunk(pinned->pool, pinned->at, size);
  pinned->at = NULL;
}

/* Puts a copy on LM_SLEEP_STREAM. */
static loam_status copy(int device, lm_devptr to, lm_devptr from, size_t size) {
  return lm_gpu_status(lm_gpu_started()->copy(device, to, from, size, LM_SLEEP_STREAM));
}

static loam_status save_pinned(lm_sleep_store *store, const lm_sleep_memory *from) {
  take_pinned(from->device, from->context, from->size, &store->pinned);
  if (!store->pinned.at)
    return lm_error(LOAM_ENOMEM, "no %zu bytes of pinned memory: %s", from->size, loam_error());
  return copy(from->device, (uintptr_t)store->pinned.at, from->at, from->size);
}

/* ---- Files */

/* Returns whether a file could not be made because something has run out. Other errors are of the
 * folder. */
static bool is_shortage(int error) {
  return error == ENOSPC || error == EDQUOT || error == ENOMEM || error == EMFILE ||
         error == ENFILE;
}

loam_status lm_sleep_file_open(const char *dir, uint64_t bytes, lm_sleep_file **out) {
  lm_sleep_file *file = lm_metadata_alloc(sizeof *file);
  if (!file) return lm_error(LOAM_ENOMEM, "no memory to describe a file");
  int error = lm_sys_file_unnamed(dir, &file->fd);
  if (error) {
    lm_metadata_free(file);
    return lm_error(is_shortage(error) ? LOAM_ENOMEM : LOAM_EINVAL,
                    "no file can be made in %.150s: %s", dir, strerror(error));
  }
  file->users = 1;
  error = lm_sys_file_allocate(file->fd, 0, bytes);
  if (error == EOPNOTSUPP) error = lm_sys_file_resize(file->fd, bytes);
  if (error) {
    lm_sleep_file_leave(file);
    return lm_error(LOAM_ENOMEM, "a file of %llu bytes in %.150s: %s", (unsigned long long)bytes,
                    dir, strerror(error));
  }
  *out = file;
  return LOAM_OK;
}

void lm_sleep_file_leave(lm_sleep_file *file) {
  lm_assert(file->users > 0);
  if (--file->users) return;
  lm_sys_file_close(file->fd);
  lm_metadata_free(file);
}

static size_t buffer_size(const lm_sleep_buffer *buffer) {
  return buffer->largest < BUFFER_MOST ? buffer->largest : BUFFER_MOST;
}

/* Makes sure that the buffer has memory. Its memory is portable, so copies of all devices may use
 * it. */
static loam_status fill_buffer(lm_sleep_buffer *buffer, const lm_sleep_memory *memory) {
  if (buffer->pinned.at) return LOAM_OK;
  take_pinned(memory->device, memory->context, buffer_size(buffer), &buffer->pinned);
  if (buffer->pinned.at) return LOAM_OK;
  return lm_error(LOAM_ENOMEM, "no %zu bytes of pinned memory: %s", buffer_size(buffer),
                  loam_error());
}

void lm_sleep_buffer_end(lm_sleep_buffer *buffer) {
  free_pinned(&buffer->pinned, buffer_size(buffer));
}

lm_gpu_result lm_sleep_wait(int device, lm_stream stream) {
  lm_gpu_event event;
  const lm_gpu_ops *gpu = lm_gpu_started();
  lm_gpu_result result = gpu->event_create(device, &event);
  if (result != LM_GPU_OK) return result;
  result = gpu->event_record(event, device, stream);
  if (result == LM_GPU_OK) result = gpu->event_wait(event);
  (void)gpu->event_destroy(event);
  return result;
}

static loam_status wait_for_copies(int device) {
  return lm_gpu_status(lm_sleep_wait(device, LM_SLEEP_STREAM));
}

/* A piece of a block and of the file. */
typedef struct piece {
  lm_devptr at;
  uint64_t offset;
  size_t size;
} piece;

static loam_status save_piece(const lm_sleep_store *store, const lm_sleep_memory *from,
                              const piece *p) {
  void *buffer = from->buffer->pinned.at;
  loam_status status = copy(from->device, (uintptr_t)buffer, p->at, p->size);
  if (status == LOAM_OK) status = wait_for_copies(from->device);
  if (status != LOAM_OK) return status;
  int error = lm_sys_file_write(store->file->fd, p->offset, buffer, p->size);
  if (!error) return LOAM_OK;
  return lm_error(LOAM_ENOMEM, "%zu bytes cannot be written: %s", p->size, strerror(error));
}

static loam_status load_piece(const lm_sleep_store *store, const lm_sleep_memory *to,
                              const piece *p) {
  void *buffer = to->buffer->pinned.at;
  int error = lm_sys_file_read(store->file->fd, p->offset, buffer, p->size);
  if (error)
    return lm_error(LOAM_EINTERNAL, "%zu bytes cannot be read: %s", p->size, strerror(error));
  loam_status status = copy(to->device, p->at, (uintptr_t)buffer, p->size);
  return status == LOAM_OK ? wait_for_copies(to->device) : status;
}

typedef loam_status move_piece(const lm_sleep_store *store, const lm_sleep_memory *memory,
                               const piece *p);

static loam_status move_pieces(const lm_sleep_store *store, const lm_sleep_memory *memory,
                               move_piece *move) {
  size_t most = buffer_size(memory->buffer);
  loam_status status = fill_buffer(memory->buffer, memory);
  for (size_t done = 0; status == LOAM_OK && done < memory->size; done += most) {
    size_t left = memory->size - done;
    piece p = { memory->at + done, store->offset + done, left < most ? left : most };
    status = move(store, memory, &p);
  }
  return status;
}

/* ---- All stores */

loam_status lm_sleep_store_save(lm_sleep_store *store, const lm_sleep_memory *from) {
  if (store->to == LM_SLEEP_DISCARD) return LOAM_OK;
  if (store->to == LM_SLEEP_PINNED) return save_pinned(store, from);
  store->file->users++;
  return move_pieces(store, from, save_piece);
}

loam_status lm_sleep_store_load(const lm_sleep_store *store, const lm_sleep_memory *to) {
  if (store->to == LM_SLEEP_DISCARD) return LOAM_OK;
  if (store->to == LM_SLEEP_FILE) return move_pieces(store, to, load_piece);
  return copy(to->device, to->at, (uintptr_t)store->pinned.at, to->size);
}

/* Other blocks may sleep in the file for long, so the room of this one goes back to the disk. Not
 * in a forked child, which has no driver: its parent has the same file, where the block sleeps
 * on. */
static void leave_file(const lm_sleep_store *store, size_t size) {
  bool is_shared = store->file->users > 1;
  if (is_shared && lm_gpu_started())
    (void)lm_sys_file_deallocate(store->file->fd, store->offset, size);
  lm_sleep_file_leave(store->file);
}

/* Returns the contents of a store, and leaves the store empty. The caller then ends the contents,
 * in several steps. If another thread forks during these steps, the child finds an empty store. */
static lm_sleep_store take(lm_sleep_store *store) {
  lm_lock_hold_cancel();
  lm_sleep_store taken = *store;
  *store = (lm_sleep_store){ 0 };
  lm_lock_allow_cancel();
  return taken;
}

void lm_sleep_store_end(lm_sleep_store *store, size_t size) {
  lm_sleep_store taken = take(store);
  free_pinned(&taken.pinned, size);
  if (taken.file) leave_file(&taken, size);
}

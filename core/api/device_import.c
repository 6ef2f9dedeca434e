/* device_import.c - device memory of another process, mapped piece by piece: see device_import.h.
 * */
#include "api/device_import.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "os/error.h"
#include "os/sys_file.h"
#include "pages/metadata.h"
#include "service/control.h"

enum { TIMEOUT_MS = 5000, ANSWER = 1024 };

/* What a handle of ours holds. */
typedef struct card {
  char magic[8];
  uint64_t base, size;
  uint32_t key;
  int32_t pid;
} card;

static const char MAGIC[8] = "loam-map";

_Static_assert(sizeof(card) <= LM_GPU_IPC_SIZE, "it is as large as a driver's");

typedef struct lm_held {
  uint64_t handle;
  lm_devptr at;
  size_t size;
} lm_held;

struct lm_device_import {
  lm_devptr at;
  size_t size;     /* of the addresses */
  uint64_t begins; /* where the first piece is in the owner's */
  size_t pieces;
  lm_held piece[];
};

void lm_device_import_write(const lm_device_export *block, unsigned char handle[LM_GPU_IPC_SIZE]) {
  card c = { .base = block->base, .size = block->size, .key = block->key, .pid = getpid() };
  memcpy(c.magic, MAGIC, sizeof MAGIC);
  memset(handle, 0, LM_GPU_IPC_SIZE);
  memcpy(handle, &c, sizeof c);
}

bool lm_device_import_is(const unsigned char handle[LM_GPU_IPC_SIZE]) {
  return !memcmp(handle, MAGIC, sizeof MAGIC);
}

/* ---- Asking the owner */

static loam_status refused(const card *c, char *answer) {
  const char *words = lm_control_error_words(answer);
  if (words) return lm_error(LOAM_EBADPTR, "device memory of process %d: %s", (int)c->pid, words);
  return lm_error(LOAM_EIO, "process %d does not share device memory", (int)c->pid);
}

static bool read_answer(const char *answer, lm_device_export_piece *out) {
  return sscanf(answer,
                "{\"ok\":true,\"begin\":%" SCNu64 ",\"end\":%" SCNu64 ",\"at\":%" SCNu64
                ",\"size\":%" SCNu64 "}",
                &out->begin, &out->end, &out->at, &out->size) == 4;
}

static bool is_sound(const card *c, uint64_t at, const lm_device_export_piece *u) {
  return u->begin <= c->base && u->end >= c->base + c->size && u->end - u->begin <= LM_SIZE_MAX &&
         u->size && u->at <= at && at - u->at < u->size && u->at >= u->begin &&
         u->size <= u->end - u->at;
}

static loam_status fetch(const card *c, uint64_t at, lm_device_export_piece *out, int *fd) {
  char request[96], answer[ANSWER];
  snprintf(request, sizeof request, "device %" PRIx64 " %" PRIx32 " %" PRIx64, c->base, c->key, at);
  loam_status status = lm_control_fetch(c->pid, request, TIMEOUT_MS, answer, sizeof answer, fd);
  if (status != LOAM_OK) return status;
  if (*fd < 0) return refused(c, answer);
  if (read_answer(answer, out) && is_sound(c, at, out)) return LOAM_OK;
  lm_sys_file_close(*fd);
  return lm_error(LOAM_EINVAL, "a handle of process %d: it has no block of %" PRIu64 " bytes there",
                  (int)c->pid, c->size);
}

/* ---- Mapping */

static loam_status map(lm_device_import *import, int device, const lm_device_export_piece *u,
                       int fd) {
  lm_held *held = &import->piece[import->pieces];
  *held = (lm_held){ .at = import->at + (u->at - import->begins), .size = u->size };
  lm_gpu_result result = lm_gpu()->map_import(device, held->at, held->size, fd, &held->handle);
  if (result == LM_GPU_OK) import->pieces++;
  return lm_gpu_status(result);
}

/* Room for as many pieces as there may be. */
static loam_status reserve(int device, const lm_device_export_piece *first,
                           lm_device_import **out) {
  lm_gpu_info info;
  size_t size = first->end - first->begin;
  lm_gpu_result result = lm_gpu()->info(device, &info);
  if (result != LM_GPU_OK) return lm_gpu_status(result);
  if (!info.granularity || size % info.granularity)
    return lm_error(LOAM_EUNSUPPORTED, "device %d cannot map %zu bytes of another process", device,
                    size);
  lm_device_import *import = lm_metadata_alloc(sizeof *import +
                                               size / info.granularity * sizeof(lm_held));
  if (!import) return lm_error(LOAM_ENOMEM, "no memory to note what is opened");
  *import = (lm_device_import){ .size = size, .begins = first->begin };
  result = lm_gpu()->reserve(device, size, &import->at);
  if (result == LM_GPU_OK) *out = import;
  else lm_metadata_free(import);
  return lm_gpu_status(result);
}

/* The pieces that follow the first. */
static loam_status map_rest(lm_device_import *import, const card *c, int device,
                            const lm_device_export_piece *first) {
  loam_status status = LOAM_OK;
  lm_device_export_piece u = *first;
  while (status == LOAM_OK && u.at + u.size < first->end) {
    int fd = -1;
    status = fetch(c, u.at + u.size, &u, &fd);
    if (status != LOAM_OK) break;
    bool is_same = u.begin == first->begin && u.end == first->end;
    status = is_same ? map(import, device, &u, fd)
                     : lm_error(LOAM_EIO, "process %d says different things", (int)c->pid);
    lm_sys_file_close(fd);
  }
  return status;
}

static loam_status open_card(const card *c, int device, lm_device_import **out) {
  lm_device_export_piece first;
  int fd = -1;
  loam_status status = fetch(c, c->base, &first, &fd);
  if (status != LOAM_OK) return status;
  lm_device_import *import = NULL;
  status = reserve(device, &first, &import);
  if (status == LOAM_OK) status = map(import, device, &first, fd);
  lm_sys_file_close(fd);
  if (status == LOAM_OK) status = map_rest(import, c, device, &first);
  if (status == LOAM_OK) *out = import;
  else lm_device_import_close(import);
  return status;
}

loam_status lm_device_import_open(const unsigned char handle[LM_GPU_IPC_SIZE], int device,
                                  lm_device_import **out, void **at) {
  card c;
  memcpy(&c, handle, sizeof c);
  if (c.pid <= 0 || !c.size || c.size > LM_SIZE_MAX)
    return lm_error(LOAM_EINVAL, "no handle of device memory: process %d, %" PRIu64 " bytes",
                    (int)c.pid, c.size);
  loam_status status = open_card(&c, device, out);
  if (status == LOAM_OK) *at = (void *)(uintptr_t)((*out)->at + c.base - (*out)->begins);
  return status;
}

void lm_device_import_close(lm_device_import *import) {
  const lm_gpu_ops *gpu = lm_gpu_started();
  if (!import) return;
  for (size_t i = 0; gpu && i < import->pieces; i++)
    (void)gpu->unmap(import->piece[i].at, import->piece[i].size, import->piece[i].handle);
  if (gpu) (void)gpu->unreserve(import->at, import->size);
  lm_metadata_free(import);
}

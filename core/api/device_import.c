/* device_import.c - maps device memory of another process, piece by piece: device_import.h. */
#include "api/device_import.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "os/error.h"
#include "os/sys_file.h"
#include "pages/metadata.h"
#include "service/control_client.h"

enum { TIMEOUT_MS = 5000, ANSWER_SIZE = 1024 };

/* The contents of a handle that loam writes. */
typedef struct card {
  char magic[8];
  uint64_t base, size; /* the block, at its address in the owner */
  uint32_t key;        /* of lm_device_export */
  int32_t pid;         /* the owner */
} card;

static const char MAGIC[8] = "loam-map";

_Static_assert(sizeof(card) <= LM_GPU_IPC_SIZE, "a card fits a handle of a driver");

/* A piece of memory that is mapped in this process. */
typedef struct mapped_piece {
  uint64_t handle; /* the driver's, for unmap */
  lm_devptr at;
  size_t size;
} mapped_piece;

/* Law: pieces <= room. The pieces lie side by side from `at` on, without a gap, and end at
 *      or before at + size. */
struct lm_device_import {
  lm_devptr at; /* the reserved range of addresses in this process */
  size_t size;
  uint64_t owner_begin; /* the address of the first piece in the owner */
  int device;
  size_t pieces, room;
  mapped_piece piece[];
};

bool lm_device_import_is_valid(const lm_device_import *import) {
  lm_devptr end = import->at;
  for (size_t i = 0; i < import->pieces; i++) {
    const mapped_piece *p = &import->piece[i];
    if (p->at != end || !p->size) return false;
    end += p->size;
  }
  return import->pieces <= import->room && end - import->at <= import->size;
}

void lm_device_import_write(const lm_device_export *block, unsigned char handle[LM_GPU_IPC_SIZE]) {
  lm_assert(block->size && block->key);
  card c = { .base = block->base, .size = block->size, .key = block->key, .pid = getpid() };
  memcpy(c.magic, MAGIC, sizeof MAGIC);
  memset(handle, 0, LM_GPU_IPC_SIZE);
  memcpy(handle, &c, sizeof c);
}

bool lm_device_import_wrote(const unsigned char handle[LM_GPU_IPC_SIZE]) {
  return !memcmp(handle, MAGIC, sizeof MAGIC);
}

uint64_t lm_device_import_size(const unsigned char handle[LM_GPU_IPC_SIZE]) {
  card c;
  lm_assert(lm_device_import_wrote(handle));
  memcpy(&c, handle, sizeof c);
  return c.size;
}

/* ---- Requests to the owner */

/* Sets the error for an answer that came without a descriptor. */
static loam_status refused(const card *c, char *answer) {
  const char *words = lm_control_error_words(answer);
  if (words) return lm_error(LOAM_EBADPTR, "device memory of process %d: %s", (int)c->pid, words);
  return lm_error(LOAM_EIO, "process %d does not share device memory", (int)c->pid);
}

/* Reads the JSON object that control_reply.c writes for `device`. */
static bool read_answer(const char *answer, lm_device_export_piece *out) {
  return sscanf(answer,
                "{\"ok\":true,\"begin\":%" SCNu64 ",\"end\":%" SCNu64 ",\"at\":%" SCNu64
                ",\"size\":%" SCNu64 "}",
                &out->begin, &out->end, &out->at, &out->size) == 4;
}

/* Returns whether a piece that the owner sent contains address `at`, and whether the pieces of its
 * range contain the block. The owner may be any process, so nothing in its answer is trusted. */
static bool is_plausible(const card *c, uint64_t at, const lm_device_export_piece *u) {
  return u->begin <= c->base && c->base <= u->end && c->size <= u->end - c->base &&
         u->end - u->begin <= LM_SIZE_MAX && u->size && u->at <= at && at - u->at < u->size &&
         u->at >= u->begin && u->size <= u->end - u->at;
}

/* Requests the piece at an address of the owner. *fd becomes its descriptor, to be closed by the
 * caller. */
static loam_status fetch(const card *c, uint64_t at, lm_device_export_piece *out, int *fd) {
  char line[96], answer[ANSWER_SIZE];
  snprintf(line, sizeof line, "device %" PRIx64 " %" PRIx32 " %" PRIx64, c->base, c->key, at);
  lm_control_request request = { c->pid, line, TIMEOUT_MS };
  loam_status status = lm_control_fetch(&request, answer, sizeof answer, fd);
  if (status != LOAM_OK) return status;
  if (*fd < 0) return refused(c, answer);
  if (read_answer(answer, out) && is_plausible(c, at, out)) return LOAM_OK;
  lm_sys_file_close(*fd);
  return lm_error(LOAM_EINVAL, "handle of process %d: no block of %" PRIu64 " bytes at %#" PRIx64,
                  (int)c->pid, c->size, c->base);
}

/* ---- Mapping */

/* Returns whether a piece is of the range of the import, begins where the last mapped piece ends,
 * and there is room for it. */
static bool is_next(const lm_device_import *import, const lm_device_export_piece *u) {
  const mapped_piece *last = import->pieces ? &import->piece[import->pieces - 1] : NULL;
  uint64_t mapped = last ? last->at + last->size - import->at : 0;
  if (u->begin != import->owner_begin || u->end - u->begin != import->size) return false;
  return import->pieces < import->room && u->at - import->owner_begin == mapped &&
         u->size <= import->size - mapped;
}

/* Maps a piece behind the pieces that are already mapped. */
static loam_status map(lm_device_import *import, const card *c, const lm_device_export_piece *u,
                       int fd) {
  if (!is_next(import, u))
    return lm_error(LOAM_EIO, "process %d: its answers about one block differ", (int)c->pid);
  mapped_piece *piece = &import->piece[import->pieces];
  *piece = (mapped_piece){ .at = import->at + (u->at - import->owner_begin), .size = u->size };
  lm_gpu_result result = lm_gpu()->map_import(import->device, piece->at, piece->size, fd,
                                              &piece->handle);
  if (result == LM_GPU_OK) import->pieces++;
  lm_assert(lm_device_import_is_valid(import));
  return lm_gpu_status(result);
}

/* Reserves addresses for all pieces, and makes the import, with room for the greatest possible
 * number of pieces: each is at least as large as the granularity of the device. */
static loam_status reserve(int device, const lm_device_export_piece *first,
                           lm_device_import **out) {
  lm_gpu_info info;
  size_t size = first->end - first->begin;
  lm_gpu_result result = lm_gpu()->info(device, &info);
  if (result != LM_GPU_OK) return lm_gpu_status(result);
  if (!info.granularity || size % info.granularity)
    return lm_error(LOAM_EUNSUPPORTED, "device %d cannot map %zu bytes of another process", device,
                    size);
  size_t room = size / info.granularity;
  lm_device_import *import = lm_metadata_alloc(sizeof *import + room * sizeof(mapped_piece));
  if (!import)
    return lm_error(LOAM_ENOMEM,
                    "device memory of another process: no memory for the list of its pieces");
  *import = (lm_device_import){
    .device = device, .size = size, .owner_begin = first->begin, .room = room
  };
  result = lm_gpu()->reserve(device, size, &import->at);
  if (result == LM_GPU_OK) *out = import;
  else lm_metadata_free(import);
  return lm_gpu_status(result);
}

/* Maps the pieces that follow the first. */
static loam_status map_rest(lm_device_import *import, const card *c,
                            const lm_device_export_piece *first) {
  loam_status status = LOAM_OK;
  lm_device_export_piece u = *first;
  while (status == LOAM_OK && u.at + u.size < first->end) {
    int fd = -1;
    status = fetch(c, u.at + u.size, &u, &fd);
    if (status != LOAM_OK) break;
    status = map(import, c, &u, fd);
    lm_sys_file_close(fd);
  }
  return status;
}

/* Maps all pieces of a block, or none. */
static loam_status open_card(const card *c, int device, lm_device_import **out) {
  lm_device_export_piece first;
  int fd = -1;
  loam_status status = fetch(c, c->base, &first, &fd);
  if (status != LOAM_OK) return status;
  lm_device_import *import = NULL;
  status = reserve(device, &first, &import);
  if (status == LOAM_OK) status = map(import, c, &first, fd);
  lm_sys_file_close(fd);
  if (status == LOAM_OK) status = map_rest(import, c, &first);
  if (status == LOAM_OK) *out = import;
  else lm_device_import_close(import);
  return status;
}

loam_status lm_device_import_open(const unsigned char handle[LM_GPU_IPC_SIZE], int device,
                                  lm_device_import **out, void **at) {
  card c;
  lm_assert(lm_device_import_wrote(handle));
  memcpy(&c, handle, sizeof c);
  if (c.pid <= 0 || !c.size || c.size > LM_SIZE_MAX)
    return lm_error(LOAM_EINVAL,
                    "handle: process %d, %" PRIu64 " bytes: it is not a handle of device memory",
                    (int)c.pid, c.size);
  loam_status status = open_card(&c, device, out);
  if (status == LOAM_OK) *at = (void *)(uintptr_t)((*out)->at + c.base - (*out)->owner_begin);
  return status;
}

void lm_device_import_close(lm_device_import *import) {
  const lm_gpu_ops *gpu = lm_gpu_started();
  if (!import) return;
  lm_assert(lm_device_import_is_valid(import));
  for (size_t i = 0; gpu && i < import->pieces; i++)
    (void)gpu->unmap(import->piece[i].at, import->piece[i].size, import->piece[i].handle);
  if (gpu) (void)gpu->unreserve(import->at, import->size);
  lm_metadata_free(import);
}

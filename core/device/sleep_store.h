/* sleep_store.h - where the contents of a block are while its memory is given up (sleep.h): in
 * pinned memory, in a file, or nowhere.
 *
 * The caller of these functions holds the lock of sleep.c, and is in no active section. */
#ifndef LM_SLEEP_STORE_H
#define LM_SLEEP_STORE_H

#include "gpu/gpu.h"

typedef enum lm_sleep_to {
  LM_SLEEP_DISCARD, /* nowhere: the contents are lost */
  LM_SLEEP_PINNED,
  LM_SLEEP_FILE
} lm_sleep_to;

/* The stream of all copies: the default stream that each thread has of its own
 * (CU_STREAM_PER_THREAD). Streams of the host that do not wait for default streams go on. */
#define LM_SLEEP_STREAM ((lm_stream)2)

/* A file without a name, for all blocks that one call of lm_sleep_put saves. Its last user closes
 * it, and then its room on the disk is free. */
typedef struct lm_sleep_file {
  int fd;
  unsigned users; /* stores that name it, and the call itself */
} lm_sleep_file;

/* Pinned memory that was taken from a pool. at is NULL: none. */
typedef struct lm_sleep_pinned {
  struct lm_device_pool *pool;
  void *at;
} lm_sleep_pinned;

/* The saved contents of a block. Zeroed, it has nothing. */
typedef struct lm_sleep_store {
  lm_sleep_to to;
  lm_sleep_pinned pinned; /* LM_SLEEP_PINNED */
  lm_sleep_file *file;    /* LM_SLEEP_FILE */
  uint64_t offset;        /* of the contents in the file */
} lm_sleep_store;

/* Pinned memory through which contents go to a file and come back, in pieces of 16 MiB, or of the
 * largest block of the call if that is smaller. A call has one. */
typedef struct lm_sleep_buffer {
  lm_sleep_pinned pinned;
  size_t largest; /* bytes of the largest block of the call */
} lm_sleep_buffer;

/* A block's memory on its device, the context whose pinned memory saves it, and the buffer of the
 * call. */
typedef struct lm_sleep_memory {
  int device;
  void *context;
  lm_devptr at;
  size_t size;
  lm_sleep_buffer *buffer;
} lm_sleep_memory;

/* Makes a file of `bytes` bytes in a folder, with room on the disk for all of them where the
 * filesystem can promise that. The caller counts as one user. On failure sets the error words. */
loam_status lm_sleep_file_open(const char *dir, uint64_t bytes, lm_sleep_file **out);
/* Ends the use of a file by one user. */
void lm_sleep_file_leave(lm_sleep_file *file);

/* Waits until all work that was put on a stream before this call has ended. The stream exists and
 * is not captured. */
lm_gpu_result lm_sleep_wait(int device, lm_stream stream);

/* Copies the contents of a block to a store that says where (`to`, `file`, `offset`), or from it to
 * the block. A copy from or to pinned memory may still be under way when they return: the caller
 * then waits for the device. On failure they set the error words. */
loam_status lm_sleep_store_save(lm_sleep_store *store, const lm_sleep_memory *from);
loam_status lm_sleep_store_load(const lm_sleep_store *store, const lm_sleep_memory *to);
/* Ends the store of a block of `size` bytes and zeroes it. No copy is under way. */
void lm_sleep_store_end(lm_sleep_store *store, size_t size);
/* Frees the buffer of a call. */
void lm_sleep_buffer_end(lm_sleep_buffer *buffer);

#endif

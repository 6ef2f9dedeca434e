/* sleep.h - blocks of device memory that give their memory up for a while, and take memory back at
 * the same addresses: `loam.device { pool = "sleep" }`, loam_sleep and loam_wake.
 *
 * Only memory that the driver maps to reserved addresses can go and come back there. A piece of
 * memory goes as a whole, and its size is a multiple of the driver's granularity (2 MiB). So each
 * of these blocks has addresses and memory of its own, and a tag can sleep without any other: loam
 * cuts no two blocks from one piece. The blocks are weights and caches, which are large.
 *
 * To sleep. lm_sleep_put waits until the work of the devices has ended. Then (1) the contents of
 * all blocks are saved, (2) all blocks are unmapped, while the driver keeps their memory, and (3)
 * the memory is freed. A failure in (1) or (2) is undone without new memory, so every block has its
 * memory and contents again. The driver has no reason to fail in (3). If it does, the memory stays
 * with the block, and lm_sleep_wake maps it again.
 *
 * To wake. (1) All blocks get memory at their addresses, (2) their contents are copied back, and
 * (3) the saved contents are dropped. A failure in (1) or (2) takes the memory away again, so all
 * blocks sleep on, with their contents.
 *
 * One lock is held during all of this, and while such a block is freed, or a copy of it begins. */
#ifndef LM_SLEEP_H
#define LM_SLEEP_H

#include "device/sleep_store.h"
#include "pages/provided.h"

/* Such a block. The lock of sleep.c guards it.
 *
 * Law: memory that is mapped is there: is_mapped or is_torn implies has_memory. A block that is
 * awake is mapped: is_asleep or is_mapped. */
typedef struct lm_sleeper {
  lm_devptr at;
  size_t size; /* a multiple of the device's granularity */
  int device;
  uint64_t handle; /* the driver's name for the memory, if has_memory */
  bool has_memory, is_mapped, is_asleep;
  bool is_torn;  /* not is_mapped: memory may be at the addresses, and the device cannot use it */
  void *context; /* the current one of the allocation: its default stream may be named, and its
                   pinned memory saves the contents */
  lm_stream stream;        /* of a freed block that is kept: work on this stream may use it */
  lm_sleep_store store;    /* of a block that is asleep: its contents */
  struct lm_sleeper *next; /* in the list of a call, or of blocks that are kept */
} lm_sleeper;

/* Allocates a block on a device, for work on `stream` from now on. If the device has no memory,
 * gives back free memory of loam's pools first. NULL: the thread's error words say why. The thread
 * is in no active section. */
lm_sleeper *lm_sleep_alloc(int device, size_t size, lm_stream stream);
/* Frees a block, asleep or awake, that was taken out of provided.h. `stream` is the stream for
 * which it was allocated. If the block is awake, waits for the work on the stream that the free
 * names, `on`; NULL: the free names none, and the wait is for the work on `stream`. While that
 * stream is captured for a graph, or if the driver refuses, it cannot wait: then the memory is kept
 * until a later free on the stream, or a later wait for the device. The thread is in no active
 * section. */
void lm_sleep_free(lm_sleeper *sleeper, const lm_stream *on, lm_stream stream);
/* Waits for the work of a device (-1: of all devices) if memory of freed blocks was kept there, and
 * frees that memory. Returns the bytes. The thread is in no active section. */
size_t lm_sleep_trim(int device);
/* For a request on `stream` to the driver of a device that has too little memory: returns to the
 * driver what loam keeps free there (lm_sleep_trim, lm_device_pool_make_room). Returns whether that
 * was anything. It waits for the device, and so it does nothing while the stream is captured. The
 * thread is in no active section. */
bool lm_sleep_make_room(int device, lm_stream stream);

/* Says which blocks a call is for. `wants` is called with the lock of provided.h held. */
typedef struct lm_sleep_choice {
  bool (*wants)(const void *ctx, const lm_provided *block);
  const void *ctx;
} lm_sleep_choice;

/* Puts the chosen blocks that are awake to sleep, and fills in the bytes of device memory that they
 * gave up. `dir` is the folder for LM_SLEEP_FILE; other values of `to` do not use it. Any thread
 * may call this function, in no active section. On failure the error words are set. */
loam_status lm_sleep_put(const lm_sleep_choice *choice, lm_sleep_to to, const char *dir,
                         size_t *bytes);
/* Wakes the chosen blocks that are asleep, and fills in their bytes. Any thread may call this
 * function, in no active section. On failure the error words are set. */
loam_status lm_sleep_wake(const lm_sleep_choice *choice, size_t *bytes);

/* Begins a copy between two blocks, of which each may be NULL. Returns false if one of them is
 * asleep. Between lm_sleep_begin_copy, whatever it returns, and lm_sleep_end_copy, no block falls
 * asleep or wakes. The thread is in no active section. */
bool lm_sleep_begin_copy(const lm_sleeper *from, const lm_sleeper *to, lm_lock_suspended *section);
void lm_sleep_end_copy(lm_lock_suspended section);

/* Returns whether the laws of a block hold. */
bool lm_sleeper_is_valid(const lm_sleeper *s);

#endif

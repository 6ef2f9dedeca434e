/* test_sleep.c - device memory that sleeps and wakes at the same addresses, by tag. */
#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "child_tests.h"
#include "cli/look.h"
#include "device/sleep.h"
#include "engine/stats.h"
#include "os/sys.h"
#include "service/stats_json.h"

static const char policy[] =
    "local weights = loam.device { name = 'weights', pool = 'sleep', limit = 8 * loam.MiB }\n"
    "local large = loam.device { name = 'large', pool = 'sleep' }\n"
    "local rest, plain = loam.device {}, loam.device { name = 'plain', pool = 'none' }\n"
    "return loam.policy { pick = function(req)\n"
    "  if req.tag:under 'model' then return weights end\n"
    "  if req.tag:under 'large' then return large end\n"
    "  if req.tag:under 'plain' then return plain end\n"
    "  return rest end }\n";

/* The bytes of a block: as requested, and rounded to granules. */
enum { SIZE = MIB / 8, ROUND = 2 * MIB };

static char *host, *wanted; /* the contents that a block has, and those that it must have */
static char folder[] = "/tmp/loam-test-XXXXXX";

static void make_folder(void) { want(mkdtemp(folder)); }
/* A file in which memory sleeps has no name. So the folder must be empty. */
static void remove_folder(void) { want(rmdir(folder) == 0); }

static void begin(void) {
  CUcontext context;
  ok(loam_policy_load_text("sleep", policy));
  want(loam_device_count() == 2);
  want(cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
  want(cuCtxSetCurrent(context) == CUDA_SUCCESS);
  want((host = malloc(SIZE)) && (wanted = malloc(SIZE)));
}

static CUdeviceptr number(const void *p) { return (CUdeviceptr)(uintptr_t)p; }

/* Allocates a block under a tag. Work that is not finished yet writes `byte` to all its bytes. */
static void *make(const char *tag, int byte) {
  void *at = loam_device_alloc(loam_site_get(tag), SIZE, NULL);
  want(at != NULL);
  want(standin_write(NULL, number(at), byte, SIZE) == CUDA_SUCCESS);
  return at;
}

static bool has(const void *at, int byte) {
  want(cuMemcpyDtoH_v2(host, number(at), SIZE) == CUDA_SUCCESS);
  return !memcmp(host, memset(wanted, byte, SIZE), SIZE);
}

static void check_sleeper(void *all_valid, lm_provided *block) {
  bool *valid = all_valid;
  if (!block->sleeper) return;
  *valid = *valid && lm_sleeper_is_valid(block->sleeper);
  *valid = *valid && block->is_asleep == block->sleeper->is_asleep;
}

/* Returns whether so many bytes of a tag are asleep, and the law of each block holds. */
static bool is_at(const char *tag, size_t bytes) {
  bool all_valid = lm_provided_is_valid();
  lm_provided_each(check_sleeper, &all_valid);
  return all_valid && loam_asleep(tag) == bytes;
}

/* ---- Sleep and wake */

TEST(a_block_has_addresses_and_memory_of_its_own) {
  loam_owner_info owner;
  begin();
  size_t before = standin_used(0);
  char *at = make("model.a", 1);
  want(standin_used(0) == before + ROUND && loam_usable_size(at) == ROUND);
  ok(loam_owner(at + 100, &owner));
  want(owner.base == at && !strcmp(owner.strategy, "weights") && owner.device == 0);
  loam_free(at);
  want(standin_used(0) == before && !loam_owns(at));
}

static void sleeps_and_wakes(const char *where) {
  size_t bytes = 1;
  begin();
  void *a = make("model.a", 1), *b = make("model.b", 2), *other = make("rest", 3);
  size_t before = standin_used(0);
  ok(loam_sleep("model", where, &bytes));
  want(bytes == 2 * ROUND && standin_used(0) == before - 2 * ROUND);
  want(is_at(NULL, 2 * ROUND) && is_at("model.a", ROUND) && is_at("mod", 0));
  want(has(other, 3));
  ok(loam_sleep("model", where, &bytes)); /* a second call finds nothing to do */
  want(bytes == 0);
  ok(loam_wake("model.a", &bytes));
  want(bytes == ROUND && has(a, 1) && is_at("model.a", 0) && is_at("", ROUND));
  ok(loam_wake(NULL, NULL));
  want(has(b, 2) && is_at(NULL, 0) && standin_used(0) == before);
  ok(loam_wake(NULL, &bytes));
  want(bytes == 0);
  loam_free(a);
  loam_free(b);
  loam_free(other);
}

TEST(sleeps_in_pinned_memory) { sleeps_and_wakes("pinned"); }
TEST(sleeps_in_pinned_memory_if_no_place_is_given) { sleeps_and_wakes(NULL); }

TEST(sleeps_in_a_file) {
  make_folder();
  sleeps_and_wakes(folder);
  remove_folder();
}

/* The block is larger than the buffer through which it goes to the file. Each piece has other
 * contents. */
TEST(a_large_block_goes_to_a_file_in_pieces) {
  enum { LARGE = 35 * MIB, STEP = 5 * MIB };
  make_folder();
  begin();
  char *at = loam_device_alloc(loam_site_get("large"), LARGE, NULL);
  want(at != NULL);
  for (int i = 0; i < LARGE / STEP; i++)
    want(standin_write(NULL, number(at + i * STEP), i + 1, STEP) == CUDA_SUCCESS);
  ok(loam_sleep("large", folder, NULL));
  want(standin_used(0) == 0);
  ok(loam_wake("large", NULL));
  for (int i = 0; i < LARGE / STEP; i++)
    want(standin_check(NULL, number(at + i * STEP), i + 1, STEP) == CUDA_SUCCESS);
  want(cuCtxSynchronize() == CUDA_SUCCESS);
  loam_free(at);
  remove_folder();
}

/* Returns whether a descriptor is of a file without a name in `folder`. */
static bool is_in_folder(int fd) {
  char path[64], name[256];
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  ssize_t n = readlink(path, name, sizeof name - 1);
  name[n > 0 ? n : 0] = 0;
  return strstr(name, folder) && strstr(name, "(deleted)");
}

/* Returns the bytes that files without a name in `folder` have on the disk. */
static uint64_t on_disk(void) {
  struct stat st;
  uint64_t bytes = 0;
  for (int fd = 3; fd < 64; fd++)
    if (is_in_folder(fd) && !fstat(fd, &st)) bytes += (uint64_t)st.st_blocks * 512;
  return bytes;
}

/* The blocks that one call puts to sleep share a file. */
TEST(the_room_of_what_wakes_is_free_on_the_disk) {
  make_folder();
  begin();
  void *a = make("model.a", 1), *b = make("model.b", 2), *c = make("model.c", 3);
  ok(loam_sleep("model", folder, NULL));
  uint64_t all = on_disk();
  want(all >= 3 * ROUND);
  ok(loam_wake("model.b", NULL));
  want(all - on_disk() > ROUND - MIB && has(b, 2));
  loam_free(a);
  want(all - on_disk() > 2 * ROUND - MIB);
  ok(loam_wake("model", NULL));
  want(on_disk() == 0 && has(c, 3));
  loam_free(b);
  loam_free(c);
  remove_folder();
}

TEST(discards_the_contents_and_keeps_the_addresses) {
  begin();
  size_t pinned = standin_registered();
  void *a = make("model.a", 1);
  ok(loam_sleep("model", "discard", NULL));
  want(standin_registered() == pinned && is_at("model", ROUND));
  ok(loam_wake("model", NULL));
  want(standin_write(NULL, number(a), 7, SIZE) == CUDA_SUCCESS && has(a, 7));
  loam_free(a);
}

/* The work is on a stream that waits for no other stream. */
TEST(waits_for_work_that_uses_the_memory) {
  CUstream stream;
  begin();
  void *a = make("model", 1);
  want(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  want(cuCtxSynchronize() == CUDA_SUCCESS);
  standin_hold();
  want(standin_write(stream, number(a), 2, SIZE) == CUDA_SUCCESS);
  ok(loam_sleep("model", NULL, NULL));
  ok(loam_wake("model", NULL));
  want(has(a, 2));
  want(standin_write(stream, number(a), 3, SIZE) == CUDA_SUCCESS);
  loam_device_free(a, stream);
  want(standin_pending(stream) == 0);
}

TEST(waits_for_work_in_another_context) {
  CUcontext other;
  CUstream stream;
  begin();
  want(cuCtxCreate_v2(&other, 0, 0) == CUDA_SUCCESS);
  want(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  want(cuCtxPopCurrent_v2(&other) == CUDA_SUCCESS);
  void *at = loam_device_alloc(loam_site_get("model"), SIZE, stream);
  standin_hold();
  want(standin_write(stream, number(at), 2, SIZE) == CUDA_SUCCESS);
  ok(loam_sleep("model", NULL, NULL));
  want(standin_pending(stream) == 0);
  ok(loam_wake("model", NULL));
  want(has(at, 2));
  loam_free(at);
}

TEST(a_sleeping_block_can_be_freed) {
  make_folder();
  begin();
  size_t before = standin_used(0), pinned = standin_registered();
  unsigned handles = standin_handles();
  void *a = make("model.a", 1), *b = make("model.b", 2);
  ok(loam_sleep("model.a", "pinned", NULL));
  ok(loam_sleep("model.b", folder, NULL));
  loam_device_free(a, NULL);
  loam_free(b);
  want(is_at(NULL, 0) && standin_used(0) == before && standin_registered() == pinned);
  want(standin_handles() == handles);
  remove_folder();
  void *again = make("model.a", 3);
  want(has(again, 3));
  loam_free(again);
}

TEST(the_limit_counts_what_is_asleep) {
  begin();
  void *at[4];
  for (int i = 0; i < 4; i++) at[i] = make("model", i);
  ok(loam_sleep("model", NULL, NULL));
  want(!loam_device_alloc(loam_site_get("model"), SIZE, NULL) && says("limit"));
  loam_free(at[0]);
  at[0] = make("model", 9);
  ok(loam_wake("model", NULL));
  want(has(at[0], 9) && has(at[3], 3));
  for (int i = 0; i < 4; i++) loam_free(at[i]);
}

/* A block of one byte has a whole granule. */
TEST(a_block_that_takes_more_than_was_requested_is_named_at_the_limit) {
  begin();
  ok(loam_policy_load_text("odd", "local w = loam.device { pool = 'sleep', limit = 3 * loam.MiB }\n"
                                  "return loam.policy { pick = function(req) return w end }\n"));
  void *at = loam_device_alloc(NULL, 1, NULL);
  want(at && !loam_device_alloc(NULL, 1, NULL));
  want(says("its limit: 2097152 of 3145728 bytes are used, and the block takes 2097152"));
  want(!loam_device_alloc(NULL, ROUND, NULL) &&
       says("its limit: 2097152 of 3145728 bytes are used"));
  want(!says("the block takes"));
  loam_free(at);
}

TEST(a_sleeping_block_is_not_reallocated) {
  struct loam_stats stats;
  begin();
  void *a = make("model", 1);
  ok(loam_sleep("model", NULL, NULL));
  want(!loam_realloc(NULL, a, 2 * ROUND) && says("asleep"));
  ok(loam_stats(&stats));
  want(stats.failed == 0); /* no memory was lacking */
  want(loam_realloc(NULL, a, SIZE / 2) == a);
  ok(loam_wake("model", NULL));
  want(has(a, 1));
  loam_free(a);
}

static _Atomic bool is_reallocating;

static void *reallocate(void *at) {
  is_reallocating = true;
  want(!loam_realloc(NULL, at, 2 * ROUND) && says("asleep"));
  return NULL;
}

/* Another thread reallocates the block in the middle of loam_sleep. Unless the machine is slow,
 * that thread still finds the block awake. */
static pthread_t reallocating;
static void reallocate_elsewhere(void *at) {
  want(!pthread_create(&reallocating, NULL, reallocate, at));
  while (!is_reallocating) lm_sys_sleep(1000000);
  lm_sys_sleep(50000000);
}

TEST(a_block_that_falls_asleep_is_not_reallocated) {
  begin();
  void *a = make("model", 1);
  standin_call_before("cuMemUnmap", reallocate_elsewhere, a);
  ok(loam_sleep("model", NULL, NULL));
  want(!pthread_join(reallocating, NULL));
  ok(loam_wake("model", NULL));
  want(has(a, 1));
  loam_free(a);
}

TEST(a_reset_ends_what_is_asleep) {
  begin();
  void *a = make("model", 1);
  ok(loam_sleep("model", NULL, NULL));
  ok(loam_device_reset(0));
  want(is_at(NULL, 0) && !loam_owns(a));
}

TEST(memory_that_pools_keep_goes_back_for_what_wakes) {
  begin();
  void *a = make("model", 1);
  ok(loam_sleep("model", NULL, NULL));
  loam_device_keep(SIZE_MAX);
  void *kept = loam_device_alloc(loam_site_get("rest"), 63 * MIB, NULL);
  want(kept != NULL && 64 * MIB - standin_used(0) < ROUND);
  want(loam_wake("model", NULL) == LOAM_ENOMEM && is_at(NULL, ROUND));
  want(says("cuMemCreate of 2097152 bytes on device 0: CUDA_ERROR_OUT_OF_MEMORY"));
  want(says("; on device 0, 2097152 bytes are to wake and 0 are free"));
  loam_device_free(kept, NULL);
  ok(loam_wake("model", NULL));
  want(has(a, 1));
  loam_free(a);
}

/* Returns how many figures of rows in the text say that ROUND bytes are asleep. */
static int count_asleep(const lm_json *text) {
  int n = 0;
  for (const char *at = text->text; (at = strstr(at, "\"asleep_bytes\":2097152")); at++) n++;
  return n;
}

/* The row of the tag and the row of its size class state the sleeping bytes. */
TEST(figures_say_what_is_asleep) {
  lm_json inside = { 0 }, outside = { 0 };
  begin();
  void *a = make("model.a", 1), *b = make("model.b", 2);
  ok(loam_sleep("model.a", NULL, NULL));
  ok(lm_stats_each_row(lm_stats_json_row, &inside));
  ok(lm_look_stats(getpid(), &outside));
  want(count_asleep(&inside) == 2 && count_asleep(&outside) == 2);
  lm_json_finish(&inside);
  lm_json_finish(&outside);
  loam_free(a);
  loam_free(b);
}

/* Returns whether the device has so many bytes in use by loam. */
static bool device_has(size_t bytes) {
  struct loam_device_info info;
  ok(loam_device_info(0, &info));
  return info.used == bytes && info.reserved == bytes;
}

TEST(figures_of_a_device_leave_out_what_is_asleep) {
  begin();
  void *a = make("model.a", 1), *b = make("model.b", 2);
  want(device_has(2 * ROUND));
  ok(loam_sleep("model.a", NULL, NULL));
  want(device_has(ROUND));
  ok(loam_wake("model", NULL));
  want(device_has(2 * ROUND));
  loam_free(a);
  loam_free(b);
  want(device_has(0));
}

/* ---- Mistakes are reported in words */

TEST(says_what_cannot_sleep) {
  begin();
  void *a = make("plain.a", 1);
  want(loam_sleep("plain", NULL, NULL) == LOAM_EUNSUPPORTED && says("strategy 'plain' is not"));
  ok(loam_sleep("no.such.tag", NULL, NULL));
  want(loam_sleep("model", "disk", NULL) == LOAM_EINVAL && says("unknown place \"disk\": write"));
  void *b = make("model", 2);
  want(loam_sleep("model", "/no/such/folder", NULL) == LOAM_EINVAL);
  want(says("/no/such/folder: No such file or directory") && has(b, 2));
  loam_free(a);
  loam_free(b);
}

/* The folder is good. A program may handle this as it handles a full disk. */
TEST(too_many_open_files_are_no_mistake_of_the_caller) {
  struct rlimit before, none;
  make_folder();
  begin();
  void *at = make("model", 1);
  want(getrlimit(RLIMIT_NOFILE, &before) == 0);
  none = before;
  none.rlim_cur = 0;
  want(setrlimit(RLIMIT_NOFILE, &none) == 0);
  want(loam_sleep("model", folder, NULL) == LOAM_ENOMEM && says("Too many open files"));
  want(setrlimit(RLIMIT_NOFILE, &before) == 0 && has(at, 1));
  loam_free(at);
  remove_folder();
}

TEST(shares_nothing_that_can_sleep) {
  loam_ipc handle;
  begin();
  void *a = make("model", 1);
  want(loam_ipc_get(a, &handle) == LOAM_EUNSUPPORTED && says("can sleep"));
  loam_free(a);
}

TEST(waits_for_the_end_of_a_capture) {
  CUstream stream;
  begin();
  void *a = make("model", 1);
  want(cuStreamCreate(&stream, 0) == CUDA_SUCCESS && cuCtxSynchronize() == CUDA_SUCCESS);
  want(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
  want(loam_sleep("model", NULL, NULL) == LOAM_ESTATE && says("captured for a graph"));
  CUgraph graph;
  want(cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
  ok(loam_sleep("model", NULL, NULL));
  ok(loam_wake("model", NULL));
  want(has(a, 1));
  loam_free(a);
}

/* Work on a block that slept has ended the context. */
TEST(a_broken_context_is_named) {
  begin();
  void *a = make("model.a", 1);
  (void)make("model.b", 2);
  ok(loam_sleep("model.a", NULL, NULL));
  standin_break(0, CUDA_ERROR_ILLEGAL_ADDRESS);
  want(loam_sleep("model.b", NULL, NULL) == LOAM_ESTATE && says("CUDA_ERROR_ILLEGAL_ADDRESS"));
  want(loam_wake("model", NULL) == LOAM_ESTATE && says("CUDA_ERROR_ILLEGAL_ADDRESS"));
  want(is_at(NULL, ROUND) && loam_owns(a));
}

TEST(a_capture_is_not_spoilt) {
  static const CUstreamCaptureMode modes[] = { CU_STREAM_CAPTURE_MODE_GLOBAL,
                                               CU_STREAM_CAPTURE_MODE_THREAD_LOCAL };
  CUstream stream[2];
  CUgraph graph;
  begin();
  for (unsigned i = 0; i < 2; i++) want(cuStreamCreate(&stream[i], i) == CUDA_SUCCESS);
  for (int i = 0; i < 4; i++) {
    void *at = make("model", 1);
    want(cuCtxSynchronize() == CUDA_SUCCESS);
    want(cuStreamBeginCapture_v2(stream[i % 2], modes[i / 2]) == CUDA_SUCCESS);
    void *other = loam_device_alloc(loam_site_get("model"), SIZE, stream[i % 2]);
    want(other != NULL);
    loam_free(at);
    loam_device_free(other, stream[i % 2]);
    want(cuStreamEndCapture(stream[i % 2], &graph) == CUDA_SUCCESS);
    want(!loam_owns(at) && !loam_owns(other));
  }
  want(standin_used(0) > 0 && loam_device_trim(0) > 0 && standin_used(0) == 0);
}

/* The stream still exists when the next free on it comes. */
TEST(memory_freed_in_a_capture_goes_with_the_next_free) {
  CUstream stream;
  CUgraph graph;
  begin();
  want(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
  void *first = loam_device_alloc(loam_site_get("model"), SIZE, stream);
  void *second = loam_device_alloc(loam_site_get("model"), SIZE, stream);
  standin_hold();
  want(standin_write(stream, number(first), 1, SIZE) == CUDA_SUCCESS);
  want(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL) == CUDA_SUCCESS);
  loam_free(first);
  want(cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS && standin_used(0) == 2 * ROUND);
  loam_free(second);
  want(standin_used(0) == 0);
}

/* `blocks` has two blocks of the parent: one is asleep, the other awake. */
static int in_child(void *blocks) {
  want(loam_sleep(NULL, NULL, NULL) == LOAM_ESTATE && loam_wake(NULL, NULL) == LOAM_ESTATE);
  want(is_at(NULL, ROUND));
  for (int i = 0; i < 2; i++) loam_free(((void **)blocks)[i]);
  want(is_at(NULL, 0));
  return 0;
}

TEST(a_forked_child_leaves_the_memory_alone) {
  begin();
  void *a = make("model.a", 1), *b = make("model.b", 2);
  ok(loam_sleep("model.a", NULL, NULL));
  want(run_in_child(in_child, (void *[]){ a, b }) == 0);
  ok(loam_wake(NULL, NULL));
  want(has(a, 1) && has(b, 2));
  loam_free(a);
  loam_free(b);
}

static int free_in_child(void *block) {
  loam_free(block);
  return 0;
}

/* The two blocks sleep in one file, which parent and child share. */
TEST(a_forked_child_leaves_the_file_alone) {
  make_folder();
  begin();
  void *a = make("model.a", 1), *b = make("model.b", 2);
  ok(loam_sleep("model", folder, NULL));
  want(run_in_child(free_in_child, a) == 0);
  ok(loam_wake(NULL, NULL));
  want(has(a, 1) && has(b, 2));
  loam_free(a);
  loam_free(b);
  remove_folder();
}

static void *closing; /* the block that a child frees while its parent closes a file; NULL: none */

static void *fork_once(void *block) {
  want(run_in_child(free_in_child, block) == 0);
  return NULL;
}

/* In place of the system's function, which sys_file.c calls. */
int close(int fd) {
  pthread_t thread;
  void *block = is_in_folder(fd) ? closing : NULL;
  if (block) {
    closing = NULL;
    want(!pthread_create(&thread, NULL, fork_once, block) && !pthread_join(thread, NULL));
  }
  return (int)syscall(SYS_close, fd);
}

/* The child was forked while another thread of its parent ended the contents of the block. */
TEST(a_forked_child_frees_a_block_that_wakes) {
  make_folder();
  begin();
  void *at = make("model.a", 1);
  ok(loam_sleep("model", folder, NULL));
  closing = at;
  ok(loam_wake("model", NULL));
  want(!closing && has(at, 1));
  loam_free(at);
  remove_folder();
}

TEST(needs_a_driver_that_maps_memory) {
  setenv("STANDIN_LACKS", "vmm", 1);
  begin();
  want(!loam_device_alloc(loam_site_get("model"), SIZE, NULL) && says("reserved addresses"));
}

/* ---- Refusals: `times` calls fail, from the nth one on */

static void *a, *b;

/* `end` returns whether there was an nth call. */
typedef struct refusal {
  const char *where;
  void (*refuse)(unsigned nth, unsigned times);
  bool (*end)(void);
} refusal;

static unsigned long last_call; /* the number of the call that fails */
static bool has_nth;            /* the last attempt had an nth call */

static void refuse_driver(unsigned nth, unsigned times) {
  last_call = standin_calls(NULL) + nth;
  standin_fail(NULL, nth, times, CUDA_ERROR_OUT_OF_MEMORY);
}
static bool end_driver(void) {
  standin_fail(NULL, 0, 0, CUDA_SUCCESS);
  return standin_calls(NULL) >= last_call;
}
static void refuse_system(unsigned nth, unsigned times) {
  (void)times;
  last_call = (unsigned long)lm_sys_calls() + nth;
  lm_sys_refuse(nth);
}
static bool end_system(void) {
  lm_sys_refuse(0);
  return (unsigned long)lm_sys_calls() >= last_call;
}

/* A failure must not change these figures. */
typedef struct figures {
  size_t used, asleep, registered;
} figures;

static figures look(void) {
  return (figures){ standin_used(0), loam_asleep(NULL), standin_registered() };
}

/* Puts all blocks to sleep while the nth call fails. Returns the status. */
static loam_status try_sleep(const refusal *r, unsigned nth) {
  figures before = look();
  r->refuse(nth, 1);
  loam_status status = loam_sleep("model", r->where, NULL);
  has_nth = r->end();
  if (status == LOAM_OK) return status;
  figures now = look();
  want(!memcmp(&now, &before, sizeof now) && has(a, 1) && has(b, 2));
  return status;
}

static loam_status try_wake(const refusal *r, unsigned nth) {
  figures before = look();
  r->refuse(nth, 1);
  loam_status status = loam_wake("model", NULL);
  has_nth |= r->end();
  figures now = look();
  if (status == LOAM_OK) want(now.asleep == 0);
  else want(!memcmp(&now, &before, sizeof now));
  return status;
}

/* Makes each call fail in turn. The attempt succeeds where the failure does no harm. */
static void refuse_each_call(const refusal *r) {
  unsigned failures = 0;
  begin();
  a = make("model.a", 1);
  b = make("model.b", 2);
  has_nth = true;
  for (unsigned nth = 1; has_nth; nth++) {
    loam_status status = try_sleep(r, nth);
    failures += status != LOAM_OK;
    if (status != LOAM_OK) ok(loam_sleep("model", r->where, NULL));
    loam_status woken = try_wake(r, nth);
    failures += woken != LOAM_OK;
    if (woken != LOAM_OK) ok(loam_wake("model", NULL));
    want(has(a, 1) && has(b, 2) && is_at(NULL, 0));
  }
  want(failures > 5);
  loam_free(a);
  loam_free(b);
}

TEST(a_driver_that_fails_changes_nothing) {
  refuse_each_call(&(refusal){ NULL, refuse_driver, end_driver });
}

TEST(a_driver_that_fails_changes_nothing_with_a_file) {
  make_folder();
  refuse_each_call(&(refusal){ folder, refuse_driver, end_driver });
  remove_folder();
}

TEST(a_system_that_fails_changes_nothing) {
  make_folder();
  refuse_each_call(&(refusal){ folder, refuse_system, end_system });
  remove_folder();
}

/* The calls that undo a failed attempt fail too. No contents are lost: a block that stays asleep
 * can be woken later. */
TEST(a_driver_that_keeps_failing_loses_nothing) {
  begin();
  a = make("model.a", 1);
  b = make("model.b", 2);
  for (unsigned nth = 1; nth < 60; nth++) {
    refuse_driver(nth, 4);
    (void)loam_sleep("model", NULL, NULL);
    end_driver();
    ok(loam_sleep("model", NULL, NULL));
    refuse_driver(nth, 4);
    (void)loam_wake("model", NULL);
    end_driver();
    ok(loam_wake("model", NULL));
    want(has(a, 1) && has(b, 2) && is_at(NULL, 0));
  }
  loam_free(a);
  loam_free(b);
}

/* ---- Contexts */

static CUcontext make_context(void) {
  CUcontext made;
  want(cuCtxCreate_v2(&made, 0, 0) == CUDA_SUCCESS);
  return made;
}

/* The contents of a sleeping block are in pinned memory of the block's own context, not of the
 * context that is current when it falls asleep. */
TEST(a_context_that_ends_takes_no_contents_of_another_with_it) {
  begin();
  CUcontext own = make_context();
  a = make("model.a", 1);
  CUcontext other = make_context();
  ok(loam_sleep("model", NULL, NULL));
  size_t registered = standin_registered();
  want(cuCtxDestroy_v2(other) == CUDA_SUCCESS && cuCtxSetCurrent(own) == CUDA_SUCCESS);
  want(registered >= ROUND && standin_registered() == registered);
  ok(loam_wake("model", NULL));
  want(has(a, 1));
  loam_free(a);
  want(cuCtxDestroy_v2(own) == CUDA_SUCCESS);
}

/* Mapped memory belongs to no context. So a block survives the end of the context that was current
 * when it was allocated. */
TEST(a_block_sleeps_and_wakes_without_its_context) {
  begin();
  CUcontext primary, own = make_context();
  a = make("model.a", 1);
  want(cuCtxSynchronize() == CUDA_SUCCESS && cuCtxDestroy_v2(own) == CUDA_SUCCESS);
  want(cuDevicePrimaryCtxRetain(&primary, 0) == CUDA_SUCCESS);
  want(cuCtxSetCurrent(primary) == CUDA_SUCCESS);
  ok(loam_sleep("model", NULL, NULL));
  ok(loam_wake("model", NULL));
  want(has(a, 1));
  loam_free(a);
}

/* ---- Threads */

static void *sleep_often(void *unused) {
  (void)unused;
  for (int i = 0; i < 50; i++) ok(loam_sleep("model", NULL, NULL));
  return NULL;
}

static void *wake_often(void *unused) {
  (void)unused;
  for (int i = 0; i < 50; i++) ok(loam_wake("model", NULL));
  return NULL;
}

TEST(threads_put_to_sleep_wake_and_free) {
  pthread_t thread[2];
  begin();
  void *keep = make("model.keep", 4);
  want(cuCtxSynchronize() == CUDA_SUCCESS);
  want(!pthread_create(&thread[0], NULL, sleep_often, NULL));
  want(!pthread_create(&thread[1], NULL, wake_often, NULL));
  for (int i = 0; i < 50; i++) {
    void *p = loam_device_alloc(loam_site_get("model.short"), MIB, NULL);
    want(p != NULL);
    loam_free(p);
  }
  for (int i = 0; i < 2; i++) want(!pthread_join(thread[i], NULL));
  ok(loam_wake(NULL, NULL));
  want(has(keep, 4));
  loam_free(keep);
}

static void the_law_of_a_block(void **state) {
  (void)state;
  lm_sleeper s = { .at = ROUND, .size = ROUND, .has_memory = true, .is_mapped = true };
  assert_true(lm_sleeper_is_valid(&s));
  s.is_torn = true;
  assert_false(lm_sleeper_is_valid(&s));
  s.is_mapped = false; /* awake, and the device cannot use it */
  assert_false(lm_sleeper_is_valid(&s));
  s.is_asleep = true;
  assert_true(lm_sleeper_is_valid(&s));
  s.has_memory = false;
  assert_false(lm_sleeper_is_valid(&s));
  s.is_torn = false;
  assert_true(lm_sleeper_is_valid(&s));
  s.size = 0;
  assert_false(lm_sleeper_is_valid(&s));
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_law_of_a_block),
    cmocka_unit_test(a_block_has_addresses_and_memory_of_its_own),
    cmocka_unit_test(sleeps_in_pinned_memory),
    cmocka_unit_test(sleeps_in_pinned_memory_if_no_place_is_given),
    cmocka_unit_test(sleeps_in_a_file),
    cmocka_unit_test(a_large_block_goes_to_a_file_in_pieces),
    cmocka_unit_test(the_room_of_what_wakes_is_free_on_the_disk),
    cmocka_unit_test(discards_the_contents_and_keeps_the_addresses),
    cmocka_unit_test(waits_for_work_that_uses_the_memory),
    cmocka_unit_test(waits_for_work_in_another_context),
    cmocka_unit_test(a_sleeping_block_can_be_freed),
    cmocka_unit_test(the_limit_counts_what_is_asleep),
    cmocka_unit_test(a_block_that_takes_more_than_was_requested_is_named_at_the_limit),
    cmocka_unit_test(a_sleeping_block_is_not_reallocated),
    cmocka_unit_test(a_block_that_falls_asleep_is_not_reallocated),
    cmocka_unit_test(a_reset_ends_what_is_asleep),
    cmocka_unit_test(memory_that_pools_keep_goes_back_for_what_wakes),
    cmocka_unit_test(figures_say_what_is_asleep),
    cmocka_unit_test(figures_of_a_device_leave_out_what_is_asleep),
    cmocka_unit_test(says_what_cannot_sleep),
    cmocka_unit_test(too_many_open_files_are_no_mistake_of_the_caller),
    cmocka_unit_test(shares_nothing_that_can_sleep),
    cmocka_unit_test(waits_for_the_end_of_a_capture),
    cmocka_unit_test(a_broken_context_is_named),
    cmocka_unit_test(a_capture_is_not_spoilt),
    cmocka_unit_test(memory_freed_in_a_capture_goes_with_the_next_free),
    cmocka_unit_test(a_forked_child_leaves_the_memory_alone),
    cmocka_unit_test(a_forked_child_leaves_the_file_alone),
    cmocka_unit_test(a_forked_child_frees_a_block_that_wakes),
    cmocka_unit_test(needs_a_driver_that_maps_memory),
    cmocka_unit_test(a_driver_that_fails_changes_nothing),
    cmocka_unit_test(a_driver_that_fails_changes_nothing_with_a_file),
    cmocka_unit_test(a_system_that_fails_changes_nothing),
    cmocka_unit_test(a_driver_that_keeps_failing_loses_nothing),
    cmocka_unit_test(a_context_that_ends_takes_no_contents_of_another_with_it),
    cmocka_unit_test(a_block_sleeps_and_wakes_without_its_context),
    cmocka_unit_test(threads_put_to_sleep_wake_and_free),
  };
  setenv("STANDIN_DEVICES", "2", 0);
  setenv("STANDIN_MEMORY", "64M", 0);
  setenv("LOAM_CONTROL", "0", 1);
  return cmocka_run_group_tests(tests, NULL, NULL);
}

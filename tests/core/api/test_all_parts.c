/* test_all_parts.c - one process that uses all parts of loam and forks, and handles of memory
 * (loam_ipc) that were changed on the way to another process. */
#include "api/ipc.h"
#include "child_tests.h"
#include "folder.h"

static const loam_manager *emm;

/* Starts a service thread. */
static void serve(void) { want(!setenv("LOAM_CONTROL", "1", 1)); }

/* Loads a policy and initializes device 0. */
static void begin(const char *strategies, const char *pick) {
  char text[1024];
  snprintf(text, sizeof text,
           "local plain = loam.device { name = 'plain', pool = 'none' } %s "
           "return loam.policy { pick = function(req) %s end }\n",
           strategies, pick);
  emm = loam_manager_get();
  ok(loam_policy_load_text("test", text));
  ok(emm->initialize(emm->ctx, 0));
}

static void hear_event(void *ctx, const loam_event *event) { (void)ctx, (void)event; }

static void hear_memory(void *ctx, void *from, void *to, size_t size) {
  (void)ctx, (void)from, (void)to, (void)size;
}

static void hear_block(void *ctx, loam_block_verb verb, const loam_block *block, size_t n) {
  (void)ctx, (void)verb, (void)block, (void)n;
}

/* Each part of loam that is used for the first time registers its lock and its hooks with forks. */
TEST(one_host_may_use_all_parts_of_loam) {
  static char host[4096] __attribute__((aligned(4096)));
  static loam_handler handler;
  void *at;
  serve();
  loam_on_event(hear_event, NULL);
  loam_on_memory(hear_memory, NULL);
  loam_on_block(hear_block, NULL);
  handler = *loam_handler_get();
  ok(loam_handler_register(&handler));
  begin("local near, pool = loam.host { numa = 'local' }, loam.device {}",
        "if req.tag:is('plain') then return plain end "
        "return loam.node(0).free > 0 and near:or_else(pool) or pool");
  ok(emm->memalloc(emm->ctx, 0, 1000, &at));
  emm->memfree(emm->ctx, 0, at, 1000);
  ok(emm->memalloc_async(emm->ctx, 0, 1000, NULL, &at));
  emm->memfree_async(emm->ctx, 0, at, 1000, NULL);
  loam_device_free(loam_device_alloc(loam_site_get("plain"), 1000, NULL), NULL);
  ok(emm->mempin(emm->ctx, 0, host, sizeof host, 0));
  emm->memunpin(emm->ctx, 0, host, sizeof host);
  want(loam_ipc_open(&(loam_ipc){ .size = 1 }, 0, &at) != LOAM_OK);
  loam_block_release(loam_block_new(NULL, 100));
  (void)loam_device_trim(-1);
  pid_t child = fork();
  if (!child) _exit(0);
  int status = -1;
  want(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

/* ---- Managers that take long */

/* A call of a manager that lasts until `may_end` is set, and for three seconds at most. */
static _Atomic bool has_begun, may_end;

static loam_status last_long(void) {
  int64_t until = lm_sys_clock_ns() + 3000000000;
  has_begun = true;
  while (!may_end && lm_sys_clock_ns() < until) lm_sys_sleep(1000000);
  return LOAM_EIO;
}

static loam_status pin_long(void *ctx, int device, void *ptr, size_t size, unsigned flags) {
  (void)ctx, (void)device, (void)ptr, (void)size, (void)flags;
  return last_long();
}

static void unpin(void *ctx, int device, void *ptr, size_t size) {
  (void)ctx, (void)device, (void)ptr, (void)size;
}

static loam_status open_long(void *ctx, int device, const loam_ipc *handle, void **out) {
  (void)ctx, (void)device, (void)handle, (void)out;
  return last_long();
}

static void closes(void *ctx, int device, void *ptr) { (void)ctx, (void)device, (void)ptr; }

static void *pin_some(void *host) {
  (void)loam_pin(host, 4096, 0);
  return NULL;
}

static void *open_some(void *handle) {
  void *at;
  (void)loam_ipc_open(handle, 0, &at);
  return NULL;
}

/* Forks while another thread runs `call`, in which the manager takes long. */
static void fork_during(void *(*call)(void *), void *argument) {
  pthread_t thread;
  has_begun = may_end = false;
  want(!pthread_create(&thread, NULL, call, argument));
  while (!has_begun) lm_sys_sleep(1000000);
  int64_t begun = lm_sys_clock_ns();
  pid_t child = fork();
  if (!child) {
    may_end = true;
    call(argument); /* the lock of the call is free in the child */
    _exit(0);
  }
  want(lm_sys_clock_ns() - begun < 2000000000);
  may_end = true;
  int status = -1;
  want(waitpid(child, &status, 0) == child && status == 0);
  want(!pthread_join(thread, NULL));
}

TEST(a_fork_does_not_wait_for_a_manager) {
  static const loam_manager slow = { .size = sizeof slow,
                                     .interface_version = 1,
                                     .name = "slow",
                                     .mempin = pin_long,
                                     .memunpin = unpin,
                                     .open_ipc_handle = open_long,
                                     .close_ipc_handle = closes };
  static char host[4096] __attribute__((aligned(4096)));
  ok(loam_manager_set(&slow));
  begin("", "return plain");
  fork_during(pin_some, host);
  fork_during(open_some, &(loam_ipc){ .size = 1 });
}

/* Tries to open a part that is not inside the allocation of the handle. */
static void refuse_part(const loam_ipc *handle, uint64_t offset, uint64_t size) {
  loam_ipc part = *handle;
  void *at;
  part.offset = offset;
  part.size = size;
  want(loam_ipc_open(&part, 0, &at) == LOAM_EINVAL && says("the allocation has"));
}

TEST(a_handle_leads_to_no_memory_beyond_its_block) {
  loam_ipc handle, empty;
  void *at, *there;
  serve();
  begin("local cache = loam.device { pool = 'cache' }", "return cache");
  ok(emm->memalloc(emm->ctx, 0, 3 * MIB, &at));
  ok(loam_ipc_get((char *)at + MIB, &handle));
  empty = handle;
  empty.size = 0; /* like the handle of an array without elements */
  ok(loam_ipc_open(&empty, 0, &there));
  ok(loam_ipc_close(there));
  refuse_part(&handle, UINT64_MAX - 7, 16);
  refuse_part(&handle, handle.offset + 1, handle.size);
  refuse_part(&handle, 0, UINT64_MAX);
  refuse_part(&handle, (uint64_t)1 << 60, 1);
  want(lm_ipc_is_valid());
  emm->memfree(emm->ctx, 0, at, 3 * MIB);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(one_host_may_use_all_parts_of_loam),
    cmocka_unit_test(a_fork_does_not_wait_for_a_manager),
    cmocka_unit_test(a_handle_leads_to_no_memory_beyond_its_block),
  };
  setenv("STANDIN_DEVICES", "2", 0);
  setenv("STANDIN_MEMORY", "64M", 0);
  if (!mkdtemp(folder)) return 1;
  setenv("LOAM_CONTROL_DIR", folder, 1);
  setenv("LOAM_CONTROL", "0", 1);
  return cmocka_run_group_tests_name("all_parts", tests, NULL, remove_folder);
}

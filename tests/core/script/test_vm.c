/* test_vm.c - a Lua state for which there is no memory. */
#include "script/vm.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "os/sys.h"
#include "pages/metadata.h"
#include "test.h"

enum { SIZES = 13, LEFT = 40 };

typedef struct block {
  struct block *before;
} block;

/* Takes blocks of this size until there are none, and returns the last. Each has the address of the
 * block before it. */
static block *take_all(size_t size) {
  block *last = NULL;
  for (block *b; (b = lm_metadata_take(size)) != NULL; last = b) b->before = last;
  return last;
}

static void put_all(block *last) {
  for (block *before; last; last = before) {
    before = last->before;
    lm_metadata_free(last);
  }
}

/* Opens a state in a process whose memory is taken, but for the last `left` of the blocks. */
static loam_status open_with(size_t left) {
  static const lm_script_limits limits = { .step_ms = 1000, .step_bytes = LM_MIB };
  block *taken[SIZES];
  lm_vm vm;
  lm_sys_refuse_from(1);
  for (int i = 0; i < SIZES; i++) taken[i] = take_all((size_t)64 << 10 >> i);
  for (int i = 0; i < SIZES; i++)
    for (size_t k = 0; k < left && taken[i]; k++) {
      block *last = taken[i];
      taken[i] = last->before;
      lm_metadata_free(last);
    }
  loam_status status = lm_vm_open(&vm, "few.lua", "", &limits);
  if (status == LOAM_OK) lm_vm_close(&vm);
  lm_sys_refuse_from(0);
  for (int i = 0; i < SIZES; i++) put_all(taken[i]);
  return status;
}

static void without_memory_a_state_is_refused(void **state) {
  (void)state;
  size_t refused = 0;
  lm_vm vm;
  static const lm_script_limits limits = { .step_ms = 1000, .step_bytes = LM_MIB };
  assert_int_equal(lm_vm_open(&vm, "first.lua", "", &limits), LOAM_OK); /* opens LuaJIT */
  lm_vm_close(&vm);
  for (size_t left = 0; left < LEFT; left++) {
    loam_status status = open_with(left);
    if (status == LOAM_OK) continue;
    assert_int_equal(status, LOAM_ENOMEM);
    refused++;
  }
  assert_in_range(refused, 1, LEFT);
}

static loam_status fail_in_lua(lua_State *L, void *arg) {
  (void)arg;
  return (loam_status)luaL_error(L, "raised");
}

/* Opens a state, and raises an error in it, after malloc has given this thread all that it has. */
static void *open_without_malloc(void *out) {
  static const lm_script_limits limits = { .step_ms = 1000, .step_bytes = LM_MIB };
  struct rlimit none = { 1, 1 };
  lm_vm vm;
  setrlimit(RLIMIT_AS, &none);
  for (size_t size = LM_MIB; size >= 16; size /= 2)
    while (malloc(size)) continue;
  loam_status status = lm_vm_open(&vm, "few.lua", "", &limits);
  if (status == LOAM_OK) status = lm_vm_call(&vm, "run", fail_in_lua, NULL);
  *(loam_status *)out = status;
  return NULL;
}

/* A child takes the memory, since it cannot raise its limit again. */
static void without_memory_for_an_error_a_state_is_refused(void **state) {
  (void)state;
  if (SANITIZED) return;
  pid_t pid = fork();
  if (!pid) {
    loam_status status = LOAM_OK;
    pthread_t thread;
    if (pthread_create(&thread, NULL, open_without_malloc, &status)) _exit(1);
    pthread_join(thread, NULL);
    _exit(status == LOAM_ENOMEM ? 0 : 2);
  }
  int ended;
  assert_int_equal(waitpid(pid, &ended, 0), pid);
  assert_int_equal(ended, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(without_memory_a_state_is_refused),
    cmocka_unit_test(without_memory_for_an_error_a_state_is_refused),
  };
  return cmocka_run_group_tests_name("vm", tests, NULL, NULL);
}

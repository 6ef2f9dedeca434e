/* vm.c - a Lua state that cannot harm the host.
 *
 * Memory: the state has a heap of its own (vm_alloc.h), whose bytes are counted. An allocation that
 * would exceed the cap of the step is refused, and Lua raises that as "not enough memory". A state
 * that was refused memory is unusable until its garbage is collected, so the collection comes
 * before the state is used again.
 *
 * Time: a hook runs every HOOK_EVERY instructions. The number is that small because the call of a C
 * function counts as one instruction and may take milliseconds on a large table or string. The
 * larger the heap, the longer such a call can take, so the hook runs more often in a large heap.
 * lua/loam/language/sandbox.lua replaces the library functions that could take much longer than it
 * takes to read all of the heap, and lua/loam/language/source.lua refuses texts on which the parser
 * would. The wall clock decides only together with the processor time of the thread: a good policy
 * must not be refused because the machine was busy. Once the budget is exceeded, the hook runs at
 * every instruction and raises an error each time, so no pcall can hide it. */
#include "script/vm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "heap/pool.h"
#include "os/error.h"
#include "os/sys.h"

enum {
  HOOK_EVERY = 100,
  INSTRUCTIONS_A_MS =
      2000000,        /* more than a processor executes: limits a step if the clock stops */
  STARVED = 25,       /* the wall clock alone ends a step after this many times its allowed time */
  GC_GROWTH = 10,     /* the heap grows by this percentage between two garbage collections, or */
  GC_LEAST = 16,      /* by step_bytes / GC_LEAST, whichever is more */
  LIFETIME_STEPS = 16 /* the state may hold, beside its base, as much as this many steps may use */
};
#define HOOK_BYTES (4 * LM_MIB) /* a heap of this size, the default cap, keeps HOOK_EVERY */
/* A larger step_bytes is cut to this, so that sums of limits do not overflow. */
#define STEP_BYTES_MAX (LM_SIZE_MAX / LIFETIME_STEPS)
#define SLACK ((size_t)256 << 10) /* more memory for the error message of an exceeded budget */

const char lm_vm_excess_hint[] =
    "look for a loop that does not end or data that grows; the limits are step_ms and step_bytes "
    "of loam_config";

void (*lm_vm_on_step)(const char *step);

lm_vm *lm_vm_of(lua_State *L) {
  void *vm;
  lua_getallocf(L, &vm);
  return vm;
}

/* The line of the policy that runs now: the line in the innermost function whose source is a file.
 * 0: not known. */
static int line_of(lua_State *L) {
  lua_Debug ar;
  for (int level = 0; lua_getstack(L, level, &ar); level++) {
    if (!lua_getinfo(L, "Sl", &ar)) break;
    if (*ar.source == '@') return ar.currentline;
  }
  return 0;
}

static void watch(lua_State *L, lua_Debug *ar);

/* Sets the hook that watches the budget. It runs every HOOK_EVERY instructions, or more often if
 * the heap is large. */
static void set_hook(lm_vm *vm) {
  size_t times = 1 + vm->used / HOOK_BYTES;
  vm->hook_every = times < HOOK_EVERY ? (unsigned)(HOOK_EVERY / times) : 1;
  vm->hook_until = vm->used < HOOK_BYTES ? HOOK_BYTES : 2 * vm->used;
  lua_sethook(vm->L, watch, LUA_MASKCOUNT, vm->excess ? 1 : (int)vm->hook_every);
}

/* Notes that the budget is exceeded, and lets the hook raise at every instruction. */
static void exceed(lm_vm *vm, lm_vm_excess what) {
  lm_assert(what != LM_VM_WITHIN);
  if (vm->excess) return;
  vm->excess = what;
  vm->cap += SLACK;
  lua_sethook(vm->L, watch, LUA_MASKCOUNT, 1);
}

static bool is_out_of_time(const lm_vm *vm) {
  int64_t allowed = (int64_t)vm->limits.step_ms * 1000000;
  int64_t spent = lm_sys_clock_ns() - vm->began_ns;
  if (spent > allowed)
    return spent > allowed * STARVED || lm_sys_cpu_ns() - vm->began_cpu_ns > allowed;
  return vm->instructions > (uint64_t)vm->limits.step_ms * INSTRUCTIONS_A_MS;
}

/* Sets how much the heap may grow before the next garbage collection. With LuaJIT's default the
 * heap doubles first, so a heap that is half garbage could exceed the budget. Most policies are
 * loaded before anything has to be collected. */
static void set_gc_pause(lm_vm *vm) {
  size_t percent = vm->limits.step_bytes / GC_LEAST / (vm->used / 100 + 1);
  if (percent < GC_GROWTH) percent = GC_GROWTH;
  if (percent > 100) percent = 100;
  lua_gc(vm->L, LUA_GCSETPAUSE, 100 + (int)percent);
  vm->paced = vm->used + vm->used / GC_GROWTH;
}

/* The hook of instructions: checks the budget. */
static void watch(lua_State *L, lua_Debug *ar) {
  (void)ar;
  lm_vm *vm = lm_vm_of(L);
  vm->instructions += vm->hook_every;
  if (!vm->excess && is_out_of_time(vm)) {
    vm->line = line_of(L);
    exceed(vm, LM_VM_OVER_TIME);
  }
  if (vm->excess) luaL_error(L, "loam-budget: %s", vm->step);
  if (vm->used > vm->paced) set_gc_pause(vm);
  if (vm->used > vm->noticed) {
    vm->line = line_of(L);
    vm->noticed = vm->used;
  }
}

/* The allocator of the Lua state (lua_Alloc). */
static void *allocate(void *ud, void *old, size_t old_size, size_t size) {
  lm_vm *vm = ud;
  lm_assert(old_size <= vm->used && vm->used <= vm->cap);
  if (!size) {
    if (old) lm_vm_alloc_put(&vm->heap, old, old_size);
    vm->used -= old_size;
    return NULL;
  }
  if (size > old_size && size - old_size > vm->cap - vm->used) {
    exceed(vm, LM_VM_OVER_BYTES);
    return NULL;
  }
  void *block = old ? lm_vm_alloc_resize(&vm->heap, old, old_size, size)
                    : lm_vm_alloc_take(&vm->heap, size);
  if (!block) return NULL;
  vm->used += size - old_size;
  if (vm->cap < SIZE_MAX && vm->used >= vm->hook_until && lua_gethook(vm->L) == watch) set_hook(vm);
  return block;
}

/* Called by Lua for an error outside a protected call. All code runs protected, so that is a bug of
 * loam, and the process cannot go on. */
static int panic(lua_State *L) {
  (void)L;
  lm_require(!"a Lua error outside a protected call");
  return 0;
}

/* Opens the standard libraries, switches the JIT off, and lets require() find the FFI. */
static loam_status open_libraries(lua_State *L, void *arg) {
  (void)arg;
  lm_luajit_libraries(L);
  lm_luajit_library(L, luaopen_jit, LUA_JITLIBNAME);
  lua_getfield(L, LUA_GLOBALSINDEX, "jit");
  lua_getfield(L, -1, "off"); /* code that the JIT compiled would not call the hook */
  lua_call(L, 0, 0);
  lua_getfield(L, LUA_REGISTRYINDEX, "_PRELOAD");
  lua_pushcclosure(L, luaopen_ffi, 0);
  lua_setfield(L, -2, "ffi");
  return LOAM_OK;
}

static int raise_error(lua_State *L) { return luaL_error(L, "none"); }

/* Takes the thread-local data of LuaJIT, which a thread takes at its first Lua error. If the C
 * library has no memory for it, it ends the process. So this asks for memory first, and then raises
 * an error. False: there is no memory. */
static bool take_thread_data(lua_State *L) {
  void *room = malloc(LM_KIB);
  if (!room) return false;
  free(room);
  (void)lua_cpcall(L, raise_error, NULL);
  lua_settop(L, 0);
  return true;
}

loam_status lm_vm_open(lm_vm *vm, const char *name, const char *text,
                       const lm_script_limits *limits) {
  lm_assert(name && limits && limits->step_ms && limits->step_bytes);
  loam_status status = lm_luajit_open();
  if (status != LOAM_OK) return status;
  *vm = (lm_vm){ .name = name, .text = text, .limits = *limits, .cap = SIZE_MAX };
  if (limits->step_bytes > STEP_BYTES_MAX) vm->limits.step_bytes = STEP_BYTES_MAX;
  if (lm_vm_alloc_reserve(&vm->heap)) vm->L = lua_newstate(allocate, vm);
  if (!lm_vm_alloc_end_reserve(&vm->heap) || !vm->L || !take_thread_data(vm->L)) {
    lm_vm_alloc_end(&vm->heap);
    vm->L = NULL;
    return lm_error(LOAM_ENOMEM, "%s: no memory for a Lua state", name);
  }
  lua_atpanic(vm->L, panic);
  status = lm_vm_setup(vm, open_libraries, NULL);
  if (status != LOAM_OK) lm_vm_close(vm);
  return status;
}

/* lua_close would free every object one by one. Instead the heap is freed as a whole: a state has
 * nothing outside of its heap, because it opens no file and compiles no code. */
void lm_vm_close(lm_vm *vm) {
  if (!vm->L) return;
  lm_verify(lm_vm_is_valid(vm));
  lm_vm_alloc_end(&vm->heap);
  vm->L = NULL;
}

void lm_vm_step(lm_vm *vm, const char *step) {
  lm_assert(vm->L);
  /* Trusted code may have replaced the hook by one of its own. */
  set_hook(vm);
  if (vm->excess || !strcmp(vm->step, step)) return;
  snprintf(vm->step, sizeof vm->step, "%s", step);
  if (lm_vm_on_step) lm_vm_on_step(vm->step);
  size_t lifetime = vm->base + LIFETIME_STEPS * vm->limits.step_bytes;
  vm->cap = vm->used + vm->limits.step_bytes;
  if (vm->cap > lifetime) vm->cap = lifetime > vm->used ? lifetime : vm->used;
  vm->noticed = vm->used + vm->limits.step_bytes / 4;
  vm->line = 0;
  vm->instructions = 0;
  vm->began_ns = lm_sys_clock_ns();
  vm->began_cpu_ns = lm_sys_cpu_ns();
}

void lm_vm_excess_text(const lm_vm *vm, char *buffer, size_t size) {
  if (vm->excess == LM_VM_OVER_TIME)
    snprintf(buffer, size, "%s took more than %u ms", vm->step, vm->limits.step_ms);
  else
    snprintf(buffer, size, "%s needed more than %zu KiB of memory", vm->step,
             vm->limits.step_bytes / 1024);
}

void lm_vm_excess_source(const lm_vm *vm, char *buffer, size_t size) {
  const char *line = vm->text;
  *buffer = 0;
  for (int n = 1; line && n < vm->line; n++) {
    line = strchr(line, '\n');
    if (line) line++;
  }
  if (line && vm->line > 0) snprintf(buffer, size, "%.*s", (int)strcspn(line, "\n"), line);
}

/* The status of an exceeded budget, with the policy's line. */
static loam_status fail_excess(const lm_vm *vm) {
  char text[256], source[160], at[16] = "", shown[200] = "";
  lm_vm_excess_text(vm, text, sizeof text);
  lm_vm_excess_source(vm, source, sizeof source);
  if (vm->line > 0) snprintf(at, sizeof at, ":%d", vm->line);
  if (*source) snprintf(shown, sizeof shown, "\n%5d | %s", vm->line, source);
  return lm_error(LOAM_EBUDGET, "%s%s: budget: %s%s\n  hint: %s", vm->name, at, text, shown,
                  lm_vm_excess_hint);
}

/* Returns whether the error on the stack says that memory ran out: with other words around it, if
 * the code that caught the error raised it again. */
static bool is_no_memory(lua_State *L, int rc) {
  static const char words[] = "not enough memory"; /* LuaJIT's */
  size_t n, length = sizeof words - 1;
  if (rc == LUA_ERRMEM) return true;
  const char *text = lua_type(L, -1) == LUA_TSTRING ? lua_tolstring(L, -1, &n) : NULL;
  return text && n >= length && !strcmp(text + n - length, words);
}

/* Turns a Lua error into a status with words. An error value that is not a string is not shown:
 * tostring could run the policy's code. */
static loam_status fail_raised(lm_vm *vm, int rc) {
  if (is_no_memory(vm->L, rc))
    return lm_error(LOAM_ENOMEM, "%s: no memory left for %s", vm->name, vm->step);
  int type = lua_type(vm->L, -1);
  if (type != LUA_TSTRING)
    return lm_error(LOAM_EPOLICY, "%s: internal error: %s raised a %s", vm->name, vm->step,
                    lua_typename(vm->L, type));
  return lm_error(LOAM_EPOLICY, "%s: internal error: %s", vm->name, lua_tolstring(vm->L, -1, NULL));
}

/* The argument and the result of run_body. */
typedef struct vm_call {
  lm_vm_body body;
  void *arg;
  loam_status status;
} vm_call;

static int run_body(lua_State *L) {
  vm_call *call = lua_touserdata(L, 1);
  lua_settop(L, 0);
  call->status = call->body(L, call->arg);
  return 0;
}

/* Runs `f` protected. The thread counts as inside loam, so memory that loam itself allocates here
 * is never decided by a policy. */
static int run_inside(lm_vm *vm, lua_CFunction f, void *arg) {
  lm_thread *self = lm_thread_inside_begin();
  int rc = lua_cpcall(vm->L, f, arg);
  lm_thread_inside_end(self);
  return rc;
}

static int collect_protected(lua_State *L) {
  lua_gc(L, LUA_GCCOLLECT, 0);
  return 0;
}

static void collect(lm_vm *vm) {
  if (run_inside(vm, collect_protected, NULL)) lua_settop(vm->L, 0);
}

/* The status of a call that ended with `rc`, or that returned `status`. The words are made before
 * the collection, because the collection frees the error value. */
static loam_status outcome(lm_vm *vm, int rc, loam_status status) {
  if (vm->excess) status = fail_excess(vm);
  else if (rc) status = fail_raised(vm, rc);
  lua_settop(vm->L, 0);
  if (vm->excess || rc == LUA_ERRMEM) collect(vm);
  return status;
}

loam_status lm_vm_setup(lm_vm *vm, lm_vm_body body, void *arg) {
  lm_assert(vm->L && vm->cap == SIZE_MAX);
  vm_call call = { body, arg, LOAM_OK };
  snprintf(vm->step, sizeof vm->step, "starting");
  lua_gc(vm->L, LUA_GCSTOP, 0); /* all that is loaded here stays, so there is no garbage */
  int rc = run_inside(vm, run_body, &call);
  loam_status status = outcome(vm, rc, call.status);
  set_gc_pause(vm);
  lua_gc(vm->L, LUA_GCRESTART, -1);
  vm->base = vm->used;
  return status;
}

loam_status lm_vm_call(lm_vm *vm, const char *step, lm_vm_body body, void *arg) {
  lm_assert(vm->L && vm->cap == SIZE_MAX);
  vm_call call = { body, arg, LOAM_OK };
  if (vm->used > vm->base + LIFETIME_STEPS / 2 * vm->limits.step_bytes) collect(vm);
  vm->excess = LM_VM_WITHIN;
  vm->step[0] = 0;
  lm_vm_step(vm, step);
  int rc = run_inside(vm, run_body, &call);
  lua_sethook(vm->L, NULL, 0, 0);
  vm->cap = SIZE_MAX;
  return outcome(vm, rc, call.status);
}

bool lm_vm_is_valid(const lm_vm *vm) {
  if (!vm->L) return !vm->heap.chunks && !vm->heap.large;
  return vm->used <= vm->cap && vm->base <= vm->cap && lm_vm_alloc_is_valid(&vm->heap);
}

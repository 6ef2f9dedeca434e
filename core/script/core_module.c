/* core_module.c - the Lua module `loam.core`: the C functions that loam's own Lua modules call.
 *
 * The arguments come from loam's own modules, which have checked the values that a policy gives. So
 * their types and numbers are not checked here; the length of a text is. */
#include "script/core_module.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include "device/handler.h"
#include "gpu/gpu.h"
#include "heap/pool.h"
#include "heap/strategy.h"
#include "os/available.h"
#include "os/embed.h"
#include "os/error.h"
#include "os/kernel_support.h"
#include "os/sys.h"
#include "pages/backing.h"
#include "script/policy_file.h"

enum { NODES_GIVEN = LM_NODES_MAX, FLUSH_AT = 256 << 10 };

/* The script that a Lua state belongs to: lm_script begins with its lm_vm. */
static lm_script *script_of(lua_State *L) { return (lm_script *)lm_vm_of(L); }

/* The next three functions read a field of the table at stack index `table`. The index is positive,
 * because they push a value, which shifts negative indices. */

static double number_field(lua_State *L, int table, const char *key, double absent) {
  lm_assert(table > 0);
  lua_getfield(L, table, key);
  double n = lua_type(L, -1) == LUA_TNUMBER ? lua_tonumber(L, -1) : absent;
  lua_settop(L, -2);
  return n;
}

static bool bool_field(lua_State *L, int table, const char *key) {
  lm_assert(table > 0);
  lua_getfield(L, table, key);
  bool value = lua_toboolean(L, -1);
  lua_settop(L, -2);
  return value;
}

/* Copies the text; "" if the field is no string. False: the text is too long for the buffer. */
static bool text_field(lua_State *L, int table, const char *key, char *buffer, size_t size) {
  size_t length = 0;
  lm_assert(table > 0 && size > 0);
  lua_getfield(L, table, key);
  const char *text = lua_type(L, -1) == LUA_TSTRING ? lua_tolstring(L, -1, &length) : "";
  bool fits = length < size;
  if (fits) memcpy(buffer, text, length + 1);
  lua_settop(L, -2);
  return fits;
}

/* Returns nil and the words of the thread's last lm_error to Lua. */
static int refuse(lua_State *L) {
  lua_pushnil(L);
  lua_pushstring(L, loam_error());
  return 2;
}

/* ---- machine ---- */

static double memlock_limit(void) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_MEMLOCK, &limit) || limit.rlim_cur == RLIM_INFINITY) return HUGE_VAL;
  return (double)limit.rlim_cur;
}

/* Sets field `key` of the table on top of the stack: how many huge pages of `kib` KiB the
 * administrator has set aside. Sets nothing where the kernel has no such pages. `folder` belongs
 * to the whole machine or to a node. */
static void push_huge_pool(lua_State *L, const char *key, const char *folder, unsigned kib) {
  char path[96], text[32];
  size_t length;
  snprintf(path, sizeof path, "%s/hugepages/hugepages-%ukB/nr_hugepages", folder, kib);
  if (lm_sys_read_file(path, text, sizeof text, &length)) return;
  unsigned long pages = 0;
  sscanf(text, "%lu", &pages);
  lua_pushnumber(L, (double)pages);
  lua_setfield(L, -2, key);
}

static void push_huge_pools(lua_State *L, const char *folder) {
  lua_createtable(L, 0, 2);
  push_huge_pool(L, "2MiB", folder, 2048);
  push_huge_pool(L, "1GiB", folder, 1048576);
}

/* core.huge_pages(node): a table of the huge pages that are reserved on a NUMA node, by size. */
static int core_huge_pages(lua_State *L) {
  char folder[48];
  snprintf(folder, sizeof folder, "/sys/devices/system/node/node%u", (unsigned)lua_tonumber(L, 1));
  push_huge_pools(L, folder);
  return 1;
}

/* Sets the fields "thp" and "thp_disabled" of the table on top of the stack: the mode of
 * transparent huge pages, and whether they are switched off for the process. The kernel puts the
 * current mode in brackets: "always [madvise] never". */
static void push_thp(lua_State *L) {
  char text[64];
  size_t length;
  lua_pushboolean(L, prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) > 0);
  lua_setfield(L, -2, "thp_disabled");
  if (lm_sys_read_file("/sys/kernel/mm/transparent_hugepage/enabled", text, sizeof text, &length))
    return;
  char *word = strchr(text, '['), *end = word ? strchr(word, ']') : NULL;
  if (!end) return;
  lua_pushlstring(L, word + 1, (size_t)(end - word - 1));
  lua_setfield(L, -2, "thp");
}

static void push_total(lua_State *L, unsigned node) {
  lua_pushnumber(L, (lua_Number)lm_numa_total(node));
}

static void push_has_cpus(lua_State *L, unsigned node) {
  lua_pushboolean(L, lm_numa_has_cpus(node));
}

/* Pushes a table that maps each NUMA node of the mask `nodes` to the value that `push` pushes. */
static void push_of_nodes(lua_State *L, uint64_t nodes, void (*push)(lua_State *L, unsigned node)) {
  lua_createtable(L, 0, 4);
  for (uint64_t left = nodes; left; left &= left - 1) {
    unsigned node = (unsigned)__builtin_ctzll(left);
    push(L, node);
    lua_rawseti(L, -2, (int)node);
  }
}

/* Pushes a list of the nodes of a mask, in order. */
static void push_nodes(lua_State *L, uint64_t nodes) {
  lua_createtable(L, __builtin_popcountll(nodes), 0);
  for (int n = 0; nodes; nodes &= nodes - 1) {
    lua_pushinteger(L, __builtin_ctzll(nodes));
    lua_rawseti(L, -2, ++n);
  }
}

/* core.machine(): a table that describes NUMA nodes, huge pages and limits of this machine. */
static int core_machine(lua_State *L) {
  lm_numa_refresh();
  uint64_t nodes = script_of(L)->nodes = lm_numa_nodes();
  lua_createtable(L, 0, 8);
  push_nodes(L, nodes);
  lua_setfield(L, -2, "nodes");
  push_of_nodes(L, nodes, push_total);
  lua_setfield(L, -2, "totals");
  push_of_nodes(L, nodes, push_has_cpus);
  lua_setfield(L, -2, "cpus");
  push_huge_pools(L, "/sys/kernel/mm");
  lua_setfield(L, -2, "hugepages");
  push_thp(L);
  lua_pushinteger(L, (lua_Integer)LM_PAGE);
  lua_setfield(L, -2, "page");
  lua_pushnumber(L, memlock_limit());
  lua_setfield(L, -2, "memlock");
  return 1;
}

static void push_free(lua_State *L, unsigned node) {
  lua_pushnumber(L, (lua_Number)lm_numa_free(node));
}

/* core.free(): a table that maps each NUMA node to its free bytes. */
static int core_free(lua_State *L) {
  push_of_nodes(L, lm_numa_nodes(), push_free);
  return 1;
}

/* core.absent_node(node): the reason why a policy cannot name this NUMA node, in words. */
static int core_absent_node(lua_State *L) {
  char text[320];
  lua_pushstring(L, lm_numa_why_absent(lua_tonumber(L, 1), text, sizeof text));
  return 1;
}

/* core.counts_stalls(): whether the kernel tells this process how long its control group, or the
 * machine, waited for memory. */
static int core_counts_stalls(lua_State *L) {
  lua_pushboolean(L, lm_available_stalled(NULL) >= 0);
  return 1;
}

/* core.parse_nodes(text): a list of the nodes that a string such as "0-3" names; on failure nil,
 * the reason in words, and true if the string is malformed. */
static int core_parse_nodes(lua_State *L) {
  uint64_t nodes;
  size_t length;
  const char *text = lua_tolstring(L, 1, &length);
  loam_status status = strlen(text) == length ? lm_numa_parse(text, &nodes)
                                              : lm_error(LOAM_EINVAL, "it has a byte 0");
  if (status == LOAM_OK) return push_nodes(L, nodes), 1;
  (void)refuse(L);
  lua_pushboolean(L, status == LOAM_EINVAL);
  return 3;
}

/* core.refused(): a table of the memory calls that the kernel refuses this process. It maps the
 * name of the call's purpose to the errno. */
static int core_refused(lua_State *L) {
  lm_kernel_support may;
  lua_createtable(L, 0, 4);
  if (!lm_kernel_support_probe(&may)) return 1;
  const struct {
    const char *what;
    int error;
  } all[] = {
    { "numa", may.mbind }, { "prefault", may.prefault }, { "huge", may.huge }, { "lock", may.lock }
  };
  for (size_t i = 0; i < LM_COUNT(all); i++) {
    if (!all[i].error) continue;
    lua_pushinteger(L, all[i].error);
    lua_setfield(L, -2, all[i].what);
  }
  return 1;
}

/* Gives the current step its whole budget again. A GPU driver may take seconds to start, which are
 * not the policy's. lm_vm_step begins a new budget when the step's name changes, so the name is
 * changed and changed back. */
static void restart_step(lua_State *L) {
  lm_vm *vm = lm_vm_of(L);
  char step[sizeof vm->step];
  memcpy(step, vm->step, sizeof step);
  lm_vm_step(vm, "asking for devices");
  lm_vm_step(vm, step);
}

/* core.devices(): the number of GPUs; if it is 0, also the reason in words. It starts the GPU's
 * driver, so the Lua modules call it only for a policy that names devices. */
static int core_devices(lua_State *L) {
  int count = lm_gpu_count();
  restart_step(L);
  script_of(L)->devices = count;
  lua_pushinteger(L, count);
  if (!count) lua_pushstring(L, lm_gpu_why());
  return count ? 1 : 2;
}

/* ---- strategies ---- */

/* The index of `word` among the `n` words; -1: it is none of them. */
static int index_of(const char *word, const char *const *words, int n) {
  for (int i = 0; i < n; i++)
    if (!strcmp(word, words[i])) return i;
  return -1;
}

/* Reads numa.weights = { [node] = weight }; `numa` is a stack index. A weight has 8 bits. */
static void read_weights(lua_State *L, int numa, lm_placement *out) {
  lua_getfield(L, numa, "weights");
  if (lua_type(L, -1) == LUA_TTABLE) {
    for (int node = 0; node < LM_NODES_MAX; node++) {
      lua_rawgeti(L, -1, node);
      double weight = lua_tonumber(L, -1);
      out->weight[node] = weight > 255 ? 255 : weight > 0 ? (uint8_t)weight : 0;
      if (out->weight[node]) out->nodes |= 1ull << node;
      lua_settop(L, -2);
    }
  }
  lua_settop(L, -2);
}

/* Reads the list numa.nodes; `numa` is a stack index. */
static void read_nodes(lua_State *L, int numa, lm_placement *out) {
  lua_getfield(L, numa, "nodes");
  for (int i = 1, n = lua_type(L, -1) == LUA_TTABLE ? (int)lua_objlen(L, -1) : 0; i <= n; i++) {
    lua_rawgeti(L, -1, i);
    double node = lua_tonumber(L, -1);
    if (node >= 0 && node < LM_NODES_MAX) out->nodes |= 1ull << (unsigned)node;
    lua_settop(L, -2);
  }
  lua_settop(L, -2);
}

/* Reads desc.numa; `desc` is a stack index. False: the mode is not one of the words. */
static bool read_placement(lua_State *L, int desc, lm_placement *out) {
  static const char *const words[] = { "local", "interleave", "bind", "prefer", "weighted" };
  static const int modes[] = { LM_BIND_LOCAL, LM_BIND_INTERLEAVE, LM_BIND_BIND, LM_BIND_PREFERRED,
                               LM_BIND_WEIGHTED };
  char word[16];
  lua_getfield(L, desc, "numa");
  int numa = lua_gettop(L);
  bool good = true;
  if (lua_type(L, numa) == LUA_TTABLE) {
    int mode = text_field(L, numa, "mode", word, sizeof word)
                   ? index_of(word, words, (int)LM_COUNT(words))
                   : -1;
    good = mode >= 0;
    if (good) {
      out->mode = modes[mode];
      read_nodes(L, numa, out);
      read_weights(L, numa, out);
      script_of(L)->nodes = lm_numa_nodes();
      if (out->mode == LM_BIND_INTERLEAVE && !out->nodes) out->nodes = lm_numa_nodes();
    }
  }
  lua_settop(L, numa - 1);
  return good;
}

static bool read_kind(lua_State *L, lm_kind *out) {
  char word[16];
  if (!text_field(L, 1, "kind", word, sizeof word)) return false;
  for (int kind = 0; kind < LM_KINDS; kind++) {
    *out = (lm_kind)kind;
    if (!strcmp(word, lm_strategy_kind_text(*out))) return true;
  }
  return false;
}

static bool read_huge(lua_State *L, lm_huge *out) {
  static const char *const words[] = { "default", "never", "thp", "2MiB", "1GiB" };
  char word[16];
  if (!text_field(L, 1, "huge", word, sizeof word)) return false;
  int huge = *word ? index_of(word, words, (int)LM_COUNT(words)) : LM_HUGE_DEFAULT;
  *out = (lm_huge)huge;
  return huge >= 0;
}

/* core.strategy(desc): the id of the strategy that the table describes; nil and words if it is
 * refused. */
static int core_strategy(lua_State *L) {
  lm_desc desc;
  lm_strategy *strategy;
  memset(&desc, 0, sizeof desc);
  if (!read_kind(L, &desc.kind) || !read_huge(L, &desc.huge) ||
      !read_placement(L, 1, &desc.placement))
    return luaL_error(L, "a strategy's kind, huge or numa is not one of loam.core's words");
  if (!text_field(L, 1, "name", desc.name, sizeof desc.name) ||
      !text_field(L, 1, "handler", desc.handler, sizeof desc.handler) ||
      !text_field(L, 1, "shared", desc.shared, sizeof desc.shared) ||
      !text_field(L, 1, "dir", desc.dir, sizeof desc.dir))
    return luaL_error(L, "a strategy's name, handler, shared or dir is too long");
  desc.align = (size_t)number_field(L, 1, "align", 0);
  desc.limit = (size_t)number_field(L, 1, "limit", 0);
  desc.soft = (size_t)number_field(L, 1, "soft", 0);
  desc.guard = (uint32_t)number_field(L, 1, "guard", 0);
  desc.zero = bool_field(L, 1, "zero");
  desc.prefault = bool_field(L, 1, "prefault");
  desc.lock = bool_field(L, 1, "lock");
  desc.device = (uint8_t)number_field(L, 1, "device", 0);
  desc.prefer = (uint8_t)number_field(L, 1, "prefer", 0);
  desc.supply = (lm_device_pool_kind)number_field(L, 1, "supply", LM_DEVICE_POOL_AUTO);
  desc.mapped = bool_field(L, 1, "mapped");
  desc.portable = bool_field(L, 1, "portable");
  desc.write_combined = bool_field(L, 1, "write_combined");
  if (lm_strategy_intern(&desc, &strategy) != LOAM_OK) return refuse(L);
  lua_pushnumber(L, strategy->id);
  return 1;
}

/* core.folder(dir): the reason why the folder cannot hold the files of memory, in words; nothing
 * where it can. */
static int core_folder(lua_State *L) {
  char words[256];
  const char *dir = lua_tolstring(L, 1, NULL);
  const char *why = lm_backing_refusal(dir ? dir : "", words, sizeof words);
  if (!why) return 0;
  lua_pushstring(L, why);
  return 1;
}

/* core.handler(name): whether a policy may name this handler. A script that only inspects a policy
 * accepts every name: the handlers belong to another program. */
static int core_handler(lua_State *L) {
  const char *name = lua_tolstring(L, 1, NULL);
  lua_pushboolean(L, name && (!script_of(L)->is_host || lm_handler_find(name)));
  return 1;
}

/* ---- plans ---- */

/* core.plan(image): the plan of an image as a light userdata; equal images have one plan. If it is
 * refused: nil, words, and whether the reason is that its strategies are too many. */
static int core_plan(lua_State *L) {
  size_t size = 0;
  const char *image = lua_tolstring(L, 1, &size);
  lm_plan *made;
  lm_assert(image);
  loam_status status = lm_plan_make(image, size, &made);
  if (status != LOAM_OK) {
    int results = refuse(L);
    lua_pushboolean(L, status == LOAM_EBUDGET);
    return results + 1;
  }
  const lm_plan *plan = lm_plan_set_add(&script_of(L)->plans, made);
  if (!plan) return refuse(L);
  lua_pushlightuserdata(L, (void *)(uintptr_t)plan);
  return 1;
}

/* Reads field `key` of the table at index 2, { [0] = bytes, [1] = bytes ... }, into `out`. Returns
 * how many entries of `out` were filled, from 0 to NODES_GIVEN. */
static unsigned read_gauges(lua_State *L, const char *key, double *out) {
  unsigned n = 0;
  lua_getfield(L, 2, key);
  if (lua_type(L, -1) == LUA_TTABLE) {
    for (int i = 0; i < NODES_GIVEN; i++) {
      lua_rawgeti(L, -1, i);
      out[i] = lua_tonumber(L, -1);
      if (lua_type(L, -1) == LUA_TNUMBER) n = (unsigned)i + 1;
      lua_settop(L, -2);
    }
  }
  lua_settop(L, -2);
  return n;
}

static bool is_read(const lm_plan *plan, unsigned input) { return plan->reads >> input & 1; }

/* core.decide(plan, request): the number of the leaf that the plan reaches. The compiler calls it
 * for each request at which it compares a plan with plain Lua, so only fields that the plan reads
 * are fetched. */
static int core_decide(lua_State *L) {
  double fixed[LM_INPUTS] = { 0 }, node_free[NODES_GIVEN], device_free[NODES_GIVEN];
  const lm_plan *plan = lua_touserdata(L, 1);
  lm_assert(plan);
  lm_inputs request = { .fixed = fixed, .node_free = node_free, .device_free = device_free };
  if (is_read(plan, LM_IN_SIZE)) request.size = (size_t)number_field(L, 2, "size", 0);
  if (is_read(plan, LM_IN_ALIGN)) request.align = (size_t)number_field(L, 2, "align", 16);
  if (is_read(plan, LM_IN_ZERO)) request.zero = bool_field(L, 2, "zero");
  if (is_read(plan, LM_IN_LINE)) request.line = (long)number_field(L, 2, "line", 0);
  if (is_read(plan, LM_IN_NODE)) fixed[LM_IN_NODE] = number_field(L, 2, "node", 0);
  if (is_read(plan, LM_IN_DEVICE)) fixed[LM_IN_DEVICE] = number_field(L, 2, "device", -1);
  if (is_read(plan, LM_IN_LIVE)) fixed[LM_IN_LIVE] = number_field(L, 2, "live", 0);
  if (is_read(plan, LM_IN_PRESSURE)) fixed[LM_IN_PRESSURE] = number_field(L, 2, "pressure", 0);
  if (is_read(plan, LM_IN_NODE_FREE)) request.node_free_n = read_gauges(L, "node_free", node_free);
  if (is_read(plan, LM_IN_DEVICE_FREE))
    request.device_free_n = read_gauges(L, "device_free", device_free);
  lua_pushinteger(L, (lua_Integer)lm_plan_decide(plan, &request));
  return 1;
}

/* ---- steps, answers ---- */

/* core.step(name): begins another step of the budget. */
static int core_step(lua_State *L) {
  const char *what = lua_tolstring(L, 1, NULL);
  lm_vm_step(lm_vm_of(L), what ? what : "");
  return 0;
}

void lm_core_module_flush(lm_script *script) {
  if (script->answer.length && script->write)
    script->write(script->ctx, script->answer.text, script->answer.length);
  lm_json_finish(&script->answer);
}

/* core.write(text): appends to the answer of lm_script_inspect. Only whole lines are passed on: if
 * the budget is exceeded in the middle of a line, that line is dropped (script.c). */
static int core_write(lua_State *L) {
  lm_script *script = script_of(L);
  size_t length = 0;
  const char *text = lua_tolstring(L, 1, &length);
  if (text) lm_json_raw(&script->answer, text, length);
  if (script->answer.failed) return luaL_error(L, "no memory for the answer");
  bool is_whole = length && text[length - 1] == '\n';
  if (is_whole && script->answer.length > FLUSH_AT) lm_core_module_flush(script);
  return 0;
}

/* core.hash(): the hash of the policy's text, in hexadecimal. */
static int core_hash(lua_State *L) {
  char hash[24];
  const lm_script *script = script_of(L);
  snprintf(hash, sizeof hash, "%016llx",
           (unsigned long long)lm_policy_file_hash(script->text, script->length));
  lua_pushstring(L, hash);
  return 1;
}

/* ---- modules ---- */

/* A loader of package.loaders. Its upvalue is the set of modules that it searches. */
static int search_embedded(lua_State *L) {
  const char *name = lua_tolstring(L, 1, NULL);
  const lm_embedded_set *set = lua_touserdata(L, lua_upvalueindex(1));
  for (const lm_embedded *m = set->modules; *m->name; m++) {
    if (!name || strcmp(m->name, name)) continue;
    if (luaL_loadbufferx(L, (const char *)set->code + m->at, m->size, m->name, "bt"))
      return luaL_error(L, "module %s: %s", name, lua_tolstring(L, -1, NULL));
    return 1;
  }
  lua_pushfstring(L, "\n\tno module '%s' is built in", name ? name : "");
  return 1;
}

/* Sets loader `at` of the list on top of the stack. */
static void add_loader(lua_State *L, int at, const lm_embedded_set *set) {
  lua_pushlightuserdata(L, (void *)(uintptr_t)set);
  lua_pushcclosure(L, search_embedded, 1);
  lua_rawseti(L, -2, at);
}

void lm_core_module_embed(lua_State *L, const lm_embedded_set *others) {
  lua_getfield(L, LUA_GLOBALSINDEX, "package");
  lua_getfield(L, -1, "loaders");
  lua_createtable(L, 3, 0);
  int n = 0;
  add_loader(L, ++n, &lm_embedded_modules);
  if (others) add_loader(L, ++n, others);
  /* LuaJIT's own: package.preload. It asks the dynamic linker first, which is slow. */
  lua_rawgeti(L, -2, 1);
  lua_rawseti(L, -2, ++n);
  lua_setfield(L, -3, "loaders");
  lua_settop(L, -3);
}

static void push_required(lua_State *L, const char *module) {
  lua_getfield(L, LUA_GLOBALSINDEX, "require");
  lua_pushstring(L, module);
  lua_call(L, 1, 1);
}

static void push_limits(lua_State *L, const lm_script_limits *limits) {
  lua_createtable(L, 0, 3);
  lua_pushnumber(L, limits->max_leaves);
  lua_setfield(L, -2, "max_leaves");
  lua_pushnumber(L, limits->step_ms);
  lua_setfield(L, -2, "step_ms");
  lua_pushnumber(L, (double)limits->step_bytes);
  lua_setfield(L, -2, "step_bytes");
}

/* Pushes the table loam.core: its functions and the constants of this script. */
static void push_core(lua_State *L, const lm_script *script) {
  static const struct {
    const char *name;
    lua_CFunction f;
  } functions[] = {
    { "machine", core_machine },
    { "huge_pages", core_huge_pages },
    { "refused", core_refused },
    { "absent_node", core_absent_node },
    { "free", core_free },
    { "folder", core_folder },
    { "handler", core_handler },
    { "strategy", core_strategy },
    { "plan", core_plan },
    { "decide", core_decide },
    { "step", core_step },
    { "write", core_write },
    { "devices", core_devices },
    { "hash", core_hash },
    { "counts_stalls", core_counts_stalls },
    { "parse_nodes", core_parse_nodes },
  };
  lua_createtable(L, 0, 16);
  for (size_t i = 0; i < LM_COUNT(functions); i++) {
    lua_pushcclosure(L, functions[i].f, 0);
    lua_setfield(L, -2, functions[i].name);
  }
  push_required(L, "loam.plan_cdef");
  lua_setfield(L, -2, "cdef");
  push_limits(L, &script->vm.limits);
  lua_setfield(L, -2, "limits");
  lua_pushboolean(L, script->is_host);
  lua_setfield(L, -2, "host");
}

loam_status lm_core_module_open(lua_State *L, void *arg) {
  const lm_script *script = arg;
  lm_core_module_embed(L, NULL);
  lua_getfield(L, LUA_REGISTRYINDEX, "_LOADED");
  push_core(L, script);
  lua_setfield(L, -2, "loam.core");
  push_required(L, "loam.driver");
  lua_setfield(L, LUA_REGISTRYINDEX, "loam.driver");
  return LOAM_OK;
}

void lm_core_module_close(lm_script *script) {
  lm_plan_set_clear(&script->plans);
  lm_json_finish(&script->answer);
}

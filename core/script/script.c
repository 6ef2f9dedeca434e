/* script.c - the guarded door into Lua: opens a policy and writes its image.
 *
 * lua/loam/driver.lua does the work. This file calls the driver's functions, each as one step of
 * the budget, and turns their results into a status with words. */
#include "script/script.h"

#include <stdio.h>
#include <string.h>

#include "heap/pool.h"
#include "os/error.h"
#include "plan/policy_image.h"
#include "script/core_module.h"

/* Pushes the function `function` of lua/loam/driver.lua. */
static void push_driver(lua_State *L, const char *function) {
  lua_getfield(L, LUA_REGISTRYINDEX, "loam.driver");
  lua_getfield(L, -1, function);
  lua_remove(L, -2);
}

/* Turns the two results of a driver's function into a status: true; or nil, or false, and the
 * error's words. False is for what a host lacks. */
static loam_status status_of_results(lua_State *L, bool is_host) {
  if (lua_toboolean(L, -2)) return LOAM_OK;
  bool is_lacking = is_host && lua_type(L, -2) == LUA_TBOOLEAN;
  const char *words = lua_type(L, -1) == LUA_TSTRING ? lua_tolstring(L, -1, NULL) : NULL;
  return lm_error(is_lacking ? LOAM_ESTATE : LOAM_EPOLICY, "%s", words ? words : "no reason given");
}

bool lm_script_is_available(void) { return lm_luajit_is_found(); }

/* ---- open ---- */

static void copy_name(lua_State *L, lm_script *script) {
  push_driver(L, "name");
  lua_call(L, 0, 1);
  const char *name = lua_type(L, -1) == LUA_TSTRING ? lua_tolstring(L, -1, NULL) : "";
  snprintf(script->policy, sizeof script->policy, "%s", name);
}

static void copy_apply(lua_State *L, lm_script *script) {
  push_driver(L, "apply");
  lua_call(L, 0, 1);
  const char *apply = lua_type(L, -1) == LUA_TSTRING ? lua_tolstring(L, -1, NULL) : "";
  script->applies_live = !strcmp(apply, "live");
}

static loam_status open_policy(lua_State *L, void *arg) {
  lm_script *script = arg;
  push_driver(L, "open");
  lua_pushstring(L, script->file);
  lua_pushlstring(L, script->text, script->length);
  lua_call(L, 2, 2);
  loam_status status = status_of_results(L, script->is_host);
  if (status == LOAM_OK) copy_name(L, script);
  if (status == LOAM_OK) copy_apply(L, script);
  return status;
}

/* Makes a script without a Lua state. NULL, with the error's words, if there is no memory. */
static lm_script *make_closed(const lm_script_source *source) {
  lm_assert(source->name && source->text && source->limits);
  lm_script *script = lm_metadata_alloc(sizeof *script);
  char *copy = script ? lm_metadata_alloc(source->length + 1) : NULL;
  if (!copy) {
    lm_metadata_free(script);
    lm_error(LOAM_ENOMEM, "%s: no memory to load it", source->name);
    return NULL;
  }
  memcpy(copy, source->text, source->length);
  script->text = copy;
  script->length = source->length;
  script->is_host = source->is_host;
  script->devices = -1;
  snprintf(script->file, sizeof script->file, "%s", source->name);
  return script;
}

/* Makes a script whose Lua state holds the driver and has not seen the policy yet. */
static loam_status make(const lm_script_source *source, lm_script **out) {
  *out = NULL;
  lm_script *script = make_closed(source);
  if (!script) return LOAM_ENOMEM;
  loam_status status = lm_vm_open(&script->vm, script->file, script->text, source->limits);
  if (status == LOAM_OK) status = lm_vm_setup(&script->vm, lm_core_module_open, script);
  if (status == LOAM_OK) *out = script;
  else lm_script_close(script);
  return status;
}

loam_status lm_script_open(const lm_script_source *source, lm_script **out) {
  lm_script *script;
  *out = NULL;
  loam_status status = make(source, &script);
  if (status != LOAM_OK) return status;
  status = lm_vm_call(&script->vm, "running the file", open_policy, script);
  lm_verify(lm_script_is_valid(script));
  if (status == LOAM_OK) *out = script;
  else lm_script_close(script);
  return status;
}

void lm_script_close(lm_script *script) {
  if (!script) return;
  lm_verify(lm_script_is_valid(script));
  lm_vm_close(&script->vm);
  lm_core_module_close(script);
  lm_metadata_free(script->text);
  lm_metadata_free(script);
}

bool lm_script_is_valid(const lm_script *script) {
  if (!script->text || script->text[script->length]) return false;
  if (!lm_vm_is_valid(&script->vm) || !lm_json_is_valid(&script->answer)) return false;
  return lm_plan_set_is_valid(&script->plans);
}

/* ---- image, vet ---- */

/* The argument and the results of compile. */
typedef struct image_request {
  lm_script *script;
  void *bytes;
  size_t size;
} image_request;

/* Writes the image of a tree, which is copied to where its numbers are aligned, and of the plans in
 * the table on top of the stack. `plan` has room for them. */
static loam_status write_image(lua_State *L, image_request *r, const lm_plan **plan, uint32_t plans,
                               const void *tree, size_t tree_size) {
  const lm_script *script = r->script;
  for (uint32_t i = 0; i < plans; i++) {
    lua_rawgeti(L, -1, (int)i + 1);
    plan[i] = lua_touserdata(L, -1);
    lm_assert(lm_plan_set_has(&script->plans, plan[i]));
    lua_settop(L, -2);
  }
  lm_policy_image_source source = { .plan = plan,
                                    .plans = plans,
                                    .tree = tree,
                                    .tree_size = tree_size,
                                    .name = script->policy,
                                    .applies_live = script->applies_live,
                                    .text = script->text,
                                    .length = script->length,
                                    .nodes = script->nodes,
                                    .devices = script->devices };
  return lm_policy_image_write(&source, &r->bytes, &r->size);
}

/* Asks the driver for the class tree and its plans, and writes the image. No Lua function that may
 * raise an error is called while memory is held. */
static loam_status compile(lua_State *L, void *arg) {
  image_request *r = arg;
  size_t size = 0;
  push_driver(L, "classes");
  lua_call(L, 0, 2);
  const char *tree = lua_type(L, -2) == LUA_TSTRING ? lua_tolstring(L, -2, &size) : NULL;
  if (!tree || lua_type(L, -1) != LUA_TTABLE) return status_of_results(L, r->script->is_host);
  uint32_t plans = (uint32_t)lua_objlen(L, -1);
  const lm_plan **plan = lm_metadata_alloc(plans * sizeof(lm_plan *) + size);
  if (!plan) return lm_error(LOAM_ENOMEM, "%s: no memory for its plans", r->script->file);
  memcpy(plan + plans, tree, size);
  loam_status status = write_image(L, r, plan, plans, plan + plans, size);
  lm_metadata_free(plan);
  return status;
}

loam_status lm_script_image(lm_script *script, void **bytes, size_t *size) {
  image_request r = { .script = script };
  loam_status status = lm_vm_call(&script->vm, "compiling", compile, &r);
  lm_verify(lm_script_is_valid(script));
  *size = r.size;
  *bytes = status == LOAM_OK ? r.bytes : NULL;
  if (status != LOAM_OK) lm_metadata_free(r.bytes);
  return status;
}

static loam_status vet(lua_State *L, void *arg) {
  (void)arg;
  push_driver(L, "vet");
  lua_call(L, 0, 2);
  return status_of_results(L, false);
}

loam_status lm_script_vet(lm_script *script) {
  return lm_vm_call(&script->vm, "running the tests", vet, NULL);
}

/* Writes the image of an open script and runs its tests. */
static loam_status write_and_vet(lm_script *script, bool is_vetted, void **bytes, size_t *size) {
  loam_status status = lm_script_image(script, bytes, size);
  if (status == LOAM_OK && !is_vetted) status = lm_script_vet(script);
  if (status == LOAM_OK) return status;
  lm_metadata_free(*bytes);
  *bytes = NULL;
  return status;
}

loam_status lm_script_compile(const lm_script_source *source, bool is_vetted, void **bytes,
                              size_t *size) {
  lm_script *script;
  *bytes = NULL;
  loam_status status = lm_script_open(source, &script);
  if (status != LOAM_OK) return status;
  status = write_and_vet(script, is_vetted, bytes, size);
  lm_script_close(script);
  lm_luajit_evict();
  return status;
}

/* ---- inspect ---- */

/* The argument of inspect. */
typedef struct question {
  const lm_script *script;
  const char *query;
} question;

static loam_status inspect(lua_State *L, void *arg) {
  question *q = arg;
  push_driver(L, "inspect");
  lua_pushstring(L, q->script->file);
  lua_pushlstring(L, q->script->text, q->script->length);
  lua_pushstring(L, q->query);
  lua_call(L, 3, 2);
  loam_status status = status_of_results(L, false);
  return status == LOAM_EPOLICY ? LOAM_EINVAL : status; /* a refused policy is an answer as well */
}

/* Copies the value of `key` from a query of "key value" lines, if `key` is on the first line; else
 * copies "". */
static void first_value(const char *query, const char *key, char *buffer, size_t size) {
  size_t n = strlen(key);
  *buffer = 0;
  if (strncmp(query, key, n) || query[n] != ' ') return;
  query += n + 1;
  snprintf(buffer, size, "%.*s", (int)strcspn(query, "\n"), query);
}

enum { ANSWER_FORMAT = 1 }; /* json.FORMAT of lua/loam/report/json.lua */

/* Writes the answer that the driver could not write, because the budget was exceeded. */
static void answer_excess(lm_script *script, const char *query) {
  const lm_vm *vm = &script->vm;
  char verb[16], reason[256], source[160];
  first_value(query, "verb", verb, sizeof verb);
  lm_vm_excess_text(vm, reason, sizeof reason);
  lm_vm_excess_source(vm, source, sizeof source);
  lm_json_finish(&script->answer);
  lm_json *out = &script->answer;
  lm_json_open(out, NULL, '{');
  lm_json_text(out, "verb", verb);
  lm_json_uint(out, "version", ANSWER_FORMAT);
  lm_json_text(out, "policy", script->file);
  lm_json_bool(out, "ok", false);
  lm_json_open(out, "errors", '[');
  lm_json_open(out, NULL, '{');
  lm_json_text(out, "file", script->file);
  if (vm->line > 0) lm_json_int(out, "line", vm->line);
  lm_json_text(out, "class", "budget");
  lm_json_text(out, "reason", reason);
  if (*source) lm_json_text(out, "source", source);
  lm_json_text(out, "suggestion", lm_vm_excess_hint);
  lm_json_close(out, '}');
  lm_json_close(out, ']');
  lm_json_close(out, '}');
  lm_json_raw(out, "\n", 1);
}

loam_status lm_script_inspect(const lm_script_source *source, const char *query,
                              loam_write_fn write, void *ctx) {
  lm_script *script;
  lm_assert(!source->is_host && query && write);
  loam_status status = make(source, &script);
  if (status != LOAM_OK) return status;
  script->write = write;
  script->ctx = ctx;
  question q = { script, query };
  status = lm_vm_call(&script->vm, "running the file", inspect, &q);
  if (status == LOAM_EBUDGET && script->vm.excess) {
    answer_excess(script, query);
    status = LOAM_OK;
  }
  if (status == LOAM_OK) lm_core_module_flush(script);
  lm_script_close(script);
  return status;
}

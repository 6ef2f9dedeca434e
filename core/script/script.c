/* script.c - the guarded door into Lua: opens a policy and asks the driver for its plans.
 *
 * lua/loam/driver.lua does the work. This file calls the driver's functions, each as one step of
 * the budget, and turns their results into a status with words. */
#include "script/script.h"

#include <stdio.h>
#include <string.h>

#include "heap/pool.h"
#include "os/error.h"
#include "script/core_module.h"

/* Pushes the function `function` of lua/loam/driver.lua. */
static void push_driver(lua_State *L, const char *function) {
  lua_getfield(L, LUA_REGISTRYINDEX, "loam.driver");
  lua_getfield(L, -1, function);
  lua_remove(L, -2);
}

/* Turns the two results of a driver's function into a status: true, or nil and the
 * error's words. */
static loam_status status_of_results(lua_State *L) {
  if (lua_toboolean(L, -2)) return LOAM_OK;
  const char *words = lua_type(L, -1) == LUA_TSTRING ? lua_tolstring(L, -1, NULL) : NULL;
  return lm_error(LOAM_EPOLICY, "%s", words ? words : "no reason given");
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
  loam_status status = status_of_results(L);
  if (status == LOAM_OK) copy_name(L, script);
  if (status == LOAM_OK) copy_apply(L, script);
  return status;
}

/* Opens a Lua state and loads the driver into it. */
static loam_status open_state(lm_script *script) {
  lm_script_limits limits = script->vm.limits; /* lm_vm_open overwrites the vm */
  lm_assert(lm_script_is_suspended(script));
  loam_status status = lm_vm_open(&script->vm, script->file, script->text, &limits);
  return status == LOAM_OK ? lm_vm_setup(&script->vm, lm_core_module_open, script) : status;
}

/* Runs the policy's file in the Lua state. */
static loam_status run_policy(lm_script *script) {
  return lm_vm_call(&script->vm, "running the file", open_policy, script);
}

/* Makes a script without a Lua state. NULL, with the error's words, if there is no memory. */
static lm_script *make_suspended(const lm_script_source *source) {
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
  script->vm.limits = *source->limits;
  snprintf(script->file, sizeof script->file, "%s", source->name);
  return script;
}

/* Makes a script whose Lua state holds the driver and has not seen the policy yet. */
static loam_status make(const lm_script_source *source, lm_script **out) {
  *out = NULL;
  lm_script *script = make_suspended(source);
  if (!script) return LOAM_ENOMEM;
  loam_status status = open_state(script);
  if (status == LOAM_OK) *out = script;
  else lm_script_close(script);
  return status;
}

loam_status lm_script_open(const lm_script_source *source, lm_script **out) {
  lm_script *script;
  *out = NULL;
  loam_status status = make(source, &script);
  if (status != LOAM_OK) return status;
  status = run_policy(script);
  lm_verify(lm_script_is_valid(script));
  if (status == LOAM_OK) *out = script;
  else lm_script_close(script);
  return status;
}

/* Gives the script what lm_plan_text_write wrote into `carried`. False: it cannot be read, or its
 * plan is refused. */
static bool take_carried(lm_script *script, const char *carried) {
  lm_plan_text *c = lm_metadata_alloc(sizeof *c);
  bool is_read = c && lm_plan_text_read(carried, c);
  if (is_read) {
    memcpy(script->policy, c->policy, sizeof script->policy);
    script->applies_live = c->applies_live;
    script->only = lm_core_module_plan(script, c->image, c->size);
  }
  lm_metadata_free(c);
  return is_read && script->only;
}

lm_script *lm_script_from_plan_text(const lm_script_source *source, const char *carried) {
  lm_assert(source->is_host);
  lm_script *script = make_suspended(source);
  if (!script) return NULL;
  if (take_carried(script, carried)) return script;
  lm_script_close(script);
  return NULL;
}

void lm_script_suspend(lm_script *script) {
  if (lm_script_is_suspended(script)) return;
  lm_vm_close(&script->vm);
  lm_luajit_evict();
}

bool lm_script_is_suspended(const lm_script *script) { return !script->vm.L; }

const lm_plan *lm_script_only_plan(const lm_script *script) { return script->only; }

/* Opens the Lua state of a suspended script again and runs the policy's file in it. */
static loam_status resume(lm_script *script) {
  loam_status status = open_state(script);
  if (status == LOAM_OK) status = run_policy(script);
  if (status != LOAM_OK) lm_vm_close(&script->vm);
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

const char *lm_script_name(const lm_script *script) { return script->policy; }
bool lm_script_applies_live(const lm_script *script) { return script->applies_live; }

void lm_script_mark_used(const lm_script *script, uint8_t *used, uint32_t n) {
  for (uint32_t i = 0; i < script->slots; i++) {
    const lm_plan *plan = script->plan[i];
    for (uint32_t k = 0; plan && k < plan->chains; k++)
      if (plan->chain[k] < n) used[plan->chain[k]] = 1;
  }
}

uint32_t lm_script_plans(const lm_script *script) { return script->plans; }

bool lm_script_is_valid(const lm_script *script) {
  if (!script->text || script->text[script->length]) return false;
  if (!lm_vm_is_valid(&script->vm) || !lm_json_is_valid(&script->answer)) return false;
  return lm_core_module_is_valid(script);
}

/* ---- plan, vet ---- */

/* The argument and the results of plan_site. */
typedef struct plan_request {
  const loam_where *where;
  const lm_plan *plan;
  bool is_only; /* every site gets this plan */
} plan_request;

static void set_text(lua_State *L, const char *key, const char *text) {
  lua_pushstring(L, text ? text : "");
  lua_setfield(L, -2, key);
}

static loam_status plan_site(lua_State *L, void *arg) {
  plan_request *request = arg;
  push_driver(L, "plan");
  lua_createtable(L, 0, 5);
  set_text(L, "tag", request->where->tag);
  set_text(L, "file", request->where->file);
  set_text(L, "func", request->where->func);
  set_text(L, "module", request->where->module);
  lua_pushinteger(L, request->where->line);
  lua_setfield(L, -2, "line");
  lua_call(L, 1, 2);
  if (lua_type(L, -2) != LUA_TLIGHTUSERDATA) return status_of_results(L);
  request->plan = lua_touserdata(L, -2);
  request->is_only = lua_toboolean(L, -1);
  return LOAM_OK;
}

loam_status lm_script_plan(lm_script *script, const loam_where *where, const lm_plan **out) {
  char tag[96], step[128];
  plan_request request = { .where = where };
  loam_status status = LOAM_OK;
  *out = script->only;
  if (*out) return status;
  if (lm_script_is_suspended(script)) status = resume(script);
  if (status != LOAM_OK) return status;
  snprintf(step, sizeof step, "compiling tag %s",
           lm_error_quote(tag, sizeof tag, where->tag ? where->tag : ""));
  status = lm_vm_call(&script->vm, step, plan_site, &request);
  if (status != LOAM_OK) return status;
  lm_assert(request.plan);
  *out = request.plan;
  if (request.is_only) script->only = request.plan;
  return status;
}

static loam_status vet(lua_State *L, void *arg) {
  (void)arg;
  push_driver(L, "vet");
  lua_call(L, 0, 2);
  return status_of_results(L);
}

loam_status lm_script_vet(lm_script *script) {
  lm_assert(!lm_script_is_suspended(script));
  return lm_vm_call(&script->vm, "running the tests", vet, NULL);
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
  loam_status status = status_of_results(L);
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

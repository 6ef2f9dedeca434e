/* test_containment.c - policies that do not end, or that use more than they may. Each of them is
 * refused, the live policy stays live, and the host can still allocate memory. */
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "os/error.h"
#include "os/sys.h"
#include "pages/metadata.h"
#include "service/policy.h"

/* A policy that runs `code` at the beginning of its file, or of its function `pick`. */
#define TAIL "local h = loam.host { name = 'h' }\n"
#define IN_FILE(code) TAIL code "\nreturn loam.policy { pick = function(req) return h end }\n"
#define IN_PICK(code) TAIL "return loam.policy { pick = function(req)\n" code "\nreturn h end }\n"

static const char good[] = "local h = loam.host { name = 'good', align = 64 }\n"
                           "return loam.policy { name = 'good', pick = function(req)\n"
                           "  if req.size > 100 then return h end\n"
                           "  return loam.host { name = 'small' }\nend }\n";
static const char plain_good[] =
    "local h = loam.host { name = 'good', align = 64 }\n"
    "return loam.policy { name = 'good', pick = function(req) return h end }\n";

typedef struct runaway {
  const char *what, *text;
  const char *says; /* a part of the error words */
} runaway;

static const runaway runaways[] = {
  /* time */
  { "a loop", IN_FILE("while true do end"), "budget" },
  { "a loop in pick", IN_PICK("while true do end"), "budget" },
  { "a repeat loop", IN_FILE("repeat until false"), "budget" },
  { "a counted loop", IN_FILE("for i = 1, 1e18 do end"), "budget" },
  { "a counted loop in pick", IN_PICK("for i = 1, 1e18 do end"), "budget" },
  { "a goto loop", IN_FILE("::again:: goto again"), "budget" },
  { "a tail call loop", IN_FILE("local function f() return f() end f()"), "budget" },
  { "a tail call pair",
    IN_FILE("local g; local function f() return g() end\n"
            "g = function() return f() end f()"),
    "budget" },
  { "a loop over next", IN_FILE("local t = { 1 } while true do next(t) end"), "budget" },
  { "sorting for ever",
    IN_FILE("local t = {} for i = 1, 1e5 do t[i] = -i end\n"
            "while true do table.sort(t) end"),
    "budget" },
  { "sorting in pick",
    IN_FILE("local t = {} for i = 1, 5e4 do t[i] = -i end\n"
            "local function f() while true do table.sort(t) end end f()"),
    "budget" },
  { "a comparator that loops", IN_FILE("table.sort({ 2, 1 }, function() while true do end end)"),
    "budget" },
  { "errors caught in a loop", IN_FILE("while true do local ok = pcall and pcall(error) end"), "" },
  /* memory */
  { "a table that grows", IN_FILE("local t = {} for i = 1, 1e9 do t[i] = i end"), "budget" },
  { "tables that nest", IN_FILE("local t = {} while true do t = { t } end"), "budget" },
  { "a table of tables", IN_FILE("local t = {} for i = 1, 1e9 do t[i] = {} end"), "budget" },
  { "a long string", IN_FILE("local s = string.rep('x', 2 ^ 40)"), "" },
  { "many strings", IN_FILE("local t = {} for i = 1, 1e9 do t[i] = 'x' .. i end"), "budget" },
  { "a string that doubles", IN_FILE("local s = 'x' while true do s = s .. s end"), "budget" },
  { "a big concat",
    IN_FILE("local t = {} for i = 1, 1e5 do t[i] = ('x'):rep(60) end\n"
            "local s = table.concat(t) .. table.concat(t)"),
    "budget" },
  { "a lot unpacked",
    IN_FILE("local t = {} for i = 1, 1e5 do t[i] = 1 end\n"
            "local n = select('#', unpack(t))"),
    "" },
  { "closures without end",
    IN_FILE("local f\n"
            "while true do local g = f f = function() return g end end"),
    "budget" },
  /* arguments */
  { "a table.insert before the list", IN_FILE("table.insert({}, -2 ^ 31, 1)"), "position" },
  { "a table.insert behind the list", IN_FILE("table.insert({ 1 }, 3, 1)"), "from 1 to 2" },
  { "a table.insert at no number", IN_FILE("table.insert({}, 0 / 0, 1)"), "position" },
  /* stack */
  { "recursion", IN_FILE("local function f() return 1 + f() end f()"), "" },
  { "recursion in pick", IN_PICK("local function f(n) return 1 + f(n + 1) end f(1)"), "" },
  { "mutual recursion",
    IN_FILE("local g local function f() return 1 + g() end\n"
            "g = function() return 1 + f() end f()"),
    "" },
  { "recursion through sort", IN_FILE("local function f() table.sort({ 3, 2, 1 }, f) end f()"),
    "" },
  /* functions that the sandbox does not have */
  { "setmetatable", IN_FILE("setmetatable({}, { __call = error })()"), "setmetatable" },
  { "getmetatable", IN_FILE("local s = getmetatable('').__index"), "getmetatable" },
  { "pcall", IN_FILE("pcall(error)"), "pcall" },
  { "xpcall", IN_FILE("xpcall(error, error)"), "xpcall" },
  { "coroutine", IN_FILE("coroutine.wrap(function() end)()"), "coroutine" },
  { "load", IN_FILE("load('return 1')()"), "load" },
  { "loadstring", IN_FILE("loadstring('return 1')()"), "loadstring" },
  { "dofile", IN_FILE("dofile('/etc/passwd')"), "dofile" },
  { "require", IN_FILE("require('ffi')"), "require" },
  { "getfenv", IN_FILE("getfenv(0)"), "getfenv" },
  { "setfenv", IN_FILE("setfenv(1, {})"), "setfenv" },
  { "newproxy", IN_FILE("newproxy(true)"), "newproxy" },
  { "collectgarbage", IN_FILE("collectgarbage('stop')"), "collectgarbage" },
  { "debug", IN_FILE("debug.sethook()"), "debug" },
  { "jit", IN_FILE("jit.on()"), "jit" },
  { "ffi", IN_FILE("ffi.C.abort()"), "ffi" },
  { "io", IN_FILE("io.open('/etc/passwd')"), "io" },
  { "os", IN_FILE("os.exit(1)"), "os" },
  { "package", IN_FILE("package.loaded.x = 1"), "package" },
  { "_G", IN_FILE("_G.print = nil"), "" },
  { "rawset", IN_FILE("rawset({}, 1, 1)"), "rawset" },
  { "a pattern", IN_FILE("local s = ('a'):rep(30):find(('.-'):rep(30) .. 'b')"), "find" },
  { "gsub", IN_FILE("local s = ('a'):rep(30):gsub('.', '%0%0')"), "gsub" },
  { "string.dump", IN_FILE("local s = string.dump(function() end)"), "dump" },
  { "the string metatable", IN_FILE("local s = ('x').nothing"), "" },
  { "a field of a string", IN_FILE("local s = 'x' s.y = 1"), "" },
  { "loam itself", IN_FILE("loam.policy = nil"), "" },
  /* error values */
  { "an error of nil", IN_FILE("error(nil)"), "" },
  { "an error that is a table", IN_FILE("error({})"), "" },
  { "an error that is a function", IN_FILE("error(function() while true do end end)"), "" },
  { "an error that is a number", IN_FILE("error(42)"), "" },
  { "a long error", IN_FILE("error(('x'):rep(60000))"), "x" },
  { "an error in pick", IN_PICK("error({})"), "" },
  { "an assertion with a table", IN_FILE("assert(false, {})"), "" },
  { "an error of the budget's words", IN_FILE("error('loam-budget: no')"), "" },
  /* texts that are not a policy */
  { "nothing", "", "empty" },
  { "a comment", "-- only this\n", "" },
  { "a number", "return 1\n", "" },
  { "half a file", "local h = loam.host { name = 'h' }\nreturn loam.pol", "" },
  { "a function that is not closed", "return loam.policy { pick = function(req)\n", "" },
};

static void load_good(void) {
  assert_int_equal(lm_policy_load("good.lua", plain_good, strlen(plain_good)), LOAM_OK);
}

static uint64_t generation(void) {
  struct loam_policy_info info;
  lm_policy_info_get(&info);
  return info.generation;
}

static void refused(const char *what, const char *text, size_t length, const char *says) {
  uint64_t before = generation();
  alarm(PATIENCE_S);
  loam_status status = lm_policy_load("bad.lua", text, length);
  alarm(0);
  if (status == LOAM_OK) fail_msg("%s was accepted", what);
  /* Under a sanitizer a policy may exceed its time before its memory. */
  bool said = strstr(loam_error(), says) || (SANITIZED && strstr(loam_error(), "took more than"));
  if (!said || !*loam_error() || strstr(loam_error(), "internal error"))
    fail_msg("%s: expected \"%s\" in: %s", what, says, loam_error());
  if (strncmp(loam_error(), "bad.lua", 7)) fail_msg("%s: no file name in: %s", what, loam_error());
  assert_int_equal(generation(), before);
}

static void each_runaway_is_refused(void **state) {
  (void)state;
  load_good();
  for (size_t i = 0; i < LM_COUNT(runaways); i++)
    refused(runaways[i].what, runaways[i].text, strlen(runaways[i].text), runaways[i].says);
}

/* The site keeps its plan, so the pointer does not change. */
static void the_live_policy_is_untouched_by_them(void **state) {
  (void)state;
  load_good();
  loam_site *site = loam_site_get("containment.live");
  int parity = (int)(generation() & 1);
  const lm_plan *plan = atomic_load(&site->now[parity].plan);
  for (size_t i = 0; i < LM_COUNT(runaways); i += SANITIZED ? 14 : 7)
    refused(runaways[i].what, runaways[i].text, strlen(runaways[i].text), runaways[i].says);
  assert_ptr_equal(atomic_load(&site->now[parity].plan), plan);
  assert_true(lm_plan_is_valid(plan));
  loam_site *later = loam_site_get("containment.later");
  assert_ptr_equal(atomic_load(&later->now[parity].plan), plan);
}

static void a_strategy_made_in_pick_is_refused(void **state) {
  (void)state;
  load_good();
  refused("a constructor in pick", good, strlen(good), "");
}

/* ---- calls and texts that took a long time ---- */

/* Loads a policy, which must be refused without much processor time. One step has 200 ms. Without
 * limits each of these policies took more than 3 seconds, most of them in one call of C code that
 * the hook of the budget cannot interrupt. */
static void refused_soon(const char *what, const char *text, const char *says) {
  enum { SOON_MS = SANITIZED ? 30000 : 2500 };
  int64_t before = lm_sys_cpu_ns();
  refused(what, text, strlen(text), says);
  int64_t took_ms = (lm_sys_cpu_ns() - before) / 1000000;
  if (took_ms > SOON_MS) fail_msg("%s took %lld ms", what, (long long)took_ms);
}

static void refused_text_soon(const char *what, char *text, const char *says) {
  refused_soon(what, text, says);
  free(text);
}

/* Makes two strings `a` and `b` of half a megabyte whose last bytes differ. */
#define LONG_PAIR "local b = ('a'):rep(65536) b = b .. b b = b .. b b = b .. b local a = b .. 'x'\n"

static void a_call_of_c_code_ends_in_time(void **state) {
  (void)state;
  load_good();
  refused_soon("an insertion far before the list", IN_FILE("table.insert({}, -2 ^ 31, 1)"),
               "position");
  refused_soon("a sort of long strings",
               IN_FILE(LONG_PAIR
                       "local t = {} for i = 1, 20000 do t[i] = i % 2 == 0 and a or b end\n"
                       "table.sort(t)"),
               "budget");
}

/* ---- generated texts ---- */

static void refused_text(const char *what, char *text, const char *says) {
  refused(what, text, strlen(text), says);
  free(text);
}

/* Returns a text of `before`, n copies of `part`, and `after`. */
static char *repeated(const char *before, const char *part, size_t n, const char *after) {
  size_t length = strlen(part);
  char *text = malloc(strlen(before) + n * length + strlen(after) + 1);
  char *p = stpcpy(text, before);
  for (size_t i = 0; i < n; i++) p = stpcpy(p, part);
  strcpy(p, after);
  return text;
}

static void deep_nesting_does_not_exhaust_the_stack(void **state) {
  (void)state;
  load_good();
  refused_text("parentheses", repeated("local x = ", "(", 100000, "\n"), "");
  refused_text("tables", repeated("local x = ", "{", 100000, "\n"), "");
  refused_text("functions", repeated("", "return function() ", 50000, "\n"), "");
  refused_text("blocks", repeated("", "do ", 100000, "\n"), "");
  refused_text("operators", repeated("local x = ", "- ", 100000, "1\n"), "");
  refused_text("powers", repeated("local x = 1", " ^ 1", 100000, "\n"), "");
  refused_text("strings joined", repeated("local x = ''", " .. ''", 100000, "\n"), "");
  refused_text("else branches", repeated("if x then ", "else if y then ", 50000, "\n"), "");
  refused_text("calls", repeated("f", "(f", 100000, "\n"), "");
  refused_text("indices", repeated("local x = t", "[t", 100000, "\n"), "");
}

static void long_texts_are_refused_or_read_in_time(void **state) {
  (void)state;
  load_good();
  refused_text("a line of a megabyte", repeated("local x = '", "y", 1000000, "\n"), "");
  refused_text("many locals", repeated("", "local x = 1\n", 1000, "\n"), "");
  refused_text("many constants", repeated("local t = {", "1.5, 'x',\n", 90000, "\n"), "");
  refused_text("a name of a megabyte", repeated("", "z", 1000000, "\n"), "");
}

static void a_long_text_is_refused_soon(void **state) {
  (void)state;
  load_good();
  refused_text_soon("a long token", repeated("x = \"", "'end' expected ", 20000, "\n"), "syntax");
  refused_text_soon("a line of white space", repeated("local x = ", " ", 300000, "y y\n"),
                    "syntax");
  refused_text_soon("a long name", repeated("local x = math['", "n", 100000, ".n']\n" IN_FILE("")),
                    "no '");
  refused_text_soon("many gotos", repeated("do ", "goto a\n", 60000, "::a:: end\n" IN_FILE("")),
                    "'goto'");
}

static void a_long_comment_does_no_harm(void **state) {
  (void)state;
  char *text = repeated(plain_good, "-- nothing to see here\n", 40000, "");
  uint64_t before = generation();
  lm_script_limits usual = *lm_policy_limits(), patient = usual;
  patient.step_ms *= 10; /* under a sanitizer a busy machine is too slow for the usual time */
  if (SANITIZED) lm_policy_set_limits(&patient);
  loam_status status = lm_policy_load("long.lua", text, strlen(text));
  lm_policy_set_limits(&usual);
  if (status) fail_msg("%s", loam_error());
  assert_int_equal(generation(), before + 1);
  free(text);
}

static void bytes_that_are_not_lua_are_refused(void **state) {
  (void)state;
  load_good();
  refused("bytecode", "\033LJ\002\000\000\n", 7, "compiled");
  refused("zero bytes", "return\0 loam.policy{}\n", 22, "zero byte");
  char noise[4096];
  uint32_t seed = 1;
  for (int round = 0; round < 200; round++) {
    for (size_t i = 0; i < sizeof noise; i++) {
      seed = seed * 1664525 + 1013904223;
      noise[i] = (char)(seed >> 24);
    }
    refused("noise", noise, sizeof noise, "");
  }
}

/* The text of a policy is cut off after each byte. Every such text is refused, even if it is valid
 * Lua. */
static void every_prefix_of_a_policy_is_refused(void **state) {
  (void)state;
  load_good();
  for (size_t n = 0; n + 1 < sizeof plain_good - 1; n++) refused("a prefix", plain_good, n, "");
}

/* Returns the metadata in use. Gives free memory back to the system first, because its amount
 * depends on how far a policy came before its time was over. */
static size_t metadata_in_use(void) {
  lm_metadata_trim();
  return lm_metadata_held();
}

static void memory_is_given_back_after_refusals(void **state) {
  (void)state;
  load_good();
  refused("a bomb", runaways[14].text, strlen(runaways[14].text), "");
  size_t before = metadata_in_use();
  for (int i = 0; i < 10; i++) {
    refused("a loop", runaways[13].text, strlen(runaways[13].text), "");
    refused("a bomb", runaways[14].text, strlen(runaways[14].text), "");
  }
  assert_in_range(metadata_in_use(), 0, before + LM_MIB / 4);
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(each_runaway_is_refused),
    cmocka_unit_test(the_live_policy_is_untouched_by_them),
    cmocka_unit_test(a_strategy_made_in_pick_is_refused),
    cmocka_unit_test(a_call_of_c_code_ends_in_time),
    cmocka_unit_test(a_long_text_is_refused_soon),
    cmocka_unit_test(deep_nesting_does_not_exhaust_the_stack),
    cmocka_unit_test(long_texts_are_refused_or_read_in_time),
    cmocka_unit_test(a_long_comment_does_no_harm),
    cmocka_unit_test(bytes_that_are_not_lua_are_refused),
    cmocka_unit_test(every_prefix_of_a_policy_is_refused),
    cmocka_unit_test(memory_is_given_back_after_refusals),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}

/* luajit_linked.c - a static LuaJIT for the `loam` command. To find, open and relocate the shared
 * library took a third of a millisecond at each start of the command.
 *
 * It is compiled only where the build found the static library. */
#define LM_LUAJIT_LINKED
#include <math.h>

#include "plan/plan.h"
#include "script/luajit.h"

static const lm_luajit linked = {
#define LM_LUAJIT_FUNCTION(name) name,
  LM_LUAJIT_LIST(LM_LUAJIT_FUNCTION)
#undef LM_LUAJIT_FUNCTION
};

/* Runs before main, so lm_luajit_open() finds LuaJIT open. The release pairs with the acquire in
 * lm_luajit_open(). */
__attribute__((constructor)) static void link_luajit(void) {
  atomic_store_explicit(&lm_plan_power, pow, memory_order_relaxed);
  atomic_store_explicit(&lm_luajit_api, &linked, memory_order_release);
}

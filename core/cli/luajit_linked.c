/* luajit_linked.c - LuaJIT linked to the `loam` command: it has not to be found, opened and
 * relocated at each start, which took a third of a millisecond.
 *
 * Only in the command, and where the build found the static library. */
#define LM_LUAJIT_LINKED
#include <math.h>

#include "plan/plan.h"
#include "script/luajit.h"

static const lm_luajit linked = {
#define LM_LUAJIT_FUNCTION(name) name,
  LM_LUAJIT_LIST(LM_LUAJIT_FUNCTION)
#undef LM_LUAJIT_FUNCTION
};

/* Before main: lm_luajit_open() finds it open. */
__attribute__((constructor)) static void link_luajit(void) {
  atomic_store_explicit(&lm_plan_power, pow, memory_order_relaxed);
  atomic_store_explicit(&lm_luajit_api, &linked, memory_order_release);
}

/* seldom.c - where the code begins that is seldom wanted; and what makes it rest, and the Lua
 * modules that were built in. */
#include "seldom.h"

#include "base.h"
#include "embed.h"
#include "sys.h"

static void rest(uintptr_t from, uintptr_t to) {
  from = lm_align_up(from, LM_PAGE);
  to = lm_align_down(to, LM_PAGE);
  if (from < to) (void)lm_sys_rest((void *)from, to - from);
}

void lm_seldom_rest(void) {
  rest((uintptr_t)lm_seldom_begin, (uintptr_t)lm_seldom_end);
  rest((uintptr_t)__start_loam_lua, (uintptr_t)__stop_loam_lua);
}

void lm_seldom_begin(void) {}

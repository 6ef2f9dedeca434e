/* seldom.c - where the code begins that is seldom wanted; and what makes it rest, and the Lua
 * modules that were built in. */
#include "seldom.h"

#include "base.h"
#include "embed.h"
#include "sys.h"

/* Behind the modules are the constants of such code: to here, where cmake/order.cmake saw to it. */
extern const unsigned char lm_seldom_read_end[] __attribute__((weak, visibility("hidden")));

static void rest(uintptr_t from, uintptr_t to) {
  if (from < to) (void)lm_sys_rest((void *)from, to - from);
}

/* Where the code begins, a page has some that is wanted; else there is nothing beside. */
void lm_seldom_rest(void) {
  const unsigned char *end = lm_seldom_read_end ? lm_seldom_read_end : __stop_loam_lua;
  rest(lm_align_up((uintptr_t)lm_seldom_begin, LM_PAGE),
       lm_align_up((uintptr_t)lm_seldom_end, LM_PAGE));
  rest(lm_align_down((uintptr_t)__start_loam_lua, LM_PAGE), lm_align_up((uintptr_t)end, LM_PAGE));
}

void lm_seldom_begin(void) {}

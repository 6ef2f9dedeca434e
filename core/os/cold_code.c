/* cold_code.c - where the code begins that is seldom wanted; and what makes it rest, and the Lua
 * modules that were built in. */
#include "os/cold_code.h"

#include "os/base.h"
#include "os/embed.h"
#include "os/sys.h"

/* Where cmake/order.cmake had a library linked: behind the modules are the constants of such code,
 * to here. */
extern const unsigned char lm_cold_code_rodata_end[] __attribute__((weak, visibility("hidden")));

static void rest(uintptr_t from, uintptr_t to) {
  from = lm_align_up(from, LM_PAGE);
  to = lm_align_down(to, LM_PAGE);
  if (from < to) (void)lm_sys_evict_file((void *)from, to - from);
}

void lm_cold_code_evict(void) {
  uintptr_t code_end = (uintptr_t)lm_cold_code_end;
  uintptr_t from = (uintptr_t)__start_loam_lua, to = (uintptr_t)__stop_loam_lua;
  if (lm_cold_code_rodata_end) { /* then nobody else has anything in their first and last pages */
    code_end = lm_align_up(code_end, LM_PAGE);
    from = lm_align_down(from, LM_PAGE);
    to = lm_align_up((uintptr_t)lm_cold_code_rodata_end, LM_PAGE);
  }
  rest((uintptr_t)lm_cold_code_begin, code_end);
  rest(from, to);
}

void lm_cold_code_begin(void) {}

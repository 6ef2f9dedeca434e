/* seldom.c - where the code begins that is seldom wanted, and what makes it rest. */
#include "seldom.h"

#include "base.h"
#include "sys.h"

void lm_seldom_rest(void) {
  uintptr_t from = lm_align_up((uintptr_t)lm_seldom_rest, LM_PAGE);
  uintptr_t to = lm_align_down((uintptr_t)lm_seldom_end, LM_PAGE);
  if (from < to) (void)lm_sys_rest((void *)from, to - from);
}

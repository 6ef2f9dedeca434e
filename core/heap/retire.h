/* retire.h - pools end: the memory of a strategy goes back when no policy names it any more. */
#ifndef LM_RETIRE_H
#define LM_RETIRE_H

#include <stdint.h>

/* Gives back all memory of the strategies that hold no live block and whose used[id] is 0; ids from
 * n on are unused. The caller makes sure that no plan that names such a strategy can still be read,
 * and that no such plan is made during the call. A thread that decided on such a strategy before,
 * and makes its request now, is served all the same. One call at a time, not while active. */
void lm_retire_unused(const uint8_t *used, uint32_t n);

#endif

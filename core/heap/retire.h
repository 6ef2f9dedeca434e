/* retire.h - pools end: the memory of a strategy goes back when no policy names it any more. */
#ifndef LM_RETIRE_H
#define LM_RETIRE_H

#include <stdbool.h>
#include <stdint.h>

/* Gives back all memory of the strategies that hold no live block and whose used[id] is 0; ids from
 * n on are unused. The caller makes sure that no plan that names such a strategy can still be read,
 * and that no such plan is made during the call. A thread that decided on such a strategy before,
 * and makes its request now, is served all the same. One call at a time, not while active. */
void lm_retire_unused(const uint8_t *used, uint32_t n);

/* The steps of lm_retire_unused, for a thread that may not wait: lm_retire_begin, a grace,
 * lm_retire_look, another grace, lm_retire_end. A grace may be a calm one (os/thread.h). The
 * strategies may be used in between, and a plan may name them if lm_retire_keep is called before
 * that plan is live. If `is_safe` is false, or lm_retire_begin is called again, all strategies
 * stay. lm_retire_begin returns whether there are strategies to end. */
bool lm_retire_begin(const uint8_t *used, uint32_t n);
void lm_retire_look(void);
void lm_retire_keep(const uint8_t *used, uint32_t n);
void lm_retire_end(bool is_safe);

#endif

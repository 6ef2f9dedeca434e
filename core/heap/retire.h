/* retire.h - pools end: their memory goes back when no policy names their strategy any more. */
#ifndef LM_RETIRE_H
#define LM_RETIRE_H

#include <stdint.h>

/* Gives back all memory of strategies that hold no live block and whose `used[id]` is 0 (of ids
 * from n on: none). The caller sees to it that no plan that names such a one can still be read,
 * and that none is made meanwhile. Who decided on one before, and asks only now, is served all the
 * same. */
void lm_retire_unused(const uint8_t *used, uint32_t n);

#endif

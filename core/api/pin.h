/* pin.h - the list of pinned ranges (pin.c), for tests. */
#ifndef LM_PIN_H
#define LM_PIN_H

#include "os/base.h"

/* Returns whether the list obeys the law in pin.c. Takes its lock. */
bool lm_pin_is_valid(void);

#endif

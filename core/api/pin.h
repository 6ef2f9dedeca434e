/* pin.h - the list of pinned ranges (pin.c), for resets and tests. */
#ifndef LM_PIN_H
#define LM_PIN_H

#include "os/base.h"

/* Returns whether the list obeys the law in pin.c. Takes its lock. */
bool lm_pin_is_valid(void);

/* Unpins the ranges that were pinned in a context of a device (NULL: all ranges of the device),
 * which is about to be reset. loam_unpin may still be called for the pins of these ranges, and
 * loam_pin pins a range again. Takes the list's lock, and calls the manager. */
void lm_pin_reset(int device, const void *context);
/* Returns whether a range of the device is pinned in another context. Takes the list's lock. */
bool lm_pin_is_elsewhere(int device, const void *context);

#endif

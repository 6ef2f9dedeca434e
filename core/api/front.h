/* front.h - what a public function does around a request, for those that are not in loam.c. */
#ifndef LM_FRONT_H
#define LM_FRONT_H

#include "device/provider.h"
#include "loam.h"

/* As loam_device_alloc and its like serve one. */
void *lm_front_make(loam_site *site, const lm_wish *wish);

/* As loam_realloc where lanes have nothing. */
void *lm_front_realloc(loam_site *site, void *ptr, size_t size, const void *caller);

#endif

/* owner.h - answers loam_owner. */
#ifndef LM_OWNER_H
#define LM_OWNER_H

#include "loam.h"
#include "os/base.h"

/* Fills *out with what loam knows of the live block that p points into. Returns false if there is
 * none. Takes no lock for a block of a pool. */
bool lm_owner_find(const void *p, loam_owner_info *out);

#endif

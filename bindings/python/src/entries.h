/* entries.h - what functions of C that libraries call have in common. */
#ifndef ENTRIES_H
#define ENTRIES_H

#include "binding.h"

#define EXPORT __attribute__((visibility("default")))

/* Of the tag in force in this thread, else of `otherwise`. */
loam_site *entries_site(const char *otherwise);

/* Memory of the device that is named, whichever is current: a library may not yet have told the
 * driver. NULL with words. */
void *entries_allocate(loam_site *site, size_t size, int device, void *stream);

#endif

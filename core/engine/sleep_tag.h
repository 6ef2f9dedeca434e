/* sleep_tag.h - device memory sleeps and wakes by tag: loam_sleep, loam_wake and loam_asleep, and
 * the requests `sleep` and `wake` of the control socket.
 *
 * A tag stands for itself and the tags under it; NULL and "" stand for all tags. Any thread may
 * call these functions, in no active section. */
#ifndef LM_SLEEP_TAG_H
#define LM_SLEEP_TAG_H

#include "loam.h"
#include "os/base.h"

/* As loam.h describes loam_sleep and loam_wake; `bytes` is not NULL. */
loam_status lm_sleep_tag_put(const char *tag, const char *where, size_t *bytes);
loam_status lm_sleep_tag_wake(const char *tag, size_t *bytes);
/* Returns the bytes that are asleep under a tag. */
size_t lm_sleep_tag_asleep(const char *tag);

#endif

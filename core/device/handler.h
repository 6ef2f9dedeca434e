/* handler.h - handlers: tables of allocation functions (NEP 49) that the host registers and that
 * policies name. Any thread may call these functions. */
#ifndef LM_HANDLER_H
#define LM_HANDLER_H

#include "loam.h"
#include "os/base.h"

/* Returns LOAM_OK if a handler can be called: its name is terminated and not empty, it has a
 * version, and all four functions. If not, it sets the thread's error words and returns
 * LOAM_EINVAL. */
loam_status lm_handler_check(const loam_handler *handler);

/* Returns the handler that was last registered under a name; NULL: none was. Takes no lock. */
const loam_handler *lm_handler_find(const char *name);

/* Returns whether no two entries of the registry have one name, and each entry has a handler. */
bool lm_handler_is_valid(void);

/* Returns the host's own allocator: a copy of loam_config.system, or the C library's. Never NULL.
 * The table is constant and lives as long as the process. */
const loam_system *lm_handler_system(void);
/* Makes a copy of *system the host's own allocator; NULL: the C library's. Blocks that were made
 * before keep their table. False: there is no memory for the copy, and nothing has changed. */
bool lm_handler_set_system(const loam_system *system);

#endif

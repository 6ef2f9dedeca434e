/* handler.h - NEP 49 tables: the registry of those that policies can name. */
#ifndef LM_HANDLER_H
#define LM_HANDLER_H

#include "loam.h"
#include "os/base.h"

/* LOAM_EINVAL, in words, unless it can be called: terminated name, version, all four functions. */
loam_status lm_handler_check(const loam_handler *handler);

/* The handler registered under a name; NULL if none. */
const loam_handler *lm_handler_find(const char *name);

/* The host's own allocator, of loam_config.system or the C library's. Never NULL. */
const loam_system *lm_handler_system(void);
void lm_handler_set_system(const loam_system *system);

#endif

/* sites.h - the Python function that allocates. */
#ifndef SITES_H
#define SITES_H

#include "binding.h"

typedef struct sites sites;

/* `tag` is that of the sites, "" to make one of module and function; `unnamed` serves where there
 * is no memory for one. Lives as long as the process; NULL for want of memory. */
const sites *sites_make(const char *tag, loam_site *unnamed);

/* The site of the function that runs; NULL where there is none to name. */
loam_site *sites_here(const sites *s);

#endif

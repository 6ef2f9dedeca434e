/* sites.h - the Python function that allocates, as a site. */
#ifndef SITES_H
#define SITES_H

#include "binding.h"

/* How to make sites of Python functions. */
typedef struct sites sites;

/* Makes a description of sites. Each site has the tag `tag`; "" means a tag made of module and
 * function. `unnamed` is the site to use when there is no memory for another one. The result lives
 * as long as the process; NULL without memory. */
const sites *sites_make(const char *tag, loam_site *unnamed);

/* Returns the site of the Python function that runs in this thread, or NULL if there is none. Needs
 * no lock: without the interpreter's lock it returns NULL. */
loam_site *sites_here(const sites *s);

#endif

/* sites.h - handlers that name the Python function that allocates. */
#ifndef SITES_H
#define SITES_H

#include "binding.h"

/* The handler of a tag's allocations, each at the site of the Python function it was asked from;
 * `named` is the tag to keep, or "" to make one of module and function. Lives as long as the
 * process; NULL for want of memory. */
const loam_handler *sites_handler(loam_site *site, const char *named);

#endif

/* stats_json.h - the parts of the answer to `stats`, as JSON. A process writes them about itself
 * (control_reply.c), and `loam stats` about a process that it reads from outside (cli/look.c). */
#ifndef LM_STATS_JSON_H
#define LM_STATS_JSON_H

#include "device/device_pool.h"
#include "engine/placement_audit.h"
#include "engine/resident.h"
#include "engine/stats.h"
#include "loam.h"
#include "script/json.h"

/* Writes the sums of all memory into an object that is open. */
void lm_stats_json_sums(lm_json *out, const struct loam_stats *s);
/* Writes the bytes in memory into an object that is open; nothing if the kernel does not tell. */
void lm_stats_json_resident(lm_json *out, lm_resident now);
/* Writes the list of devices that have pools into an object that is open; nothing if there is none.
 * `of` has LM_DEVICES_MAX entries. */
void lm_stats_json_devices(lm_json *out, const lm_device_figures *of);
/* Writes a row of tag and strategy, with its figures by class, into a list that is open. `ctx` is
 * an lm_json. It is an lm_stats_row_visit. */
void lm_stats_json_row(void *ctx, const loam_stats_row *row, const lm_limit_use *use,
                       const lm_sums_table *classes, uint64_t key);
/* Writes what a strategy got into a list that is open. `ctx` is an lm_json. */
void lm_stats_json_got(void *ctx, const loam_got *got);

#endif

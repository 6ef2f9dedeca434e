/* provider.h - provided blocks: a policy of loam decides that a handler, the host's own allocator
 * or a device's driver makes them. provided.h lists those that are live; device_pool.h has the
 * blocks that loam itself cuts from device memory.
 *
 * A request bounds what memory a policy may give it, so that no edit of a policy can crash the
 * host: malloc and its family get memory that the CPU can access, loam_device_alloc gets memory
 * that the device can access. A member of a chain that cannot serve the request is passed over.
 *
 * The providers are not loam's code. So loam calls them outside an active section, without holding
 * a lock, and, where they may allocate, in a thread that is marked as inside loam. That holds for
 * each function here that makes, frees, resizes or copies a block. */
#ifndef LM_PROVIDER_H
#define LM_PROVIDER_H

#include "device/request.h"
#include "heap/strategy.h"
#include "pages/provided.h"

/* Returns whether a strategy can serve a request. On a machine without a device, host memory serves
 * all requests. In a fork of a process that used a device, nothing serves requests for device
 * memory. */
bool lm_provider_fits(const lm_request *request, const lm_strategy *s);
/* Returns the strategy that serves a request if no member of its chain can. NULL: there is no room
 * for another strategy, and the thread's error words say so. */
lm_strategy *lm_provider_default(const lm_request *request);
/* Returns the strategy of blocks that the host's handler makes without the policy. NULL: like
 * lm_provider_default. */
lm_strategy *lm_provider_of_handler(const loam_handler *handler);

/* Returns whether lm_provider_alloc makes blocks of strategies of this kind. */
bool lm_provider_serves(lm_kind kind);
/* Makes a block and fills in *out, except its token and strategy. Returns NULL, or the reason why
 * it failed: lm_provider_words if the thread's error words have it. */
const char *lm_provider_alloc(const lm_request *request, const lm_strategy *s, lm_provided *out);
/* Stands for "the reason is in the thread's error words"; compared by address. */
extern const char lm_provider_words[];
/* Returns the name of the block's provider: a handler's own name, "system", "driver" or "loam". */
const char *lm_provider_name(const lm_provided *block);
/* Returns the version of the block's handler; 0 if another provider made the block. */
unsigned lm_provider_version(const lm_provided *block);

/* Fills in *out if `p` is in a live provided block or a live block of device_pool.h; else returns
 * false. */
bool lm_provider_find(const void *p, lm_provided *out);
/* Calls `visit` for each such block. It may write block->token, and must not call into loam. */
void lm_provider_each(void (*visit)(void *ctx, lm_provided *block), void *ctx);

/* Frees a block that was taken out of provided.h. Work on stream `on` may still use it; NULL: work
 * on the stream that it was allocated for. */
void lm_provider_free(const lm_provided *block, const lm_stream *on);

/* If the strategy has memory of a device, or pinned memory, ends the frees of such memory that are
 * collected (device/defer.h), for a request that got none. Returns whether there were any; if not,
 * the thread's error words stay. It waits for the device, so it does nothing while the request's
 * stream is captured. A request without a stream notices captures of blocking streams alone. */
bool lm_provider_end_collected(const lm_request *request, const lm_strategy *s);

/* Returns whether blocks of a strategy come from a pool of device_pool.h. */
bool lm_provider_is_pooled(const lm_strategy *s);
/* Returns that pool for a request. NULL: there is no such device or no memory, and *why is the
 * reason. */
struct lm_device_pool *lm_provider_pool(const lm_request *request, const lm_strategy *s,
                                        const char **why);

/* Returns whether the provider that made a block can resize it for a request that strategy `s`
 * serves. */
bool lm_provider_can_resize(const lm_provided *block, const lm_request *request,
                            const lm_strategy *s);
/* Resizes such a block by its provider and returns its new address. NULL: the provider failed, and
 * the block is unchanged. */
void *lm_provider_resize(const lm_provided *block, size_t size);
/* Returns the usable bytes at `p`, which lm_provider_resize has returned for `size`. */
size_t lm_provider_size(const lm_provided *block, void *p, size_t size);

/* Copies `size` bytes between two blocks of device memory, in the order of a stream. Returns false,
 * with the thread's error words set, if the driver failed or if one of the blocks is asleep. */
bool lm_provider_copy(const lm_provided *from, const lm_provided *to, size_t size,
                      lm_stream stream);
/* Returns the device that lm_desc.device means for the calling thread: 0 is the device of the
 * thread's current context, n is device n - 1. */
int lm_provider_device(uint8_t device);

#endif

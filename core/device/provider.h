/* provider.h - blocks that loam decides but does not cut itself: how they are made and ended.
 *
 * What a call asks for bounds what a policy may give it, so that no edit of a policy can crash a
 * host: malloc's family gets what the CPU can touch, loam_device_alloc what the device can use. A
 * member of a chain that does not fit the call is passed over.
 *
 * All of it is foreign code to loam: called while the thread is not active, with `inside` raised
 * where it may allocate, and with no lock held. */
#ifndef LM_PROVIDER_H
#define LM_PROVIDER_H

#include "device/request.h"
#include "heap/strategy.h"
#include "pages/provided.h"

/* Whether a member of a chain can give what is wanted. Without any device, memory of the host is
 * what there is for all; a fork of a process that used one has none of that either. */
bool lm_provider_fits(const lm_request *request, const lm_strategy *s);
/* Who serves where no member fits. NULL, with words, if it cannot be made. */
lm_strategy *lm_provider_default(const lm_request *request);

/* Whether blocks of the kind are made here. */
bool lm_provider_serves(lm_kind kind);
/* Makes a block; of *out only the account (token, strategy) is left to the caller. NULL, or why it
 * cannot be: lm_provider_words if those are the thread's. */
const char *lm_provider_alloc(const lm_request *request, const lm_strategy *s, lm_provided *out);
extern const char lm_provider_words[];
/* Who made it, for people; of a handler, its name. */
const char *lm_provider_name(const lm_provided *block);

/* The blocks that are here, and those of device_pool.h: the live one that p is in, and each, whose
 * token `visit` may rewrite; it must not call into loam. */
bool lm_provider_find(const void *p, lm_provided *out);
void lm_provider_each(void (*visit)(void *ctx, lm_provided *block), void *ctx);

/* Ends a block that nobody knows any more. `on`: work put on that stream may still use it; NULL: on
 * the one where it was allocated. */
void lm_provider_free(const lm_provided *block, const lm_stream *on);

/* Whether blocks of a strategy are cut from what loam keeps of a device (device_pool.h), and that;
 * NULL, and why. */
bool lm_provider_is_pooled(const lm_strategy *s);
struct lm_device_pool *lm_provider_pool(const lm_request *request, const lm_strategy *s,
                                        const char **why);

/* Gives a block of the system or a handler another size, where that can be done by whoever made it;
 * NULL: it is as it was. */
void *lm_provider_resize(const lm_provided *block, size_t size);
bool lm_provider_can_resize(const lm_provided *block, const lm_strategy *s);
/* Bytes usable at what a resize for `size` gave. */
size_t lm_provider_size(const lm_provided *block, void *p, size_t size);

/* Copies between blocks of which one at least is of a device, in the order of the stream. */
bool lm_provider_copy(int device, void *to, const void *from, size_t size, lm_stream stream);
/* The device that a strategy means for the calling thread. */
int lm_provider_device(uint8_t device);

#endif

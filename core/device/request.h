/* request.h - the description of one allocation.
 *
 * A public function fills one, with constants for the fields that its caller does not choose.
 * malloc and calloc first try the decision cache, for which they need a key alone
 * (engine/decision.h). They fill a request when the cache does not serve them. */
#ifndef LM_REQUEST_H
#define LM_REQUEST_H

#include "gpu/gpu.h"

/* The kind of memory that the call promises. The policy chooses among strategies that can keep
 * it. */
typedef enum lm_want { LM_WANT_HOST, LM_WANT_DEVICE, LM_WANT_MANAGED, LM_WANT_PINNED } lm_want;

typedef struct lm_request {
  loam_site *site;             /* NULL: the site of the thread's scope, else the default site */
  uintptr_t code;              /* with by_code: the return address of the call */
  size_t size;                 /* bytes */
  size_t align;                /* a power of two, at least 16 */
  lm_stream stream;            /* of LM_WANT_DEVICE */
  lm_want want;                /* LM_WANT_HOST: malloc's family */
  unsigned flags;              /* of LM_WANT_PINNED: LM_GPU_* beside the strategy's own */
  const loam_handler *handler; /* serves the request in place of the policy; NULL: the policy */
  bool by_code;                /* the decision is remembered by `code`, not by the site */
  bool zero;                   /* the memory is to be zeroed */
  bool by_handle; /* of LM_WANT_DEVICE: the driver's handles must name it, for other processes */
} lm_request;

#endif

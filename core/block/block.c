/* block.c - reference-counted owners of memory.
 *
 * The memory orderings are those of libstdc++'s shared_ptr and of Linux's refcount_t. A retain is
 * relaxed, because the caller holds a reference already. A release has release ordering, and the
 * last release acquires: so the thread that ends the block sees everything that other owners wrote
 * before they released.
 *
 * A thread that sees a count of 1 is the only owner. So the end of a block with one owner needs no
 * atomic read-modify-write.
 *
 * A host that releases too often, or that makes 2^31 references, breaks the count. A count of 0
 * stays 0 and a saturated count stays saturated, so that later calls find the error too. */
#include "block/block.h"

#include "api/handler_api.h"
#include "api/memory.h"
#include "block/ledger.h"
#include "engine/bad_free.h"
#include "engine/engine.h"
#include "os/error.h"

enum { MOST_REFERENCES = INT32_MAX };

/* The count of a block that never ends. It lies as far from 2^31 as from 2^32, so no realistic
 * number of retains and releases brings it back to a valid count. */
static const uint32_t SATURATED = 3u << 30;

/* ---- Making ------------------------------------------------------------------------------- */

/* The site of headers that stand apart from their data. */
static loam_site *header_site(void) {
  /* The acquire load pairs with the release store below. Several threads may store, but sites are
   * interned, so they all store one address. */
  static _Atomic(loam_site *) cached;
  loam_site *site = atomic_load_explicit(&cached, memory_order_acquire);
  if (lm_likely(site != NULL)) return site;
  site = loam_site_get("loam.block");
  atomic_store_explicit(&cached, site, memory_order_release);
  return site;
}

/* lm_block_fill for a site that is known. The count needs no ordering: no other thread can know the
 * block yet. */
LM_INLINE loam_block *fill(loam_block *b, loam_site *site, loam_block_kind kind, void *data,
                           size_t size) {
  lm_assert(site && kind >= LOAM_BLOCK_EMBEDDED && kind <= LOAM_BLOCK_POOLED);
  atomic_store_explicit(&b->references, 1, memory_order_relaxed);
  b->kind = (uint16_t)kind;
  b->is_listed = b->is_readonly = 0;
  b->size = size;
  b->data = data;
  b->site = site;
  return b;
}

loam_block *lm_block_fill(loam_block *b, loam_site *site, loam_block_kind kind, void *data,
                          size_t size) {
  return fill(b, lm_decision_site(lm_thread_self_or_empty, site), kind, data, size);
}

loam_block *lm_block_header(loam_site *site, loam_block_kind kind, size_t more) {
  loam_block *b = loam_malloc(header_site(), sizeof *b + more);
  return b ? lm_block_fill(b, site, kind, NULL, 0) : NULL;
}

loam_block *lm_block_made(loam_block *b) {
  lm_thread *t = lm_thread_get();
  lm_assert(lm_block_is_valid(b));
  if (lm_likely(t != NULL)) lm_add_relaxed(&t->blocks.made[b->kind], 1);
  if (lm_unlikely(lm_block_watch_is_on())) lm_ledger_note(LOAM_BLOCK_MADE, b, 1);
  return b;
}

/* Makes an embedded block of memory for the header and `size` bytes; NULL stays NULL. */
static loam_block *make_embedded(loam_block *b, loam_site *site, size_t size) {
  return b ? lm_block_made(lm_block_fill(b, site, LOAM_BLOCK_EMBEDDED, b + 1, size)) : NULL;
}

/* Makes a block with a header of its own that owns `data`. NULL data mean that their allocation
 * failed, and the result is NULL too. Frees the data if there is no memory for the header. */
static loam_block *make_owned(loam_site *site, void *data, size_t size) {
  if (!data) return NULL;
  loam_block *b = lm_block_header(site, LOAM_BLOCK_OWNED, 0);
  if (!b) {
    loam_free(data);
    return NULL;
  }
  b->data = data;
  b->size = size;
  return lm_block_made(b);
}

/* Makes a block whose data come from the handler that the thread has set. The header does not come
 * from the handler, so it has memory of its own. Returns false if the policy decides after all;
 * r->site may have changed. */
static bool make_by_handler(lm_request *r, loam_block **out) {
  if (lm_likely(!lm_thread_self_or_empty->handler)) return false;
  r->handler = lm_handler_api_for_data(&r->site);
  if (r->handler) *out = make_owned(r->site, lm_memory_alloc(r), r->size);
  return r->handler;
}

static LM_NOINLINE loam_block *block_new_slow(loam_site *site, size_t size) {
  loam_block *made;
  lm_request r = { .site = site, .size = size, .align = 16 };
  if (make_by_handler(&r, &made)) return made;
  site = r.site;
  if (size > LM_BLOCK_EMBEDDED_MAX) return make_owned(site, loam_malloc(site, size), size);
  loam_block *b = loam_malloc(site, sizeof *b + size);
  return make_embedded(b, site, size);
}

/* The fast path serves an embedded block from the thread's decision cache. It may skip the ledger,
 * because while blocks are watched every thread is on its slow path (LM_SLOW_LISTING). */
loam_block *loam_block_new(loam_site *site, size_t size) {
  lm_thread *t = lm_thread_self_or_empty;
  if (lm_likely(size <= LM_BLOCK_EMBEDDED_MAX && !t->handler)) {
    loam_site *of = lm_decision_site(t, site);
    bool holds;
    lm_decision_key k = lm_decision_key_of(of, sizeof(loam_block) + size);
    loam_block *b = lm_decision_serve(t, k, &holds);
    if (lm_likely(b != NULL)) {
      lm_add_relaxed(&t->blocks.made[LOAM_BLOCK_EMBEDDED], 1);
      return fill(b, of, LOAM_BLOCK_EMBEDDED, b + 1, size);
    }
  }
  return block_new_slow(site, size);
}

loam_block *loam_block_zeroed(loam_site *site, size_t size) {
  loam_block *made;
  lm_request r = { .site = site, .size = size, .align = 16, .zero = true };
  if (make_by_handler(&r, &made)) return made;
  site = r.site;
  if (size > LM_BLOCK_EMBEDDED_MAX) return make_owned(site, loam_calloc(site, 1, size), size);
  loam_block *b = loam_calloc(site, 1, sizeof *b + size);
  return make_embedded(b, site, size);
}

loam_block *loam_block_aligned(loam_site *site, size_t alignment, size_t size) {
  loam_block *made;
  lm_request r = { .site = site, .size = size, .align = alignment };
  if (lm_is_pow2(alignment) && make_by_handler(&r, &made)) return made;
  site = r.site;
  if (size > LM_BLOCK_EMBEDDED_MAX || alignment > sizeof(loam_block))
    return make_owned(site, loam_aligned_alloc(site, alignment, size), size);
  loam_block *b = loam_aligned_alloc(site, alignment, sizeof *b + size);
  return make_embedded(b, site, size);
}

loam_block *loam_block_wrap(loam_site *site, void *ptr, size_t size, loam_block_dtor dtor,
                            void *ctx) {
  loam_block *b = lm_block_header(site, LOAM_BLOCK_EXTERNAL, 0);
  if (!b) return NULL;
  b->data = ptr;
  b->size = size;
  b->dtor = dtor;
  b->ctx = ctx;
  return lm_block_made(b);
}

/* The block that a slice of `b` holds a reference to. A slice of a slice holds the root, so that a
 * chain of slices keeps one block alive instead of all of them. */
static loam_block *root_of(loam_block *b) { return b->kind == LOAM_BLOCK_SLICE ? b->parent : b; }

loam_block *loam_block_slice(loam_block *parent, size_t offset, size_t size) {
  if (!parent) {
    lm_error(LOAM_EINVAL, "a slice of a block that is NULL");
    return NULL;
  }
  if (parent->kind == LOAM_BLOCK_POOLED) {
    lm_error(LOAM_EINVAL,
             "a slice of %zu bytes from %zu on: the block is an arena, which has "
             "pieces and no data",
             size, offset);
    return NULL;
  }
  if (offset > parent->size || size > parent->size - offset) {
    lm_error(LOAM_EINVAL, "a slice of %zu bytes from %zu on: the block has %zu", size, offset,
             parent->size);
    return NULL;
  }
  loam_block *b = lm_block_header(parent->site, LOAM_BLOCK_SLICE, 0);
  if (!b) return NULL;
  b->data = (char *)parent->data + offset;
  b->is_readonly = parent->is_readonly;
  b->size = size;
  b->parent = loam_block_retain(root_of(parent));
  lm_assert(b->parent->kind != LOAM_BLOCK_SLICE);
  return lm_block_made(b);
}

/* ---- Ending ------------------------------------------------------------------------------- */

/* Ends a block whose last reference is gone: counts it, ends its data, and frees its header. */
static LM_NOINLINE void end(loam_block *b) {
  lm_thread *t = lm_thread_get();
  lm_assert(b->site && b->kind >= LOAM_BLOCK_EMBEDDED && b->kind <= LOAM_BLOCK_POOLED);
  if (lm_likely(t != NULL)) lm_add_relaxed(&t->blocks.ended[b->kind], 1);
  if (lm_unlikely(lm_block_watch_is_on())) lm_ledger_note(LOAM_BLOCK_ENDED, b, 0);
  atomic_store_explicit(&b->references, 0, memory_order_relaxed);
  switch ((loam_block_kind)b->kind) {
    case LOAM_BLOCK_OWNED: loam_free(b->data); break;
    case LOAM_BLOCK_EXTERNAL:
    case LOAM_BLOCK_POOLED:
      if (b->dtor) b->dtor(b->data, b->size, b->ctx);
      break;
    case LOAM_BLOCK_SLICE: loam_block_release(b->parent); break;
    case LOAM_BLOCK_EMBEDDED: break;
  }
  loam_free(b);
}

/* Corrects a count that no live block has: `was` is the count before a retain or a release. A dead
 * block (0) stays dead, and the host receives a BAD_FREE event with the verb. A block with too many
 * references becomes saturated and never ends. */
static LM_NOINLINE void report_wrong_count(loam_block *b, uint32_t was, const char *verb) {
  if (was) {
    atomic_store_explicit(&b->references, SATURATED, memory_order_relaxed);
    return;
  }
  atomic_store_explicit(&b->references, 0, memory_order_relaxed);
  lm_bad_free_wrong(verb, b);
}

/* Completes a retain when the count is wrong or blocks are watched. `was` is the count before. */
static LM_NOINLINE loam_block *retain_slow(loam_block *b, uint32_t was) {
  if (was - 1 >= MOST_REFERENCES) report_wrong_count(b, was, "retain after the end");
  if (lm_block_watch_is_on()) lm_ledger_note(LOAM_BLOCK_RETAINED, b, was + 1);
  return b;
}

loam_block *loam_block_retain(loam_block *b) {
  if (lm_unlikely(!b)) return NULL;
  uint32_t was = atomic_fetch_add_explicit(&b->references, 1, memory_order_relaxed);
  if (lm_unlikely(was - 1 >= MOST_REFERENCES || lm_block_watch_is_on())) return retain_slow(b, was);
  return b;
}

/* Finishes a release that found the count `was`: ends the block if that was the last reference,
 * and reports a count that no live block has. Other counts need nothing more. */
static LM_NOINLINE void end_or_report(loam_block *b, uint32_t was) {
  if (was == 1) end(b);
  else if (was - 1 >= MOST_REFERENCES) report_wrong_count(b, was, "release after the end");
}

/* A whole release, with a note in the ledger if blocks are watched. */
static LM_NOINLINE void release_slow(loam_block *b) {
  if (lm_block_watch_is_on()) lm_ledger_note(LOAM_BLOCK_RELEASED, b, loam_block_refcount(b) - 1);
  end_or_report(b, atomic_fetch_sub_explicit(&b->references, 1, memory_order_acq_rel));
}

/* Ends an embedded block with one owner on the fast path of a free. False means that nothing is
 * done: the block is of another kind, or the free needs the slow path. The count is 0 before the
 * memory is given back, so that a later release of the dead block is found. */
LM_INLINE bool end_embedded(loam_block *b) {
  lm_thread *t = lm_thread_self_or_empty;
  if (lm_unlikely(b->kind != LOAM_BLOCK_EMBEDDED)) return false;
  atomic_store_explicit(&b->references, 0, memory_order_relaxed);
  if (lm_likely(lm_tcache_give_in_section(t, b))) {
    lm_add_relaxed(&t->blocks.ended[LOAM_BLOCK_EMBEDDED], 1);
    return true;
  }
  atomic_store_explicit(&b->references, 1, memory_order_relaxed);
  return false;
}

void loam_block_release(loam_block *b) {
  if (lm_unlikely(!b)) return;
  /* The acquire load pairs with the fetch_sub (release) of other owners, further down: all that
   * they wrote happened before the end of the block. */
  if (atomic_load_explicit(&b->references, memory_order_acquire) == 1) {
    if (lm_unlikely(!end_embedded(b))) release_slow(b);
    return;
  }
  if (lm_unlikely(lm_block_watch_is_on())) {
    release_slow(b);
    return;
  }
  uint32_t was = atomic_fetch_sub_explicit(&b->references, 1, memory_order_acq_rel);
  /* True for 0, for 1 and for 2^31 or more: unsigned subtraction wraps for the small ones. */
  if (lm_unlikely(was - 2 >= MOST_REFERENCES - 1)) end_or_report(b, was);
}

/* ---- Properties --------------------------------------------------------------------------- */

void *loam_block_data(const loam_block *b) { return b ? b->data : NULL; }
size_t loam_block_size(const loam_block *b) { return b ? b->size : 0; }
size_t loam_block_refcount(const loam_block *b) {
  return b ? atomic_load_explicit(&b->references, memory_order_relaxed) : 0;
}
loam_block_kind loam_block_kind_of(const loam_block *b) {
  return b ? (loam_block_kind)b->kind : (loam_block_kind)0;
}
const char *loam_block_tag(const loam_block *b) { return b ? b->site->where.tag : ""; }

/* ---- Laws --------------------------------------------------------------------------------- */

static bool is_valid_slice(const loam_block *b) {
  const loam_block *root = b->parent;
  if (!root || root->kind == LOAM_BLOCK_SLICE || root->kind == LOAM_BLOCK_POOLED) return false;
  size_t offset = (uintptr_t)b->data - (uintptr_t)root->data;
  return loam_block_refcount(root) && offset <= root->size && b->size <= root->size - offset;
}

bool lm_block_is_valid(const loam_block *b) {
  if (!b->site || !loam_block_refcount(b)) return false;
  switch ((loam_block_kind)b->kind) {
    case LOAM_BLOCK_EMBEDDED: return b->data == b + 1 && b->size <= LM_BLOCK_EMBEDDED_MAX;
    case LOAM_BLOCK_OWNED: return b->data != NULL;
    case LOAM_BLOCK_EXTERNAL: return true;
    case LOAM_BLOCK_SLICE: return is_valid_slice(b);
    case LOAM_BLOCK_POOLED: return !b->data && b->dtor;
  }
  return false;
}

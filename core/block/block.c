/* block.c - reference-counted owners of memory.
 *
 * Counts are as libstdc++'s and Linux's: one more is relaxed, because whoever retains holds a
 * reference already; one less is a release, and the last one acquires what all others did. Who sees
 * a count of 1 is the only owner, so the end of a block that was never shared costs no atomic
 * exchange. A count that came to 0, or to 2^31, by a host's mistake stays where it can be told. */
#include "block/block.h"

#include "block/arena.h"
#include "block/ledger.h"
#include "engine/engine.h"
#include "os/error.h"

enum { MOST = INT32_MAX };
static const uint32_t SATURATED = 3u << 30; /* as far from 2^31 as from 0 */

/* ---- Making ------------------------------------------------------------------------------- */

static loam_site *header_site(void) {
  static _Atomic(loam_site *) cached; /* interned: whoever writes it writes the same */
  loam_site *site = atomic_load_explicit(&cached, memory_order_acquire);
  if (lm_likely(site != NULL)) return site;
  site = loam_site_get("loam.block");
  atomic_store_explicit(&cached, site, memory_order_release);
  return site;
}

LM_INLINE loam_block *fill(loam_block *b, loam_site *site, loam_block_kind kind, void *data,
                           size_t size) {
  atomic_store_explicit(&b->references, 1, memory_order_relaxed);
  b->kind = (uint16_t)kind;
  b->is_listed = 0;
  b->size = size;
  b->data = data;
  b->site = site;
  return b;
}

loam_block *lm_block_fill(loam_block *b, loam_site *site, loam_block_kind kind, void *data,
                          size_t size) {
  return fill(b, lm_engine_site(site), kind, data, size);
}

loam_block *lm_block_header(loam_site *site, loam_block_kind kind, size_t more) {
  loam_block *b = loam_malloc(header_site(), sizeof *b + more);
  return b ? lm_block_fill(b, site, kind, NULL, 0) : NULL;
}

loam_block *lm_block_made(loam_block *b) {
  lm_thread *t = lm_thread_get();
  if (lm_likely(t != NULL)) lm_add_relaxed(&t->blocks.made[b->kind], 1);
  if (lm_unlikely(lm_block_watch_is_on())) lm_ledger_note(LOAM_BLOCK_MADE, b, 1);
  return b;
}

static loam_block *embedded(loam_block *b, loam_site *site, size_t size) {
  return b ? lm_block_made(lm_block_fill(b, site, LOAM_BLOCK_EMBEDDED, b + 1, size)) : NULL;
}

/* The memory of a block whose data have `data`: a header of their own; NULL data are a failure. */
static loam_block *owned(loam_site *site, void *data, size_t size) {
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

static LM_NOINLINE loam_block *new_slow(loam_site *site, size_t size) {
  if (size > LM_BLOCK_EMBEDDED_MAX) return owned(site, loam_malloc(site, size), size);
  loam_block *b = loam_malloc(site, sizeof *b + size);
  return embedded(b, site, size);
}

/* Most small blocks are made and ended as lm_decision_serve and lm_pool_give_quick do it. */
loam_block *loam_block_new(loam_site *site, size_t size) {
  lm_thread *t = lm_thread_self_or_empty;
  if (lm_likely(size <= LM_BLOCK_EMBEDDED_MAX)) {
    loam_site *of = site ? site : lm_decision_scope(t);
    bool holds;
    lm_request r = { .site = of, .size = sizeof(loam_block) + size, .align = 16 };
    loam_block *b = lm_decision_serve(t, &r, &holds);
    if (lm_likely(b != NULL)) {
      lm_add_relaxed(&t->blocks.made[LOAM_BLOCK_EMBEDDED], 1);
      return fill(b, of, LOAM_BLOCK_EMBEDDED, b + 1, size);
    }
  }
  return new_slow(site, size);
}

loam_block *loam_block_zeroed(loam_site *site, size_t size) {
  if (size > LM_BLOCK_EMBEDDED_MAX) return owned(site, loam_calloc(site, 1, size), size);
  loam_block *b = loam_calloc(site, 1, sizeof *b + size);
  return embedded(b, site, size);
}

loam_block *loam_block_aligned(loam_site *site, size_t alignment, size_t size) {
  if (size > LM_BLOCK_EMBEDDED_MAX || alignment > sizeof(loam_block))
    return owned(site, loam_aligned_alloc(site, alignment, size), size);
  loam_block *b = loam_aligned_alloc(site, alignment, sizeof *b + size);
  return embedded(b, site, size);
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

/* What a slice is a slice of: a chain of slices keeps that one alive, not all of them. */
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
  b->size = size;
  b->parent = loam_block_retain(root_of(parent));
  return lm_block_made(b);
}

/* ---- Ending ------------------------------------------------------------------------------- */

static LM_NOINLINE void end(loam_block *b) {
  lm_thread *t = lm_thread_get();
  if (lm_likely(t != NULL)) lm_add_relaxed(&t->blocks.ended[b->kind], 1);
  if (lm_unlikely(lm_block_watch_is_on())) lm_ledger_note(LOAM_BLOCK_ENDED, b, 0);
  atomic_store_explicit(&b->references, 0, memory_order_relaxed);
  switch ((loam_block_kind)b->kind) {
    case LOAM_BLOCK_OWNED: loam_free(b->data); break;
    case LOAM_BLOCK_EXTERNAL:
      if (b->dtor) b->dtor(b->data, b->size, b->ctx);
      break;
    case LOAM_BLOCK_SLICE: loam_block_release(b->parent); break;
    case LOAM_BLOCK_POOLED: lm_arena_finish(b); break;
    case LOAM_BLOCK_EMBEDDED: break;
  }
  loam_free(b);
}

/* A count that nobody may have seen: of a block that is dead, or of one with too many owners, which
 * from now on never ends. */
static LM_NOINLINE void tell_wrong(loam_block *b, uint32_t was, const char *verb) {
  if (was) {
    atomic_store_explicit(&b->references, SATURATED, memory_order_relaxed);
    return;
  }
  atomic_store_explicit(&b->references, 0, memory_order_relaxed);
  atomic_fetch_add_explicit(&lm_stats_bad_frees, 1, memory_order_relaxed);
  lm_error_event(LOAM_EVENT_BAD_FREE, 0, b, "%p: %s a block that its last owner has released",
                 (void *)b, verb);
}

static LM_NOINLINE loam_block *retained_slow(loam_block *b, uint32_t was) {
  if (was - 1 >= MOST) tell_wrong(b, was, "retained");
  if (lm_block_watch_is_on()) lm_ledger_note(LOAM_BLOCK_RETAINED, b, was + 1);
  return b;
}

loam_block *loam_block_retain(loam_block *b) {
  if (lm_unlikely(!b)) return NULL;
  uint32_t was = atomic_fetch_add_explicit(&b->references, 1, memory_order_relaxed);
  if (lm_unlikely(was - 1 >= MOST || lm_block_watch_is_on())) return retained_slow(b, was);
  return b;
}

/* A release found this count: the last one's, or none that a live block has. */
static LM_NOINLINE void settle(loam_block *b, uint32_t was) {
  if (was == 1) end(b);
  else if (was - 1 >= MOST) tell_wrong(b, was, "released");
}

static LM_NOINLINE void release_told(loam_block *b) {
  if (lm_block_watch_is_on()) lm_ledger_note(LOAM_BLOCK_RELEASED, b, loam_block_refcount(b) - 1);
  settle(b, atomic_fetch_sub_explicit(&b->references, 1, memory_order_acq_rel));
}

LM_INLINE bool end_embedded(loam_block *b) {
  lm_thread *t = lm_thread_self_or_empty;
  if (lm_unlikely(b->kind != LOAM_BLOCK_EMBEDDED)) return false;
  atomic_store_explicit(&b->references, 0, memory_order_relaxed);
  if (lm_likely(lm_pool_give_quick(t, b))) {
    lm_add_relaxed(&t->blocks.ended[LOAM_BLOCK_EMBEDDED], 1);
    return true;
  }
  atomic_store_explicit(&b->references, 1, memory_order_relaxed);
  return false;
}

void loam_block_release(loam_block *b) {
  if (lm_unlikely(!b)) return;
  /* Acquire pairs with the other owners' releases: what they did is done. */
  if (atomic_load_explicit(&b->references, memory_order_acquire) == 1) {
    if (lm_unlikely(!end_embedded(b))) release_told(b);
    return;
  }
  if (lm_unlikely(lm_block_watch_is_on())) {
    release_told(b);
    return;
  }
  uint32_t was = atomic_fetch_sub_explicit(&b->references, 1, memory_order_acq_rel);
  if (lm_unlikely(was - 2 >= MOST - 1)) settle(b, was);
}

/* ---- Asking ------------------------------------------------------------------------------- */

void *loam_block_data(const loam_block *b) { return b ? b->data : NULL; }
size_t loam_block_size(const loam_block *b) { return b ? b->size : 0; }
size_t loam_block_refcount(const loam_block *b) {
  return b ? atomic_load_explicit(&b->references, memory_order_relaxed) : 0;
}
loam_block_kind loam_block_kind_of(const loam_block *b) {
  return b ? (loam_block_kind)b->kind : (loam_block_kind)0;
}
const char *loam_block_tag(const loam_block *b) { return b ? b->site->where.tag : ""; }

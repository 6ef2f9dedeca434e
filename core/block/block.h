/* block.h - reference-counted owners of memory: what a block is made of.
 *
 *   embedded   header | data                one allocation, small
 *   owned      header --> data              two allocations: the data has its strategy's alignment
 *   external   header --> memory of others  their destructor is called when the last owner is gone
 *   slice      header --> part of a parent  holds a reference to it; never a slice of a slice
 *   pooled     header | arena --> chunks    arena.h
 *
 * Law: references >= 1 while anybody may use the block; 0 from the moment that the last release
 * has begun to end it. From 2^31 on it is saturated and never ends. */
#ifndef LM_BLOCK_H
#define LM_BLOCK_H

#include <stdatomic.h>

#include "loam.h"
#include "os/base.h"

/* Headers keep data that follow them on the alignment of a cache line. */
struct loam_block {
  _Atomic uint32_t references;
  uint16_t kind;      /* loam_block_kind */
  uint16_t is_listed; /* by the ledger */
  size_t size;
  void *data;
  loam_site *site;
  union {
    loam_block *parent; /* of a slice */
    struct {            /* of external memory */
      loam_block_dtor dtor;
      void *ctx;
    };
  };
  loam_block *next, *previous; /* of the ledger's list */
};

_Static_assert(sizeof(loam_block) == LM_CACHE_LINE, "embedded data begin a cache line further on");

/* Data of more bytes stand apart from the header. */
enum { LM_BLOCK_EMBEDDED_MAX = 1024 };

/* A header with one reference, for whom `more` bytes of the maker's own follow; NULL without
 * memory. Headers that stand apart are the tag loam.block's, whatever the site of the data is. */
loam_block *lm_block_header(loam_site *site, loam_block_kind kind, size_t more);

/* Makes a block of a header's memory, with one reference; returns it. When the block ends, that
 * memory is given to loam_free. */
loam_block *lm_block_fill(loam_block *b, loam_site *site, loam_block_kind kind, void *data,
                          size_t size);

/* Counts and tells one that is whole now; returns it. */
loam_block *lm_block_made(loam_block *block);

#endif

/* block.h - reference-counted owners of memory. There are five kinds of block:
 *
 *   embedded   header | data              one allocation; the data are small
 *   owned      header --> data            two allocations; the strategy aligns the data
 *   external   header --> foreign memory  a destructor runs when the last reference is released
 *   slice      header --> part of a root  holds a reference to the root, which is never a slice
 *   pooled     header | arena --> chunks  many small pieces: arena.h
 *
 * Law: 1 <= references < 2^31 while the block lives. The release that ends the block sets
 * references to 0. A count of 2^31 or more is saturated: that block never ends. */
#ifndef LM_BLOCK_H
#define LM_BLOCK_H

#include <stdatomic.h>

#include "loam.h"
#include "os/base.h"

/* The header takes one cache line, so that data which follow it begin at a cache line too.
 *
 * Law: `site` is not NULL; `kind` is a loam_block_kind; embedded data begin right after the header;
 * an arena has no data (NULL); a slice lies inside the data of its parent, and the parent lives. */
struct loam_block {
  _Atomic uint32_t references; /* changed with the orderings that block.c describes */
  uint16_t kind;               /* loam_block_kind */
  uint8_t is_listed;           /* 1: the block is in the ledger's list of live blocks */
  uint8_t is_readonly;         /* 1: the data are mapped for reading alone */
  size_t size;                 /* bytes of the data; of an arena, the sum of its pieces' sizes */
  void *data;
  loam_site *site;
  union {
    loam_block *parent; /* the root that a slice holds a reference to */
    struct {            /* how an external block or an arena ends */
      loam_block_dtor dtor;
      void *ctx;
    };
  };
  loam_block *next,
      *previous; /* the neighbours in the ledger's list; the ledger's lock guards them */
};

_Static_assert(sizeof(loam_block) == LM_CACHE_LINE, "embedded data begin a cache line further on");

/* Data of at most so many bytes are embedded. Larger data are an allocation of their own. */
enum { LM_BLOCK_EMBEDDED_MAX = 1024 };

/* Allocates a header, followed by `more` bytes that belong to the caller, under the tag
 * "loam.block". The block has one reference, the given site and kind, and no data yet. A NULL site
 * means the site of the thread's scope. Returns NULL without memory. The caller fills in the other
 * fields and then calls lm_block_made. Any thread may call it. */
loam_block *lm_block_header(loam_site *site, loam_block_kind kind, size_t more);

/* Makes a block of the memory at `b`, with one reference, and returns `b`. The memory comes from
 * loam's allocation functions: it is passed to loam_free when the block ends. A NULL site means the
 * site of the thread's scope. The caller calls lm_block_made once the block is complete. */
loam_block *lm_block_fill(loam_block *b, loam_site *site, loam_block_kind kind, void *data,
                          size_t size);

/* Counts a block that is complete now, notes it in the ledger if blocks are watched, and returns
 * it. Call it exactly once for each block. */
loam_block *lm_block_made(loam_block *block);

/* Returns whether the laws above hold for a block to which the caller holds a reference. Assertions
 * and tests call it. */
bool lm_block_is_valid(const loam_block *block);

#endif

/* nrt.c - loam's blocks behind the function table of Numba's runtime (NRT). loam.h describes the
 * table; the functions here only translate. */
#include "loam.h"

static loam_block *allocate(size_t size) { return loam_block_new(NULL, size); }

/* The destructor of a block from an external allocator: returns the data to that allocator. */
static void free_external(void *ptr, size_t size, void *ctx) {
  (void)size;
  const loam_nrt_allocator *a = ctx;
  a->free(ptr, a->opaque_data);
}

/* Makes a block whose data come from an external allocator; a NULL allocator means loam. The header
 * is a separate allocation of loam, so that the data keep the alignment that the allocator gave
 * them. */
static loam_block *allocate_external(size_t size, const loam_nrt_allocator *a) {
  if (!a) return allocate(size);
  void *data = a->malloc(size, a->opaque_data);
  if (!data) return NULL;
  loam_block *b = loam_block_wrap(NULL, data, size, free_external, (void *)a);
  if (!b) a->free(data, a->opaque_data);
  return b;
}

/* The destructor of a block from manage_memory: `ctx` is the host's function. POSIX allows to keep
 * the address of a function in a void pointer. */
static void call_managed(void *ptr, size_t size, void *ctx) {
  (void)size;
  ((void (*)(void *))ctx)(ptr);
}

static loam_block *manage_memory(void *data, void (*dtor)(void *data)) {
  return loam_block_wrap(NULL, data, 0, dtor ? call_managed : NULL, (void *)dtor);
}

static void acquire(loam_block *block) { (void)loam_block_retain(block); }

static void *get_data(loam_block *block) { return loam_block_data(block); }

static const loam_nrt api = { allocate, allocate_external,  manage_memory,
                              acquire,  loam_block_release, get_data };

const loam_nrt *loam_nrt_api(void) { return &api; }

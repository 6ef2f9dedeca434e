/* luajit.c - opens the shared library of LuaJIT and finds its functions.
 *
 * In a host program that contains another Lua, RTLD_DEEPBIND makes LuaJIT find its own lua_*
 * functions first. In a host without another Lua the flag is not used, because it can also
 * break the stack unwinder with which LuaJIT raises errors. libunwind defines functions with the
 * same names as libgcc. In a host that uses libunwind, LuaJIT would then call libgcc's functions,
 * and those would call functions of libunwind. The sanitizers refuse the flag, because it would
 * hide their malloc. */
#include "script/luajit.h"

#include <dlfcn.h>
#include <link.h>

#include "heap/pool.h"
#include "os/error.h"
#include "plan/plan.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define OWN_SYMBOLS_FIRST 0
#else
#define OWN_SYMBOLS_FIRST RTLD_DEEPBIND
#endif

#define LIBRARY "libluajit-5.1.so.2"

_Atomic(const lm_luajit *) lm_luajit_api;

/* Fills the table with the library's functions. */
static loam_status find_functions(void *library, lm_luajit *api) {
#define FIND(name)                                                       \
  if (!(api->name##_ = (__typeof__(api->name##_))dlsym(library, #name))) \
    return lm_error(LOAM_EUNSUPPORTED, "policies need LuaJIT 2.1: " LIBRARY " has no " #name);
  LM_LUAJIT_LIST(FIND)
#undef FIND
  return LOAM_OK;
}

/* Tells whether the library and the host program use two different stack unwinders. */
static bool is_unwinder_split(void *library) {
  void *of_host = dlsym(RTLD_DEFAULT, "_Unwind_GetCFA");
  return of_host && of_host != dlsym(library, "_Unwind_GetCFA");
}

/* ---- Pages of files ---- */

enum { PARTS = 16 };

/* The read-only address ranges of LuaJIT and of the libraries that were loaded with it, in whole
 * pages: those that lm_luajit_evict gives back. Empty if the host program had loaded LuaJIT before
 * loam did. Written in lm_luajit_open by the first thread. Law: n <= PARTS; each of the first n
 * ranges has at least one page. */
static LM_SPARSE struct {
  uint32_t n;
  struct {
    uintptr_t from, to;
  } at[PARTS];
} evictable;

static inline bool evictable_is_valid(void) {
  for (uint32_t i = 0; i < evictable.n && i < PARTS; i++)
    if (evictable.at[i].from >= evictable.at[i].to || evictable.at[i].from % LM_PAGE) return false;
  return evictable.n <= PARTS;
}

/* A callback of dl_iterate_phdr, whose first object is the program. Sets the bool `ctx` if the
 * program has a dynamic linker. */
static int note_linker(struct dl_phdr_info *info, size_t size, void *ctx) {
  (void)size;
  for (int i = 0; i < info->dlpi_phnum; i++)
    if (info->dlpi_phdr[i].p_type == PT_INTERP) *(bool *)ctx = true;
  return 1;
}

/* Tells whether the program is linked statically. The C library opens shared libraries for such a
 * program too, but gives them no thread-local variables. LuaJIT has one, which it writes to when it
 * raises an error. */
static bool is_static_program(void) {
  bool has_linker = false;
  (void)dl_iterate_phdr(note_linker, &has_linker);
  return !has_linker;
}

/* Tells whether dlopen with the flags `how` finds the library. */
static bool can_open(int how) {
  void *library = dlopen(LIBRARY, RTLD_LAZY | how);
  if (library) dlclose(library);
  return library;
}

bool lm_luajit_is_found(void) { return !is_static_program() && can_open(RTLD_LOCAL); }

static void note_part(uintptr_t from, uintptr_t to) {
  lm_assert(from <= to);
  from = lm_align_up(from, LM_PAGE);
  to = lm_align_down(to, LM_PAGE);
  if (from >= to || evictable.n == PARTS) return;
  evictable.at[evictable.n].from = from;
  evictable.at[evictable.n++].to = to;
  lm_assert(evictable_is_valid());
}

/* A callback of dl_iterate_phdr. `ctx` is the link map of LuaJIT: the libraries after it in the
 * list were loaded with it, or later. */
static int note_object(struct dl_phdr_info *info, size_t size, void *ctx) {
  (void)size;
  for (const struct link_map *map = ctx; map; map = map->l_next) {
    if (map->l_addr != info->dlpi_addr) continue;
    for (int i = 0; i < info->dlpi_phnum; i++) {
      const ElfW(Phdr) *part = &info->dlpi_phdr[i];
      uintptr_t from = info->dlpi_addr + part->p_vaddr;
      if (part->p_type == PT_LOAD && !(part->p_flags & PF_W)) note_part(from, from + part->p_memsz);
    }
  }
  return 0;
}

static void note_parts(void *library) {
  struct link_map *map = NULL;
  if (!evictable.n && !dlinfo(library, RTLD_DI_LINKMAP, &map)) dl_iterate_phdr(note_object, map);
}

void lm_luajit_evict(void) {
  for (uint32_t i = 0; i < evictable.n; i++) {
    /* If the system refuses, the pages stay in memory. */
    (void)lm_sys_evict_file((void *)evictable.at[i].from,
                            evictable.at[i].to - evictable.at[i].from);
  }
}

/* Opens the library, and gives plans the function pow() of the libm that LuaJIT needs. */
static loam_status open_library(void **out) {
  if (is_static_program())
    return lm_error(LOAM_EUNSUPPORTED,
                    "policies need LuaJIT, which cannot raise errors in a program that is linked "
                    "statically; it can use an image of `loam compile`");
  bool was_there = can_open(RTLD_NOLOAD);
  int deepbind = dlsym(RTLD_DEFAULT, "lua_newstate") ? OWN_SYMBOLS_FIRST : 0;
  void *library = dlopen(LIBRARY, RTLD_LAZY | RTLD_LOCAL | deepbind);
  if (!library)
    return lm_error(LOAM_EUNSUPPORTED, "policies need LuaJIT (Debian package libluajit-5.1-2): %s",
                    dlerror());
  if (deepbind && is_unwinder_split(library))
    return lm_error(LOAM_EUNSUPPORTED, "policies need LuaJIT, which cannot raise errors in a "
                                       "program that has both another Lua and libunwind");
  if (!was_there) note_parts(library);
  /* Relaxed: the acquire and release of lm_luajit_api order it for every thread that
   * makes plans. */
  void *power = dlsym(library, "pow");
  atomic_store_explicit(&lm_plan_power, (lm_power_fn *)power, memory_order_relaxed);
  *out = library;
  return LOAM_OK;
}

loam_status lm_luajit_open(void) {
  void *library = NULL;
  if (atomic_load_explicit(&lm_luajit_api, memory_order_acquire)) return LOAM_OK;
  loam_status status = open_library(&library);
  if (status != LOAM_OK) return status;
  lm_luajit *api = lm_metadata_alloc(sizeof *api);
  if (!api) return lm_error(LOAM_ENOMEM, "no memory to open LuaJIT");
  status = find_functions(library, api);
  const lm_luajit *none = NULL;
  /* Two threads may come here at the same time. Both have found the same functions, so the first
   * table stays. The exchange is sequentially consistent, so also a release. */
  if (status != LOAM_OK || !atomic_compare_exchange_strong(&lm_luajit_api, &none, api))
    lm_metadata_free(api);
  return status;
}

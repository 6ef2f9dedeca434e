/* luajit.c - finds LuaJIT and its functions.
 *
 * RTLD_DEEPBIND makes the library find its own lua_* before those of a host that carries another
 * Lua. Without one it is left out, because it also splits the unwinder by which LuaJIT raises
 * errors: in a host with libunwind, which has the same functions as libgcc, the library would find
 * libgcc's, and those, one another's of libunwind. The sanitizers refuse the flag, since it would
 * hide their malloc. */
#include "script/luajit.h"

#include <dlfcn.h>
#include <link.h>

#include "heap/pool.h"
#include "os/error.h"
#include "plan/plan.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define APART 0
#else
#define APART RTLD_DEEPBIND
#endif

#define LIBRARY "libluajit-5.1.so.2"

_Atomic(const lm_luajit *) lm_luajit_api;

static loam_status find_functions(void *library, lm_luajit *api) {
#define FIND(name)                                                       \
  if (!(api->name##_ = (__typeof__(api->name##_))dlsym(library, #name))) \
    return lm_error(LOAM_EUNSUPPORTED, "policies need LuaJIT 2.1: " LIBRARY " has no " #name);
  LM_LUAJIT_LIST(FIND)
#undef FIND
  return LOAM_OK;
}

static bool is_unwinder_split(void *library) {
  void *hosts = dlsym(RTLD_DEFAULT, "_Unwind_GetCFA");
  return hosts && hosts != dlsym(library, "_Unwind_GetCFA");
}

/* ---- Pages of files
 *
 * What the library, and what came with it, has that nobody writes to. Of a library that the host
 * had before us nothing is noted. */

enum { PARTS = 16 };

static struct {
  uint32_t n;
  struct {
    uintptr_t from, to;
  } at[PARTS];
} resident;

static bool is_there(int how) {
  void *library = dlopen(LIBRARY, RTLD_LAZY | how);
  if (library) dlclose(library);
  return library;
}

bool lm_luajit_is_found(void) { return is_there(RTLD_LOCAL); }

static void note_part(uintptr_t from, uintptr_t to) {
  from = lm_align_up(from, LM_PAGE);
  to = lm_align_down(to, LM_PAGE);
  if (from >= to || resident.n == PARTS) return;
  resident.at[resident.n].from = from;
  resident.at[resident.n++].to = to;
}

/* ctx: the link map of the library; those behind it came with it, or later. */
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
  if (!resident.n && !dlinfo(library, RTLD_DI_LINKMAP, &map)) dl_iterate_phdr(note_object, map);
}

/* They come back from the file when they are touched. If it is refused, they stay. */
void lm_luajit_evict(void) {
  for (uint32_t i = 0; i < resident.n; i++)
    (void)lm_sys_evict_file((void *)resident.at[i].from, resident.at[i].to - resident.at[i].from);
}

static loam_status open_library(void **out) {
  bool was_there = is_there(RTLD_NOLOAD);
  int apart = dlsym(RTLD_DEFAULT, "lua_newstate") ? APART : 0;
  void *library = dlopen(LIBRARY, RTLD_LAZY | RTLD_LOCAL | apart);
  if (!library)
    return lm_error(LOAM_EUNSUPPORTED, "policies need LuaJIT (Debian package libluajit-5.1-2): %s",
                    dlerror());
  if (apart && is_unwinder_split(library))
    return lm_error(LOAM_EUNSUPPORTED, "policies need LuaJIT, which cannot raise errors in a "
                                       "program that has both another Lua and libunwind");
  if (!was_there) note_parts(library);
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
  /* Two threads may come here at once; both found the same functions, one table stays. */
  if (status != LOAM_OK || !atomic_compare_exchange_strong(&lm_luajit_api, &none, api))
    lm_metadata_free(api);
  return status;
}

/* luajit.c - finds LuaJIT and its functions.
 *
 * RTLD_DEEPBIND makes the library find its own lua_* before those of a host that carries another
 * Lua. The sanitizers refuse the flag, since it would also hide their malloc. */
#include "luajit.h"

#include <dlfcn.h>

#include "error.h"
#include "pool.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define OPEN_FLAGS (RTLD_NOW | RTLD_LOCAL)
#else
#define OPEN_FLAGS (RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND)
#endif

#define LIBRARY "libluajit-5.1.so.2"

_Atomic(const lm_luajit *) lm_luajit_api;

static loam_status find_functions(void *library, lm_luajit *api) {
#define FIND(name)                                                                            \
  if (!(api->name##_ = (__typeof__(api->name##_))dlsym(library, #name)))                      \
    return lm_fail(LOAM_EUNSUPPORTED, "policies need LuaJIT 2.1: " LIBRARY " has no " #name);
  LM_LUAJIT_LIST(FIND)
#undef FIND
  return LOAM_OK;
}

loam_status lm_luajit_open(void) {
  if (atomic_load_explicit(&lm_luajit_api, memory_order_acquire)) return LOAM_OK;
  void *library = dlopen(LIBRARY, OPEN_FLAGS);
  if (!library)
    return lm_fail(LOAM_EUNSUPPORTED,
                   "policies need LuaJIT (Debian package libluajit-5.1-2): %s", dlerror());
  lm_luajit *api = lm_own_alloc(sizeof *api);
  if (!api) return lm_fail(LOAM_ENOMEM, "no memory to open LuaJIT");
  loam_status status = find_functions(library, api);
  const lm_luajit *none = NULL;
  /* Two threads may come here at once; both found the same functions, one table stays. */
  if (status != LOAM_OK || !atomic_compare_exchange_strong(&lm_luajit_api, &none, api))
    lm_own_free(api);
  return status;
}

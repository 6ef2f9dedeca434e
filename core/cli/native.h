/* native.h - the Lua module `loam.command.native`: the C functions that the command's Lua
 * code calls. */
#ifndef LM_NATIVE_H
#define LM_NATIVE_H

#include "script/luajit.h"

/* Makes the module known to require(). May raise a Lua error. */
void lm_native_open(lua_State *L);

#endif

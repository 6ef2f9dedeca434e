/* native.h - what the command line asks of C, as a Lua module: `loam.command.native`. */
#ifndef LM_NATIVE_H
#define LM_NATIVE_H

#include "script/luajit.h"

/* Puts it where require() finds it. May raise. */
void lm_native_open(lua_State *L);

#endif

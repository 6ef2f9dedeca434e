/* native.h - what the files of the C module loam.native share.
 *
 * A pointer of C is a light userdata, and NULL is nil. A handle is a full userdata with one
 * pointer. An error of Lua leaves a C function by longjmp. So no function holds memory of C at a
 * moment when Lua can raise an error. */
#ifndef LOAM_LUA_NATIVE_H
#define LOAM_LUA_NATIVE_H

#include <lauxlib.h>
#include <loam.h>
#include <lua.h>
#include <stdint.h>
#include <stdio.h>

/* Pushes a pointer, or nil for NULL. Returns 1, the number of results. */
int native_push(lua_State *L, const void *p);

/* Returns the pointer that is the argument, or NULL for nil. Raises an error for anything else. */
void *native_pointer(lua_State *L, int argument);

/* Like native_pointer, and raises an error for nil too. */
void *native_object(lua_State *L, int argument);

/* Returns the argument as a size in bytes. Raises an error if it is no integer or is negative. */
size_t native_size(lua_State *L, int argument);

/* Pushes whether a call of loam succeeded. Returns 1. */
int native_done(lua_State *L, loam_status status);

/* Stores a number or a text as a field of the table on top of the stack. */
void native_number(lua_State *L, const char *name, uint64_t value);
void native_text(lua_State *L, const char *name, const char *value);

/* Text that a C function of loam writes in pieces, in memory of malloc. `failed`: there was no
 * memory for all of it. */
typedef struct native_collected {
  char *text;
  size_t length;
  int failed;
} native_collected;

/* Collects text. It is a loam_write_fn; `ctx` is a native_collected. */
void native_collect(void *ctx, const char *text, size_t length);

/* Pushes the collected text, or nil if a call failed or there was no memory, and frees the memory.
 * Returns 1. */
int native_collected_push(lua_State *L, native_collected *c, loam_status status);

/* The functions of each file, for the table of the module. */
extern const luaL_Reg native_memory[], native_blocks[], native_arrays[], native_figures[];

#endif

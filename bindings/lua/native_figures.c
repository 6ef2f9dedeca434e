/* native_figures.c - the figures of the process for Lua 5.4. */
#include "native.h"

#include <stdlib.h>

static int stats(lua_State *L) {
  struct loam_stats s;
  loam_stats(&s);
  lua_newtable(L);
  native_number(L, "generation", s.generation);
  native_number(L, "live_bytes", s.live_bytes);
  native_number(L, "live_blocks", s.live_blocks);
  native_number(L, "total_bytes", s.total_bytes);
  native_number(L, "total_blocks", s.total_blocks);
  native_number(L, "reserved_bytes", s.reserved_bytes);
  native_number(L, "region_bytes", s.region_bytes);
  native_number(L, "metadata_bytes", s.metadata_bytes);
  native_number(L, "denied", s.denied);
  native_number(L, "fallbacks", s.fallbacks);
  native_number(L, "failed", s.failed);
  native_number(L, "bad_frees", s.bad_frees);
  native_number(L, "threads", s.threads);
  native_number(L, "sites", s.sites);
  native_number(L, "strategies", s.strategies);
  return 1;
}

/* ---- Rows */

/* Rows in memory of malloc. Their strings live as long as the process. */
typedef struct row_list {
  loam_stats_row *at;
  size_t count, room;
  int failed;
} row_list;

/* Adds a row. It is a loam_row_fn. */
static void add_row(void *ctx, const loam_stats_row *row) {
  row_list *list = ctx;
  if (list->count == list->room) {
    size_t room = list->room ? 2 * list->room : 64;
    loam_stats_row *grown = list->failed ? NULL : realloc(list->at, room * sizeof *grown);
    list->failed = !grown;
    if (!grown) return;
    list->at = grown;
    list->room = room;
  }
  list->at[list->count++] = *row;
}

/* Makes Lua's list of the rows. It runs under lua_pcall, so that the caller can free the rows when
 * Lua has no memory. */
static int push_rows(lua_State *L) {
  const row_list *list = lua_touserdata(L, 1);
  lua_createtable(L, (int)list->count, 0);
  for (size_t i = 0; i < list->count; i++) {
    const loam_stats_row *row = &list->at[i];
    lua_newtable(L);
    native_text(L, "tag", row->tag);
    native_text(L, "strategy", row->strategy);
    native_text(L, "kind", row->kind);
    native_number(L, "generation", row->generation);
    native_number(L, "live_bytes", row->live_bytes);
    native_number(L, "live_blocks", row->live_blocks);
    native_number(L, "total_bytes", row->total_bytes);
    native_number(L, "total_blocks", row->total_blocks);
    lua_rawseti(L, -2, (lua_Integer)i + 1);
  }
  return 1;
}

/* rows(keys): returns a list of rows, or nil. */
static int rows(lua_State *L) {
  row_list list = { 0 };
  int raised = LUA_OK;
  loam_status status = loam_stats_by((int)luaL_checkinteger(L, 1), add_row, &list);
  if (status != LOAM_OK || list.failed) {
    lua_pushnil(L);
  } else {
    lua_pushcfunction(L, push_rows);
    lua_pushlightuserdata(L, &list);
    raised = lua_pcall(L, 1, 1, 0);
  }
  free(list.at);
  return raised == LUA_OK ? 1 : lua_error(L);
}

static void push_counts(lua_State *L, const uint64_t *counts, size_t n) {
  lua_newtable(L);
  for (size_t i = 1; i < n; i++) {
    lua_pushinteger(L, (lua_Integer)counts[i]);
    lua_rawseti(L, -2, (lua_Integer)i);
  }
}

/* Returns two lists by loam_block_kind: how many blocks were made, and how many ended. */
static int block_stats(lua_State *L) {
  struct loam_block_stats s;
  loam_block_stats(&s);
  push_counts(L, s.made, sizeof s.made / sizeof *s.made);
  push_counts(L, s.ended, sizeof s.ended / sizeof *s.ended);
  return 2;
}

const luaL_Reg native_figures[] = {
  { "stats", stats },
  { "rows", rows },
  { "block_stats", block_stats },
  { NULL, NULL },
};

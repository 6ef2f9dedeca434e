/* native.c - the Lua module `loam.command.native`: functions of loam.h and of the operating system
 * for the command's Lua code.
 *
 * The command does not use LuaJIT's FFI for that, because the FFI would parse all of loam.h at each
 * start. The arguments come from lua/loam/command, so their types are not checked. A function that
 * can fail returns nil and the error in words. */
#include "cli/native.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli/compile.h"
#include "cli/forked_read.h"
#include "cli/governed.h"
#include "cli/listen.h"
#include "cli/look.h"
#include "cli/namespaces.h"
#include "cli/progress.h"
#include "cli/publisher.h"
#include "cli/screen.h"
#include "cli/vet.h"
#include "cli/watcher.h"
#include "cli/write_file.h"
#include "loam.h"
#include "os/error.h"
#include "os/numa.h"
#include "os/pressure.h"
#include "os/sys.h"
#include "pages/metadata.h"
#include "script/json.h"
#include "script/policy_file.h"
#include "script/policy_open.h"
#include "service/board.h"
#include "service/board_read.h"
#include "service/control_client.h"
#include "service/policy.h"

enum { PATH_ROOM = 4096 };

static const char *text_at(lua_State *L, int at) { return lua_tolstring(L, at, NULL); }
static int number_at(lua_State *L, int at) { return (int)lua_tonumber(L, at); }

static int push_text(lua_State *L, const char *text) {
  if (text) lua_pushstring(L, text);
  else lua_pushnil(L);
  return 1;
}

static int push_bool(lua_State *L, bool value) {
  lua_pushboolean(L, value);
  return 1;
}

/* ---- loam.h ---- */

/* Returns nil, the words of the last failure, and its status to Lua. */
static int refuse(lua_State *L, loam_status status) {
  const char *words = loam_error();
  lm_assert(status != LOAM_OK);
  lua_pushnil(L);
  lua_pushstring(L, *words ? words : "no reason was given");
  lua_pushinteger(L, status);
  return 3;
}

/* A loam_write_fn that appends to an lm_json. */
static void gather(void *ctx, const char *text, size_t length) { lm_json_raw(ctx, text, length); }

/* Returns the gathered text as one string to Lua, or what refuse() returns. Frees the text. */
static int answer(lua_State *L, loam_status status, lm_json *text) {
  if (status == LOAM_OK && text->failed) luaL_error(L, "no memory for the answer");
  int n = status == LOAM_OK ? 1 : refuse(L, status);
  if (n == 1) lua_pushlstring(L, text->text, text->length);
  lm_json_finish(text);
  return n;
}

/* version(): the version of loam. */
static int native_version(lua_State *L) { return push_text(L, loam_version()); }

/* inspect(path, query, shows_progress): the answer of loam_policy_inspect. */
static int native_inspect(lua_State *L) {
  lm_json text = { 0 };
  if (lua_toboolean(L, 3)) lm_progress_begin(text_at(L, 1));
  loam_status status = loam_policy_inspect(text_at(L, 1), text_at(L, 2), gather, &text);
  lm_progress_end();
  return answer(L, status, &text);
}

/* inspect_text(name, text, query, shows_progress): like inspect, of a policy's text or image. */
static int native_inspect_text(lua_State *L) {
  lm_json answered = { 0 };
  lm_script_source source = { .name = text_at(L, 1), .limits = lm_policy_limits() };
  source.text = lua_tolstring(L, 2, &source.length);
  if (lua_toboolean(L, 4)) lm_progress_begin(source.name);
  loam_status status = lm_policy_open_to_report(&source); /* compiles the text of an image */
  if (status == LOAM_OK) status = lm_script_inspect(&source, text_at(L, 3), gather, &answered);
  lm_progress_end();
  return answer(L, status, &answered);
}

/* board_text(board, hash): the text of a policy that was published on a board, from its image.
 * `hash` is the hash of the text, as hash() returns it. */
static int native_board_text(lua_State *L) {
  void *bytes;
  size_t size, length;
  uint64_t hash = strtoull(text_at(L, 2), NULL, 16);
  loam_status status = lm_board_read_image(text_at(L, 1), hash, &bytes, &size);
  if (status != LOAM_OK) return refuse(L, status);
  const char *text = bytes;
  length = size;
  status = lm_policy_open_text(text_at(L, 1), &text, &length);
  if (status == LOAM_OK) lua_pushlstring(L, text, length);
  lm_metadata_free(bytes);
  return status == LOAM_OK ? 1 : refuse(L, status);
}

/* ask(pid, request, timeout_ms): the answer of loam_ask. */
static int native_ask(lua_State *L) {
  lm_json text = { 0 };
  unsigned timeout_ms = (unsigned)lua_tonumber(L, 3);
  loam_status status = loam_ask(number_at(L, 1), text_at(L, 2), timeout_ms, gather, &text);
  return answer(L, status, &text);
}

/* ---- Readings of another process, each in a child of its own (cli/forked_read.h) ---- */

/* The time after which a reading is ended: longer than a reading takes that gives up by itself. */
enum { LOOK_MS = 12000, FIGURES_MS = 4000, WHOLE_MS = 30000, SPARE_MS = 500, ENVIRON_MS = 1000 };

/* The arguments of a reading. A reading that does not need a field leaves it alone. */
typedef struct wanted {
  int pid, ms;
  uintptr_t root;
  bool has_got, is_whole;
  const uintptr_t *address;
  size_t n;
} wanted;

static loam_status read_stats(const void *ctx, lm_json *out, void *result) {
  const wanted *w = ctx;
  (void)result;
  return w->ms > 0 ? lm_look_stats_within(w->pid, w->ms, out) : lm_look_stats(w->pid, out);
}

static loam_status read_figures(const void *ctx, lm_json *out, void *result) {
  const wanted *w = ctx;
  uintptr_t root = w->root;
  loam_status status = lm_look_figures(w->pid, &root, w->has_got, out);
  memcpy(result, &root, sizeof root);
  return status;
}

static loam_status read_owner(const void *ctx, lm_json *out, void *result) {
  const wanted *w = ctx;
  (void)result;
  return lm_look_owner(w->pid, w->address, w->n, out);
}

static loam_status read_pages(const void *ctx, lm_json *out, void *result) {
  (void)result;
  return lm_look_pages(((const wanted *)ctx)->pid, out);
}

static loam_status read_samples(const void *ctx, lm_json *out, void *result) {
  const wanted *w = ctx;
  (void)result;
  return lm_look_samples(w->pid, w->is_whole, out);
}

/* Reads the bytes of /proc/PID/environ, which the kernel takes from the memory of the process. */
static loam_status read_environ(const void *ctx, lm_json *out, void *result) {
  char path[32], bytes[4096];
  size_t done = 0, n = 0;
  int error;
  (void)result;
  snprintf(path, sizeof path, "/proc/%d/environ", ((const wanted *)ctx)->pid);
  while (!(error = lm_sys_read_part(path, done, bytes, sizeof bytes, &n)) && n) {
    lm_json_raw(out, bytes, n);
    done += n;
  }
  return error ? lm_error(LOAM_EIO, "%s: %s", path, strerrordesc_np(error)) : LOAM_OK;
}

/* look(pid, ms): what the host would answer to `stats`, read from its memory without its help.
 * Gives up after `ms` milliseconds; nil: after ten seconds. */
static int native_look(lua_State *L) {
  lm_json text = { 0 };
  wanted w = { .pid = number_at(L, 1), .ms = number_at(L, 2) };
  int ms = w.ms > 0 ? w.ms + SPARE_MS : LOOK_MS;
  return answer(L, lm_forked_read(read_stats, &w, w.pid, ms, &text, NULL), &text);
}

/* figures(pid, root, has_got): the answer of lm_look_figures, and the root for the next call. A
 * root of 0 or nil is not known. */
static int native_figures(lua_State *L) {
  lm_json text = { 0 };
  uintptr_t root[LM_FORKED_READ_RESULT / sizeof(uintptr_t)];
  wanted w = { .pid = number_at(L, 1),
               .root = (uintptr_t)lua_tonumber(L, 2),
               .has_got = lua_toboolean(L, 3) };
  loam_status status = lm_forked_read(read_figures, &w, w.pid, FIGURES_MS, &text, root);
  int n = answer(L, status, &text);
  if (status != LOAM_OK) return n;
  lua_pushnumber(L, (lua_Number)root[0]);
  return n + 1;
}

/* owner(pid, addresses): what the addresses of a process are, a list of texts in hexadecimal
 * digits. */
static int native_owner(lua_State *L) {
  lm_json text = { 0 };
  size_t n = lua_objlen(L, 2);
  uintptr_t *address = lm_metadata_alloc((n + 1) * sizeof *address);
  if (!address) return luaL_error(L, "no memory for %d addresses", (int)n);
  for (size_t i = 0; i < n; i++) {
    lua_rawgeti(L, 2, (int)i + 1);
    address[i] = strtoull(text_at(L, -1), NULL, 16);
    lua_settop(L, 2);
  }
  wanted w = { .pid = number_at(L, 1), .address = address, .n = n };
  loam_status status = lm_forked_read(read_owner, &w, w.pid, WHOLE_MS, &text, NULL);
  lm_metadata_free(address);
  return answer(L, status, &text);
}

/* pages(pid): where the memory of a process lies, read without its help, as lm_look_pages says. */
static int native_pages(lua_State *L) {
  lm_json text = { 0 };
  wanted w = { .pid = number_at(L, 1) };
  return answer(L, lm_forked_read(read_pages, &w, w.pid, WHOLE_MS, &text, NULL), &text);
}

/* look_samples(pid, is_whole): the samples of a process, as JSON (cli/look.h). */
static int native_look_samples(lua_State *L) {
  lm_json text = { 0 };
  wanted w = { .pid = number_at(L, 1), .is_whole = lua_toboolean(L, 2) };
  return answer(L, lm_forked_read(read_samples, &w, w.pid, LOOK_MS, &text, NULL), &text);
}

/* environment(pid): the bytes of the environment of a process: its variables, each with a NUL
 * behind it. */
static int native_environment(lua_State *L) {
  lm_json text = { 0 };
  wanted w = { .pid = number_at(L, 1) };
  return answer(L, lm_forked_read(read_environ, &w, w.pid, ENVIRON_MS, &text, NULL), &text);
}

/* machine(): the answer of loam_machine. */
static int native_machine(lua_State *L) {
  lm_json text = { 0 };
  loam_status status = loam_machine(gather, &text);
  return answer(L, status, &text);
}

/* one_node(text): the node that a string such as "+0" names, as numactl(8) reads it. */
static int native_one_node(lua_State *L) {
  uint64_t nodes;
  char words[256];
  loam_status status = lm_numa_parse(text_at(L, 1), &nodes);
  if (status == LOAM_OK && !lm_is_pow2((size_t)nodes))
    status = lm_error(LOAM_EINVAL, "it names more than one node: %s",
                      lm_numa_text(nodes, words, sizeof words));
  if (status != LOAM_OK) return refuse(L, status);
  lua_pushinteger(L, __builtin_ctzll(nodes));
  return 1;
}

static void add_pid(void *ctx, int pid) {
  lua_State *L = ctx;
  lua_pushinteger(L, pid);
  lua_rawseti(L, -2, (int)lua_objlen(L, -2) + 1);
}

/* hosts(): a list of the process ids of this user's hosts, in no order. */
static int native_hosts(lua_State *L) {
  lua_createtable(L, 0, 0);
  loam_status status = loam_hosts(add_pid, L);
  return status == LOAM_OK ? 1 : refuse(L, status);
}

static void add_text(void *ctx, const char *text, size_t length) {
  lua_State *L = ctx;
  lua_pushlstring(L, text, length);
  lua_rawseti(L, -2, (int)lua_objlen(L, -2) + 1);
}

/* boards(): a list of texts: a JSON object for each process on a board, as board_read.h has it; and
 * why texts are missing, or nil. The function also removes the sockets of processes that have
 * ended. */
static int native_boards(lua_State *L) {
  char dir[LM_CONTROL_PATH];
  if (lm_control_dir(NULL, dir, sizeof dir) == LOAM_OK) lm_control_clean(dir);
  lua_createtable(L, 0, 0);
  int error = lm_namespaces_boards(add_text, L);
  if (!error) return 1;
  lua_pushstring(L, strerrordesc_np(error));
  return 2;
}

/* The image of the policy that vet() has accepted; NULL: none. The command has one thread. */
static lm_policy_image *accepted;

/* make_board(policy): makes the board for a program that this process is about to become; its path.
 * The processes of the program that have this path of a policy file will follow the board. If vet()
 * has accepted the policy, its image is on the board: it decides for processes that start after a
 * bad edit of the file too. */
static int native_make_board(lua_State *L) {
  char path[PATH_MAX], dir[LM_CONTROL_PATH];
  const char *policy = text_at(L, 1);
  loam_status status = lm_control_dir(NULL, dir, sizeof dir);
  if (status == LOAM_OK) status = lm_board_make(dir, policy, path);
  if (status != LOAM_OK) return refuse(L, status);
  if (accepted) status = lm_publisher_first(path, accepted, policy);
  if (status == LOAM_OK) return push_text(L, path);
  unlink(path);
  return refuse(L, status);
}

/* publish(board, policy): publishes a policy file on a board; the number of the publication. If the
 * policy reads the free memory of nodes or memory pressure, or shares limits, and has no watcher,
 * starts one. */
static int native_publish(lua_State *L) {
  uint64_t number;
  bool lacks_keeper;
  loam_status status = lm_publisher_reload(text_at(L, 1), text_at(L, 2), &number, &lacks_keeper);
  if (status != LOAM_OK) return refuse(L, status);
  /* Without a watcher, each process of the tree reads the free memory of nodes itself, and takes
   * memory pressure for 0. What an ended process had of a shared limit then comes back only when
   * its parent has waited for it. */
  if (lacks_keeper) (void)lm_watcher_start(&(lm_watcher_task){ .board = text_at(L, 1) });
  lua_pushnumber(L, (lua_Number)number);
  return 1;
}

/* wish_samples(board, pid, since_ms, interval): wishes that a process samples one block in
 * `interval` bytes; 0: none. `pid` and `since_ms` are from the row of the process. True. */
static int native_wish_samples(lua_State *L) {
  int64_t since_ms = (int64_t)lua_tonumber(L, 3);
  uint64_t interval = (uint64_t)lua_tonumber(L, 4);
  loam_status status = lm_publisher_wish(text_at(L, 1), number_at(L, 2), since_ms, interval);
  return status == LOAM_OK ? push_bool(L, true) : refuse(L, status);
}

/* shortcomings(board, pid): a list of texts, each of which says what the policy that was published
 * last wants and the process cannot do. */
static int native_shortcomings(lua_State *L) {
  lm_publisher p;
  const char *board = text_at(L, 1);
  int pid = number_at(L, 2), n = 0;
  lua_createtable(L, 0, 0);
  if (lm_publisher_open(board, &p) != LOAM_OK) return 1;
  bool lacks_report = lm_publisher_lacks_report(&p, pid),
       lacks_mover = lm_publisher_lacks_mover(&p);
  lm_publisher_close(&p);
  if (lacks_report) lua_pushfstring(L, LM_PUBLISHER_UNREPORTED, pid);
  if (lacks_report) lua_rawseti(L, -2, ++n);
  if (lacks_mover) lua_pushstring(L, LM_PUBLISHER_UNMOVED);
  if (lacks_mover) lua_rawseti(L, -2, ++n);
  return 1;
}

/* Returns the hash of a policy's text or image to Lua, in hexadecimal digits. */
static int push_hash(lua_State *L, const char *text, size_t length) {
  char hash[24];
  snprintf(hash, sizeof hash, "%016llx", (unsigned long long)lm_policy_open_hash(text, length));
  return push_text(L, hash);
}

/* hash(path): the hash of a policy file's text, in the form in which `loam status` shows a hash. */
static int native_hash(lua_State *L) {
  char *text;
  size_t length;
  loam_status status = lm_policy_file_read(text_at(L, 1), LM_READ_TO_INSPECT, &text, &length);
  if (status != LOAM_OK) return refuse(L, status);
  (void)push_hash(L, text, length);
  lm_metadata_free(text);
  return 1;
}

/* hash_text(text): like hash(path), for a text that the caller has. */
static int native_hash_text(lua_State *L) {
  size_t length;
  const char *text = lua_tolstring(L, 1, &length);
  return push_hash(L, text, length);
}

/* watch(board, policy): starts the watcher of a board, for the program that this process is about
 * to become. `policy` is the file that it follows; nil: none. Returns true. */
static int native_watch(lua_State *L) {
  lm_watcher_task task = { .board = text_at(L, 1), .policy = text_at(L, 2), .is_of_caller = true };
  loam_status status = lm_watcher_start(&task);
  return status == LOAM_OK ? push_bool(L, true) : refuse(L, status);
}

/* vet(path): the value of LOAM_VETTED for a program that loads this policy; why the policy needs
 * the service thread, as words, or nil; whether it needs a watcher. Fails if the program would
 * refuse the policy. */
static int native_vet(lua_State *L) {
  char vetted[LM_VET_SIZE];
  lm_vet_needs needs;
  lm_policy_image_close(accepted);
  accepted = NULL;
  loam_status status = lm_vet(text_at(L, 1), vetted, &needs, &accepted);
  if (status != LOAM_OK) return refuse(L, status);
  push_text(L, vetted);
  if (needs.moves_memory) push_text(L, "moves live memory");
  else if (needs.reads_devices) push_text(L, "reads the free memory of devices");
  else lua_pushnil(L);
  push_bool(L, needs.needs_watcher);
  return 3;
}

/* has_limit(): whether the control groups of this process limit its memory, and loam is to react to
 * that (lm_pressure_has_limit). */
static int native_has_limit(lua_State *L) { return push_bool(L, lm_pressure_has_limit()); }

/* compile(path, file): writes the image of a policy, to standard output if `file` is nil; the bytes
 * of the image and its number of plans. */
static int native_compile(lua_State *L) {
  lm_compiled made;
  loam_status status = lm_compile(text_at(L, 1), text_at(L, 2), &made);
  if (status != LOAM_OK) return refuse(L, status);
  lua_pushnumber(L, (lua_Number)made.bytes);
  lua_pushnumber(L, made.plans);
  return 2;
}

/* ---- the operating system ---- */

/* cpu(): milliseconds of processor time of the command, with its readings of other processes. */
static int native_cpu(lua_State *L) {
  lua_pushnumber(L, lm_forked_read_cpu_ms());
  return 1;
}

/* is_stream(path): whether the path leads to a pipe or a device, whose bytes can be read once. */
static int native_is_stream(lua_State *L) {
  struct stat st;
  return push_bool(L, !stat(text_at(L, 1), &st) && (S_ISFIFO(st.st_mode) || S_ISCHR(st.st_mode)));
}

/* is_terminal(descriptor), exists(path), is_readable(path): a boolean. */
static int native_is_terminal(lua_State *L) { return push_bool(L, isatty(number_at(L, 1))); }
static int native_exists(lua_State *L) { return push_bool(L, !access(text_at(L, 1), F_OK)); }
static int native_is_readable(lua_State *L) { return push_bool(L, !access(text_at(L, 1), R_OK)); }

/* is_same_file(path, other): whether both paths lead to one file; nil: one of them cannot be
 * seen. */
static int native_is_same_file(lua_State *L) {
  struct stat one, other;
  if (stat(text_at(L, 1), &one) || stat(text_at(L, 2), &other)) return push_text(L, NULL);
  return push_bool(L, one.st_dev == other.st_dev && one.st_ino == other.st_ino);
}

/* process(): the process id of the command. */
static int native_process(lua_State *L) {
  lua_pushinteger(L, getpid());
  return 1;
}

/* clock(): milliseconds since boot; the clock is never set back. */
static int native_clock(lua_State *L) {
  lua_pushnumber(L, (lua_Number)(lm_sys_boot_ns() / 1000000));
  return 1;
}

/* readlink(path): the path that a symbolic link names; nil if it cannot be read. */
static int native_readlink(lua_State *L) {
  char buffer[PATH_ROOM];
  ssize_t length = readlink(text_at(L, 1), buffer, sizeof buffer);
  if (length <= 0) return push_text(L, NULL);
  lua_pushlstring(L, buffer, (size_t)length);
  return 1;
}

/* write(path, bytes): writes a whole file, as write_file.h says. Returns true. */
static int native_write(lua_State *L) {
  size_t size;
  const char *bytes = lua_tolstring(L, 2, &size);
  loam_status status = lm_write_file(text_at(L, 1), bytes, size);
  return status == LOAM_OK ? push_bool(L, true) : refuse(L, status);
}

/* try_write(path): whether `write` can write the file now; true, or nil and words. */
static int native_try_write(lua_State *L) {
  loam_status status = lm_write_file_try(text_at(L, 1));
  return status == LOAM_OK ? push_bool(L, true) : refuse(L, status);
}

/* folder(): the working directory; nil if it is not known. */
static int native_folder(lua_State *L) {
  char buffer[PATH_ROOM];
  return push_text(L, getcwd(buffer, sizeof buffer));
}

/* The function `getenv`: the value of an environment variable; nil where lm_sys_getenv
 * gives none. */
static int native_getenv(lua_State *L) { return push_text(L, lm_sys_getenv(text_at(L, 1))); }

/* setenv(name, value): sets an environment variable; a value of nil removes it. */
static int native_setenv(lua_State *L) {
  const char *value = text_at(L, 2);
  if (value) setenv(text_at(L, 1), value, 1);
  else unsetenv(text_at(L, 1));
  return 0;
}

/* wait(ms): sleeps; returns the signal of lm_listen_ending_signals that ended the sleep early, or
 * nil. After the first call, these signals no longer end the command, only the sleep. */
static int native_wait(lua_State *L) {
  sigset_t set;
  int64_t ms = (int64_t)lua_tonumber(L, 1);
  lm_assert(ms >= 0);
  struct timespec time = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };
  lm_listen_ending_signals(&set);
  sigprocmask(SIG_BLOCK, &set, NULL);
  int signal = sigtimedwait(&set, NULL, &time);
  if (signal > 0) lua_pushinteger(L, signal);
  else lua_pushnil(L);
  return 1;
}

/* wait_for(descriptor, ms): like wait, but also ends when the descriptor has something to read.
 * Returns whether a signal has arrived. */
static int native_wait_for(lua_State *L) {
  return push_bool(L, lm_listen_wait(number_at(L, 1), number_at(L, 2)));
}

/* listen(host, port): a socket that listens on a TCP address, and its port. */
static int native_listen(lua_State *L) {
  int descriptor, port;
  loam_status status = lm_listen_tcp(text_at(L, 1), text_at(L, 2), &descriptor, &port);
  if (status != LOAM_OK) return refuse(L, status);
  lua_pushinteger(L, descriptor);
  lua_pushinteger(L, port);
  return 2;
}

/* listen_unix(path): a socket that listens on a path. */
static int native_listen_unix(lua_State *L) {
  int descriptor;
  loam_status status = lm_listen_unix(text_at(L, 1), &descriptor);
  if (status != LOAM_OK) return refuse(L, status);
  lua_pushinteger(L, descriptor);
  return 1;
}

/* ---- the terminal: screen.h ---- */

/* screen_open(): takes the terminal over; a boolean. screen_close() restores it. */
static int native_screen_open(lua_State *L) { return push_bool(L, lm_screen_open()); }
static int native_screen_close(lua_State *L) {
  (void)L;
  lm_screen_close();
  return 0;
}

/* screen_write(text): a boolean; false: the terminal is gone. */
static int native_screen_write(lua_State *L) {
  size_t length;
  const char *text = lua_tolstring(L, 1, &length);
  return push_bool(L, lm_write_all(STDOUT_FILENO, text, length));
}

/* screen_size(): columns and rows. */
static int native_screen_size(lua_State *L) {
  int columns, rows;
  lm_screen_size(&columns, &rows);
  lua_pushinteger(L, columns);
  lua_pushinteger(L, rows);
  return 2;
}

/* screen_wait(ms): "time", "resized", "stop", "keys" and their bytes, or "end" and the number of
 * the signal. */
static int native_screen_wait(lua_State *L) {
  static const char *const names[] = { [LM_SCREEN_TIME] = "time",
                                       [LM_SCREEN_KEYS] = "keys",
                                       [LM_SCREEN_RESIZED] = "resized",
                                       [LM_SCREEN_STOP] = "stop",
                                       [LM_SCREEN_END] = "end" };
  char keys[256];
  size_t n;
  int number;
  lm_screen_event event = lm_screen_wait(number_at(L, 1), keys, sizeof keys, &n, &number);
  lua_pushstring(L, names[event]);
  if (event == LM_SCREEN_KEYS) lua_pushlstring(L, keys, n);
  else lua_pushinteger(L, number);
  return 2;
}

/* screen_suspend(): stops the command until it is continued. */
static int native_screen_suspend(lua_State *L) {
  (void)L;
  lm_screen_suspend();
  return 0;
}

/* why_not_governed(program): why `loam run` cannot govern a program (governed.h); nil if it can. */
static int native_why_not_governed(lua_State *L) {
  return push_text(L, lm_governed_why_not(text_at(L, 1)));
}

/* exec(words): replaces this process by the program words[1]. Returns only if that fails: the errno
 * and its words. */
static int native_exec(lua_State *L) {
  size_t n = lua_objlen(L, 1);
  lm_assert(n > 0);
  char **argv = lm_metadata_alloc((n + 1) * sizeof *argv);
  if (!argv) return luaL_error(L, "no memory for %d arguments", (int)n);
  for (size_t i = 0; i < n; i++) {
    lua_rawgeti(L, 1, (int)i + 1); /* the table keeps the string alive */
    argv[i] = (char *)(uintptr_t)text_at(L, -1);
    lua_settop(L, 1);
  }
  execvp(argv[0], argv);
  int error = errno;
  lm_metadata_free(argv);
  lua_pushinteger(L, error);
  lua_pushstring(L, strerror(error));
  return 2;
}

/* ---- the module ---- */

void lm_native_open(lua_State *L) {
  static const struct {
    const char *name;
    lua_CFunction f;
  } functions[] = {
    { "version", native_version },
    { "inspect", native_inspect },
    { "inspect_text", native_inspect_text },
    { "ask", native_ask },
    { "look", native_look },
    { "owner", native_owner },
    { "figures", native_figures },
    { "machine", native_machine },
    { "one_node", native_one_node },
    { "hosts", native_hosts },
    { "boards", native_boards },
    { "make_board", native_make_board },
    { "publish", native_publish },
    { "hash", native_hash },
    { "hash_text", native_hash_text },
    { "shortcomings", native_shortcomings },
    { "watch", native_watch },
    { "vet", native_vet },
    { "has_limit", native_has_limit },
    { "compile", native_compile },
    { "is_terminal", native_is_terminal },
    { "is_stream", native_is_stream },
    { "exists", native_exists },
    { "is_readable", native_is_readable },
    { "is_same_file", native_is_same_file },
    { "process", native_process },
    { "clock", native_clock },
    { "cpu", native_cpu },
    { "readlink", native_readlink },
    { "try_write", native_try_write },
    { "folder", native_folder },
    { "getenv", native_getenv },
    { "setenv", native_setenv },
    { "wait", native_wait },
    { "wait_for", native_wait_for },
    { "listen", native_listen },
    { "listen_unix", native_listen_unix },
    { "exec", native_exec },
    { "why_not_governed", native_why_not_governed },
    { "pages", native_pages },
    { "screen_open", native_screen_open },
    { "screen_close", native_screen_close },
    { "screen_write", native_screen_write },
    { "screen_size", native_screen_size },
    { "screen_wait", native_screen_wait },
    { "screen_suspend", native_screen_suspend },
    { "write", native_write },
    { "board_text", native_board_text },
    { "look_samples", native_look_samples },
    { "environment", native_environment },
    { "wish_samples", native_wish_samples },
  };
  lua_getfield(L, LUA_REGISTRYINDEX, "_LOADED");
  lua_createtable(L, 0, (int)LM_COUNT(functions) + 4);
  for (size_t i = 0; i < LM_COUNT(functions); i++) {
    lua_pushcclosure(L, functions[i].f, 0);
    lua_setfield(L, -2, functions[i].name);
  }
  lua_pushinteger(L, LOAM_EIO);
  lua_setfield(L, -2, "EIO");
  lua_pushinteger(L, LOAM_EPOLICY);
  lua_setfield(L, -2, "EPOLICY");
  lua_pushinteger(L, ENOENT);
  lua_setfield(L, -2, "ENOENT");
  lua_pushinteger(L, EACCES);
  lua_setfield(L, -2, "EACCES");
  lua_setfield(L, -2, "loam.command.native");
  lua_settop(L, -2);
}

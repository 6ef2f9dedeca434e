/* run_plain.c - becomes a program under a policy, for the plainest form of `loam run`.
 *
 * lua/loam/command/verbs/run.lua does these steps for all forms and has the reasons for them;
 * tests/system/start.sh compares both ways. */
#include "cli/run_plain.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/governed.h"
#include "cli/vet.h"
#include "os/sys.h"
#include "pages/metadata.h"
#include "script/policy_file.h"
#include "service/board.h"
#include "service/control_client.h"

/* ---- the arguments ---- */

enum { AT_PATH = 3, AT_COMMAND = 5 }; /* loam run --policy FILE -- COMMAND */

static bool is_plain_form(int argc, char **argv) {
  return argc > AT_COMMAND && !strcmp(argv[1], "run") && !strcmp(argv[2], "--policy") &&
         *argv[AT_PATH] && !strchr(argv[AT_PATH], '\n') && !strcmp(argv[4], "--");
}

/* Variables of the environment that ask for more than the plain form does. */
static bool is_plain_environment(void) {
  static const char *const names[] = { "LD_PRELOAD", "LOAM_PRELOAD", "LOAM_CONTROL",
                                       "LOAM_SERVICE" };
  for (size_t i = 0; i < LM_COUNT(names); i++) {
    const char *value = lm_sys_getenv(names[i]);
    if (value && *value) return false;
  }
  return true;
}

/* ---- the environment of the program ---- */

enum { LIBRARY, POLICY, BOARD, VETTED, RUN, SET };

/* Variables that the program gets, in the order above, and others that it does not get. */
static const char *const variables[] = { "LD_PRELOAD",   "LOAM_POLICY", "LOAM_BOARD",
                                         "LOAM_VETTED",  "LOAM_RUN",    "LOAM_LENIENT",
                                         "LOAM_SERVICE", "LOAM_WATCH" };

static bool is_replaced(const char *entry) {
  for (size_t i = 0; i < LM_COUNT(variables); i++) {
    size_t length = strlen(variables[i]);
    if (!strncmp(entry, variables[i], length) && entry[length] == '=') return true;
  }
  return false;
}

/* The values that the program gets. */
typedef struct values {
  char library[PATH_MAX], policy[PATH_MAX], board[PATH_MAX], vetted[LM_VET_SIZE], run[16];
} values;

/* Returns the environment of the program. It is never freed, because the process becomes the
 * program or ends soon. Returns NULL if there is no memory. */
static char **make_environment(const values *v) {
  const char *const value[SET] = { v->library, v->policy, v->board, v->vetted, v->run };
  size_t n = 0, kept = 0;
  while (environ[n]) n++;
  char **made = lm_metadata_alloc((n + SET + 1) * sizeof *made);
  if (!made) return NULL;
  for (size_t i = 0; i < n; i++)
    if (!is_replaced(environ[i])) made[kept++] = environ[i];
  for (size_t i = 0; i < SET; i++) {
    size_t room = strlen(variables[i]) + strlen(value[i]) + 2;
    char *entry = lm_metadata_alloc(room);
    if (!entry) return NULL;
    snprintf(entry, room, "%s=%s", variables[i], value[i]);
    made[kept++] = entry;
  }
  made[kept] = NULL;
  return made;
}

/* ---- the steps ---- */

/* Finds the preload library beside this command, where a build or an installation has put it. The
 * dynamic linker cannot preload from a path with a space or a colon. */
static bool find_library(char library[PATH_MAX]) {
  static const char *const places[] = { "./",
                                        "../lib/loam/",
                                        "../lib64/loam/",
                                        "../lib/x86_64-linux-gnu/loam/",
                                        "../lib/aarch64-linux-gnu/loam/",
                                        "../bindings/preload/" };
  char folder[PATH_MAX];
  ssize_t length = readlink("/proc/self/exe", folder, sizeof folder - 1);
  while (length > 0 && folder[length - 1] != '/') length--;
  if (length <= 0) return false;
  folder[length] = 0;
  for (size_t i = 0; i < LM_COUNT(places); i++) {
    int n = snprintf(library, PATH_MAX, "%s%slibloam-preload.so", folder, places[i]);
    if (n < PATH_MAX && !access(library, R_OK)) return !strpbrk(library, " :");
  }
  return false;
}

static bool find_policy(const char *given, char policy[PATH_MAX]) {
  const char *absolute = lm_policy_file_absolute(given, policy, PATH_MAX);
  if (*absolute != '/' || strlen(absolute) >= PATH_MAX) return false;
  if (absolute != policy) strcpy(policy, absolute);
  return true;
}

/* Checks the policy, and returns whether it needs neither a service thread nor a watcher. */
static bool vet(const char *path, char vetted[LM_VET_SIZE]) {
  lm_vet_needs needs;
  return lm_vet(path, vetted, &needs) == LOAM_OK && !needs.moves_memory && !needs.reads_devices &&
         !needs.reads_nodes;
}

static bool make_board(const char *policy, char board[PATH_MAX]) {
  char dir[LM_CONTROL_PATH];
  return lm_control_dir(NULL, dir, sizeof dir) == LOAM_OK &&
         lm_board_make(dir, policy, board) == LOAM_OK;
}

void lm_run_plainly(int argc, char **argv) {
  static values v;
  if (!is_plain_form(argc, argv) || !is_plain_environment()) return;
  if (lm_governed_why_not(argv[AT_COMMAND])) return; /* the Lua code says so */
  if (!vet(argv[AT_PATH], v.vetted) || !find_policy(argv[AT_PATH], v.policy) ||
      !find_library(v.library) || !make_board(v.policy, v.board))
    return;
  snprintf(v.run, sizeof v.run, "%d", (int)getpid());
  char **environment = make_environment(&v);
  if (environment) execvpe(argv[AT_COMMAND], argv + AT_COMMAND, environment);
  unlink(v.board); /* the command could not be run, and the Lua code makes another board */
}

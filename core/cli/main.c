/* main.c - the entry point of the `loam` command, whose code is in lua/loam/command, except the
 * plainest form of `loam run`. */
#include "cli/command.h"
#include "cli/run_plain.h"

int main(int argc, char **argv) {
  lm_run_plainly(argc, argv);
  return lm_command(argc, argv);
}

/* main.c - the entry point of the `loam` command, whose code is in lua/loam/command. */
#include "cli/command.h"

int main(int argc, char **argv) { return lm_command(argc, argv); }

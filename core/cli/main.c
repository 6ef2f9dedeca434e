/* main.c - the `loam` command. What it does is written in lua/loam/command. */
#include "cli/command.h"

int main(int argc, char **argv) { return lm_command(argc, argv); }

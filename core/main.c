/* main.c - the `loam` command. What it does is written in lua/loam/cli. */
#include "script.h"

int main(int argc, char **argv) { return lm_script_command(argc, argv); }

/* command.h - the `loam` command: a Lua state runs lua/loam/command. */
#ifndef LM_COMMAND_H
#define LM_COMMAND_H

/* Runs the command with the arguments of main(). Returns the exit status of the process. */
int lm_command(int argc, char **argv);

#endif

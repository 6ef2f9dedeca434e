/* command.h - the command line: an ordinary Lua state runs lua/loam/command. */
#ifndef LM_COMMAND_H
#define LM_COMMAND_H

/* Exit status. */
int lm_command(int argc, char **argv);

#endif

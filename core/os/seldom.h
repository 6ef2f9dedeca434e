/* seldom.h - the code that a process runs while it starts, or never: it stays in memory no longer.
 *
 * What core/CMakeLists.txt links between seldom.c and seldom_end.c, save what order.ld puts before
 * them. A host that was linked with the static library has it in an order of its own: as much of it
 * as stands between the two. */
#ifndef LM_SELDOM_H
#define LM_SELDOM_H

/* Its pages need not be resident, and those of the Lua modules that were built in: they come back
 * from the file when they are touched, without a debugger's breakpoints that were set before. */
void lm_seldom_rest(void);
/* They do nothing, where it begins and at its end. */
void lm_seldom_begin(void);
void lm_seldom_end(void);

#endif

/* cold_code.h - the code that a process runs while it starts, or never: it stays in memory no
 * longer.
 *
 * What core/CMakeLists.txt links between cold_code.c and cold_code_end.c, save what order.ld puts
 * before them. A host that was linked with the static library has it in an order of its own: as
 * much of it as stands between the two. */
#ifndef LM_COLD_CODE_H
#define LM_COLD_CODE_H

/* Its pages need not be resident, and those of the Lua modules that were built in: they come back
 * from the file when they are touched, without a debugger's breakpoints that were set before. */
void lm_cold_code_evict(void);
/* They do nothing, where it begins and at its end. */
void lm_cold_code_begin(void);
void lm_cold_code_end(void);

#endif

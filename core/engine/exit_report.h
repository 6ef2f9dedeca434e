/* exit_report.h - the report at a program's end: how much memory it had, which tags allocated most
 * of it, and how near each limit was.
 *
 * Only a process whose environment has LOAM_REPORT writes it, as it ends by exit(3) or by the
 * return of main. A forked child that ends in this way writes a report of its own. A process that
 * is killed, or that ends by _exit(2) or exec, writes none. */
#ifndef LM_EXIT_REPORT_H
#define LM_EXIT_REPORT_H

/* Asks for the report. `where` is the value of LOAM_REPORT: "stderr" makes each line an event, and
 * the absolute path of a file has the lines appended to it. NULL and "" ask for none. Any other
 * value, and a file that cannot be written, is reported as an event. Called by the start. */
void lm_exit_report_start(const char *where);

#endif

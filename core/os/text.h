/* text.h - short texts without printf. A start puts texts together by these functions, because
 * printf brings 64 KiB of the C library's code into a process that does not use it otherwise. */
#ifndef LM_TEXT_H
#define LM_TEXT_H

#include <stddef.h>
#include <stdint.h>

/* Writes the strings, one behind the other, to a buffer of `size` bytes, which is not 0; NULL ends
 * the list. Text that does not fit is cut off, and the buffer always ends with a 0. Returns the
 * bytes of the whole text without the 0, so a text was cut off if that is `size` or more. */
size_t lm_text_put(char *buffer, size_t size, ...) __attribute__((sentinel));

/* Writes a number in decimal and returns its first digit, which is somewhere in `room`. */
enum { LM_TEXT_NUMBER = 21 };
const char *lm_text_number(char room[LM_TEXT_NUMBER], uint64_t n);

/* Makes a text one line that changes nothing else on a terminal: control characters become `?`.
 * Signal handlers may call this. */
void lm_text_make_line(char *text);

#endif

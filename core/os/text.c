/* text.c - short texts that are put together without printf. */
#include "os/text.h"

#include <stdarg.h>

#include "os/base.h"

size_t lm_text_put(char *buffer, size_t size, ...) {
  size_t length = 0;
  va_list parts;
  lm_assert(size > 0);
  va_start(parts, size);
  for (const char *part; (part = va_arg(parts, const char *));)
    for (; *part; part++, length++)
      if (length < size) buffer[length] = *part;
  va_end(parts);
  buffer[length < size ? length : size - 1] = 0;
  return length;
}

const char *lm_text_number(char room[LM_TEXT_NUMBER], uint64_t n) {
  char *digit = room + LM_TEXT_NUMBER - 1;
  *digit = 0;
  do *--digit = (char)('0' + n % 10);
  while (n /= 10);
  return digit;
}

void lm_text_make_line(char *text) {
  for (; *text; text++)
    if ((unsigned char)*text < ' ' || *text == 0x7f) *text = '?';
}

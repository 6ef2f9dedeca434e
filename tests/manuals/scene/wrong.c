/* wrong.c - a program with a mistake: one free too many, or a store past a block. The manual about
 * observing shows loam's message for each. */
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
  const char *mistake = argc > 1 ? argv[1] : "";
  if (strcmp(mistake, "double") == 0) {
    char *volatile block = malloc(112);
    free(block);
    free(block); /* NOLINT */
  } else if (strcmp(mistake, "fault") == 0) {
    char *volatile block = malloc(112);
    block[112 + 3] = 1;
  } else if (strcmp(mistake, "write") == 0) {
    char *volatile block = malloc(12);
    block[12 + 1] = 1;
    free(block);
  }
  return 0;
}

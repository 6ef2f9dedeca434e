/* data_file.c - opens a file as descriptor 2, for append if there is a second argument, and frees a
 * block twice. */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv) {
  char *volatile p = malloc(100);
  if (argc < 2 || !p) return 1;
  close(STDERR_FILENO);
  int flags = O_WRONLY | O_CREAT | O_TRUNC | (argc > 2 ? O_APPEND : 0);
  if (open(argv[1], flags, 0600) != STDERR_FILENO) return 1;
  free(p);
  free(p);
  return 0;
}

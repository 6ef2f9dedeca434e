/* board_tree.c - a process with two children. Run by root, the younger child becomes user 65534.
 * The process prints the process ids of the children. All three end when standard input ends. */
#include <stdlib.h>
#include <sys/wait.h>

#include "expect.h"

static void wait_for_end(void) {
  char byte;
  while (read(0, &byte, 1) > 0) continue;
}

int main(void) {
  pid_t child[2];
  free(kept(malloc(100)));
  for (int i = 0; i < 2; i++) {
    child[i] = fork();
    expect(child[i] >= 0);
    if (child[i]) continue;
    if (i == 1 && !getuid()) expect(!setuid(65534));
    wait_for_end();
    return 0;
  }
  printf("%d %d\n", (int)child[0], (int)child[1]);
  fflush(stdout);
  wait_for_end();
  for (int i = 0; i < 2; i++) expect(waitpid(child[i], NULL, 0) == child[i]);
  return 0;
}

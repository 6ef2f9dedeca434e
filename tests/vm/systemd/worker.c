/* worker.c - allocates and frees as a service does, so that an edit of the policy changes its
 * memory. In the virtual machine it replaces /usr/bin/sleep, which the example service runs. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(void) {
  for (char *kept = NULL;; usleep(20000)) {
    free(kept);
    kept = malloc(1 << 20);
    if (!kept) return 1;
    memset(kept, 1, 1 << 20);
  }
}

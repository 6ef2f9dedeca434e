/* worker - allocates and frees as a service does, so that an edit of the policy reaches it. In the
 * virtual machine it stands in place of /usr/bin/sleep, which the example of a service runs. */
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

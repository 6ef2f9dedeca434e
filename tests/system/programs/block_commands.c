/* block_commands.c - allocates and frees blocks of 1,000,000 bytes. Each line of its input is a
 * command:
 *
 *   take    allocates blocks until there is no memory; prints how many it has now
 *   free    frees all, and allocates and frees one block; prints 0
 *   exec    becomes `sleep 1000` with an empty environment, and so without loam
 *   N       allocates N blocks; prints how many it has now */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SIZE = 1000000, MOST = 1000 };

static void *block[MOST];
static int n;

static void take(int want) {
  while (want-- > 0 && n < MOST && (block[n] = malloc(SIZE))) n++;
}

/* Frees all blocks. Also makes a request that thread caches do not serve, so that the process obeys
 * an edit of the policy. */
static void free_all(void) {
  while (n > 0) free(block[--n]);
  take(1);
  if (n > 0) free(block[--n]);
}

static void become_sleep(void) {
  char *empty[] = { NULL };
  execle("/bin/sleep", "sleep", "1000", (char *)NULL, empty);
}

int main(void) {
  char line[64];
  puts("ready");
  fflush(stdout);
  while (fgets(line, sizeof line, stdin)) {
    line[strcspn(line, "\n")] = 0;
    if (!strcmp(line, "take")) take(MOST);
    else if (!strcmp(line, "free")) free_all();
    else if (!strcmp(line, "exec")) become_sleep();
    else take(atoi(line));
    printf("%d\n", n);
    fflush(stdout);
  }
  return 0;
}

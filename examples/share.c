/* share.c - two processes share one picture. The policy says which memory is shared, the owner
 * sends a handle, and the other process maps the picture's pages without a copy. After the owner
 * has freed the picture, a process that has it open still sees its last contents. */
#include <loam.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WIDTH = 640, HEIGHT = 480, SIZE = WIDTH * HEIGHT };

static const char policy[] = "local frames = loam.shared { name = 'frames', align = 64 }\n"
                             "local rest   = loam.host { name = 'rest' }\n"
                             "return loam.policy { name = 'share', pick = function(req)\n"
                             "  if req.tag:under('frame') then return frames end\n"
                             "  return rest\n"
                             "end }\n";

static void check(int fine) {
  if (fine) return;
  fprintf(stderr, "%s\n", loam_error());
  exit(1);
}

static uint64_t sum(const unsigned char *p) {
  uint64_t n = 0;
  for (int i = 0; i < SIZE; i++) n += p[i];
  return n;
}

/* The other process, which runs as a program of its own. It reads handles from one pipe and writes
 * answers to another. */
static int view(int from, int to) {
  loam_share share;
  if (read(from, &share, sizeof share) != sizeof share) return 1;
  loam_block *block = loam_share_open(NULL, &share, LOAM_SHARE_READONLY);
  check(block != NULL);
  uint64_t first = sum(loam_block_data(block));
  if (write(to, &first, sizeof first) != sizeof first) return 1;
  char freed;
  if (read(from, &freed, 1) != 1) return 1;
  uint64_t second = sum(loam_block_data(block));
  loam_block_release(block);
  loam_block *again = loam_share_open(NULL, &share, 0);
  char words[200] = "it could be opened again";
  if (!again) snprintf(words, sizeof words, "%s", strstr(loam_error(), "the block"));
  if (write(to, &second, sizeof second) != sizeof second) return 1;
  return write(to, words, sizeof words) != sizeof words;
}

int main(int argc, char **argv) {
  if (argc == 3) return view(atoi(argv[1]), atoi(argv[2]));

  check(loam_start(&(loam_config){ .size = sizeof(loam_config), .control = 1 }) == LOAM_OK);
  check(loam_policy_load_text("share", policy) == LOAM_OK);
  unsigned char *frame = loam_malloc(LOAM_SITE("frame.camera"), SIZE);
  check(frame != NULL);
  memset(frame, 3, SIZE);

  int to[2], back[2];
  if (pipe(to) || pipe(back)) return 1;
  pid_t child = fork();
  if (child == 0) {
    char from_text[12], to_text[12];
    snprintf(from_text, sizeof from_text, "%d", to[0]);
    snprintf(to_text, sizeof to_text, "%d", back[1]);
    execl("/proc/self/exe", "share", from_text, to_text, (char *)NULL);
    _exit(1);
  }
  close(back[1]);

  loam_share share;
  check(loam_share_get(frame, &share) == LOAM_OK);
  if (write(to[1], &share, sizeof share) != sizeof share) return 1;
  uint64_t seen;
  char words[200];
  if (read(back[0], &seen, sizeof seen) != sizeof seen) return 1;
  printf("the other sees %d x %d of 3: %s\n", WIDTH, HEIGHT, seen == 3ull * SIZE ? "yes" : "no");

  memset(frame, 5, SIZE);
  loam_free(frame);
  unsigned char *next = loam_malloc(LOAM_SITE("frame.camera"), SIZE);
  check(next != NULL);
  memset(next, 9, SIZE);
  if (write(to[1], "f", 1) != 1 || read(back[0], &seen, sizeof seen) != sizeof seen) return 1;
  printf("after it was freed, as it last was: %s\n", seen == 5ull * SIZE ? "yes" : "no");
  if (read(back[0], words, sizeof words) != sizeof words) return 1;
  printf("a second time: %s\n", words);

  loam_free(next);
  int status;
  waitpid(child, &status, 0);
  loam_stop();
  return status != 0;
}

/* reload.c - a host whose policy file is edited while it runs. Later allocations follow the new
 * policy, existing blocks stay unchanged, and a broken edit changes nothing. */
#include <loam.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static char path[] = "/tmp/loam-reload-XXXXXX";

/* Saves a policy by overwriting the old text in place, as some editors do. */
static void save(const char *strategy, const char *end) {
  FILE *file = fopen(path, "w");
  if (!file) exit(1);
  fprintf(file,
          "local %s = loam.host { name = '%s' }\n"
          "return loam.policy { name = 'example', pick = function(req) return %s %s }\n",
          strategy, strategy, strategy, end);
  fclose(file);
}

/* Waits until loam has tried `loads` loads. loam loads a saved file shortly after its last
 * write. */
static struct loam_policy_info wait_for(uint64_t loads) {
  struct loam_policy_info info;
  for (int i = 0; i < 1000; i++) {
    if (loam_policy_info(&info) == LOAM_OK && info.loads >= loads) return info;
    nanosleep(&(struct timespec){ .tv_nsec = 10 * 1000 * 1000 }, NULL);
  }
  fprintf(stderr, "the edit was not seen in 10 s\n");
  exit(1);
}

static void show(const char *what, const void *block) {
  loam_owner_info whose;
  if (loam_owner(block, &whose) != LOAM_OK) exit(1);
  printf("%s: strategy %s, generation %d\n", what, whose.strategy, (int)whose.generation);
}

int main(void) {
  int file = mkstemp(path);
  if (file < 0) return 1;
  close(file);
  save("small", "end");
  if (loam_policy_watch(path) != LOAM_OK) return fprintf(stderr, "%s\n", loam_error()), 1;

  void *old = loam_malloc(LOAM_SITE("cache"), 1000);
  show("before the edit", old);

  save("large", "end");
  wait_for(2);
  void *new = loam_malloc(LOAM_SITE("cache"), 1000);
  show("after the edit", new);
  show("made before it", old);

  save("larger", "");
  struct loam_policy_info info = wait_for(3);
  void *newer = loam_malloc(LOAM_SITE("cache"), 1000);
  printf("a broken edit: %s\n", loam_status_text(info.last));
  show("after it", newer);

  loam_free(old);
  loam_free(new);
  loam_free(newer);
  loam_stop();
  unlink(path);
  return 0;
}

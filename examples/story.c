/* story.c - the functions of a host in ten steps. The bindings have the same steps in other
 * languages, and their programs print the same lines: see story.* under bindings/. */
#include <loam.h>
#include <stdio.h>
#include <string.h>

static const char plain[] = "local plain = loam.host { name = 'plain' }\n"
                            "return loam.policy { name = 'plain',\n"
                            "  pick = function(req) return plain end }\n";

static const char wrong[] = "local plain = loam.host { name = 'plain', align = 48 }\n"
                            "return loam.policy { name = 'wrong',\n"
                            "  pick = function(req) return plain end }\n";

static void tell_policy(const char *step) {
  struct loam_policy_info info;
  loam_policy_info(&info);
  printf("%s: generation %d, policy '%s'\n", step, (int)info.generation, info.name);
}

static void tell_owner(const char *step, const void *ptr) {
  loam_owner_info whose;
  if (loam_owner(ptr, &whose) != LOAM_OK) printf("%s: nobody's\n", step);
  else
    printf("%s: tag '%s', strategy '%s', generation %d\n", step, whose.tag, whose.strategy,
           (int)whose.generation);
}

typedef struct live {
  int pixels, titles;
} live;

static void add_row(void *ctx, const loam_stats_row *row) {
  live *sum = ctx;
  if (strcmp(row->tag, "frame.pixels") == 0) sum->pixels += (int)row->live_blocks;
  if (strcmp(row->tag, "frame.title") == 0) sum->titles += (int)row->live_blocks;
}

static void tell_live(const char *step) {
  live sum = { 0, 0 };
  loam_stats_by(LOAM_BY_TAG, add_row, &sum);
  printf("%s: pixels %d, titles %d\n", step, sum.pixels, sum.titles);
}

int main(void) {
  loam_config config = { .size = sizeof config, .policy = "story.lua", .control = -1 };
  if (loam_start(&config) != LOAM_OK) return fprintf(stderr, "%s\n", loam_error()), 1;
  tell_policy("1 start");

  loam_site *pixels = loam_site_get("frame.pixels"), *title = loam_site_get("frame.title");
  char *frame = loam_malloc(pixels, 64 << 10), *words = loam_malloc(title, 100);
  tell_owner("2 a frame", frame);
  tell_owner("2 its title", words + 50);

  loam_scope_enter(title);
  char *scoped = loam_malloc(NULL, 10);
  loam_scope_leave();
  tell_owner("3 in a scope", scoped);

  words = loam_realloc(NULL, words, 8 << 10);
  tell_owner("4 a longer title", words);

  printf("5 refused: %s\n", loam_policy_load_text("wrong.lua", wrong) ? "yes" : "no");
  tell_policy("5 still");

  loam_policy_load_text("plain.lua", plain);
  tell_policy("6 reload");
  tell_owner("6 the frame", frame);
  char *later = loam_malloc(pixels, 64 << 10);
  tell_owner("6 another", later);

  loam_block *block = loam_block_new(pixels, 1000), *row = loam_block_slice(block, 100, 10);
  strcpy((char *)loam_block_data(block) + 100, "row one");
  printf("7 a block of %d bytes, owners %d\n", (int)loam_block_size(block),
         (int)loam_block_refcount(block));
  loam_block_release(block);
  printf("7 its slice of %d bytes: %s\n", (int)loam_block_size(row),
         (const char *)loam_block_data(row));
  loam_block_release(row);

  loam_block *arena = loam_arena_new(title, LOAM_ARENA_RESIZABLE, 0);
  char *first = loam_arena_alloc(arena, 1, 4), *second = loam_arena_alloc(arena, 1, 4);
  strcpy(first, "one");
  strcpy(second, "two");
  first = loam_arena_resize(arena, first, 1000);
  printf("8 an arena of %d bytes: %s, %s\n", (int)loam_block_size(arena), first, second);

  tell_live("9 live blocks");

  loam_block_release(arena);
  loam_free(frame);
  loam_free(later);
  loam_free(words);
  loam_free(scoped);
  tell_owner("10 the frame", frame);
  tell_live("10 live blocks");
  return 0;
}

/* story.cc - the functions of a host in ten steps: examples/story.c in C++. */
#include <loam.hpp>

#include <cstdio>
#include <cstring>
#include <fstream>

static const char plain[] = "local plain = loam.host { name = 'plain' }\n"
                            "return loam.policy { name = 'plain',\n"
                            "  pick = function(req) return plain end }\n";

static const char wrong[] = "local plain = loam.host { name = 'plain', align = 48 }\n"
                            "return loam.policy { name = 'wrong',\n"
                            "  pick = function(req) return plain end }\n";

static void tell_policy(const char *step) {
  struct loam_policy_info info;
  loam::check(loam_policy_info(&info));
  std::printf("%s: generation %d, policy '%s'\n", step, int(info.generation), info.name);
}

static void tell_owner(const char *step, const void *ptr) {
  auto whose = loam::owner(ptr);
  if (!whose) std::printf("%s: nobody's\n", step);
  else
    std::printf("%s: tag '%s', strategy '%s', generation %d\n", step, whose->tag, whose->strategy,
                int(whose->generation));
}

struct live {
  int pixels = 0, titles = 0;
};

static void add_row(void *ctx, const loam_stats_row *row) {
  auto sum = static_cast<live *>(ctx);
  if (!std::strcmp(row->tag, "frame.pixels")) sum->pixels += int(row->live_blocks);
  if (!std::strcmp(row->tag, "frame.title")) sum->titles += int(row->live_blocks);
}

static void tell_live(const char *step) {
  live sum;
  loam::check(loam_stats_by(LOAM_BY_TAG, add_row, &sum));
  std::printf("%s: pixels %d, titles %d\n", step, sum.pixels, sum.titles);
}

/* `policy` is the path of examples/story.lua. */
static void tell(const char *policy) {
  loam_config config = {};
  config.size = sizeof config;
  config.policy = policy;
  config.control = -1;
  loam::check(loam_start(&config));
  tell_policy("1 start");

  loam::allocator<char> pixels("frame.pixels"), title("frame.title");
  char *frame = pixels.allocate(64 << 10), *words = title.allocate(100);
  tell_owner("2 a frame", frame);
  tell_owner("2 its title", words + 50);

  auto scoped = [&] {
    loam::scope inside("frame.title");
    return loam::allocator<char>().allocate(10);
  }();
  tell_owner("3 in a scope", scoped);

  words = static_cast<char *>(loam_realloc(nullptr, words, 8 << 10));
  tell_owner("4 a longer title", words);

  try {
    loam::check(loam_policy_load_text("wrong.lua", wrong));
    std::puts("5 refused: no");
  } catch (const loam::error &) {
    std::puts("5 refused: yes");
  }
  tell_policy("5 still");

  loam::check(loam_policy_load_text("plain.lua", plain));
  tell_policy("6 reload");
  tell_owner("6 the frame", frame);
  char *later = pixels.allocate(64 << 10);
  tell_owner("6 another", later);

  loam::block row;
  {
    loam::block block("frame.pixels", 1000);
    row = block.slice(100, 10);
    std::strcpy(block.as<char>() + 100, "row one");
    std::printf("7 a block of %d bytes, owners %d\n", int(block.size()), int(block.use_count()));
  }
  std::printf("7 its slice of %d bytes: %s\n", int(row.size()), row.as<char>());
  row.reset();

  {
    loam::arena arena("frame.title", LOAM_ARENA_RESIZABLE);
    auto first = static_cast<char *>(arena.allocate(4, 1));
    auto second = static_cast<char *>(arena.allocate(4, 1));
    std::strcpy(first, "one");
    std::strcpy(second, "two");
    first = static_cast<char *>(arena.resize(first, 1000));
    std::printf("8 an arena of %d bytes: %s, %s\n", int(arena.size()), first, second);
    tell_live("9 live blocks");
  }

  pixels.deallocate(frame, 64 << 10);
  pixels.deallocate(later, 64 << 10);
  title.deallocate(words, 8 << 10);
  title.deallocate(scoped, 10);
  tell_owner("10 the frame", frame);
  tell_live("10 live blocks");
}

int main(int argc, char **argv) {
  const char *policy = argc > 1 ? argv[1] : "story.lua";
  if (argc > 2 || !std::ifstream(policy)) {
    std::fprintf(stderr,
                 "usage: %s [POLICY]\nPOLICY is examples/story.lua in the sources of loam; "
                 "without it, story.lua\n",
                 argv[0]);
    return 2;
  }
  try {
    tell(policy);
  } catch (const std::exception &why) {
    std::fprintf(stderr, "%s\n", why.what());
    return 1;
  }
}

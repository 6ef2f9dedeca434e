/* owners.c - a program that calls loam: it asks loam for the owners of its blocks, and allocates
 * some of them in a scope. */
#include <dlfcn.h>
#include <string.h>

#include "expect.h"
#include "loam.h"

char *own_allocation(void);
char *own_allocation(void) {
  char *p = malloc(100);
  p[0] = 1; /* no tail call, so that this function is the caller */
  return p;
}

static void expect_owner(const void *p, const char *tag, const char *func) {
  loam_owner_info owner;
  expect(loam_owner(p, &owner) == LOAM_OK);
  if (strcmp(owner.tag, tag) || (func && strcmp(owner.func, func))) {
    fprintf(stderr, "tag '%s' func '%s', not '%s' '%s'\n", owner.tag, owner.func, tag, func);
    _exit(1);
  }
}

int main(int argc, char **argv) {
  char *p = own_allocation();
  expect_owner(p, "malloc.owners", "own_allocation");
  p = realloc(p, 100000);
  expect_owner(p, "malloc.owners", "own_allocation");
  free(p);
  p = strdup("of the C library");
  expect_owner(p, "malloc.libc", NULL);
  free(p);
  loam_scope_enter(loam_site_get("app.scope"));
  p = own_allocation();
  expect_owner(p, "app.scope", NULL);
  free(p);
  loam_scope_leave();
  p = own_allocation();
  expect_owner(p, "malloc.owners", "own_allocation");
  free(p);
  for (int i = 1; i < argc; i++) { /* each is loaded where the last was; needs its own tag */
    void *plugin = dlopen(argv[i], RTLD_NOW);
    expect(plugin);
    char *(*make)(size_t) = (char *(*)(size_t))dlsym(plugin, "plugin_make");
    expect(make);
    p = make(100);
    char tag[64];
    snprintf(tag, sizeof tag, "malloc.%s", strrchr(argv[i], '/') + 1);
    *strchr(tag + 7, '.') = 0;
    expect_owner(p, tag, "plugin_make");
    free(p);
    expect(!dlclose(plugin));
  }
  puts("owners: as it must be");
  return 0;
}

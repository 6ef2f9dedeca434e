/* caller.c - the site of a return address: the tag `malloc.MODULE`, the module, and the function if
 * a dynamic symbol names it.
 *
 * MODULE is the object's file name up to its first dot. So versions do not matter, and a module is
 * one part of a tag: libopenblas.so.0 is `malloc.libopenblas`, python3.11 is `malloc.python3`.
 *
 * No lock is taken: another thread may hold the loader's lock inside dlopen and wait for this
 * thread. The module comes from _dl_find_object, which takes no lock. dladdr takes one, so this
 * file reads the symbols itself. The object cannot be unloaded at that time: its code is
 * calling. */
#include "preload.h"

#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { TAG_MAX = 255 };

PRELOAD_SPARSE __attribute__((aligned(4096))) caller_set caller_table[CALLER_SETS];
/* Callers that find no room in caller_table are also kept here, because finding a site takes
 * long. */
enum { FAR_SETS = 16384 };
static PRELOAD_SPARSE caller_set far_table[FAR_SETS];
_Atomic bool caller_has_more;
_Atomic uintptr_t caller_epoch;

/* The symbol tables that an object's dynamic section names. */
typedef struct symbols {
  const ElfW(Sym) *table;
  const char *names;
  const uint32_t *gnu_hash;
  const uint32_t *hash;
} symbols;

/* The loader has added the load address to these pointers, unless the section is read-only. */
static const void *section(const struct link_map *map, ElfW(Addr) at) {
  return (const void *)(at < map->l_addr ? at + map->l_addr : at);
}

static symbols symbols_of(const struct link_map *map) {
  symbols s = { NULL, NULL, NULL, NULL };
  for (const ElfW(Dyn) *d = map->l_ld; d && d->d_tag != DT_NULL; d++) {
    switch (d->d_tag) {
      case DT_SYMTAB: s.table = section(map, d->d_un.d_ptr); break;
      case DT_STRTAB: s.names = section(map, d->d_un.d_ptr); break;
      case DT_GNU_HASH: s.gnu_hash = section(map, d->d_un.d_ptr); break;
      case DT_HASH: s.hash = section(map, d->d_un.d_ptr); break;
      default: break;
    }
  }
  return s;
}

/* A symbol table has no length; its hash table tells it. Each bucket is the index of the first
 * symbol of a chain, and the last symbol of a chain has the low bit of its hash set. */
static size_t symbol_count(const symbols *s) {
  if (s->hash) return s->hash[1];
  if (!s->gnu_hash) return 0;
  uint32_t buckets = s->gnu_hash[0], first = s->gnu_hash[1], bloom_words = s->gnu_hash[2];
  const uint32_t *bucket = s->gnu_hash + 4 + bloom_words * (sizeof(ElfW(Addr)) / 4);
  const uint32_t *chain = bucket + buckets;
  uint32_t last = 0;
  for (uint32_t i = 0; i < buckets; i++)
    if (bucket[i] > last) last = bucket[i];
  if (last < first) return first;
  while (!(chain[last - first] & 1)) last++;
  return (size_t)last + 1;
}

static bool is_function(const ElfW(Sym) *symbol) {
  unsigned type = symbol->st_info & 0xf;
  return symbol->st_shndx != SHN_UNDEF && (type == STT_FUNC || type == STT_GNU_IFUNC);
}

/* The name of the function that contains an address; NULL if no dynamic symbol does. The address is
 * compared first, because most of the thousands of symbols are elsewhere. */
static const char *function_at(const struct link_map *map, uintptr_t address) {
  symbols s = symbols_of(map);
  if (!s.table || !s.names) return NULL;
  uintptr_t at = address - map->l_addr;
  const ElfW(Sym) *end = s.table + symbol_count(&s);
#pragma GCC unroll 4
  for (const ElfW(Sym) *i = s.table; i < end; i++)
    if (unlikely(at - i->st_value < i->st_size) && is_function(i)) return s.names + i->st_name;
  return NULL;
}

enum { PATH_ROOM = 1024 };

static const char *read_program(char *buffer) {
  ssize_t length = readlink("/proc/self/exe", buffer, PATH_ROOM - 1);
  buffer[length > 0 ? length : 0] = 0;
  return length > 0 ? buffer : "program";
}

/* The path of the program, kept after the first query. A thread that comes while another one stores
 * the path queries the kernel itself. */
static const char *program_path(char *buffer) {
  enum { UNKNOWN, BEING_ASKED, KNOWN };
  static _Atomic int state;
  static char path[PATH_ROOM];
  int was = UNKNOWN;
  if (atomic_load_explicit(&state, memory_order_acquire) == KNOWN) return path;
  const char *found = read_program(buffer);
  if (!atomic_compare_exchange_strong(&state, &was, BEING_ASKED)) return found;
  memcpy(path, found, strlen(found) + 1);
  atomic_store_explicit(&state, KNOWN, memory_order_release);
  return found;
}

void caller_start(void) {
  char buffer[PATH_ROOM];
  (void)program_path(buffer);
}

/* The file of an object; the loader has no name for the program itself, so the kernel is
 * queried. */
static const char *path_of(const struct link_map *map, char *buffer) {
  return map->l_name && map->l_name[0] ? map->l_name : program_path(buffer);
}

/* Writes "malloc." and the file's name up to its first dot; returns the start of the module in
 * `tag`. */
static const char *make_tag(const char *path, char tag[TAG_MAX + 1]) {
  static const char prefix[] = "malloc.";
  const char *slash = strrchr(path, '/');
  const char *name = slash ? slash + 1 : path;
  /* Loops, because strcspn would bring 64 KiB of the C library's code into a process that does not
   * use them otherwise. */
  while (*name == '.') name++;
  size_t length = 0, most = TAG_MAX - (sizeof prefix - 1);
  while (length < most && name[length] && name[length] != '.') length++;
  memcpy(tag, prefix, sizeof prefix - 1);
  memcpy(tag + sizeof prefix - 1, name, length);
  tag[sizeof prefix - 1 + length] = 0;
  return tag + sizeof prefix - 1;
}

static loam_site *find_site(const void *address) {
  struct dl_find_object object;
  /* The return address may be past the end of the caller, so the byte before it is looked up. */
  const char *call = (const char *)address - 1;
  if (_dl_find_object((void *)call, &object) != 0) return loam_site_get("malloc");
  char tag[TAG_MAX + 1], path[PATH_ROOM];
  loam_where where = { .tag = tag };
  where.module = make_tag(path_of(object.dlfo_link_map, path), tag);
  where.func = function_at(object.dlfo_link_map, (uintptr_t)call);
  return loam_site_at(&where);
}

static caller_entry *unused_in(caller_set *set) {
  for (int i = 0; i < CALLER_WAYS; i++)
    if (!atomic_load_explicit(&set->way[i].site, memory_order_relaxed)) return &set->way[i];
  return NULL;
}

static caller_entry *place_in(caller_set *set) {
  static _Atomic unsigned turn;
  caller_entry *unused = unused_in(set);
  if (unused) return unused;
  return &set->way[atomic_fetch_add_explicit(&turn, 1, memory_order_relaxed) % CALLER_WAYS];
}

static void enter(caller_entry *entry, uintptr_t key, loam_site *site) {
  atomic_store_explicit(&entry->check, key ^ (uintptr_t)site, memory_order_relaxed);
  /* Pairs with the acquire in caller_site. */
  atomic_store_explicit(&entry->site, (uintptr_t)site, memory_order_release);
}

loam_site *caller_learn(uintptr_t key, const void *address) {
  caller_set *set = caller_set_of(key, CALLER_SETS);
  caller_set *far = &far_table[(caller_hash(key) >> 32) * FAR_SETS >> 32];
  caller_entry *first = unused_in(caller_set_of(key, CALLER_FIRST_SETS));
  bool has_more = atomic_load_explicit(&caller_has_more, memory_order_relaxed);
  loam_site *known = has_more ? caller_site_in(far, key) : NULL;
  loam_site *site = known ? known : find_site(address);
  if (!site) return NULL; /* loam is at work in this thread, or has no memory */
  if (first) {
    enter(first, key, site);
    return site;
  }
  if (!known && !unused_in(set)) enter(place_in(far), key, site);
  enter(place_in(set), key, site);
  atomic_store_explicit(&caller_has_more, true, memory_order_relaxed);
  return site;
}

loam_site *site_of(const void *caller) {
  loam_site *scope = loam_scope_get();
  return unlikely(scope != NULL) ? scope : caller_site(caller);
}

bool caller_describe(const void *address, char *words, size_t size) {
  struct dl_find_object object, ours;
  if (!address || _dl_find_object((char *)address - 1, &object) != 0) return false;
  if (_dl_find_object((void *)&caller_table, &ours) == 0 &&
      ours.dlfo_link_map == object.dlfo_link_map)
    return false;
  const struct link_map *map = object.dlfo_link_map;
  char tag[TAG_MAX + 1], buffer[PATH_ROOM];
  const char *path = path_of(map, buffer), *slash = strrchr(path, '/');
  make_tag(path, tag);
  uintptr_t call = (uintptr_t)address - 1;
  const char *function = function_at(map, call);
  snprintf(words, size, "tag '%s', at %s+0x%lx%s%s", tag, slash ? slash + 1 : path,
           (unsigned long)(call - map->l_addr), function ? ", in " : "", function ? function : "");
  return true;
}

bool caller_is_loader(const void *address) {
  struct dl_find_object own, loader;
  return _dl_find_object((void *)address, &own) == 0 &&
         _dl_find_object((void *)&_r_debug, &loader) == 0 &&
         own.dlfo_link_map == loader.dlfo_link_map;
}

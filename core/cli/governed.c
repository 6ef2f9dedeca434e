/* governed.c - whether `loam run` can govern a program, as its ELF header says. */
#include "cli/governed.h"

#include <elf.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "os/sys.h"

/* The first bytes of a program. HEAD is enough for the program headers of usual programs; the path
 * of the dynamic linker follows them. */
enum { HEAD = 8192, PATH_ROOM = 4096 };
typedef union head {
  Elf64_Ehdr elf;
  char bytes[HEAD + 1]; /* the bytes that were read, and a NUL */
} head;

/* ---- Finding the program ------------------------------------------------------------------ */

/* Returns whether execvp(3) can run the file. It passes over folders. */
static bool is_program(const char *path) {
  struct stat about;
  return !stat(path, &about) && S_ISREG(about.st_mode) && !access(path, X_OK);
}

/* Writes the path of a program to `out`, as execvp(3) finds it. Returns whether there is one. */
static bool find_program(const char *program, char out[PATH_ROOM]) {
  const char *at = lm_sys_getenv("PATH");
  if (strchr(program, '/') || !at) return snprintf(out, PATH_ROOM, "%s", program) < PATH_ROOM;
  for (size_t length; *at; at += length + (at[length] == ':')) {
    length = strcspn(at, ":");
    int n = snprintf(out, PATH_ROOM, "%.*s%s%s", (int)length, at, length ? "/" : "", program);
    if (n < PATH_ROOM && is_program(out)) return true;
  }
  return false;
}

/* Reads the head of a file. Returns how many bytes it has; 0 if it cannot be read. */
static size_t read_head(const char *path, head *out, struct stat *about) {
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  if (fd < 0) return 0;
  ssize_t n = fstat(fd, about) || !S_ISREG(about->st_mode) ? 0 : read(fd, out->bytes, HEAD);
  close(fd);
  size_t length = n < 0 ? 0 : (size_t)n;
  out->bytes[length] = 0;
  return length;
}

/* ---- Scripts ------------------------------------------------------------------------------ */

/* Writes the interpreter that the first line of a script names to `out`: of "#!/usr/bin/env X", it
 * is X. Returns whether the line names one. */
static bool find_interpreter(const head *h, char out[PATH_ROOM]) {
  char line[256], *rest;
  snprintf(line, sizeof line, "%.*s", (int)strcspn(h->bytes + 2, "\n"), h->bytes + 2);
  char *word = strtok_r(line, " \t", &rest);
  const char *name = word ? strrchr(word, '/') : NULL;
  if (name && !strcmp(name, "/env")) word = strtok_r(NULL, " \t", &rest);
  return word && *word != '-' && find_program(word, out);
}

/* ---- Programs ----------------------------------------------------------------------------- */

/* Returns the path of the dynamic linker that an ELF file of `length` bytes names; NULL: none. */
static const char *linker_of(const head *h, size_t length) {
  const Elf64_Ehdr *e = &h->elf;
  if (e->e_phoff > length) return NULL; /* so that no sum below overflows */
  for (size_t i = 0; i < e->e_phnum; i++) {
    Elf64_Phdr part;
    size_t at = e->e_phoff + i * e->e_phentsize;
    if (at + sizeof part > length) return NULL;
    memcpy(&part, h->bytes + at, sizeof part);
    if (part.p_type == PT_INTERP && part.p_offset < length) return h->bytes + part.p_offset;
  }
  return NULL;
}

/* Returns whether a file gives its program capabilities that its user need not have. Capabilities
 * that the file only lets the program inherit are the user's own. */
static bool gives_capabilities(const char *path) {
  struct vfs_ns_cap_data file = { 0 };
  return getxattr(path, "security.capability", &file, sizeof file) > 0 &&
         (file.magic_etc & VFS_CAP_FLAGS_EFFECTIVE || file.data[0].permitted ||
          file.data[1].permitted);
}

/* Returns whether the kernel gives a program rights that its user has not. The dynamic linker then
 * preloads nothing from the user's folders. Root has all rights already, so a file capability gives
 * root none. */
static bool gives_rights(const char *path, const struct stat *about) {
  bool has_rights = (about->st_mode & S_ISUID && about->st_uid != getuid()) ||
                    (about->st_mode & S_ISGID && about->st_gid != getgid()) ||
                    (getuid() && gives_capabilities(path));
  return has_rights && prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1;
}

static const char *why_not_elf(const char *path, const head *h, size_t length,
                               const struct stat *about) {
  if (length < sizeof h->elf) return NULL;
  if (h->elf.e_ident[EI_CLASS] != ELFCLASS64) return "a program of 32 bits";
  bool has_tables = h->elf.e_phoff <= length &&
                    h->elf.e_phoff + h->elf.e_phnum * (size_t)h->elf.e_phentsize <= length;
  const char *linker = linker_of(h, length);
  if (!linker) return has_tables ? "linked statically" : NULL;
  if (strstr(linker, "musl")) return "linked to another C library, musl";
  return gives_rights(path, about) ? "a program with more rights than its user" : NULL;
}

const char *lm_governed_why_not(const char *program) {
  char path[PATH_ROOM];
  struct stat about;
  head h;
  lm_assert(program);
  bool is_there = find_program(program, path);
  for (int i = 0; i < 4 && is_there; i++) { /* a script's interpreter may be a script */
    size_t length = read_head(path, &h, &about);
    if (length >= SELFMAG && !memcmp(h.bytes, ELFMAG, SELFMAG))
      return why_not_elf(path, &h, length, &about);
    is_there = length > 2 && h.bytes[0] == '#' && h.bytes[1] == '!' && find_interpreter(&h, path);
  }
  return NULL;
}

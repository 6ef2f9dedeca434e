/* remote.c - copies memory of another process, and finds loam in it by an ELF note. */
#include "cli/remote.h"

#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "engine/outside.h"
#include "os/error.h"
#include "os/sys.h"
#include "service/board_owner.h"

/* ---- Copying ---- */

bool lm_remote_read_parts(lm_remote *remote, const lm_remote_part *part, size_t n) {
  struct iovec to[LM_REMOTE_PARTS], from[LM_REMOTE_PARTS];
  ssize_t size = 0;
  lm_assert(n <= LM_REMOTE_PARTS);
  if (lm_sys_clock_ns() > remote->deadline_ns) remote->is_late = true;
  if (remote->is_late) return false;
  for (size_t i = 0; i < n; i++) {
    to[i] = (struct iovec){ part[i].to, part[i].size };
    from[i] = (struct iovec){ (void *)part[i].from, part[i].size };
    size += (ssize_t)part[i].size;
  }
  return !n || process_vm_readv(remote->pid, to, n, from, n, 0) == size;
}

bool lm_remote_read(lm_remote *remote, uintptr_t from, void *to, size_t size) {
  return lm_remote_read_parts(remote, &(lm_remote_part){ from, to, size }, 1);
}

/* Reads up to the end of a page at a time, because a text may end right before a page without
 * memory. */
void lm_remote_text(lm_remote *remote, uintptr_t from, char *to, size_t size) {
  size_t length = 0;
  lm_assert(size > 0);
  while (length < size - 1) {
    size_t n = LM_PAGE - (from + length) % LM_PAGE;
    if (n > size - 1 - length) n = size - 1 - length;
    if (!lm_remote_read(remote, from + length, to + length, n)) break;
    if (memchr(to + length, 0, n)) return;
    length += n;
  }
  to[length] = 0;
}

/* ---- Finding loam ---- */

enum { HEADERS_MOST = 64, NOTES_MOST = 4096 }; /* program headers; bytes of notes in one of them */

/* The search for lm_outside. */
typedef struct search {
  lm_remote *remote;
  uintptr_t found; /* 0: not yet */
  bool has_note;   /* a loam was found, but it has not started */
  bool is_refused; /* the kernel refused to copy memory */
} search;

/* Tells whether an lm_outside is at this address, and its loam has started. */
static bool has_started(search *s, uintptr_t at) {
  char magic[sizeof LM_OUTSIDE_MAGIC];
  uint64_t layout;
  lm_remote_part parts[] = { { at, magic, sizeof magic },
                             { at + offsetof(lm_outside, layout), &layout, sizeof layout } };
  if (!lm_remote_read_parts(s->remote, parts, LM_COUNT(parts))) return false;
  if (memcmp(magic, LM_OUTSIDE_MAGIC, sizeof magic)) return false;
  s->has_note = true;
  return layout != 0;
}

/* Shows the notes of one program header, which were copied from `at`. Returns whether to go on. */
static bool show_notes(uintptr_t at, const char *notes, size_t size, lm_remote_note_fn *visit,
                       void *ctx) {
  Elf64_Nhdr note;
  for (size_t i = 0; i + sizeof note <= size;) {
    memcpy(&note, notes + i, sizeof note);
    size_t name = i + sizeof note, desc = name + lm_align_up((size_t)note.n_namesz, 4);
    size_t end = desc + lm_align_up((size_t)note.n_descsz, 4);
    if (end > size) return true;
    lm_remote_note shown = { note.n_type, notes + name, note.n_namesz,
                             at + desc,   notes + desc, note.n_descsz };
    if (!visit(ctx, &shown)) return false;
    i = end;
  }
  return true;
}

bool lm_remote_each_note(lm_remote *remote, uintptr_t at, lm_remote_note_fn *visit, void *ctx) {
  Elf64_Ehdr head;
  Elf64_Phdr header[HEADERS_MOST];
  char notes[NOTES_MOST];
  uintptr_t base = at;
  if (!lm_remote_read(remote, at, &head, sizeof head)) return false;
  if (memcmp(head.e_ident, ELFMAG, SELFMAG) || head.e_ident[EI_CLASS] != ELFCLASS64) return true;
  if (head.e_phentsize != sizeof *header || head.e_phnum > HEADERS_MOST) return true;
  if (!lm_remote_read(remote, at + head.e_phoff, header, head.e_phnum * sizeof *header))
    return true;
  for (int i = 0; i < head.e_phnum; i++)
    if (header[i].p_type == PT_LOAD && !header[i].p_offset) base = at - header[i].p_vaddr;
  for (int i = 0; i < head.e_phnum; i++) {
    if (header[i].p_type != PT_NOTE || header[i].p_filesz > sizeof notes) continue;
    uintptr_t from = base + header[i].p_vaddr;
    if (lm_remote_read(remote, from, notes, header[i].p_filesz) &&
        !show_notes(from, notes, header[i].p_filesz, visit, ctx))
      break;
  }
  return true;
}

/* Looks whether a note is the one that says where an lm_outside is. */
static bool read_note(void *ctx, const lm_remote_note *note) {
  search *s = ctx;
  int64_t offset;
  if (note->type != LM_OUTSIDE_NOTE || note->name_size != sizeof "loam" ||
      note->size != sizeof offset || memcmp(note->name, "loam", sizeof "loam"))
    return true;
  memcpy(&offset, note->desc, sizeof offset);
  uintptr_t outside = note->at + (uintptr_t)offset;
  if (has_started(s, outside)) s->found = outside;
  return !s->found;
}

/* A mapping with offset 0 of a file may begin with the header of a program or library. */
static void read_mapping(void *ctx, const char *line) {
  search *s = ctx;
  lm_sys_mapping m;
  if (s->found || s->is_refused || !lm_sys_read_mapping(line, &m)) return;
  if (*m.access != 'r' || m.offset || !m.inode) return;
  if (!lm_remote_each_note(s->remote, m.from, read_note, s))
    s->is_refused |= errno == EPERM || errno == ENOSYS;
}

/* ---- Words of failures ---- */

/* The setting of the Yama security module; 0: processes of one user may read each other. */
static int ptrace_scope(void) {
  char text[8];
  size_t length;
  if (lm_sys_read_file("/proc/sys/kernel/yama/ptrace_scope", text, sizeof text, &length)) return 0;
  return (int)strtol(text, NULL, 10);
}

static loam_status fail_refused(int pid) {
  char path[32];
  struct stat st;
  int scope = ptrace_scope();
  snprintf(path, sizeof path, "/proc/%d", pid);
  if (stat(path, &st)) return lm_error(LOAM_EIO, "process %d: there is no such process", pid);
  if (geteuid() && st.st_uid != geteuid())
    return lm_error(LOAM_EIO, "process %d: only root may read the memory of user %u", pid,
                    (unsigned)st.st_uid);
  if (scope)
    return lm_error(LOAM_EIO,
                    "process %d: the kernel lets only root read its memory "
                    "(kernel.yama.ptrace_scope is %d)",
                    pid, scope);
  return lm_error(LOAM_EIO, "process %d: the kernel does not let this user read its memory", pid);
}

loam_status lm_remote_find(lm_remote *remote, uintptr_t *out) {
  search s = { .remote = remote };
  char path[32];
  snprintf(path, sizeof path, "/proc/%d/maps", remote->pid);
  int error = lm_sys_each_line(path, read_mapping, &s);
  if (error || s.is_refused) return fail_refused(remote->pid);
  *out = s.found;
  if (s.found) return LOAM_OK;
  if (lm_board_owner_has_ended(remote->pid))
    return lm_error(LOAM_EIO, "process %d: it has ended", remote->pid);
  if (s.has_note)
    return lm_error(LOAM_ESTATE, "process %d: loam has not started in it", remote->pid);
  return lm_error(LOAM_ESTATE,
                  "process %d: it does not run under loam, or under a version that this command "
                  "cannot read",
                  remote->pid);
}

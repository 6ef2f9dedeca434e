/* test_governed.c - which programs loam can govern, as the heads of their files show. */
#include "cli/governed.h"

#include <elf.h>
#include <fcntl.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "folder.h"

/* Writes an ELF file with the program headers NOTE and, if `linker` is not NULL, INTERP. */
static void write_elf(const char *name, int class_, const char *linker) {
  struct {
    Elf64_Ehdr head;
    Elf64_Phdr part[2];
    char linker[64];
  } file = { .head = { .e_phoff = sizeof(Elf64_Ehdr),
                       .e_phentsize = sizeof(Elf64_Phdr),
                       .e_phnum = linker ? 2 : 1 },
             .part = { { .p_type = PT_NOTE },
                       { .p_type = PT_INTERP, .p_offset = offsetof(typeof(file), linker) } } };
  char path[128];
  memcpy(file.head.e_ident, ELFMAG, SELFMAG);
  file.head.e_ident[EI_CLASS] = (unsigned char)class_;
  if (linker) strcpy(file.linker, linker);
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *out = fopen(path, "wb");
  assert_non_null(out);
  assert_int_equal(fwrite(&file, sizeof file, 1, out), 1);
  fclose(out);
  assert_int_equal(chmod(path, 0700), 0);
}

static const char *why_not(const char *name) {
  char path[128];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return lm_governed_why_not(path);
}

static int set_up(void **state) {
  (void)state;
  assert_non_null(mkdtemp(folder));
  write_elf("dynamic", ELFCLASS64, "/lib64/ld-linux-x86-64.so.2");
  write_elf("static", ELFCLASS64, NULL);
  write_elf("small", ELFCLASS32, "/lib/ld-linux.so.2");
  write_elf("other", ELFCLASS64, "/lib/ld-musl-x86_64.so.1");
  return 0;
}

static void the_head_of_a_program_gives_the_reason(void **state) {
  (void)state;
  assert_null(why_not("dynamic"));
  assert_string_equal(why_not("static"), "linked statically");
  assert_string_equal(why_not("small"), "a program of 32 bits");
  assert_string_equal(why_not("other"), "linked to another C library, musl");
}

/* The sum of the offset and the size of the program headers overflows. */
static void headers_before_the_file_are_not_read(void **state) {
  (void)state;
  char path[128];
  Elf64_Off wild = UINT64_MAX - 15;
  write_elf("wild", ELFCLASS64, NULL);
  snprintf(path, sizeof path, "%s/wild", folder);
  int fd = open(path, O_WRONLY);
  assert_int_equal(pwrite(fd, &wild, sizeof wild, offsetof(Elf64_Ehdr, e_phoff)), sizeof wild);
  close(fd);
  assert_null(why_not("wild"));
  assert_int_equal(unlink(path), 0);
}

static void the_interpreter_of_a_script_gives_the_reason(void **state) {
  char text[256];
  (void)state;
  snprintf(text, sizeof text, "#!%s/static -x\necho\n", folder);
  write_file("script", text);
  assert_string_equal(why_not("script"), "linked statically");
  snprintf(text, sizeof text, "#! %s/script\n", folder);
  write_file("outer", text);
  assert_string_equal(why_not("outer"), "linked statically");
  setenv("PATH", folder, 1);
  write_file("by-env", "#!/usr/bin/env other\n");
  assert_string_equal(why_not("by-env"), "linked to another C library, musl");
  snprintf(text, sizeof text, "#!%s/loop\n", folder);
  write_file("loop", text);
  assert_null(why_not("loop"));
}

static void a_name_is_searched_in_path(void **state) {
  (void)state;
  setenv("PATH", "/nowhere", 1);
  assert_null(lm_governed_why_not("static"));
  char list[512], other[256];
  snprintf(list, sizeof list, "/nowhere:%s", folder);
  setenv("PATH", list, 1);
  assert_string_equal(lm_governed_why_not("static"), "linked statically");
  snprintf(other, sizeof other, "%s/bin", folder);
  snprintf(list, sizeof list, "%s/bin:%s", folder, folder);
  assert_int_equal(mkdir(other, 0700), 0);
  snprintf(other, sizeof other, "%s/bin/static", folder);
  assert_int_equal(mkdir(other, 0700), 0); /* a folder is no program */
  setenv("PATH", list, 1);
  assert_string_equal(lm_governed_why_not("static"), "linked statically");
  assert_int_equal(rmdir(other), 0);
  *strrchr(other, '/') = 0;
  assert_int_equal(rmdir(other), 0);
}

static void a_program_with_more_rights_is_not_governed(void **state) {
  char path[128];
  (void)state;
  snprintf(path, sizeof path, "%s/dynamic", folder);
  assert_int_equal(chmod(path, 04700), 0);
  assert_null(why_not("dynamic")); /* set-user-ID of the user itself gives no additional right */
  if (geteuid()) return;
  assert_int_equal(chown(path, 12345, 0), 0);
  assert_int_equal(chmod(path, 04755), 0);
  assert_string_equal(why_not("dynamic"), "a program with more rights than its user");
}

/* Whether another user who starts the program gets the reason. */
static bool another_user_gets(const char *reason, bool gives_up) {
  int status;
  pid_t child = fork();
  if (child == 0) {
    if (gives_up && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) _exit(2);
    if (setuid(23456)) _exit(2);
    const char *why = why_not("dynamic");
    _exit(reason ? !why || strcmp(why, reason) : why != NULL);
  }
  return waitpid(child, &status, 0) == child && status == 0;
}

static void a_file_capability_gives_more_rights_to_all_but_root(void **state) {
  /* The attribute as the kernel reads it: revision 2 with the effective bit, and the capability to
   * bind low ports. */
  const uint32_t bind_low_ports[] = { 0x02000001, 1 << 10, 0, 0, 0 };
  /* The program keeps this capability of a user who has it, and gives it to no other user. */
  const uint32_t inheritable[] = { 0x02000000, 0, 1 << 10, 0, 0 };
  char path[128];
  (void)state;
  if (geteuid()) return;
  snprintf(path, sizeof path, "%s/dynamic", folder);
  assert_int_equal(chmod(folder, 0711), 0);
  assert_int_equal(chown(path, 0, 0), 0);
  assert_int_equal(chmod(path, 0755), 0);
  assert_true(another_user_gets(NULL, false));
  assert_int_equal(setxattr(path, "security.capability", bind_low_ports, sizeof bind_low_ports, 0),
                   0);
  assert_null(why_not("dynamic"));
  assert_true(another_user_gets("a program with more rights than its user", false));
  assert_true(another_user_gets(NULL, true)); /* the kernel gives no more rights then */
  assert_int_equal(setxattr(path, "security.capability", inheritable, sizeof inheritable, 0), 0);
  assert_true(another_user_gets(NULL, false));
  assert_int_equal(removexattr(path, "security.capability"), 0);
}

static void what_cannot_be_read_is_for_exec_to_refuse(void **state) {
  (void)state;
  make_folder("folder");
  write_file("empty", "");
  write_file("cut", "\177ELF");
  write_file("bare", "#!\n");
  write_file("text", "hello\n");
  const char *names[] = { "folder", "empty", "cut", "bare", "text", "missing" };
  for (size_t i = 0; i < LM_COUNT(names); i++) assert_null(why_not(names[i]));
}

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_head_of_a_program_gives_the_reason),
    cmocka_unit_test(headers_before_the_file_are_not_read),
    cmocka_unit_test(the_interpreter_of_a_script_gives_the_reason),
    cmocka_unit_test(a_name_is_searched_in_path),
    cmocka_unit_test(what_cannot_be_read_is_for_exec_to_refuse),
    cmocka_unit_test(a_program_with_more_rights_is_not_governed),
    cmocka_unit_test(a_file_capability_gives_more_rights_to_all_but_root),
  };
  return cmocka_run_group_tests(tests, set_up, remove_folder);
}

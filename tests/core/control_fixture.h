/* control_fixture.h - a process with a control socket in a folder of its own, and a policy file in
 * that folder. */
#ifndef CONTROL_FIXTURE_H
#define CONTROL_FIXTURE_H

#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "service/control.h"
#include "service/control_client.h"
#include "service/policy.h"
#include "test.h"

#define ALL_OF(name)                            \
  "local h = loam.host { name = '" name "' }\n" \
  "return loam.policy { name = '" name "', pick = function(req) return h end }\n"

static char folder[64], file[96], answer[65536];
static size_t answered;

static inline int set_up(void **state) {
  (void)state;
  strcpy(folder, "/tmp/loam-test-XXXXXX");
  if (!mkdtemp(folder)) return -1;
  setenv("LOAM_CONTROL_DIR", folder, 1);
  snprintf(file, sizeof file, "%s/policy.lua", folder);
  return 0;
}

static inline int tear_down(void **state) {
  (void)state;
  char command[96];
  assert_true(lm_control_is_valid());
  lm_control_stop();
  assert_true(lm_control_is_valid() && lm_policy_is_valid());
  snprintf(command, sizeof command, "rm -rf %s", folder);
  return system(command);
}

static inline void save(const char *text) {
  int fd = open(file, O_CREAT | O_TRUNC | O_WRONLY, 0600);
  assert_true(fd >= 0);
  assert_int_equal(write(fd, text, strlen(text)), strlen(text));
  close(fd);
}

/* Writes the policy file under another name and renames it. So no reader finds the file empty or
 * half written. */
static inline void save_whole(const char *text) {
  char whole[96];
  strcpy(whole, file);
  strcat(file, ".new");
  save(text);
  assert_int_equal(rename(file, whole), 0);
  strcpy(file, whole);
}

static inline const char *socket_of(int pid) {
  static char path[sizeof folder + 20];
  snprintf(path, sizeof path, "%s/%d.sock", folder, pid);
  return path;
}

static inline struct sockaddr_un own_address(void) {
  struct sockaddr_un address = { .sun_family = AF_UNIX };
  snprintf(address.sun_path, sizeof address.sun_path, "%s", socket_of(getpid()));
  return address;
}

/* Binds a socket at the path of this process's socket, like a host in another container that has
 * the process id of this process. */
static inline int bound_elsewhere(void) {
  struct sockaddr_un address = own_address();
  int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
  return fd;
}

static inline int dial(void) {
  struct sockaddr_un address = own_address();
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
  return fd;
}

static inline bool exists(const char *path) { return !access(path, F_OK); }

static inline void gather(void *ctx, const char *text, size_t length) {
  (void)ctx;
  assert_true(answered + length < sizeof answer);
  memcpy(answer + answered, text, length);
  answered += length;
  answer[answered] = 0;
}

static inline loam_status ask(int pid, const char *request) {
  answered = 0;
  answer[0] = 0;
  return lm_control_ask(&(lm_control_request){ pid, request, PATIENCE_S * 1000 }, gather, NULL);
}

static inline void expect_words(const char *text) {
  if (!strstr(answer, text)) fail_msg("expected %s in %s", text, answer);
}

static inline uint64_t generation(void) {
  struct loam_policy_info info;
  lm_policy_info_get(&info);
  return info.generation;
}

static inline bool reaches(uint64_t wanted) {
  for (int naps = 0; generation() < wanted && be_patient(&naps);) continue;
  return generation() >= wanted;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

#endif

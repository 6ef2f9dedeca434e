/* privileged.c - a host that starts loam from the environment, and prints what the environment did.
 *
 *   privileged CONTROL [drop]
 *
 * It prints one word in each line: "secure" if the kernel says that the process has more rights
 * than the user who started it (AT_SECURE); the name of the live policy; and "socket" if the
 * control socket is in the folder CONTROL. With "drop" it gives up its rights before it first calls
 * loam. If VETTED_POLICY names a policy, it also prints whether loam loads that policy. */
#include <loam.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

static void tell_policy(void) {
  struct loam_policy_info info;
  if (loam_policy_info(&info) != LOAM_OK) exit(3);
  puts(info.generation ? info.name : "default");
}

static void tell_socket(const char *folder) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%d.sock", folder, (int)getpid());
  if (!access(path, F_OK)) puts("socket");
}

/* Prints whether loam loads a policy whose own tests fail. It does so only where LOAM_VETTED says
 * that the tests have been run. */
static void tell_vetted(const char *path) {
  puts(loam_policy_load(path) == LOAM_OK ? "vetted" : "refused");
}

int main(int argc, char **argv) {
  const char *vetted = getenv("VETTED_POLICY");
  if (argc < 2) return 2;
  if (argc > 2 && (setegid(getgid()) || seteuid(getuid()))) return 3;
  if (getauxval(AT_SECURE)) puts("secure");
  void *p = loam_malloc(loam_site_get("privileged"), 100);
  if (!p) return 3;
  loam_free(p);
  tell_policy();
  tell_socket(argv[1]);
  loam_device_free(loam_device_alloc(NULL, 1 << 20, NULL), NULL); /* opens the GPU's driver */
  const loam_manager *m = loam_manager_get();
  (void)m->initialize(m->ctx, 0); /* loads the manager */
  if (vetted) tell_vetted(vetted);
  return 0;
}

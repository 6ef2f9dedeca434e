/* host.c - a host whose device memory comes from the manager that LOAM_MANAGER names: budget.c,
 * which prints each request. */
#include <stdio.h>

#include "loam.h"

static const char policy[] =
    "local plain = loam.device { pool = 'none' }\n"
    "local else_managed = plain:or_else(loam.managed { name = 'managed' })\n"
    "return loam.policy {\n"
    "  pick = function(req)\n"
    "    return req.tag:is 'activations' and else_managed or plain\n"
    "  end,\n"
    "}\n";

static void *get(const char *tag, size_t size) {
  loam_owner_info owner;
  void *p = loam_device_alloc(loam_site_get(tag), size, NULL);
  if (!p) printf("%s: %s\n", tag, loam_error());
  else if (loam_owner(p, &owner) == LOAM_OK)
    printf("%s: %s memory of device %d\n", tag, owner.kind, owner.device);
  return p;
}

int main(void) {
  if (loam_policy_load_text("host", policy) != LOAM_OK) {
    printf("%s\n", loam_error());
    return 1;
  }
  loam_defer_limit(0, 0); /* give freed memory back without delay */
  void *weights = get("weights", 6 << 20);
  void *activations = get("activations", 4 << 20); /* over the budget: or_else */
  void *more = get("weights", 4 << 20);            /* over the budget */
  loam_device_free(weights, NULL);
  loam_device_free(activations, NULL);
  loam_device_free(more, NULL);
  return 0;
}

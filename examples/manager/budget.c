/* budget.c - a manager of device memory: it prints the requests of loam's pools to the driver, and
 * allows each device at most 8 MiB.
 *
 *   cc -shared -fPIC -I.../include budget.c -o libbudget.so
 *   LOAM_MANAGER=./libbudget.so program
 *
 * loam serves everything that is not in the table, such as pinned and managed memory. */
#include <stdatomic.h>
#include <stdio.h>

#include "loam.h"

enum { BUDGET = 8 << 20, DEVICES = 32 };

static const loam_manager *driver;
static _Atomic size_t used[DEVICES];

static void give(int device, size_t size) { atomic_fetch_sub(&used[device], size); }

static loam_status initialize(void *ctx, int device) {
  (void)ctx;
  printf("device %d is used\n", device);
  return device < DEVICES ? LOAM_OK : LOAM_EUNSUPPORTED;
}

static loam_status memalloc(void *ctx, int device, size_t size, void **out) {
  (void)ctx;
  size_t before = atomic_fetch_add(&used[device], size);
  loam_status status = LOAM_ENOMEM;
  if (before + size <= BUDGET) status = driver->memalloc(driver->ctx, device, size, out);
  if (status != LOAM_OK) give(device, size);
  printf("%zu bytes of device %d%s\n", size, device,
         status == LOAM_OK ? "" : ": there are no more");
  return status;
}

static void memfree(void *ctx, int device, void *ptr, size_t size) {
  (void)ctx;
  driver->memfree(driver->ctx, device, ptr, size);
  give(device, size);
  printf("%zu bytes of device %d are back\n", size, device);
}

static const loam_manager budget = {
  .size = sizeof budget,
  .interface_version = 1,
  .name = "budget",
  .initialize = initialize,
  .memalloc = memalloc,
  .memfree = memfree,
};

const loam_manager *loam_manager_plugin(const loam_manager *given);
const loam_manager *loam_manager_plugin(const loam_manager *given) {
  driver = given;
  return &budget;
}

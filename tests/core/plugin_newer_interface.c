/* plugin_newer_interface.c - a manager plug-in whose interface version is newer than loam knows.
 * test_manager loads it. */
#include "loam.h"

const loam_manager *loam_manager_plugin(const loam_manager *driver);
const loam_manager *loam_manager_plugin(const loam_manager *driver) {
  static loam_manager tomorrow;
  tomorrow = *driver;
  tomorrow.interface_version++;
  tomorrow.name = "tomorrow";
  return &tomorrow;
}

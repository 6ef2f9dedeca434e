/* folder.h - a temporary folder with files that take the place of the kernel's files. */
#ifndef FOLDER_H
#define FOLDER_H

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "test.h"

static char folder[] = "/tmp/loam-test-XXXXXX";

static inline void make_folder(const char *name) {
  char path[128];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  assert_int_equal(mkdir(path, 0700), 0);
}

static inline void write_file(const char *name, const char *text) {
  char path[128];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  fputs(text, file);
  fclose(file);
}

/* Writes the files of a machine with two nodes, for lm_numa_pretend. */
static inline void write_two_nodes(void) {
  make_folder("node0");
  make_folder("node1");
  write_file("online", "0-1\n");
  write_file("has_memory", "0-1\n");
  write_file("node0/meminfo", "Node 0 MemTotal: 16000000 kB\nNode 0 MemFree: 8000000 kB\n");
  write_file("node1/meminfo", "Node 1 MemTotal: 16000000 kB\nNode 1 MemFree: 8000000 kB\n");
}

/* The tear-down of a test group: removes the folder. */
static inline int remove_folder(void **state) {
  (void)state;
  char command[64];
  snprintf(command, sizeof command, "/bin/rm -r %s", folder);
  return system(command);
}

#endif

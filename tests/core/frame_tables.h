/* frame_tables.h - call frame information for one function, as a test writes and registers it. */
#ifndef FRAME_TABLES_H
#define FRAME_TABLES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Functions of libgcc. The unwinder uses a registered table until it is deregistered. The table
 * must not change during that time. */
extern void __register_frame(void *);
extern void __deregister_frame(void *);

/* A CIE, an FDE with a program, and the end of the tables, encoded for .eh_frame. The CIE states
 * that the CFA is rsp + 8 and that the return address is stored directly below the CFA. */
typedef struct __attribute__((packed)) frame_tables {
  uint32_t cie_length, cie_id;
  uint8_t version, no_letters, code_unit, data_unit, return_address, common[5];
  uint32_t fde_length, cie_distance;
  uint64_t function, size;
  uint8_t program[32]; /* zeros fill it up: instructions without effect */
  uint32_t end;
} frame_tables;

/* Fills *t for a function of `size` bytes, with a program of `length` bytes, and registers *t. */
static inline void make_tables(frame_tables *t, const void *function, size_t size,
                               const void *program, size_t length) {
  static const uint8_t common[] = { 0x0c, 7, 8, 0x90, 1 };
  memset(t, 0, sizeof *t);
  t->cie_length = offsetof(frame_tables, fde_length) - sizeof t->cie_length;
  t->version = t->code_unit = 1;
  t->data_unit = 0x78; /* -8 */
  t->return_address = 16;
  memcpy(t->common, common, sizeof common);
  t->fde_length = offsetof(frame_tables, end) - offsetof(frame_tables, cie_distance);
  t->cie_distance = offsetof(frame_tables, cie_distance);
  t->function = (uintptr_t)function;
  t->size = size;
  memcpy(t->program, program, length);
  __register_frame(t);
}

#endif

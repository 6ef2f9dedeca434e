/* table.c - the ranks of a machine read one table: an MPI program under loam.
 *
 * One rank of each machine allocates the table, and the policy says that it is shared memory. The
 * other ranks get a handle of it over MPI and map its pages, without a copy: `loam run` needs
 * --service for that. Each rank also has cells of its own, rank r has r + 1 MiB. With an argument,
 * the program works for so many seconds, so that the policy can be edited.
 *
 *   mpicc table.c -lloam -o table
 *   mpirun -n 4 loam run --service --watch --policy prod.lua -- ./table 60 */
#include <loam.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { ENTRIES = 1 << 20, CELLS = 1 << 17, NAP_US = 10000 };

static void check(int fine) {
  if (fine) return;
  fprintf(stderr, "table: %s\n", loam_error());
  MPI_Abort(MPI_COMM_WORLD, 1);
}

/* The table, as one rank has it: its own block, or a block of another rank. */
typedef struct table {
  double *entry;
  loam_block *opened; /* NULL: this rank has allocated the table */
} table;

/* Allocates and fills the table in the first rank of `machine`, and opens it in the others. */
static table share_table(MPI_Comm machine, int rank) {
  table t = { 0 };
  loam_share share;
  if (rank == 0) {
    t.entry = loam_malloc(LOAM_SITE("table.entries"), ENTRIES * sizeof *t.entry);
    check(t.entry != NULL);
    for (int i = 0; i < ENTRIES; i++) t.entry[i] = i;
    check(loam_share_get(t.entry, &share) == LOAM_OK);
  }
  MPI_Bcast(&share, sizeof share, MPI_BYTE, 0, machine);
  if (rank == 0) return t;
  t.opened = loam_share_open(NULL, &share, LOAM_SHARE_READONLY);
  check(t.opened != NULL);
  t.entry = loam_block_data(t.opened);
  return t;
}

/* The cells of a rank. */
typedef struct cells {
  double *cell;
  size_t n;
} cells;

static cells make_cells(int rank) {
  cells c = { .n = (size_t)(rank + 1) * CELLS };
  c.cell = loam_malloc(LOAM_SITE("rank.cells"), c.n * sizeof *c.cell);
  check(c.cell != NULL);
  return c;
}

/* One step: every rank adds its part of the table to its cells. Returns the sum of the cells of all
 * ranks. */
static double step(const table *t, cells *c, int rank, int ranks) {
  double *sum = loam_malloc(LOAM_SITE("step.sum"), 2 * sizeof *sum);
  check(sum != NULL);
  for (size_t i = 0; i < c->n; i++) c->cell[i] = 0;
  for (int i = rank; i < ENTRIES; i += ranks) c->cell[(size_t)i % c->n] += t->entry[i];
  sum[0] = 0;
  for (size_t i = 0; i < c->n; i++) sum[0] += c->cell[i];
  MPI_Allreduce(&sum[0], &sum[1], 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  double all = sum[1];
  loam_free(sum);
  return all;
}

/* Whether the work goes on: the first rank of all looks at its clock. */
static int goes_on(double end) {
  int more = MPI_Wtime() < end;
  MPI_Bcast(&more, 1, MPI_INT, 0, MPI_COMM_WORLD);
  return more;
}

int main(int n, char **argument) {
  int rank, ranks, local, steps = 0;
  MPI_Comm machine;
  MPI_Init(&n, &argument);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &machine);
  MPI_Comm_rank(machine, &local);
  double end = MPI_Wtime() + (n > 1 ? atof(argument[1]) : 0), sum = 0;

  table t = share_table(machine, local);
  cells own = make_cells(rank);
  do {
    sum = step(&t, &own, rank, ranks);
    if (rank == 0 && !steps++) printf("%d ranks, sum of the table: %.0f\n", ranks, sum);
    fflush(stdout);
    usleep(NAP_US);
  } while (goes_on(end));
  loam_free(own.cell);

  if (t.opened) loam_block_release(t.opened);
  MPI_Barrier(machine); /* the owner frees the table last */
  if (!t.opened) loam_free(t.entry);
  MPI_Comm_free(&machine);
  MPI_Finalize();
  return 0;
}

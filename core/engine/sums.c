/* sums.c - a table of sums by key: open addressing with linear probing, at most half full. */
#include "engine/sums.h"

#include "pages/metadata.h"

enum { FIRST_SIZE = 256 };

/* Finds the row of a key, or the free row where the key belongs. */
static lm_sums *find_place(const lm_sums_table *table, uint64_t key) {
  lm_assert(key && table->n < table->size); /* so a free row ends the loop */
  size_t i = lm_sums_mix(key) & (table->size - 1);
  while (table->row[i].key && table->row[i].key != key) i = (i + 1) & (table->size - 1);
  return &table->row[i];
}

lm_sums *lm_sums_find(const lm_sums_table *table, uint64_t key) {
  lm_sums *row = table->size ? find_place(table, key) : NULL;
  return row && row->key ? row : NULL;
}

bool lm_sums_grow(lm_sums_table *table) {
  lm_sums_table grown = *table;
  grown.size = table->size ? table->size * 2 : FIRST_SIZE;
  grown.row = lm_metadata_alloc(grown.size * sizeof *grown.row);
  if (!grown.row) return false;
  for (size_t i = 0; i < table->size; i++)
    if (table->row[i].key) *find_place(&grown, table->row[i].key) = table->row[i];
  lm_metadata_free(table->row);
  *table = grown;
  lm_verify(lm_sums_is_valid(table));
  return true;
}

lm_sums *lm_sums_get(lm_sums_table *table, uint64_t key) {
  lm_assert(key);
  if (table->size) {
    lm_sums *row = find_place(table, key);
    if (row->key) return row;
  }
  bool is_full = (table->n + 1) * 2 > table->size;
  if (is_full && (table->is_fixed || !lm_sums_grow(table))) return &table->spill;
  lm_sums *row = find_place(table, key);
  lm_assert(!row->key && lm_sums_is_empty(row));
  row->key = key;
  table->n++;
  return row;
}

void lm_sums_clear(lm_sums_table *table) {
  for (size_t i = 0; i < table->size; i++) table->row[i] = (lm_sums){ 0 };
  table->spill = (lm_sums){ 0 };
  table->n = 0;
}

void lm_sums_add(lm_sums *row, const lm_sums *more) {
  row->live_bytes += more->live_bytes;
  row->live_blocks += more->live_blocks;
  row->total_bytes += more->total_bytes;
  row->total_blocks += more->total_blocks;
  row->asleep_bytes += more->asleep_bytes;
}

void lm_sums_fold(const lm_sums_table *classes, lm_sums_table *to) {
  lm_sums_add(&to->spill, &classes->spill);
  for (size_t i = 0; i < classes->size; i++) {
    const lm_sums *row = &classes->row[i];
    if (row->key) lm_sums_add(lm_sums_get(to, lm_sums_with_class(row->key, LM_CLASS_UNKNOWN)), row);
  }
}

bool lm_sums_is_empty(const lm_sums *row) {
  return !(row->live_bytes | row->live_blocks | row->total_bytes | row->total_blocks);
}

/* ---- Sorting ------------------------------------------------------------------------------ */

static bool is_before(const lm_sums *a, const lm_sums *b) {
  if (a->live_bytes != b->live_bytes) return a->live_bytes > b->live_bytes;
  if (a->total_bytes != b->total_bytes) return a->total_bytes > b->total_bytes;
  return a->key < b->key;
}

static void exchange(lm_sums *a, lm_sums *b) {
  lm_sums moved = *a;
  *a = *b;
  *b = moved;
}

/* Restores the order of a heap of n rows, whose root is the row to come last, below row[i]. */
static void sink(lm_sums *row, size_t i, size_t n) {
  for (size_t child; (child = 2 * i + 1) < n; i = child) {
    if (child + 1 < n && is_before(&row[child], &row[child + 1])) child++;
    if (!is_before(&row[i], &row[child])) return;
    exchange(&row[i], &row[child]);
  }
}

/* Heap sort, because qsort may call malloc. */
static void sort(lm_sums *row, size_t n) {
  for (size_t i = n / 2; i-- > 0;) sink(row, i, n);
  for (size_t end = n; end-- > 1;) {
    exchange(&row[0], &row[end]);
    sink(row, 0, end);
  }
}

size_t lm_sums_sort(lm_sums_table *table) {
  size_t n = 0;
  lm_verify(lm_sums_is_valid(table));
  for (size_t i = 0; i < table->size; i++)
    if (table->row[i].key) table->row[n++] = table->row[i];
  lm_assert(n == table->n);
  sort(table->row, n);
  return n;
}

void lm_sums_finish(lm_sums_table *table) {
  lm_metadata_free(table->row);
  *table = (lm_sums_table){ 0 };
}

bool lm_sums_is_valid(const lm_sums_table *table) {
  size_t n = 0;
  if (table->spill.key) return false;
  if (!table->size) return !table->row && !table->n;
  if (!table->row || !lm_is_pow2(table->size)) return false;
  for (size_t i = 0; i < table->size; i++) n += table->row[i].key != 0;
  if (n != table->n || 2 * n > table->size) return false;
  for (size_t i = 0; i < table->size; i++) {
    uint64_t key = table->row[i].key;
    if (key && find_place(table, key) != &table->row[i]) return false;
  }
  return true;
}

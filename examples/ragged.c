/* ragged.c - rows of different lengths, filled element by element, and views of them: a slice of
 * a row, one field of all rows, the first reading of each row; and how a view keeps its data
 * alive. */
#include <loam.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct reading {
  double celsius;
  int32_t sensor;
} reading;

static void must(loam_status status) {
  if (!status) return;
  fprintf(stderr, "%s\n", loam_error());
  exit(1);
}

static void print(void *ctx, const char *text, size_t length) {
  (void)ctx;
  fwrite(text, 1, length, stdout);
}

static void show(const char *what, const loam_array *array) {
  printf("%s: %s\n  ", what, loam_type_text(loam_array_type(array)));
  must(loam_array_json(array, print, NULL));
  printf("\n");
}

int main(void) {
  loam_type *type;
  loam_array *days, *day, *view, *part;
  must(loam_type_parse("3 * var * {celsius: float64, sensor: int32}", &type));
  must(loam_array_new(LOAM_SITE("weather"), type, &days));

  static const int readings[3] = { 2, 4, 1 };
  for (int i = 0; i < 3; i++) {
    must(loam_array_index(days, 1, &LOAM_AT(i), &day));
    for (int k = 0; k < readings[i]; k++)
      must(loam_array_append(day, &(reading){ 20 + i + 0.25 * k, k + 1 }));
    loam_array_release(day);
  }
  show("all days", days);

  must(loam_array_index(days, 2, (loam_index[]){ LOAM_AT(1), LOAM_RANGE(1, 3) }, &part));
  show("the second day from its second reading on", part);

  must(loam_array_field(days, "celsius", &view));
  show("temperatures", view);
  loam_array_release(view);

  must(loam_array_index(days, 2, (loam_index[]){ LOAM_ALL, LOAM_AT(0) }, &view));
  show("the first reading of each day", view);
  loam_array_release(view);

  loam_index second[] = { LOAM_ALL, LOAM_AT(1) };
  if (loam_array_index(days, 2, second, &view)) printf("the second: %s\n", loam_error());

  double *first = loam_array_at(days, 2, (int64_t[]){ 2, 0 });
  *first = -5;
  show("nothing was copied", days);

  /* After this, only the view `part` keeps the rows alive. */
  loam_array_release(days);
  show("when the days are gone", part);
  loam_array_release(part);

  loam_type *wrong;
  if (loam_type_parse("3 * vr * float64", &wrong)) printf("%s\n", loam_error());
  loam_type_release(type);
}

# table.awk - prints what tests/bench/allocators kept as a table: times, then memory, of each row.
function ratio(a, b) { return b > 0 ? sprintf("%.2f", a / b) : "-" }

function heading(what, first, second,   i) {
  printf "\n%-42s", what
  for (i = 1; i <= n; i++) printf "%13s", name[i]
  printf "%8s%8s\n", first, second
}

function figure(ns) { return sprintf(ns < 99.95 ? "%.1f" : "%.0f", ns) }

BEGIN { FS = "\t"; n = split("glibc jemalloc mimalloc tcmalloc loam", name, " ") }
NR == 1 { next }
{
  row = sprintf("%-24s%18s", $1, $2)
  if (!(row in seen)) { seen[row] = 1; order[++rows] = row }
  ns[row, $3] = $4
  peak[row, $3] = $5 / 1024
  left[row, $3] = $6 / 1024
}
END {
  heading("ns a malloc and free (realloc: a call)", "/best", "/glibc")
  for (r = 1; r <= rows; r++) {
    row = order[r]
    best = ""
    printf "%s", row
    for (i = 1; i <= n; i++) {
      each = ns[row, name[i]]
      printf "%13s", figure(each)
      if (name[i] != "loam" && (best == "" || each < best)) best = each
    }
    loam = ns[row, "loam"]
    printf "%8s%8s\n", ratio(loam, best), ratio(loam, ns[row, "glibc"])
    to_best += log(loam / best)
    to_glibc += log(loam / ns[row, "glibc"])
  }
  printf "%-107s%8.2f%8.2f\n", "geometric mean of the ratios",
    exp(to_best / rows), exp(to_glibc / rows)

  heading("MiB resident: at the peak, when all is freed", "/mimal.", "/glibc")
  for (r = 1; r <= rows; r++) {
    row = order[r]
    printf "%s", row
    for (i = 1; i <= n; i++) printf "%7.1f%6.1f", peak[row, name[i]], left[row, name[i]]
    loam = peak[row, "loam"]
    printf "%8s%8s\n", ratio(loam, peak[row, "mimalloc"]), ratio(loam, peak[row, "glibc"])
  }
}

# table.awk - prints what tests/bench/allocators kept as tables: times, instructions, memory.
function ratio(a, b) { return b > 0 ? sprintf("%.2f", a / b) : "-" }

function heading(what, width, last,   i) {
  printf "\n%-40s", what
  for (i = 1; i <= n; i++) printf "%" width "s", name[i]
  printf "%s\n", last
}

function figure(x) { return x == "-" ? x : sprintf(x < 99.95 ? "%.1f" : "%.0f", x) }

# table WHAT FIGURES LAST - figures by row, then of both of loam's the ratio to the best of the four.
function table(what, figures, last,   r, i, each, best, counted, sums) {
  for (r = 1; r <= rows; r++) {
    if (figures[order[r], name[1]] == "-") continue
    if (!counted) heading(what, 13, last)
    best = ""
    printf "%s", order[r]
    for (i = 1; i <= n; i++) {
      each = figures[order[r], name[i]]
      printf "%13s", figure(each)
      if (i <= peers && (best == "" || each < best)) best = each
    }
    counted++
    for (i = peers + 1; i <= n; i++) {
      each = figures[order[r], name[i]] / best
      printf i == n ? "%13.2f" : "%10.2f", each
      sums[i] += log(each)
    }
    printf "\n"
  }
  if (!counted) return
  printf "%-118s", "geometric mean of the ratios"
  for (i = peers + 1; i <= n; i++) printf i == n ? "%13.2f" : "%10.2f", exp(sums[i] / counted)
  printf "\n"
}

BEGIN {
  FS = "\t"
  n = split("glibc,jemalloc,mimalloc,tcmalloc,loam run,loam_malloc", name, ",")
  peers = 4
}
NR == 1 { next }
{
  row = sprintf("%-23s%16s ", $1, $2)
  if (!(row in seen)) { seen[row] = 1; order[++rows] = row }
  ns[row, $3] = $4
  count[row, $3] = $5
  peak[row, $3] = $6 / 1024
  left[row, $3] = $7 / 1024
  later[row, $3] = $8 / 1024
}
END {
  table("ns a malloc and free (realloc: a call)", ns, "  run/best  malloc/best")
  table("instructions a malloc and free", count, "  run/best  malloc/best")

  if (peak[order[1], "glibc"] == 0) exit
  heading("MiB: at the peak, when freed, 1.1 s on", 19, " peak/mim.")
  for (r = 1; r <= rows; r++) {
    row = order[r]
    if (peak[row, "glibc"] < 3) { small++; continue }
    printf "%s", row
    for (i = 1; i <= n; i++)
      printf "%7.1f%6.1f%6.1f", peak[row, name[i]], left[row, name[i]], later[row, name[i]]
    printf "%10s\n", ratio(peak[row, "loam run"], peak[row, "mimalloc"])
  }
  if (small) printf "%d rows that hold less than a MiB or two are left out\n", small
}

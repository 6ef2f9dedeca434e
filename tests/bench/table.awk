# table.awk - prints the figures of tests/bench/allocators as tables: times, instructions, memory.
#
# The columns are the packaged allocators, those of --also, and loam's two: name[1] to name[n]. "-"
# stands for a figure that was not measured.
function ratio(a, b) { return b > 0 ? sprintf("%.2f", a / b) : "-" }

function heading(what, width, last,   i) {
  printf "\n%-40s", what
  for (i = 1; i <= n; i++) printf "%" width "s", name[i]
  printf "%s\n", last
}

function figure(x) { return x == "-" ? x : sprintf(x < 99.95 ? "%.1f" : "%.0f", x) }

# least FIGURES ROW COUNT - returns the least figure of the row in the first COUNT columns, or "" if
# none has a figure.
function least(figures, row, count,   i, each, best) {
  best = ""
  for (i = 1; i <= count; i++) {
    each = figures[row, name[i]]
    if (each != "-" && (best == "" || each < best)) best = each
  }
  return best
}

# table WHAT FIGURES LAST - prints figures by row, and the ratios of loam's two columns to the best
# of the four.
function table(what, figures, last,   r, i, each, best, counted, sums) {
  for (r = 1; r <= rows; r++) {
    if (figures[order[r], name[1]] == "-") continue
    if (!counted++) heading(what, 13, last)
    best = least(figures, order[r], peers)
    printf "%s", order[r]
    for (i = 1; i <= n; i++) printf "%13s", figure(figures[order[r], name[i]])
    for (i = n - 1; i <= n; i++) {
      each = figures[order[r], name[i]] / best
      printf i == n ? "%13.2f" : "%10.2f", each
      sums[i] += log(each)
    }
    printf "\n"
  }
  if (!counted) return
  printf "%-" (40 + 13 * n) "s", "geometric mean of the ratios"
  for (i = n - 1; i <= n; i++) printf i == n ? "%13.2f" : "%10.2f", exp(sums[i] / counted)
  printf "\n"
  if (n > peers + 2) beside_also(what, figures)
}

# pair FIGURES ROW BASE COLUMN - prints the ratios of loam's two columns to BASE, and adds them to
# `means`.
function pair(figures, row, base, column,   i, each) {
  if (base == "-" || base == "") { printf "%15s", "-"; return }
  for (i = n - 1; i <= n; i++) {
    each = figures[row, name[i]] / base
    printf i == n ? "%6.2f" : "%9.2f", each
    means[column, i] += log(each)
  }
  counts[column]++
}

# beside_also WHAT FIGURES - prints the ratios of loam's two columns to each allocator of --also, to
# the best of the four, and to the best of all.
function beside_also(what, figures,   r, i) {
  delete means
  delete counts
  printf "\n%-40s", "loam run and loam_malloc, as ratios to"
  for (i = peers + 1; i < n - 1; i++) printf "%15s", name[i]
  printf "%15s%15s\n", "best of four", "best of all"
  for (r = 1; r <= rows; r++) {
    if (figures[order[r], name[1]] == "-") continue
    printf "%s", order[r]
    for (i = peers + 1; i < n - 1; i++) pair(figures, order[r], figures[order[r], name[i]], i)
    pair(figures, order[r], least(figures, order[r], peers), n - 1)
    pair(figures, order[r], least(figures, order[r], n - 2), n)
    printf "\n"
  }
  printf "%-40s", "geometric mean"
  for (i = peers + 1; i <= n; i++) {
    if (counts[i])
      printf "%9.2f%6.2f", exp(means[i, n - 1] / counts[i]), exp(means[i, n] / counts[i])
    else printf "%15s", "-"
  }
  printf "\n"
}

# learn NAME - adds an allocator of --also to the columns.
function learn(allocator) {
  known[allocator] = 1
  if (allocator != "loam run" && allocator != "loam_malloc") name[++n] = allocator
}

BEGIN {
  FS = "\t"
  n = peers = split("glibc,jemalloc,mimalloc,tcmalloc", name, ",")
  for (i = 1; i <= n; i++) known[name[i]] = 1
}
NR == 1 { next }
{
  row = sprintf("%-23s%16s ", $1, $2)
  if (!(row in seen)) { seen[row] = 1; order[++rows] = row }
  if (!($3 in known)) learn($3)
  ns[row, $3] = $4
  count[row, $3] = $5
  peak[row, $3] = $6 / 1024
  left[row, $3] = $7 / 1024
  later[row, $3] = $8 / 1024
}
END {
  name[++n] = "loam run"
  name[++n] = "loam_malloc"
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

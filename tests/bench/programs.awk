# programs.awk - prints the runs that tests/bench/programs kept as a table: the least processor time
# and time on the wall, the median of resident memory, a program a line.
# in_order KEY SORTED - its runs, the least first; how many.
function in_order(key, sorted,   n, i, k, x) {
  n = split(runs[key], sorted, " ")
  for (i = 2; i <= n; i++) {
    x = sorted[i] + 0
    for (k = i - 1; k > 0 && sorted[k] + 0 > x; k--) sorted[k + 1] = sorted[k]
    sorted[k + 1] = x
  }
  return n
}

# What disturbs a run makes it longer, never shorter; memory it may make either.
function figure(key, what,   n, sorted) {
  n = in_order(key SUBSEP what, sorted)
  if (what != "peak") return sorted[1]
  return n % 2 ? sorted[(n + 1) / 2] : (sorted[n / 2] + sorted[n / 2 + 1]) / 2
}

# From the least run to the one after it, as a part of the least: how well that is known.
function gap(key,   sorted) {
  return in_order(key, sorted) < 2 ? 1 : (sorted[2] - sorted[1]) / sorted[1]
}

# part PROGRAM WHAT FORMAT SCALE - glibc's figure and the others' ratios to it; the best of the four
# comes to be in `best`, as a ratio, and its name in `winner`.
function part(program, what, format, scale,   i, base, each) {
  base = figure(program SUBSEP "glibc", what)
  printf format, base / scale
  best = 1
  winner = "glibc"
  for (i = 2; i <= n; i++) {
    each = figure(program SUBSEP name[i], what) / base
    printf "%6.2f", each
    if (i < n && each < best) { best = each; winner = name[i] }
    logs[what, i] += log(each)
  }
  return each / best
}

function ratio_heading() { return "  jem.  mim.   tc.  loam" }

BEGIN { FS = "\t"; n = split("glibc,jemalloc,mimalloc,tcmalloc,loam run", name, ",") }
NR == 1 { next }
{
  if (!($1 in seen)) { seen[$1] = 1; order[++rows] = $1 }
  runs[$1, $2, "wall"] = runs[$1, $2, "wall"] " " $3
  runs[$1, $2, "cpu"] = runs[$1, $2, "cpu"] " " $4
  runs[$1, $2, "peak"] = runs[$1, $2, "peak"] " " $5
}
END {
  printf "\n%-10s%8s%-24s%7s%6s%9s%-24s%10s%-24s\n", "", "cpu, s", ratio_heading(), "/best", "+-",
    "wall, s", ratio_heading(), "peak, MiB", ratio_heading()
  for (r = 1; r <= rows; r++) {
    printf "%-10s", order[r]
    to_best = part(order[r], "cpu", "%8.2f", 1)
    unsure = gap(order[r] SUBSEP "loam run" SUBSEP "cpu") + gap(order[r] SUBSEP winner SUBSEP "cpu")
    printf "%7.2f%5.0f%%", to_best, 100 * unsure
    if (to_best - 1.03 > unsure) behind = behind " " order[r]
    part(order[r], "wall", "%9.2f", 1)
    part(order[r], "peak", "%10.1f", 1024)
    printf "\n"
    log_best += log(to_best)
  }
  printf "%-10s%8s", "geo. mean", ""
  for (i = 2; i <= n; i++) printf "%6.2f", exp(logs["cpu", i] / rows)
  printf "%7.2f%6s%9s", exp(log_best / rows), "", ""
  for (i = 2; i <= n; i++) printf "%6.2f", exp(logs["wall", i] / rows)
  printf "%10s", ""
  for (i = 2; i <= n; i++) printf "%6.2f", exp(logs["peak", i] / rows)
  printf "\n"
  printf "\n/best: loam to the best of the four; +-: from the least run to the next one, of loam and of that\n"
  printf "one together. By more than that and 3%% behind:%s\n", behind ? behind : " none"
}

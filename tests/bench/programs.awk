# programs.awk - prints the runs that tests/bench/programs kept as tables, a program a line: the least
# processor time and time on the wall, the median of resident memory; the least page faults, the mean
# of time in the kernel; or counts.
# in_order LIST SORTED - the least first; how many.
function in_order(list, sorted,   n, i, k, x) {
  n = split(list, sorted, " ")
  for (i = 2; i <= n; i++) {
    x = sorted[i] + 0
    for (k = i - 1; k > 0 && sorted[k] + 0 > x; k--) sorted[k + 1] = sorted[k]
    sorted[k + 1] = x
  }
  return n
}

# What disturbs a run makes it longer, never shorter; memory it may make either. Of a run's time, what
# part was the kernel's is drawn a tick at a time: the least tells luck.
function figure(key, what,   n, i, sum, sorted) {
  n = in_order(runs[key, what], sorted)
  if (what == "peak_kib") return quantile(sorted, n, 0.5)
  if (what != "kernel_s") return sorted[1]
  for (i = 1; i <= n; i++) sum += sorted[i]
  return sum / n
}

function quantile(sorted, n, part,   at, i) {
  at = 1 + (n - 1) * part
  i = int(at)
  return i < n ? sorted[i] + (at - i) * (sorted[i + 1] - sorted[i]) : sorted[n]
}

# by_round PROGRAM ONE OTHER RATIOS - the processor time of one to that of the other round by round,
# the least first: both run within seconds, so what slows a round down has little part in it.
function by_round(program, one, other, ratios,   a, b, n, i, list) {
  n = split(runs[program, one, "cpu_s"], a, " ")
  split(runs[program, other, "cpu_s"], b, " ")
  for (i = 1; i <= n; i++) list = list " " (b[i] > 0 ? a[i] / b[i] : 1)
  return in_order(list, ratios)
}

# part PROGRAM WHAT FORMAT SCALE - glibc's figure and the others' ratios to it; the best of the four
# comes to be in `best`, as a ratio, and its name in `winner`.
function part(program, what, format, scale,   i, base, each) {
  base = figure(program SUBSEP "glibc", what)
  printf format, base / scale
  if (base <= 0) base = 1e-4
  best = 1
  winner = "glibc"
  for (i = 2; i <= n; i++) {
    each = figure(program SUBSEP name[i], what) / base
    printf "%6.2f", each
    if (i < n && each < best) { best = each; winner = name[i] }
    logs[what, i] += log(each > 0 ? each : 1e-4)
  }
  return each / best
}

function ratio_heading() { return "  jem.  mim.   tc.  loam" }

# mean WHAT WIDTH - the geometric means of ratios, below a part whose first figure is so wide.
function mean(what, width,   i) {
  printf "%" width "s", ""
  for (i = 2; i <= n; i++) printf "%6.2f", exp(logs[what, i] / rows)
}

# to_others PROGRAM - what each takes to the best of the four others, added to `far` as a logarithm.
function to_others(program,   i, k, all, best) {
  for (i = 1; i <= n; i++) all[i] = figure(program SUBSEP name[i], "cpu_s")
  for (i = 1; i <= n; i++) {
    best = 0
    for (k = 1; k <= n; k++) if (k != i && (!best || all[k] < best)) best = all[k]
    if (best > 0) far[i] += log(all[i] / best)
  }
}

function times(   r, k, to_best, ratios, usual, behind, log_best, log_usual) {
  printf "\n%-10s%8s%-24s%7s%7s%14s%9s%-24s%10s%-24s\n", "", "cpu, s", ratio_heading(), "/best",
    "usual", "half lie", "wall, s", ratio_heading(), "peak, MiB", ratio_heading()
  for (r = 1; r <= rows; r++) {
    printf "%-10s", order[r]
    to_best = part(order[r], "cpu_s", "%8.2f", 1)
    k = by_round(order[r], "loam run", winner, ratios)
    usual = quantile(ratios, k, 0.5)
    printf "%7.2f%7.2f%7.2f to%5.2f", to_best, usual, quantile(ratios, k, 0.25),
      quantile(ratios, k, 0.75)
    if (quantile(ratios, k, 0.25) > 1.03) behind = behind " " order[r]
    log_usual += log(usual)
    part(order[r], "wall_s", "%9.2f", 1)
    part(order[r], "peak_kib", "%10.1f", 1024)
    printf "\n"
    log_best += log(to_best)
    to_others(order[r])
  }
  printf "%-10s", "geo. mean"
  mean("cpu_s", 8)
  printf "%7.2f%7.2f%14s", exp(log_best / rows), exp(log_usual / rows), ""
  mean("wall_s", 9)
  mean("peak_kib", 10)
  printf "\n"
  printf "\n/best: loam to the best of the four, by the least of each; usual: the median of what loam took to\n"
  printf "what that one took in the same round, and between what half of the rounds lie. By more than\n"
  printf "3%% behind in three rounds of four:%s\n", behind ? behind : " none"
  printf "Each to the best of the four others, in the mean of the programs:"
  for (r = 1; r <= n; r++) printf "%s %s %.2f", (r > 1 ? "," : ""), name[r], exp(far[r] / rows)
  printf "\n"
}

# counted FIGURE HEADING SCALE, up to three times - a table of what does not jitter; with loam to the
# best of the four.
function counted(what, heading, scale, k,   r, i, to_best, log_best) {
  printf "\n%-10s", ""
  for (i = 1; i <= k; i++) printf "%14s%s  /best", heading[i], ratio_heading()
  printf "\n"
  for (r = 1; r <= rows; r++) {
    printf "%-10s", order[r]
    for (i = 1; i <= k; i++) {
      to_best = part(order[r], what[i], "%14.2f", scale[i])
      printf "%7.2f", to_best
      log_best[i] += log(to_best > 0 ? to_best : 1)
    }
    printf "\n"
  }
  printf "%-10s", "geo. mean"
  for (i = 1; i <= k; i++) {
    mean(what[i], 14)
    printf "%7.2f", exp(log_best[i] / rows)
  }
  printf "\n"
}

BEGIN { FS = "\t"; n = split("glibc,jemalloc,mimalloc,tcmalloc,loam run", name, ",") }
NR == 1 { for (i = 3; i <= NF; i++) column[i] = $i; next }
{
  if (!($1 in seen)) { seen[$1] = 1; order[++rows] = $1 }
  for (i = 3; i <= NF; i++)
    runs[$1, $2, column[i]] = runs[$1, $2, column[i]] " " $i
}
END {
  scale[1] = 1000
  scale[2] = 1
  if (column[3] == "wall_s") {
    times()
    split("faults,kernel_s", what, ",")
    heading[1] = "faults, k"
    heading[2] = "kernel, s"
    counted(what, heading, scale, 2)
  } else {
    split("instructions,misses_32k,misses_1m", what, ",")
    heading[1] = "instr., M"
    heading[2] = "of 32 KiB, M"
    heading[3] = "of 1 MiB, M"
    scale[1] = scale[2] = scale[3] = 1e6
    counted(what, heading, scale, 3)
  }
}

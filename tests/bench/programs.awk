# programs.awk - prints the figures of tests/bench/programs as tables, a program a line. Times are
# compared with the other times of their round. Other figures are the median of resident memory, the
# least page faults, the mean time in the kernel, or counts.
#
# The columns are the packaged allocators, those of --also, and loam: name[1] to name[n].
#
# in_order LIST SORTED - sorts the numbers of LIST into SORTED. Returns how many there are.
function in_order(list, sorted,   n, i, k, x) {
  n = split(list, sorted, " ")
  for (i = 2; i <= n; i++) {
    x = sorted[i] + 0
    for (k = i - 1; k > 0 && sorted[k] + 0 > x; k--) sorted[k + 1] = sorted[k]
    sorted[k + 1] = x
  }
  return n
}

# figure KEY WHAT - returns the figure of several runs. For memory it is the median, because memory
# varies both ways. For time in the kernel it is the mean: the kernel measures its part of a run by
# ticks, so the least is a matter of luck. For all else it is the least.
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

# beside PROGRAM WHAT - compares the times of each round with each other, since a slow moment slows
# the whole round. Sets `level`, by number of the allocator, to the median of its ratios to the
# geometric mean of the round. Returns the number of rounds.
function beside(program, what,   i, r, k, rounds, x, sum, list, sorted) {
  for (i = 1; i <= n; i++) {
    k = split(runs[program, name[i], what], x, " ")
    if (!rounds || k < rounds) rounds = k
    for (r = 1; r <= k; r++) {
      took[i, r] = log(x[r] > 0 ? x[r] : 1e-4)
      sum[r] += took[i, r] / n
    }
  }
  for (i = 1; i <= n; i++) {
    list = ""
    for (r = 1; r <= rounds; r++) list = list " " (took[i, r] - sum[r])
    level[i] = exp(quantile(sorted, in_order(list, sorted), 0.5))
  }
  return rounds
}

# spread ONE OTHER ROUNDS - returns the standard error of the median ratio of one allocator to the
# other, from the logarithms of `beside`. It estimates a normal distribution from the range in which
# the middle half of the rounds lie.
function spread(one, other, rounds,   r, list, sorted, k) {
  for (r = 1; r <= rounds; r++) list = list " " (took[one, r] - took[other, r])
  k = in_order(list, sorted)
  return 0.93 * (quantile(sorted, k, 0.75) - quantile(sorted, k, 0.25)) / sqrt(rounds)
}

# part_by_round PROGRAM WHAT FORMAT - like `part`, for times.
function part_by_round(program, what, format,   i) {
  rounds = beside(program, what)
  printf format, figure(program SUBSEP "glibc", what)
  winner = 1
  for (i = 2; i <= n; i++) {
    printf "%" width(i) ".2f", level[i] / level[1]
    if (i <= peers && level[i] < level[winner]) winner = i
    logs[what, i] += log(level[i] / level[1])
  }
  return level[n] / level[winner]
}

# part PROGRAM WHAT FORMAT SCALE - prints glibc's figure, and the ratios of the others to it.
# Returns loam's ratio to the best of the four.
function part(program, what, format, scale,   i, base, each, best) {
  base = figure(program SUBSEP "glibc", what)
  printf format, base / scale
  if (base <= 0) base = 1e-4
  best = 1
  for (i = 2; i <= n; i++) {
    each = figure(program SUBSEP name[i], what) / base
    printf "%" width(i) ".2f", each
    if (i <= peers && each < best) best = each
    logs[what, i] += log(each > 0 ? each : 1e-4)
  }
  return each / best
}

# width I - returns the width of a column of ratios. A name of --also is written in full.
function width(i) { return i <= peers || i == n || length(name[i]) < 6 ? 6 : length(name[i]) + 1 }

# ratio_heading - returns the names of all allocators but glibc.
function ratio_heading(   i, words) {
  words = "  jem.  mim.   tc."
  for (i = peers + 1; i < n; i++) words = words sprintf("%" width(i) "s", name[i])
  return words "  loam"
}

# mean WHAT FIRST - prints the geometric means of ratios. FIRST is the width of glibc's figures
# above them.
function mean(what, first,   i) {
  printf "%" first "s", ""
  for (i = 2; i <= n; i++) printf "%" width(i) ".2f", exp(logs[what, i] / rows)
}

# to_others FAR AMONG - adds to FAR, for each allocator, the logarithm of its ratio to the best of
# the others. Only the first AMONG allocators and loam count as others.
function to_others(far, among,   i, k, best) {
  for (i = 1; i <= n; i++) {
    best = 0
    for (k = 1; k <= n; k++)
      if (k != i && (k <= among || k == n) && (!best || level[k] < best)) best = level[k]
    far[i] += log(level[i] / best)
  }
}

# say_others WORDS FAR AMONG - prints one line with the means of the sums of to_others.
function say_others(words, far, among,   i) {
  printf "%s", words
  for (i = 1; i <= n; i++)
    if (i <= among || i == n) printf "%s %s %.2f", (i > 1 ? "," : ""), name[i], exp(far[i] / rows)
  printf "\n"
}

function times(   r, to_best, error, behind) {
  printf "\n%-10s%8s%s%7s%6s%9s%s%10s%s\n", "", "cpu, s", ratio_heading(), "/best", "+-",
    "wall, s", ratio_heading(), "peak, MiB", ratio_heading()
  for (r = 1; r <= rows; r++) {
    printf "%-10s", order[r]
    to_best = part_by_round(order[r], "cpu_s", "%8.2f")
    to_others(far, peers)
    to_others(far_all, n)
    error = spread(n, winner, rounds)
    printf "%7.2f%6.2f", to_best, error
    if (log(to_best) - 2 * error > log(1.03)) behind = behind " " order[r]
    part_by_round(order[r], "wall_s", "%9.2f")
    part(order[r], "peak_kib", "%10.1f", 1024)
    printf "\n"
  }
  printf "%-10s", "geo. mean"
  mean("cpu_s", 8)
  printf "%7.2f%6s", exp(far[n] / rows), ""
  mean("wall_s", 9)
  mean("peak_kib", 10)
  printf "\n"
  printf "\nTimes: the least of glibc; of the others the ratio to it, each by what it took to the mean of\n"
  printf "all %s in the same round, in the median. /best: loam to the best of the four; +- its standard\n", n == 5 ? "five" : n
  printf "error. Behind by more than 3%%, and two such errors:%s\n", behind ? behind : " none"
  say_others("Each to the best of the four others, in the mean of the programs:", far, peers)
  if (n > peers + 1) say_others("Each to the best of all others:", far_all, n)
}

# counted WHAT HEADING SCALE K - prints a table of K figures that hardly depend on what else runs,
# with loam's ratio to the best of the four.
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

BEGIN {
  FS = "\t"
  n = peers = split("glibc,jemalloc,mimalloc,tcmalloc", name, ",")
  for (i = 1; i <= n; i++) known[name[i]] = 1
  known["loam run"] = 1
}
NR == 1 { for (i = 3; i <= NF; i++) column[i] = $i; next }
{
  if (!($1 in seen)) { seen[$1] = 1; order[++rows] = $1 }
  if (!($2 in known)) { known[$2] = 1; name[++n] = $2 }
  for (i = 3; i <= NF; i++)
    runs[$1, $2, column[i]] = runs[$1, $2, column[i]] " " $i
}
END {
  name[++n] = "loam run"
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

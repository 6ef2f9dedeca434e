# text.sh - sort of a large file, with several threads, and grep.
. tests/system/_lib.sh
need sort grep awk

awk 'BEGIN { srand(1); for (i = 0; i < 150000; i++) printf "%d %x key%d\n", rand() * 1e9, rand() * 1e9, i }' \
  > "$work/lines"
export LC_ALL=C
compare_runs "sort of $(wc -c < "$work/lines") bytes" sort "$work/lines"
compare_runs "sort -n with 2 threads and little memory" sort -n --parallel=2 -S 1M -T "$work" "$work/lines"
compare_runs "grep" grep -c -E '(a|b|c)+[0-9]{2}.*key.*7' "$work/lines"
compare_runs "grep of fixed words" grep -n -F -e key777 -e key12345 -e nothing "$work/lines"
compare_runs "grep -P" grep -P '^(\d)\d*\1 .*key\d*0$' "$work/lines"
compare_runs "grep that finds nothing" grep nothing-like-that "$work/lines"
export LC_ALL=C.UTF-8
compare_runs "grep in UTF-8, case folded" grep -i -c 'KEY1.*2' "$work/lines"

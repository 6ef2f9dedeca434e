# mpi.sh - the programs of examples/fleet/mpi with Open MPI. loam governs each rank and shows its
# number, an edit reaches all ranks, the ranks share a table, and no file or process is left when
# they end or are killed.

. tests/system/_lib.sh
need mpicc mpirun
[ -x "${LOAM:-}" ] || skip "no loam command in LOAM"
[ -e "${LOAM_BUILD:-}/libloam.so" ] || skip "no libloam.so in LOAM_BUILD"

RANKS=4
example=examples/fleet/mpi
# This machine may have fewer cores than ranks, and root may run the tests.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 TMPDIR=$work/tmp
launch=(mpirun --oversubscribe --bind-to none -n "$RANKS")
mkdir "$TMPDIR"
live=$work/prod.lua
cp "$example/prod.lua" "$live"

# No other program of this machine has this name.
name=table$$
OMPI_CC=$CC mpicc -Wall -Wextra -I"$top/core/include" "$example/table.c" -L"$LOAM_BUILD" -lloam \
  -Wl,-rpath,"$LOAM_BUILD" -o "$work/$name" || fail "table.c does not compile"
governed=("$LOAM" run --service --watch --policy "$live" --)

# nothing_left - succeeds if no rank runs, and no file of loam or of mpirun is left.
nothing_left() {
  pgrep -x "$name" && return 1
  ls -A "$LOAM_CONTROL_DIR" "$TMPDIR"
  [ -z "$(ls -A "$LOAM_CONTROL_DIR" | grep -v '^quotas')" ]
}
"${launch[@]}" "${governed[@]}" "$work/$name" > "$work/out" 2> "$work/err" || fail "mpirun: $(cat "$work/err")"
[ "$(cat "$work/out")" = "4 ranks, sum of the table: 549755289600" ] || fail "$(cat "$work/out")"
await "files are left" nothing_left
echo "ok: $RANKS ranks read one table, and leave nothing"

# starts WORDS... - starts the ranks in the background. Sets $mpirun to the process id of mpirun.
starts() {
  "${launch[@]}" "${governed[@]}" "$@" > "$work/out" 2> "$work/err" &
  mpirun=$!
  children="$children $mpirun"
  await "not all ranks are shown" are_shown
  pids=$(sed 's/ .*//' "$work/ranks")
}
# are_shown - succeeds if `loam ps` shows each rank once. Writes lines of process id and rank.
are_shown() {
  "$LOAM" ps --json | python3 -c '
import json, sys
for one in json.load(sys.stdin)["programs"]:
    if one["path"] == sys.argv[1] and "rank" in one:
        print(one["pid"], one["rank"])' "$live" > "$work/ranks"
  cat "$work/ranks"
  [ "$(cut -d ' ' -f 2 "$work/ranks" | sort | tr '\n' ' ')" = "0 1 2 3 " ]
}
# live_of TAG - prints the live bytes of the tag by rank, from `loam metrics`.
live_of() {
  "$LOAM" metrics > "$work/page" || return
  sed -n "s/^loam_live_bytes{.*program=\"$name\",rank=\"\([0-9]*\)\",tag=\"$1\",.*} /\1 /p" "$work/page" | sort
}
# has_cells - succeeds if rank r has r + 1 MiB of cells, and only rank 0 has allocated a table.
has_cells() {
  live_of rank.cells | tee "$work/cells"
  live_of table.entries | tee "$work/tables"
  printf '%s\n' "0 1048576" "1 2097152" "2 3145728" "3 4194304" | cmp - "$work/cells" &&
    [ "$(cat "$work/tables")" = "0 8388608" ]
}

starts "$work/$name" 600
await "figures by rank" has_cells
# shellcheck disable=SC2086
"$LOAM" top $pids --by process --count 1 > "$work/top" || fail "loam top"
grep -q ' RANK ' "$work/top" || fail "loam top: $(cat "$work/top")"
echo "ok: the figures have ranks, and add up"

# All ranks have a shared mapping of one file, which only rank 0 may write to.
for pid in $pids; do grep -h 'memfd:loam' "/proc/$pid/maps"; done > "$work/maps"
inode=$(awk '$2 == "r--s" { print $5 }' "$work/maps" | sort | uniq -c)
[ "$(echo "$inode" | wc -w)" = 2 ] || fail "not one table: $(cat "$work/maps")"
[ "${inode% *}" -eq $((RANKS - 1)) ] || fail "not all ranks have it: $(cat "$work/maps")"
grep -q "rw-s .* ${inode##* } " "$work/maps" || fail "its owner has another one: $(cat "$work/maps")"
echo "ok: the ranks have one table in memory"

# obeyed - fails unless all ranks obey the file.
# shellcheck disable=SC2086
obeyed() { "$LOAM" wait --policy "$live" --pid $pids --timeout 180s > "$work/wait" 2>&1 || fail "$(cat "$work/wait")"; }
sed 's/512 \* MiB/256 * MiB/' "$example/prod.lua" | save "$live"
obeyed
grep -q "4 programs obey" "$work/wait" || fail "wait: $(cat "$work/wait")"
echo 'return loam.polcy {}' | save "$live"
# shellcheck disable=SC2086
"$LOAM" wait --policy "$live" --pid $pids > "$work/wait" 2>&1 && fail "a bad policy is obeyed"
[ "$(grep -c "loam has no 'polcy'" "$work/wait")" = "$RANKS" ] || fail "not all refuse: $(cat "$work/wait")"
await "the ranks did not keep their policy" has_cells
cp "$example/prod.lua" "$work/again"
mv "$work/again" "$live"
obeyed
echo "ok: an edit reaches all ranks, and a bad one none"

# ended SIGNAL - sends a signal to mpirun, and fails unless all ranks end. Only the boards of killed
# processes stay, for their last words.
ended() {
  kill "-$1" "$mpirun"
  wait "$mpirun" 2> "$work/why"
  no_rank() { ! pgrep -x "$name"; }
  await "ranks are left" no_rank
  "$LOAM" ps --json | grep -F "\"$name\"" && fail "loam ps shows ranks that have ended"
  find "$LOAM_CONTROL_DIR" -type f ! -name '*.board' ! -name 'quotas.*' | grep . && fail "files are left"
  [ "$(find "$LOAM_CONTROL_DIR" -name '*.board' | wc -l)" -le $((2 * RANKS)) ] || fail "many boards are left"
  echo "ok: SIG$1 to mpirun leaves no rank"
}
ended TERM
starts "$work/$name" 600
ended KILL

"${launch[@]}" "$LOAM" run --policy "$work/none.lua" -- "$work/$name" > "$work/out" 2> "$work/err" && fail "no policy"
grep -qF "$work/none.lua: file: No such file" "$work/err" || fail "no policy: $(cat "$work/err")"
echo "ok: without its policy, no rank starts"

python=/usr/bin/python3
"$python" -c 'import mpi4py, numpy' 2> "$work/why" || skip "python3-mpi4py is not installed: mean.py"
live_of_arrays() {
  live_of malloc._multiarray_umath | tee "$work/arrays"
  awk '$2 >= ($1 + 1) * 1048576 { n++ } END { exit n != 4 }' "$work/arrays"
}
starts "$python" "$top/$example/mean.py" 600
name=$("$LOAM" ps --json | python3 -c '
import json, sys
print(next(one["program"] for one in json.load(sys.stdin)["programs"] if one["path"] == sys.argv[1]))' "$live")
await "arrays by rank" live_of_arrays
kill "$mpirun"
wait "$mpirun" 2> "$work/why"
[ "$("${launch[@]}" "${governed[@]}" "$python" "$top/$example/mean.py")" = "4 ranks, mean of 1310720 numbers: 2.0" ] ||
  fail "mean.py"
echo "ok: mpi4py, with the arrays of NumPy by rank"

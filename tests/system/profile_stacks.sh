# profile_stacks.sh - `loam profile --stacks`. A program samples from its start. Samples are
# switched on and off in a running program, without a thread of loam and with a service. A program
# is stopped. A program is linked with loam. Wrong arguments are refused.
. tests/system/_lib.sh
need "$CC" python3 mkfifo
[ -x "${LOAM:-}" ] || skip "no loam command in LOAM"
build sampled.c
has_dw=$(python3 -c 'import ctypes; ctypes.CDLL("libdw.so.1"); print(1)' 2> /dev/null)

# begin [NAME=VALUE | OPTION]... - starts the program; it runs until descriptor 3 is closed.
begin() {
  rm -f "$work/in"
  mkfifo "$work/in"
  local settings=() options=() word
  for word; do case $word in --*) options+=("$word") ;; *) settings+=("$word") ;; esac; done
  (exec env "${settings[@]}" "$LOAM" run "${options[@]}" --policy "$policy" -- $program) \
    < "$work/in" > "$work/out" 2> "$work/err" &
  pid=$!
  children=$pid
  exec 3> "$work/in"
  for _ in $(seq 600); do
    grep -q ready "$work/out" && return
    sleep 0.1
  done
  fail "it does not begin: $(cat "$work/err")"
}
end() {
  exec 3>&-
  wait "$pid" || fail "it ends with status $?"
}
profile() { "$LOAM" profile "$@" > "$work/said" 2> "$work/why" || fail "loam profile $*: $(cat "$work/why")"; }
# sum PATTERN FILE - prints the sum of the stacks that match.
sum() { awk -v p="$1" '$0 ~ p { s += $NF } END { printf "%.0f", s }' "$2"; }
# near GOT WANT INTERVAL - fails unless GOT is within five standard deviations of WANT. A block of
# size s has a variance of at most s times the interval, so a sum S has at most S times the
# interval.
near() {
  python3 -c 'import sys; got, want, interval = map(float, sys.argv[1:])
sys.exit(abs(got - want) > 5 * (want * interval) ** .5)' "$@" || fail "$1 is not near $2 at $3"
}
live() { "$LOAM" stats "$pid" --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["live_bytes"])'; }

begin LOAM_PROFILE=4KiB
kill -STOP "$pid"
profile "$pid" --stacks --format collapsed -o "$work/p"
near "$(sum . "$work/p")" "$(live)" 4096
if [ "$has_dw" ]; then
  grep -q 'main;keeps' "$work/p" || fail "no function: $(head -n 3 "$work/p")"
  profile "$pid" --stacks --format text
  grep -Eq '^    keeps.*  .*/sampled\.c:[0-9]+$' "$work/said" || fail "no line: $(cat "$work/said")"
  # Blocks that another thread freed count as allocated, and not as in use.
  profile "$pid" --stacks --format collapsed --sample alloc_space -o "$work/all"
  [ "$(sum keeps "$work/all")" -gt "$(($(sum keeps "$work/p") + 4000000))" ] || fail "frees are not seen"
fi
profile "$pid" --stacks -o "$work/p.pb.gz"
profile "$pid" --stacks --base "$work/p.pb.gz" --format collapsed -o "$work/changed"
awk '$(NF - 1) != $NF { exit 1 }' "$work/changed" || fail "a program that stands still changed"
kill -CONT "$pid"
end
echo "ok: samples from the start have the live bytes, also of a stopped program"

begin
[ "$(ls "/proc/$pid/task" | wc -l)" = 1 ] || fail "the program has a thread of loam"
profile "$pid" --stacks 8KiB --for 1s --sample alloc_space --format collapsed -o "$work/p"
[ "$(sum . "$work/p")" -gt 1000000 ] || fail "too little: $(cat "$work/p")"
[ ! "$has_dw" ] || grep -q 'main;churns' "$work/p" || fail "no function: $(cat "$work/p")"
# A session leaves its tables. They are counted as far as they are filled.
tables=$("$LOAM" stats "$pid" --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["metadata_bytes"])')
[ "$tables" -lt 4000000 ] || fail "$tables bytes of bookkeeping"
# Equal sessions, one right after the other, have equal figures.
profile "$pid" --stacks 4KiB --for 3s --sample alloc_space --format collapsed -o "$work/long"
for session in 1 2 3; do
  profile "$pid" --stacks 4KiB --for 500ms --sample alloc_space --format collapsed -o "$work/short"
  [ "$(sum . "$work/short")" -gt 0 ] || fail "session $session has no samples"
  [ "$(sum . "$work/short")" -lt "$(sum . "$work/long")" ] ||
    fail "session $session has samples of an earlier one"
done
profile "$pid" --stacks=2KiB --keep --for 200ms --format collapsed -o "$work/p"
profile "$pid" --stacks --format collapsed --sample alloc_space -o "$work/before"
profile --stacks=off "$pid"
grep -q "samples nothing" "$work/said" || fail "it goes on: $(cat "$work/said")"
profile "$pid" --stacks 1MiB --for 1ms --format collapsed -o "$work/p"
for signal in INT HUP; do # INT is Ctrl-C; HUP is a terminal that is closed
  case $signal in INT) wanted=130 ;; HUP) wanted=129 ;; esac
  rm -f "$work/begun"
  "$LOAM" profile "$pid" --stacks 4KiB --for 10m > "$work/said" 2> "$work/begun" &
  sampling=$!
  until grep -qs sampling "$work/begun"; do sleep 0.05; done
  kill -$signal "$sampling"
  wait "$sampling"
  [ $? = $wanted ] || fail "SIG$signal: $(cat "$work/begun")"
  for _ in $(seq 100); do # sampling is not switched on in a program that still samples
    profile "$pid" --stacks --for 1ms --format collapsed -o "$work/p"
    grep -q "sampling process" "$work/why" && continue 2
    sleep 0.1
  done
  fail "the program still samples after SIG$signal"
done
end
echo "ok: a program without a thread of loam is made to sample, and ends it"

begin LOAM_CONTROL_DIR="$work/control" --service
profile "$pid" --stacks 8KiB --for 300ms --sample alloc_space --format collapsed -o "$work/p"
[ "$(sum . "$work/p")" -gt 100000 ] || fail "too little: $(cat "$work/p")"
end
echo "ok: a program with a service is asked"

# The program contains the functions of loam, with names. No stack shows one of them.
if [ "$has_dw" ]; then
  c_program=$program
  build linked.c "$LOAM_BUILD/libloam.a" -lm -ldl
  mkfifo "$work/input"
  # The pipe is opened last, so the output file is empty once the pipe has a reader.
  LOAM_PROFILE=4KiB "$program" > "$work/out" 2> "$work/err" < "$work/input" &
  pid=$!
  children=$pid
  exec 3> "$work/input"
  until grep -q ready "$work/out"; do
    kill -0 "$pid" || fail "linked.c ends: $(cat "$work/err")"
    sleep 0.1
  done
  profile "$pid" --stacks --format collapsed --sample alloc_space -o "$work/p"
  [ "$(sum 'main;asks ' "$work/p")" -gt 100000000 ] || fail "no function: $(cat "$work/p")"
  grep 'asks;' "$work/p" && fail "functions of loam are in the stacks"
  end
  program=$c_program
  echo "ok: a program that loam is linked into has stacks without loam's functions"
fi

# In a container the program has another process id than here.
container=(unshare -mpf --mount-proc --kill-child sh -c
  'mount -t tmpfs none /run && mkdir -p -m 700 /run/user/0 && exec "$@"' sh)
if [ "$(id -u)" = 0 ] && "${container[@]}" true 2> "$work/why"; then
  started env -u LOAM_CONTROL_DIR XDG_RUNTIME_DIR=/run/user/0 "${container[@]}" "$LOAM" run \
    --policy "$policy" -- perl -e '$| = 1; print "ready\n";
      while (1) { my @a = map { "x" x 5000 } 1 .. 50; select undef, undef, undef, 0.01 }'
  profile "$(pgrep -P "$pid")" --stacks 4KiB --for 200ms --format collapsed -o "$work/p"
  [ -s "$work/p" ] || fail "no samples of a program in a container"
  killed
  echo "ok: a program in a container is made to sample"
fi

if python3 -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))'; then
  cat > "$work/nested.py" <<'PY'
import sys
class Keeper:
    def keep(self, n):
        return [bytearray(1000) for _ in range(n)]
def outer(n):
    return list(map(lambda m: Keeper().keep(m), [n]))
kept = outer(3000)
print("ready", flush=True)
sys.stdin.read()
PY
  c_program=$program program="python3 $work/nested.py"
  begin LOAM_PROFILE=4KiB
  profile "$pid" --stacks --format collapsed -o "$work/p"
  frames='<module>;outer;(.*;)?outer.<locals>.<lambda>;Keeper.keep;Keeper.keep.<locals>.<listcomp>'
  [ "$has_dw" ] || frames='<module>;outer;outer.<locals>.<lambda>;Keeper.keep;Keeper.keep.<locals>.<listcomp>'
  [ "$(awk -v p="$frames" '$0 ~ p { s += $NF } END { printf "%.0f", s }' "$work/p")" -gt 2000000 ] ||
    fail "no frames of Python: $(head -n 3 "$work/p")"
  end
  echo "ok: frames of Python are between those of C"

  # ctypes gives the lock of the interpreter up during a call, as numpy.zeros and sqlite3 do.
  cat > "$work/größe.py" <<'PY'
import ctypes, sys
libc = ctypes.CDLL(None)
def réserve(n):
    for _ in range(n): libc.malloc(1000)
réserve(3000)
def 日本(n): return [bytearray(1000) for _ in range(n)]
日本.__code__ = 日本.__code__.replace(co_qualname="x" * 600)
kept = 日本(3000)
print("ready", flush=True)
sys.stdin.read()
PY
  program="env PYTHONUTF8=1 python3 $work/größe.py"
  begin LOAM_PROFILE=4KiB
  profile "$pid" --stacks --format collapsed -o "$work/p"
  [ "$(sum '^[^ ]*<module>;réserve;.*ffi' "$work/p")" -gt 2000000 ] ||
    fail "no frames of a thread without the lock: $(grep -m 3 ffi "$work/p")"
  [ "$(sum '日本.<locals>.<listcomp>' "$work/p")" -gt 2000000 ] ||
    fail "a name that is not ASCII: $(grep -m 3 listcomp "$work/p")"
  profile "$pid" --stacks --format speedscope -o "$work/p"
  python3 - "$work/p" "$work/größe.py" <<'PY' || fail "wrong files: $(head -c 2000 "$work/p")"
import json, sys
frames = json.load(open(sys.argv[1], encoding="utf-8"))["shared"]["frames"]
files = {f["name"]: f.get("file") for f in frames}
sys.exit(any(files[name] != sys.argv[2] for name in ("réserve", "日本.<locals>.<listcomp>", "x" * 511)))
PY
  end
  program=$c_program
  echo "ok: frames of Python have names and files in any language, also without the interpreter's lock"
fi

begin LOAM_PROFILE=512x
grep -q "LOAM_PROFILE=512x" "$work/err" || fail "a wrong value is not reported: $(cat "$work/err")"
for words in "--stacks 0" "--stacks 2TiB" "--stacks some" "--for 1s" "--keep"; do
  "$LOAM" profile "$pid" $words > "$work/said" 2> "$work/why" && fail "profile $words succeeds"
  [ $? = 2 ] || [ "$(head -c 12 "$work/why")" = "loam profile" ] || fail "profile $words: $(cat "$work/why")"
done
end
echo "ok: wrong words are refused"

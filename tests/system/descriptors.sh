# descriptors.sh - a program may rely on descriptor numbers, close them and put its own files there,
# while a command reads loam's status and the policy is edited.
. tests/system/_lib.sh
need "$CC" bash

# disturb - makes the service thread use its descriptors. It runs beside the plain and the loam run.
disturb() {
  for _ in $(seq 14); do
    sleep 0.2
    touch "$policy"
    [ -x "${LOAM:-}" ] && [ -s "$work/pid" ] && "$LOAM" status "$(cat "$work/pid")" > "$work/status" 2>&1
  done
}
cat > "$work/run" <<'SCRIPT'
"$1" &
echo $! > "$2"
wait $!
echo "status $?"
SCRIPT
build numbers.c
export LOAM_WATCH=1
disturb &
children=$!
compare_runs "descriptor numbers" bash "$work/run" "$program" "$work/pid"

cat > "$work/script" <<'SCRIPT'
exec 3> "$1/three" 4< <(printf 'one\ntwo\nthree\n')
sleep 0.5
read -r line <&4; echo "read $line"
sleep 0.5
read -r line <&4; echo "read $line"
echo written >&3; cat "$1/three"
exec {new}< /dev/null; echo "the shell's own is $new"
SCRIPT
compare_runs "a shell that redirects 3 and 4" bash "$work/script" "$work"

build closes.c
compare_runs "a program that puts its own everywhere" "$program" 4000

[ -x "${LOAM:-}" ] || skip "no loam command in LOAM"
generation() { answer_of "$1" | sed -n 's/.*"generation":\([0-9]*\).*/\1/p'; }
is_later() { [ "$(generation "$1")" -gt "$2" ]; }

# The program closes the descriptors of the control socket and of the watch of the policy. loam
# opens them again.
for how in "" idle; do
  mkfifo "$work/input$how"
  # An empty $how must be no argument.
  # shellcheck disable=SC2086
  (LOAM_WATCH=1 LOAM_SERVICE=1 exec_under_policy "$program" 1 $how < "$work/input$how" > "$work/closes.out") &
  pid=$!
  children="$children $pid"
  exec 5> "$work/input$how"
  await "it does not come to its end" grep -q rounds "$work/closes.out"
  await "it is not reached${how:+, $how}" "$LOAM" stats "$pid"
  before=$(generation "$pid")
  echo "-- $how" >> "$policy"
  await "it does not follow its policy${how:+, $how}" is_later "$pid" "$before"
  exec 5>&-
  wait "$pid" || fail "it ends with $?"
  echo "ok: all closed${how:+, $how}"
  rm "$work/closes.out"
done

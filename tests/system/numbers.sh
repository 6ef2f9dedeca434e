# numbers.sh - descriptor numbers are the program's: it may count on them, close them, put its own there,
# while somebody asks loam for its status and edits the policy.
. tests/system/_lib.sh
need "$CC" bash

# disturb - what makes the service thread look at its descriptors, for both runs.
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
same "descriptor numbers" bash "$work/run" "$program" "$work/pid"

cat > "$work/script" <<'SCRIPT'
exec 3> "$1/three" 4< <(printf 'one\ntwo\nthree\n')
sleep 0.5
read -r line <&4; echo "read $line"
sleep 0.5
read -r line <&4; echo "read $line"
echo written >&3; cat "$1/three"
exec {new}< /dev/null; echo "the shell's own is $new"
SCRIPT
same "a shell that redirects 3 and 4" bash "$work/script" "$work"

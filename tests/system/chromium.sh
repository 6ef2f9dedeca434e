# chromium.sh - Chromium, whose sandbox needs processes of a single thread, user namespaces and
# seccomp. The package is 120 MB, so tests/install does not install it: the test is skipped where
# Chromium is missing.
#
# Chromium has its own malloc, so it takes no memory from loam.
. tests/system/_lib.sh
. tests/system/_server.sh
need chromium pgrep timeout
[ -x "${LOAM:-}" ] || skip "no loam command in LOAM"

home=$work/home
mkdir "$home"
chmod 755 "$work"
page='data:text/html,<p id=p></p><script>p.textContent = [..."olleh"].reverse().join("")</script>'

# shows WHAT OPTION... - Chromium prints the page in each way. Returns 1 if the plain Chromium
# cannot do so on this machine.
shows() {
  local what=$1 way
  shift
  write "$live" before 64
  for way in $ways; do
    (run_as "$way" env HOME="$home" timeout 300 chromium --headless "$@" --dump-dom "$page") \
      > "$work/$way.out" 2> "$work/log"
    status=$?
    if [ "$way" = plain ] && ! grep -q '>hello</p>' "$work/plain.out"; then
      echo "skipped: $what: not possible here: $(tail -n 1 "$work/log")"
      return 1
    fi
    [ "$status" = 0 ] || fail "$what, $way: it ended with $status: $(tail "$work/log")"
    cmp -s "$work/plain.out" "$work/$way.out" || fail "$what, $way: $(cat "$work/$way.out")"
  done
  echo "ok: $what"
}

# Compares only the zygotes, from which Chromium forks its other processes: they have a single
# thread. The other processes start and end threads.
figures() {
  local process
  for process in $(tree "$1"); do
    grep -aq -e --type=zygote "/proc/$process/cmdline" || continue
    echo "zygote: $(ls "/proc/$process/task" | wc -l) threads," \
      "$(ls "/proc/$process/fd" | wc -l) descriptors"
  done 2> "$work/why" | sort
}
renders() {
  local process
  for process in $(tree "$server"); do
    ! grep -aq -e --type=renderer "/proc/$process/cmdline" || return 0
  done
  return 1
}
has_figures() {
  local way
  for way in $ways; do
    (run_as "$way" env HOME="$home" chromium --headless --remote-debugging-port=0 "$page") \
      > "$work/log" 2>&1 &
    server=$!
    children=$server
    await "$way: no page" renders
    same_figures "$way" "$server"
    kill "$server"
    wait "$server"
    children=
  done
}

if [ "$(id -u)" = 0 ]; then
  LOAM_CONTROL_DIR=$work/of_root shows "root, without the sandbox" --no-sandbox
  as=(setpriv --reuid=65534 --regid=65534 --clear-groups)
  "${as[@]}" "$LOAM" --version > "$work/version" 2>&1 ||
    skip "another user cannot open the folder of the build"
  chown -R 65534 "$work"
fi
if shows "a user, in the sandbox"; then has_figures; fi

# systemd.sh - systemd accepts the units of examples/fleet: a service with the drop-in that runs it
# under loam, and the unit of `loam metrics`. (tests/vm/systemd starts the service under systemd, in
# a virtual machine.) This test starts the command of the drop-in without systemd, with a private
# /tmp, and `loam ps` finds it there.

. tests/system/_lib.sh
need systemd-analyze unshare
[ -x "${LOAM:-}" ] || skip "no loam command in LOAM"

units=$work/units
mkdir -p "$units/example.service.d"
cp examples/fleet/systemd/example.service "$units"
sed "s|/usr/bin/loam|$LOAM|" examples/fleet/systemd/loam.conf > "$units/example.service.d/loam.conf"
sed "s|^ExecStart=loam |ExecStart=$LOAM |" examples/fleet/loam-metrics.service > "$units/loam-metrics.service"
for unit in example loam-metrics; do
  SYSTEMD_UNIT_PATH="$units:" systemd-analyze verify "$units/$unit.service" > "$work/out" 2>&1 ||
    fail "$unit.service: $(cat "$work/out")"
  grep "$units" "$work/out" && fail "$unit.service has a warning"
done
echo "ok: systemd accepts the units"

[ "$(id -u)" = 0 ] || { echo "ok: not root, so no private /tmp"; exit 0; }
command=$(sed -n "s|^ExecStart=\(.\)|\1|p" "$units/example.service.d/loam.conf")
unset LOAM_CONTROL_DIR XDG_RUNTIME_DIR
policy_copy=$(dirname "$LOAM")/systemd-test.lua
cp policies/default.lua "$policy_copy"
mkdir -m 1777 "$work/tmp"
# The build folder may be in /tmp, so it is mounted into the private /tmp.
build=$(dirname "$LOAM")
# shellcheck disable=SC2016,SC2086
(cd "$build" && exec unshare --mount sh -c 'mount --bind "$1" /tmp && mkdir -p "$2" &&
  mount --no-canonicalize --bind /proc/self/cwd/. "$2" && shift 2 && cd / && exec "$@"' sh "$work/tmp" "$build" \
  ${command/\/etc\/loam\/prod.lua/$policy_copy}) &
children="$children $!"
for _ in $(seq 60); do
  "$LOAM" ps 2> /dev/null | grep -q "^$! .*sleep" && break
  sleep 0.1
done
"$LOAM" ps | grep -q "^$! .*sleep" || fail "loam ps does not show it: $("$LOAM" ps)"
echo "ok: loam ps shows a service with a private /tmp"

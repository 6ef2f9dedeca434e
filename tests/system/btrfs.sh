# btrfs.sh - programs whose board is on a full btrfs end with their own status. btrfs writes changed
# pages to a new place, and a store that finds no new place is a bus error. The mount is visible
# only to this test, and ends with it.
if [ -z "${APART:-}" ]; then
  [ "$(id -u)" = 0 ] || { echo "skipped: only root can mount a filesystem" && exit 77; }
  APART=1 exec unshare --mount bash "$0"
fi
. tests/system/_lib.sh
need mkfs.btrfs perl
[ -x "${LOAM:-}" ] || skip "no loam command in LOAM"

truncate -s 120M "$work/image"
mkfs.btrfs -q "$work/image" > "$work/log" 2>&1 || fail "mkfs.btrfs: $(cat "$work/log")"
mkdir "$work/disk"
mount -o loop "$work/image" "$work/disk" 2> "$work/why" || skip "no btrfs: $(head -n 1 "$work/why")"
export LOAM_CONTROL_DIR=$work/disk/control

# fill - fills the filesystem, and has the pages of all boards written to it.
fill() {
  local n
  for n in 1 2 3 4; do
    dd if=/dev/zero of="$work/disk/fill$n" bs=1M 2> "$work/why" && fail "a filesystem without an end"
    sync -f "$work/disk"
  done
}

# waits OPTION... - starts a program that ends with status 7 when $work/go exists.
waits() {
  rm -f "$work/go" "$work"/disk/fill*
  started "$LOAM" run "$@" --policy "$policy" -- perl -e '$| = 1; print "ready\n";
    while (!-e $ARGV[0]) { my @a = map { "x" x 5000 } 1 .. 50; select undef, undef, undef, 0.01 }
    exit 7' "$work/go"
}
for options in "" --watch --service; do
  # shellcheck disable=SC2086
  waits $options
  fill
  touch "$work/go"
  status=0
  wait "$pid" || status=$?
  [ "$status" = 7 ] || fail "loam run $options: status $status: $(cat "$work/err")"
done
umount --lazy "$work/disk"
echo "ok: programs on a full btrfs end with their own status"

# _own_user.sh - starts a test of root again as a user that has no other program. A test sources this
# file before _lib.sh. Root sees the programs of all users, and the test would see them too.
if [ "$(id -u)" = 0 ] && [ -z "${LOAM_OWN_USER:-}" ]; then
  # A user for each test, because tests run beside each other.
  own=$((54000 + $(cksum <<< "$0" | cut -d' ' -f1) % 1000))
  unshare --user --map-user="$own" --map-group="$own" true 2> /dev/null || {
    echo "skipped: other programs of root would be seen" && exit 77
  }
  LOAM_OWN_USER=1 exec unshare --user --map-user="$own" --map-group="$own" bash "$0"
fi
unset XDG_RUNTIME_DIR

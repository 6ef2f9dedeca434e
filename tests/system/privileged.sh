# privileged.sh - a host that has more rights than the user who starts it takes no policy, no
# library and no folder from the environment.
. tests/system/_lib.sh
need "$CC" setpriv od
[ "$(id -u)" = 0 ] || skip "only root can make set-user-ID programs"

# The user who starts the programs, and folders that this user can write.
user=65534
as_user() { setpriv --reuid=$user --regid=$user --clear-groups "$@"; }
chmod 711 "$work"
mkdir -m 755 "$work/bin"
mkdir -m 1777 "$work/ran"
mkdir -m 700 "$work/socket"
chown $user "$work/socket"

# A library that writes the file $work/ran/NAME as soon as it is loaded.
library() {
  "$CC" -shared -fPIC -x c -o "$work/bin/$1.so" - << C || fail "the library $1 does not compile"
#include <fcntl.h>
__attribute__((constructor)) static void run(void) { open("$work/ran/$1", O_CREAT | O_WRONLY, 0600); }
C
}
library driver
library manager
library binding
chmod 644 "$policy"

# A policy whose own tests fail. hash_of prints the value of LOAM_VETTED that says that the tests
# have been run: its hash is FNV-1a (core/script/policy_file.c).
cat > "$work/failing.lua" << 'LUA'
local one, two = loam.host { name = "one" }, loam.host { name = "two", align = 64 }
return loam.policy {
  name = "failing",
  pick = function(req) return req.size < 100 and one or two end,
  tests = { { tag = "any", size = 10, expect = two } },
}
LUA
hash_of() {
  local hash=$((0xcbf29ce484222325)) byte
  for byte in $(od -An -v -tu1 "$1"); do hash=$(((hash ^ byte) * 0x100000001b3)); done
  printf '%016x' "$hash"
}

build privileged.c "$LOAM_BUILD/libloam.a" -lm -ldl
install -m 755 "$program" "$work/bin/host"

# start PROGRAM [drop] - as the user, starts the program with every variable that names code, a file
# or a folder. The output is in $work/out.
start() {
  rm -f "$work"/ran/*
  as_user env LOAM_POLICY="$policy" LOAM_WATCH=1 LOAM_CONTROL=1 LOAM_CONTROL_DIR="$work/socket" \
    LOAM_CUDA_DRIVER="$work/bin/driver.so" LOAM_MANAGER="$work/bin/manager.so" \
    LOAM_VETTED="$(hash_of "$work/failing.lua")" "$@" > "$work/out" 2> "$work/err" ||
    fail "$*: exit status $?: $(cat "$work/err")"
}

# has_run - prints the names of the libraries that were loaded.
has_run() { echo $(ls "$work/ran"); }
says() { echo $(cat "$work/out"); }

# In an ordinary process the variables have their effect; otherwise the rest of this test would
# prove nothing.
start "$work/bin/host" "$work/socket"
[ "$(says)" = "system socket" ] || fail "an ordinary host says $(says)"
case $(has_run) in
  *manager*) ;;
  *) fail "an ordinary host loaded $(has_run)" ;;
esac
loaded=$(has_run)
VETTED_POLICY=$work/failing.lua start env -u LOAM_POLICY "$work/bin/host" "$work/socket"
[ "$(says)" = "default socket vetted" ] || fail "LOAM_VETTED: an ordinary host says $(says)"
echo "ok: an ordinary host takes its policy, its folder and $loaded from the environment"

# ignores WHAT PROGRAM [drop] - fails unless a program with more rights ignores the variables.
ignores() {
  local what=$1
  shift
  start "$@" "$work/socket" ${drop:-}
  if [ "$(head -n 1 "$work/out")" != secure ]; then
    echo "not tried: $what: the kernel gives it no more rights here (nosuid, no_new_privs)"
    return
  fi
  [ -z "$(has_run)" ] || fail "$what: it loaded $(has_run)"
  [ "$(says)" = "secure default" ] || fail "$what: it says $(says)"
  VETTED_POLICY=$work/failing.lua start "$@" "$work/socket" ${drop:-}
  [ "$(says)" = "secure default refused" ] || fail "$what: LOAM_VETTED: it says $(says)"
  gained=1
  echo "ok: $what"
}
gained=

install -m 4755 "$program" "$work/bin/setuid"
ignores "a set-user-ID program" "$work/bin/setuid"
drop=drop ignores "one that has given its rights up" "$work/bin/setuid"
install -m 2755 "$program" "$work/bin/setgid"
ignores "a set-group-ID program" "$work/bin/setgid"
if command -v setcap > "$work/which" && cp "$program" "$work/bin/capable" &&
    chmod 755 "$work/bin/capable" && setcap cap_net_bind_service+ep "$work/bin/capable" 2> "$work/err"; then
  ignores "a program with a file capability" "$work/bin/capable"
else
  echo "not tried: a program with a file capability: $(cat "$work/err")"
fi

[ -n "$gained" ] || skip "the kernel gives programs no more rights here"

# The binding of LuaJIT takes no library from the environment either.
luajit=$(command -v "${LUAJIT:-luajit}") || skip "luajit is not installed"
cp -L "$luajit" "$work/bin/luajit"
chmod 4755 "$work/bin/luajit"
rm -f "$work"/ran/*
as_user env LOAM_LIBRARY="$work/bin/binding.so" LUA_PATH="$LOAM_BUILD/luajit/?.lua" \
  "$work/bin/luajit" -e 'require("loam")' > "$work/out" 2>&1
[ -z "$(has_run)" ] || fail "LuaJIT: it loaded $(has_run)"
echo "ok: LOAM_LIBRARY in a set-user-ID LuaJIT"

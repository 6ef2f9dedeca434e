# installer.sh - tests/install and cmake on a machine where packages are missing. Nothing is
# installed.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "failed: $*"; exit 1; }

# Acts as a machine without any Debian package. Its apt-get records its arguments.
mkdir "$work/bin"
printf '#!/bin/sh\nexit 1\n' > "$work/bin/dpkg-query"
printf '#!/bin/sh\necho "$@" >> "%s/asked"\n' "$work" > "$work/bin/apt-get"
printf '#!/bin/sh\necho 0\n' > "$work/bin/id"
chmod +x "$work"/bin/*
PATH=$work/bin:$PATH tests/install python > "$work/out"
for package in python3-dev python3-numpy python3-pip python3-venv gcc; do
  grep -qw "$package" "$work/asked" || fail "python: $package is not installed"
done
echo "ok: tests/install python installs what bindings/python/README.md uses"
PATH=$work/bin:$PATH tests/install site > "$work/out"
for package in furo mandoc python3-myst-parser python3-sphinx; do
  grep -qw "$package" "$work/asked" || fail "site: $package is not installed"
done
echo "ok: tests/install site installs what cmake/site/build uses"

# sudo asks for a password, and there is no terminal.
printf '#!/bin/sh\necho 1000\n' > "$work/bin/id"
printf '#!/bin/sh\necho "sudo: a terminal is required to read the password" >&2; exit 1\n' > "$work/bin/sudo"
chmod +x "$work/bin/sudo"
if PATH=$work/bin:$PATH tests/install python > "$work/out" 2>&1 < /dev/null; then fail "sudo: it ended well"; fi
grep -q 'sudo needs a password' "$work/out" || fail "sudo: $(cat "$work/out")"
if grep -q 'apt-get failed' "$work/out"; then fail "sudo: apt-get is blamed"; fi
echo "ok: sudo without a terminal is not apt-get's fault"

# configure WANTED UNWANTED OPTION... - configures without the programs of /usr/bin. Fails unless
# the messages contain each word of WANTED and no word of UNWANTED.
configure() {
  local wanted=$1 unwanted=$2 word
  shift 2
  rm -rf "$work/build"
  if cmake -S . -B "$work/build" -DCMAKE_C_COMPILER="$CC" -DCMAKE_MAKE_PROGRAM="$(command -v make)" "$@" \
    > "$work/out" 2>&1; then fail "it was configured without $wanted"; fi
  for word in $wanted; do grep -qw -- "$word" "$work/out" || fail "$word is not told: $(cat "$work/out")"; done
  for word in $unwanted; do
    if grep -qw -- "$word" "$work/out"; then fail "$word is told: $(cat "$work/out")"; fi
  done
}
ignored="-DCMAKE_IGNORE_PATH=/usr/bin;/bin;/usr/local/bin;/usr/sbin;/sbin"
unset PKG_CONFIG
configure "pkg-config luajit" "libluajit-5.1-dev libcmocka-dev" "$ignored" -DLOAM_TESTS=OFF
mkdir "$work/none"
PKG_CONFIG_LIBDIR=$work/none PKG_CONFIG_PATH='' configure "libluajit-5.1-dev libcmocka-dev" "luajit lua-busted" \
  -DLOAM_TESTS=ON -DCMAKE_BUILD_TYPE=Debug
echo "ok: cmake tells together what the build lacks"

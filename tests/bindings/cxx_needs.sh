# cxx_needs.sh - the first error of a compiler says what loam.hpp needs.
set -euo pipefail

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "failed: $*"; cat "$work/log"; exit 1; }

echo '#include <loam.hpp>' > "$work/host.cc"
compile() { "$CXX" -fsyntax-only -Icore/include -Ibindings/cxx "$@" "$work/host.cc" > "$work/log" 2>&1; }

# needs WORDS FLAG... - with these flags the first error has the words.
needs() {
  local words=$1
  shift
  if compile "$@"; then fail "compiled with $*"; fi
  grep -m 1 'error' "$work/log" | grep -qF "$words" || fail "$*: another error"
}

needs 'loam.hpp needs C++17 or later' -std=c++14
needs 'loam.hpp needs exceptions' -std=c++17 -fno-exceptions
compile -std=c++17 -fno-rtti || fail "not compiled with -fno-rtti"
echo "ok: C++17 and exceptions are asked for in words"

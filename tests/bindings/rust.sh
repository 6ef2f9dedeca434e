# rust.sh - the crate in bindings/rust. Its declarations agree with loam.h, its tests pass without
# any registry, and its example shows tags and strategies. Debian's cargo is used if it is
# installed.
set -euo pipefail

if [ -n "${LOAM_SANITIZE-}" ]; then
  echo "skipped: Rust's programs are not linked with a sanitizer's run-time"
  exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "failed: $*"; exit 1; }

"$LUAJIT" tests/bindings/rust_ffi.lua bindings/rust/src/ffi.rs > "$work/ffi.c"
"$CC" -fsyntax-only -Wall -Werror -Icore/include "$work/ffi.c" || fail "ffi.rs is not what loam.h declares"
echo "ok: the declarations are those of loam.h"
for edit in 's/ptr: \*mut c_void, size: usize) -> /ptr: *mut c_void, size: c_int) -> /' \
  's/pub line: c_int/pub line: u64/' 's/row: \*const loam_stats_row/row: *const loam_where/' 's/    pub device: c_int,//'; do
  sed "$edit" bindings/rust/src/ffi.rs > "$work/bad.rs"
  "$LUAJIT" tests/bindings/rust_ffi.lua "$work/bad.rs" > "$work/bad.c" 2> "$work/log"
  if "$CC" -fsyntax-only -Icore/include "$work/bad.c" 2> "$work/log"; then fail "accepted: $edit"; fi
done
version=$(sed -n 's/^#define LOAM_VERSION_[A-Z]* //p' core/include/loam.h | paste -sd .)
grep -qx "version = \"$version\"" bindings/rust/Cargo.toml || fail "the crate's version is not $version"

cargo=$(command -v /usr/bin/cargo || command -v cargo) || {
  echo "skipped: cargo is not installed"
  exit 77
}
[ "$cargo" != /usr/bin/cargo ] || export RUSTC=/usr/bin/rustc RUSTDOC=/usr/bin/rustdoc
# Works on a copy, because cargo writes a lock file, whose format depends on its version.
cp -r bindings/rust "$work/crate"
export LOAM_LIB_DIR=$LOAM_BUILD LD_LIBRARY_PATH=$LOAM_BUILD LOAM_CONTROL=0 CARGO_HOME=$work/home
target=$LOAM_BUILD/rust
cargo_in_copy() { (cd "$work/crate" && "$cargo" "$@" --offline --target-dir "$target"); }
cargo_in_copy test > "$work/log" 2>&1 || { cat "$work/log"; fail "cargo test"; }
grep -q '^warning' "$work/log" && { cat "$work/log"; fail "warnings"; }
grep '^test result' "$work/log"
cargo_in_copy run --quiet --example tags > "$work/out"
diff -u - "$work/out" << 'EXPECTED' || fail "the example"
words: tag 'index.words', strategy words
pages: tag 'cache', strategy plain
plain: tag '', strategy plain
EXPECTED
echo "ok: the example shows its tags"

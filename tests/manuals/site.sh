# site.sh - makes the site of the manuals, and finds dead links in it.
set -euo pipefail
umask 022
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

status=0
cmake/site/build "$work" > "$work/log" 2>&1 || status=$?
if [ "$status" = 77 ]; then
  echo "skipped: $(cat "$work/log")"
  exit 77
elif [ "$status" != 0 ]; then
  cat "$work/log"
  exit 1
fi

fail() { echo "failed: $*"; exit 1; }
static=$work/site/_static
grep -q 'prefers-color-scheme: dark' "$static/styles/furo.css" || fail "no style for a dark system"
if grep -q '^import' "$static/scripts/furo.js"; then fail "a browser refuses the theme's script"; fi
grep -q 'policies/language' "$work/site/searchindex.js" || fail "the search does not know a manual"
"${LOAM_PYTHON:-/usr/bin/python3}" tests/manuals/links.py "$work/site"

# site.sh - makes the site of the manuals, and looks for links in it that lead nowhere.
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
"${LOAM_PYTHON:-/usr/bin/python3}" tests/manuals/links.py "$work/site"

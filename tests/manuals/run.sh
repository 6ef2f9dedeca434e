# run.sh - runs the code blocks of one manual as a test: run.sh MANUAL
set -euo pipefail

if [ -n "${LOAM_SANITIZE-}" ]; then
  echo "skipped: a build with sanitizers is not for installing"
  exit 77
fi
umask 022
scene=$(mktemp -d)
. tests/manuals/scene.sh
trap 'stop_all; rm -rf "$scene"' EXIT
make_scene "$scene"
cp tests/manuals/scene.sh "$scene/scene.sh"
trap 'exit 130' INT
trap 'exit 143' TERM
"$LUAJIT" tests/manuals/run.lua "$1" "$scene"

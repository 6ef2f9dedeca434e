# scene.sh - makes the folder in which the blocks of the manuals run: an installed loam, two
# policies, a Python program, and functions that the marks in the manuals call.
#
# The manuals use these names: prod.lua is the policy in force, next.lua its edit, train.py an
# unmodified program, host.c a host. /etc/loam stands for the folder itself.

# make_scene FOLDER - makes the folder with all files that exist before the first block runs.
make_scene() {
  scene=$1
  mkdir -p "$scene/here" "$scene/control"
  cmake --install "$LOAM_BUILD" --prefix "$scene/usr/local" > "$scene/log" || {
    cat "$scene/log"
    return 1
  }
  cp -r tests/manuals/scene/. "$scene/here"
  local name library
  for name in policies examples tests bindings core; do ln -s "$PWD/$name" "$scene/here/$name"; done
  for name in build build-debug; do ln -s "$LOAM_BUILD" "$scene/here/$name"; done
  library=$(dirname "$(find "$scene/usr/local" -name libloam.so)")
  export PKG_CONFIG_PATH=$library/pkgconfig LD_LIBRARY_PATH=$library
  export CMAKE_PREFIX_PATH=$scene/usr/local LUA_PATH="$scene/usr/local/share/lua/5.1/?.lua;;"
  export PATH=$scene/usr/local/bin:/usr/bin:$PATH LOAM_CONTROL_DIR=$scene/control
  export PYTHONPATH=$LOAM_BUILD/python PYTHONDONTWRITEBYTECODE=1
  unset LOAM_PRELOAD LOAM_LIBRARY
}

# await_memory PID - waits until train.py has its memory in a process, or the process has ended.
await_memory() {
  local deadline=$((SECONDS + 60))
  until [ -e "ready.$1" ] || ! kill -0 "$1" 2> /dev/null; do
    [ $SECONDS -lt $deadline ] || return 1
    sleep 0.05
  done
}

# start NUMBER FOLDER OPTION... - starts train.py by `loam run OPTION...` in a folder below, until
# the end of the manual. NUMBER is the process id that the manual gives to it.
start() {
  local number=$1 folder=$2
  shift 2
  [ ! -e "pid.$number" ] || return 0
  (
    cd "$folder" || exit 1
    TRAIN_SECONDS=600 setsid loam run "$@" -- python3 "$scene/here/train.py" > started 2>&1 < /dev/null &
    await_memory $! && kill -0 $! && echo $! > "$scene/here/pid.$number"
  ) || {
    cat "$folder/started"
    return 1
  }
}

# start_refused - starts program 32025, and then saves its policy with an error, which it refuses.
start_refused() {
  [ ! -e pid.32025 ] || return 0
  mkdir -p refused
  cp refused.lua refused/prod.lua
  start 32025 refused --watch --policy prod.lua || return 1
  sed 's/req.tag:under/req.tga:under/' refused.lua > refused/edit
  mv refused/edit refused/prod.lua
  local deadline=$((SECONDS + 60))
  until loam status "$(cat pid.32025)" | grep -q 'last *refused'; do
    [ $SECONDS -lt $deadline ] || return 1
    sleep 0.05
  done
}

# wrong POLICY MISTAKE - runs wrong.c under a policy, with the name df, and prints loam's line.
wrong() {
  "$CC" -w -O0 -o df wrong.c
  loam run --policy "$1" -- ./df "$2" 2>&1 || true
}

# until_true COMMAND... - repeats a command until it succeeds.
until_true() {
  local deadline=$((SECONDS + 60))
  until "$@" > /dev/null 2>&1; do
    [ $SECONDS -lt $deadline ] || return 1
    sleep 0.05
  done
}

# stop NUMBER - ends a program that `start` has started.
stop() {
  local pid
  pid=$(cat "pid.$1") || return 0
  rm "pid.$1"
  kill "$pid"
  while kill -0 "$pid" 2> /dev/null; do sleep 0.05; done
}

# stop_all - ends all programs that were started and still run. The environment of a process shows
# whether it is one of them: a program may have ended, and another may have got its process id.
stop_all() {
  local file pid
  for file in "$scene"/here/pid.*; do
    [ -e "$file" ] || continue
    pid=$(cat "$file")
    if grep -qs "=$scene/control" "/proc/$pid/environ"; then kill "$pid" 2> /dev/null || true; fi
  done
}

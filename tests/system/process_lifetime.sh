# process_lifetime.sh - allocation before main and after it, fork, vfork, spawn, threads, libraries
# that are loaded and unloaded, C++.
. tests/system/_lib.sh
need "$CC" "$CXX"

build early.c && compare_runs "allocating before constructors" "$program" &&
  LOAM_CONTROL=0 compare_runs "the same without a board" "$program" &&
  LOAM_SERVICE=1 compare_runs "the same with a service" "$program"
build late.c && compare_runs "allocating after destructors" "$program"
build threads.c && compare_runs "threads that free what others allocated" "$program"
build forks.c && compare_runs "fork, vfork and spawn from a busy process" "$program"
build mallinfo.c -Wno-deprecated-declarations &&
  LOAM_CONTROL=0 compare_runs "what the C library tells of memory" "$program"
build callers.c -rdynamic && compare_runs "callers by the thousand" "$program"
build first_thread_ends.c && compare_runs "a first thread that ends before the others" "$program"
# The plain program may hang, because the C library does not promise that this works.
build cancelled.c && run_under_policy "$program" > "$work/out" && echo "ok: threads cancelled at any instruction" ||
  fail "threads cancelled at any instruction"
# Without a policy, the C library's own malloc has not been used before.
env LD_PRELOAD="$LOAM_PRELOAD" "$program" > "$work/out" && echo "ok: the same without a policy" ||
  fail "threads cancelled at any instruction, without a policy"
build plugin.c -shared -fPIC && plugin=$program
build opens.c && compare_runs "libraries that come and go" "$program" "$plugin"
mkdir -p "$work/sub"
build deep.c -DPART=2 -shared -fPIC && mv "$program" "$work/sub/libdeep_inner.so"
build deep.c -DPART=1 -shared -fPIC '-Wl,--enable-new-dtags,-rpath,$ORIGIN/sub' &&
  mv "$program" "$work/libdeep.so"
# An open library keeps its bindings, so each way to open it needs its own file.
cp "$work/libdeep.so" "$work/libdeep_too.so"
build deep.c -DPART=0 &&
  compare_runs "libraries that bind to themselves first" "$program" "$work/libdeep.so" "$work/libdeep_too.so"
# Without LOAM_EVENTS=none, loam would report a failed request. Plain, the C library's arenas may
# take most of the limit, so that the program finds too little memory.
build limited.c -Wno-nonnull && LOAM_EVENTS=none run_under_policy "$program" > "$work/out" &&
  [ "$(grep -c 'as it must be\|all' "$work/out")" = 5 ] ||
  fail "a limit on address space, set late: $(cat "$work/out")"
echo "ok: a limit on address space, set late"
if [ "$(id -u)" = 0 ] && build locked.c; then
  compare_runs "memory that is locked" "$program"
  compare_runs "memory that was locked before a refused mlockall" "$program" kept
  run_under_policy "$program" refused > "$work/out" || fail "memory that is locked, mlockall refused"
  echo "ok: memory that is locked mapping by mapping"
  most=$(ulimit -Hl)
  [ "$most" != unlimited ] && [ "$most" -lt 8192 ] ||
    LOAM_EVENTS=none compare_runs "memory that is locked under a low limit" "$program" limited
fi
build locals.cc -std=c++17 && compare_runs "C++'s thread_local objects" "$program"
build operators.cc -std=c++17 && compare_runs "C++'s operators" "$program"
build operators.cc -std=c++17 -static-libstdc++ -static-libgcc && compare_runs "with a C++ library linked in" "$program"

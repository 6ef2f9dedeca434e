# checkers.sh - AddressSanitizer and Valgrind see each block of a host whose policy gives it to
# malloc, with the function that made the block; ThreadSanitizer reports no races of loam.
. tests/system/_lib.sh
need "$CC"
: "${LOAM_BUILD:?the folder of the build; ctest sets it}"

cat > "$work/host.c" <<'C'
#include <loam.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

__attribute__((noinline)) static char *make_frame(void) {
  char *frame = loam_malloc(LOAM_SITE("frame.pixels"), 1000);
  frame[0] = 1;
  return frame;
}

static void *work_on(void *unused) {
  for (int i = 0; i < 1000; i++) {
    loam_free(make_frame());
    loam_free(loam_malloc(loam_site_get("frame.row"), (size_t)i));
  }
  return unused;
}

int main(int count, char **argument) {
  pthread_t threads[4];
  (void)argument;
  loam_free(make_frame()); /* loads the policy before there are threads */
  for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, work_on, NULL);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  static char **volatile names; /* points to memory of malloc from a block of loam */
  names = loam_malloc(LOAM_SITE("names"), 100);
  names[0] = malloc(100);
  char *frame = make_frame();
  loam_free(frame);
  if (count > 1) printf("%d\n", frame[500]);
  puts("end");
}
C
cat > "$work/checked.lua" <<'LUA'
local all = loam.system {}
return loam.policy { name = "checked", pick = function(req) return all end }
LUA
export LOAM_CONTROL=0 LOAM_POLICY=$work/checked.lua
report=$work/report

# build_as NAME FLAG... - builds the host with the flags.
build_as() {
  local name=$1
  shift
  "$CC" -g -O1 -pthread "$@" -Icore/include "$work/host.c" -o "$work/$name" \
    -L"$LOAM_BUILD" -lloam -Wl,-rpath,"$LOAM_BUILD" 2> "$work/log" ||
    skip "$CC cannot build with $*: $(head -n 1 "$work/log")"
}

# sees WORDS NAME - fails unless the report has the words, and the function that made the block.
sees() {
  grep -q "$1" "$report" || fail "$2: no \"$1\": $(head -n 30 "$report")"
  grep -q 'make_frame' "$report" || fail "$2: no make_frame: $(head -n 60 "$report")"
  echo "ok: $2"
}

build_as address -fsanitize=address
export ASAN_OPTIONS=fast_unwind_on_malloc=0
"$work/address" > "$report" 2>&1 || fail "AddressSanitizer: $(head -n 30 "$report")"
"$work/address" mistake > "$report" 2>&1 && fail "AddressSanitizer sees nothing"
sees heap-use-after-free AddressSanitizer

build_as plain
if command -v valgrind > "$work/log"; then
  valgrind=(valgrind --num-callers=20 --leak-check=full --error-exitcode=9)
  "${valgrind[@]}" "$work/plain" > "$report" 2>&1 || fail "Valgrind: $(tail -n 30 "$report")"
  "${valgrind[@]}" "$work/plain" mistake > "$report" 2>&1
  [ $? = 9 ] || fail "Valgrind sees nothing: $(tail -n 30 "$report")"
  sees 'Invalid read of size 1' Valgrind
else
  echo "not tried with Valgrind, which is not installed"
fi

build_as thread -fsanitize=thread
echo 'called_from_lib:libloam.so' > "$work/loam.supp"
TSAN_OPTIONS=suppressions=$work/loam.supp "$work/thread" > "$report" 2>&1 || {
  grep -q 'unexpected memory mapping' "$report" && skip "ThreadSanitizer does not start here"
  fail "ThreadSanitizer: $(head -n 30 "$report")"
}
echo "ok: ThreadSanitizer"

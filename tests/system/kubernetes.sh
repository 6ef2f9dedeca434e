# kubernetes.sh - the example of examples/fleet/kubernetes. `loam check` reads its ConfigMap, and
# 100 processes, each in its own process and mount namespaces, obey the files that kubelet writes
# into a volume. There is no kubelet here: `publish` changes the folder as kubelet's AtomicWriter
# does.

. tests/system/_lib.sh
need "$CC" unshare mountpoint
[ -x "${LOAM:-}" ] || skip "no loam command in LOAM"
unshare --user --map-root-user --pid --mount --fork true 2> /dev/null || skip "no namespaces for users"

HOSTS=100
# SIGTERM does not end unshare. The first process of a namespace ends with its unshare.
trap 'status=$?; kill -KILL $children 2> /dev/null; (exit "$status"); finish' EXIT

manifest=examples/fleet/kubernetes/policy.yaml
"$LOAM" check "$manifest" > "$work/out" || fail "the ConfigMap is refused"
grep -qF "$manifest: ok: \"prod\"" "$work/out" || fail "check: $(cat "$work/out")"
sed 's/huge =/hug =/' "$manifest" > "$work/bad.yaml"
"$LOAM" check "$work/bad.yaml" 2> "$work/out" && fail "a bad ConfigMap is accepted"
line=$(grep -n 'hug =' "$work/bad.yaml" | cut -d: -f1)
grep -qF "$work/bad.yaml:$line: option:" "$work/out" || fail "its line: $(cat "$work/out")"
echo "ok: loam check reads a ConfigMap"

# kubelet gives the folder of an emptyDir the mode 0777, and loam puts no board into such a folder.
# So the variable of host.yaml names a folder below it, which loam makes.
host=examples/fleet/kubernetes/host.yaml
mounted=$(sed -n 's/.*name: boards, mountPath: \(.*\) }.*/\1/p' "$host" | sort -u)
boards=$(sed -n 's/.*name: LOAM_CONTROL_DIR, value: \([^ ]*\) }.*/\1/p' "$host" | sort -u)
case $boards in "$mounted"/?*) ;; *) fail "the boards are in '$boards', which is not below '$mounted'" ;; esac
mkdir -m 0777 "$work/empty"
policy_text 64 > "$work/prod.lua"
LOAM_CONTROL_DIR=$work/empty${boards#"$mounted"} "$LOAM" run --policy "$work/prod.lua" -- true \
  2> "$work/out" || fail "it does not start: $(cat "$work/out")"
[ ! -s "$work/out" ] || fail "a program has no board there: $(cat "$work/out")"
echo "ok: the boards of a pod have a folder"

volume=$work/volume
mkdir "$volume"
ln -s ..data/prod.lua "$volume/prod.lua"
written=0
publish() { # publish TEXT - writes a new version of the volume
  local old
  old=$(readlink "$volume/..data") || old=
  written=$((written + 1))
  mkdir "$volume/..$written"
  printf '%s\n' "$1" > "$volume/..$written/prod.lua"
  ln -s "..$written" "$volume/..data_tmp"
  mv -T "$volume/..data_tmp" "$volume/..data"
  [ -z "$old" ] || rm -r "${volume:?}/$old"
}
# obey ALIGNMENT - waits until all processes print that they obey it.
obey() { await "not all of $HOSTS obey $1" all_say "obeys $1" out; }
# all_say LINE NAME - succeeds if each process has written the line to its file NAME.NUMBER. A
# process that has not started yet has no file.
all_say() {
  local line=$1 count
  count=$(cat "$work/$2".* | grep -cF -- "$line")
  echo "$count"
  [ "$count" = "$HOSTS" ]
}

build aligned.c
publish "$(policy_text 64)"
for i in $(seq "$HOSTS"); do
  unshare --user --map-root-user --pid --mount --mount-proc --kill-child --fork \
    "$LOAM" run --watch --policy "$volume/prod.lua" -- "$program" 64 2048 4096 \
    > "$work/out.$i" 2>> "$work/err.$i" &
  children="$children $!"
  disown # the shell then does not report its end
done
obey 64
echo "ok: $HOSTS processes in namespaces of their own obey"

# Outside of the namespaces, `loam ps` shows each process with the process id that it has here.
all_shown() {
  "$LOAM" ps | tee "$work/ps"
  [ "$(grep -c ' aligned .*running' "$work/ps")" = "$HOSTS" ]
}
# A process writes its first entry some time after it has started.
await "loam ps does not show all" all_shown
pid=$(pgrep -f "^$program " | head -n 1)
grep -q "^ *$pid .* aligned .*running" "$work/ps" || fail "loam ps does not show $pid as running: $(cat "$work/ps")"
"$LOAM" stats "$pid" | grep -q 'malloc.aligned' || fail "loam stats $pid: $("$LOAM" stats "$pid")"
echo "ok: loam ps and loam stats show them from outside"

begin=$(date +%s%N)
publish "$(policy_text 2048)"
obey 2048
echo "ok: they obey the next version, $((($(date +%s%N) - begin) / 1000000)) ms after it was written"

publish 'return loam.polcy {}'
await "not all tell of a refusal" all_say "loam has no 'polcy'" err
publish "$(policy_text 4096)"
obey 4096
echo "ok: each tells of a version that is refused, and obeys the one after it"

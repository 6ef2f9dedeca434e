# slurm.sh - examples/fleet/slurm/task_prolog with a private Slurm on this machine. loam governs
# each task of srun and shows its rank and job, an edit reaches all tasks, and a job may have
# another policy.

. tests/system/_lib.sh
need munged slurmctld slurmd srun sinfo scancel hostname python3
[ -x "${LOAM:-}" ] || skip "no loam command in LOAM"

TASKS=4
live=$work/prod.lua
policy_text 64 > "$live"
mkdir -m 700 "$work/munge" "$work/state" "$work/spool"
sed "s|^PRELOAD=.*|PRELOAD=$LOAM_PRELOAD|; s|^POLICY=.*|POLICY=$live|" \
  examples/fleet/slurm/task_prolog > "$work/prolog"
chmod +x "$work/prolog"

# A cluster of one node, which is this machine, with its own authentication service.
head -c 128 /dev/urandom > "$work/munge/key"
chmod 400 "$work/munge/key"
node=$(hostname -s)
cat > "$work/slurm.conf" << END
ClusterName=loam
SlurmctldHost=$node(127.0.0.1)
SlurmctldPort=$(free_port)
SlurmdPort=$(free_port)
AuthType=auth/munge
AuthInfo=socket=$work/munge/socket
SlurmUser=$(id -un)
SlurmdUser=$(id -un)
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd.pid
SlurmctldLogFile=$work/slurmctld.log
SlurmdLogFile=$work/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SlurmdParameters=config_overrides
TaskProlog=$work/prolog
NodeName=$node NodeAddr=127.0.0.1 CPUs=$TASKS
PartitionName=all Nodes=$node Default=YES State=UP
END
export SLURM_CONF=$work/slurm.conf

# daemon COMMAND... - starts a daemon as a background job of this shell; the daemon itself does not
# fork.
daemon() {
  "$@" > "$work/${1##*/}.out" 2>&1 &
  children="$! $children" # finish ends them in this order: slurmd first, munged last
}
daemon munged --foreground --force --key-file="$work/munge/key" --socket="$work/munge/socket" \
  --pid-file="$work/munge/pid" --log-file="$work/munge/log" --seed-file="$work/munge/seed"
await "munged does not start" test -S "$work/munge/socket"
daemon slurmctld -D -i
daemon slurmd -D
slurmd=$!
# is_idle - succeeds if the node can run tasks, or slurmd has ended.
is_idle() { ! kill -0 "$slurmd" || [ "$(sinfo -h -o %T)" = idle ]; }
await "slurmd does not start" is_idle
kill -0 "$slurmd" 2> "$work/why" || skip "slurmd does not start here: $(tail -n 3 "$work/slurmd.out" "$work/slurmd.log")"

# shellcheck disable=SC2016
srun -n "$TASKS" sh -c 'echo $SLURM_PROCID $LOAM_POLICY $LD_PRELOAD' | sort > "$work/out" || fail "srun"
for task in 0 1 2 3; do echo "$task $live $LOAM_PRELOAD"; done | diff - "$work/out" || fail "not governed"
echo "ok: each task has the variables of loam"

cp "$work/prolog" "$work/prolog.whole"
sed "s|^PRELOAD=.*|PRELOAD=$work/none.so|" "$work/prolog.whole" > "$work/prolog"
mkdir "$work/bin"
printf '#!/bin/sh\necho "$*" > %s/logged\n' "$work" > "$work/bin/logger"
chmod +x "$work/bin/logger"
[ "$(PATH=$work/bin:$PATH srun -n 1 echo works 2> "$work/why")" = works ] || fail "a node without loam runs no task"
grep -qx -- "-t loam a task of job [0-9]* runs without loam: this node has no $work/none.so" "$work/logged" ||
  fail "a node without loam is not told: $(cat "$work/logged" "$work/why")"
echo "ok: on a node without loam a task runs, and the log has a line"
mv "$work/prolog.whole" "$work/prolog"

# The tasks of a step go on when slurmd is killed, so a failed test ends its jobs first.
end_jobs() {
  status=$?
  timeout 60 scancel --user="$(id -un)" 2> "$work/why"
  for _ in $(seq 100); do
    [ -n "$(timeout 10 squeue -h 2> "$work/why")" ] || break
    sleep 0.1
  done
  (exit "$status")
  finish
}
trap end_jobs EXIT

# starts POLICY - starts four tasks in the background, which request memory until they are killed.
starts() {
  srun --quiet -n "$TASKS" python3 -u -c '
import time
while True:
    bytearray(200000)
    time.sleep(0.02)' > "$work/out" 2> "$work/err" &
  step=$!
  children="$step $children"
  await "not all tasks are shown" are_shown "$1"
}
# are_shown POLICY - succeeds if `loam ps` shows each task of a step once. Writes their process ids
# and jobs.
are_shown() {
  "$LOAM" ps --json | python3 -c '
import json, sys
for one in json.load(sys.stdin)["programs"]:
    if one["path"] == sys.argv[1] and one["program"].startswith("python"):
        print(one["pid"], one.get("rank"), one.get("job"))' "$1" > "$work/tasks"
  cat "$work/tasks"
  pids=$(sed 's/ .*//' "$work/tasks")
  [ "$(cut -d ' ' -f 2 "$work/tasks" | sort | tr '\n' ' ')" = "0 1 2 3 " ] &&
    [ "$(cut -d ' ' -f 3 "$work/tasks" | sort -u | grep -c '^[0-9]*\.0$')" = 1 ]
}
starts "$live"
"$LOAM" ps > "$work/ps"
grep -Eq 'PROGRAM +RANK +JOB' "$work/ps" || fail "no ranks: $(cat "$work/ps")"
echo "ok: loam ps shows the rank and the job of each task"

policy_text 2048 | save "$live"
# shellcheck disable=SC2086
"$LOAM" wait --policy "$live" --pid $pids --timeout 180s > "$work/wait" 2>&1 || fail "$(cat "$work/wait")"
echo 'return loam.polcy {}' | save "$live"
# shellcheck disable=SC2086
"$LOAM" wait --policy "$live" --pid $pids > "$work/wait" 2>&1 && fail "a bad policy is obeyed"
[ "$(grep -c "loam has no 'polcy'" "$work/wait")" = "$TASKS" ] || fail "not all refuse: $(cat "$work/wait")"
echo "ok: an edit reaches all tasks, and a bad one none"

kill "$step"
wait "$step" 2> "$work/why"
no_task() { "$LOAM" ps --json > "$work/ps" && ! grep -F "\"path\":\"$live\"" "$work/ps"; }
await "tasks are left" no_task
[ "$(srun -n 1 echo works 2> "$work/why")" = works ] || fail "a bad policy keeps a task from its start"
grep -q "loam has no 'polcy'" "$work/why" || fail "no reason: $(cat "$work/why")"
echo "ok: a task starts without a policy that is refused, and says so"

policy_text 4096 > "$work/own.lua"
LOAM_POLICY=$work/own.lua starts "$work/own.lua"
kill "$step"
# shellcheck disable=SC2016
[ -z "$(LOAM_POLICY='' srun -n 1 sh -c 'echo $LD_PRELOAD' 2> "$work/why")" ] || fail "a job without loam has it"
echo "ok: a job may have a policy of its own, or none"

# postgres.sh - PostgreSQL, a tree of processes with shared memory: it answers queries with parallel
# workers, and its main process, a session and new workers obey an edit.
. tests/system/_lib.sh
. tests/system/_server.sh
need pgrep
bin=$(printf '%s\n' /usr/lib/postgresql/*/bin | sort -V | tail -n 1)
for program in initdb postgres psql; do
  [ -x "$bin/$program" ] || skip "PostgreSQL's $program is not installed"
done
[ -x "${LOAM:-}" ] || skip "no loam command in LOAM"

# The server does not start as root.
if [ "$(id -u)" = 0 ]; then
  as=(setpriv --reuid=postgres --regid=postgres --init-groups)
  id postgres > "$work/id" 2>&1 || skip "there is no user postgres"
  "${as[@]}" "$LOAM" --version > "$work/version" 2>&1 ||
    skip "user postgres cannot open the folder of the build"
  chown postgres "$work"
fi
ask() { "${as[@]}" "$bin/psql" -X -q -A -t -v ON_ERROR_STOP=1 -h "$work" -d postgres "$@"; }
is_up() { ask -c 'select 1'; }

# A table of 100,000 rows, and queries that two parallel workers take part in.
cat > "$work/queries" << 'END'
create table t as select i, md5(i::text) as m from generate_series(1, 100000) i;
analyze t;
explain (analyze, costs off, timing off, summary off) select sum(i) from t;
select count(*), sum(i), min(m), max(m) from t;
select md5(string_agg(m, ',' order by m)) from t;
select a.i % 7 as k, count(*), sum(length(b.m)) from t a join t b on a.i = b.i + 1
  group by k order by k;
create index on t (m);
select i from t where m = md5('777');
do $$ begin for k in 1..2000 loop perform format('%s', repeat(k::text, k % 500)); end loop; end $$;
END
settings=(-c max_parallel_workers_per_gather=2 -c min_parallel_table_scan_size=0
  -c parallel_setup_cost=0 -c parallel_tuple_cost=0 -c autovacuum=off -c fsync=off -c jit=off)
endless='select count(*) from t a, t b, t c where a.m || b.m < c.m;'

workers() { pgrep -P "$server" -f '^postgres: parallel worker'; }
are_two() { [ "$(workers | wc -l)" = 2 ]; }
are_none() { [ -z "$(workers)" ]; }
cancel() {
  ask -c "select pg_cancel_backend($session)" > "$work/cancel" || fail "$way: no cancel"
  await "$way: parallel workers do not end" are_none
}
# A new connection makes the main process allocate. The session's query must have no parallel workers,
# for which the test waits later.
all_obey() {
  echo 'select md5(string_agg(i::text, $$,$$)) from generate_series(1, 100000) i;' >&"$line"
  ask -c 'select 1' && obeys "$server" after && obeys "$session" after
}
# begin_session OPTION... - starts a session, which reads from the descriptor $line. The session itself
# tells its $session: the session of an earlier question may still be there.
begin_session() {
  rm -f "$work/session.out"
  ask "$@" < "$work/session" > "$work/session.out" 2>&1 &
  exec {line}> "$work/session"
  echo 'select pg_backend_pid();' >&"$line"
  await "$way: no session" has_session
}
has_session() { session=$(head -n 1 "$work/session.out") && [ -n "$session" ]; }

mkfifo "$work/session"
for way in $ways; do
  write "$live" before 64
  rm -rf "$work/data"
  (run_as "$way" "$bin/initdb" -D "$work/data" -A trust -N --no-locale -E UTF8) \
    > "$work/log" 2>&1 ||
    fail "$way: initdb: $(cat "$work/log")"
  (run_as "$way" "$bin/postgres" -D "$work/data" -k "$work" -h '' "${settings[@]}") \
    > "$work/log" 2>&1 &
  server=$!
  children=$server
  await "$way: PostgreSQL does not start" is_up
  ask -f "$work/queries" > "$work/$way.out" 2>&1 || fail "$way: $(cat "$work/$way.out" "$work/log")"
  grep -q 'Workers Launched: 2' "$work/$way.out" || fail "$way: no workers: $(cat "$work/$way.out")"
  cmp -s "$work/plain.out" "$work/$way.out" || fail "$(diff "$work/plain.out" "$work/$way.out")"
  echo "ok: $way: queries with parallel workers"

  begin_session
  echo "$endless" >&"$line"
  await "$way: no parallel workers" are_two
  reached "$way" "$server"
  same_figures "$way" "$server"
  cancel
  exec {line}>&-
  wait $!

  if [ "$way" = run ]; then
    begin_session -v ON_ERROR_STOP=0
    write "$live" after 4096
    await "a session or the main process does not obey an edit" all_obey
    echo "$endless" >&"$line"
    await "no parallel workers" are_two
    for worker in $(workers); do
      obeys "$worker" after || fail "parallel worker $worker: $("$LOAM" status "$worker" 2>&1)"
    done
    cancel
    exec {line}>&-
    wait $!
    echo "ok: the main process, a session and parallel workers obey an edit"
  fi

  kill -INT "$server"
  wait "$server" || fail "$way: it ended with $?: $(cat "$work/log")"
  children=
  tail -n 1 "$work/log" | grep -q 'database system is shut down' || fail "$way: $(cat "$work/log")"
done

# sqlite.sh - sqlite3: inserts, an index, joins, a window, a blob of megabytes, vacuum, integrity.
. tests/system/_lib.sh
need sqlite3

cat > "$work/script.sql" <<'SCRIPT'
PRAGMA journal_mode = WAL;
CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT, value REAL, data BLOB);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 40000)
  INSERT INTO t SELECT i, 'name' || (i * 7919 % 10007), i * 0.5, zeroblob(i % 100) FROM n;
CREATE INDEX by_name ON t (name);
SELECT count(*), sum(value), max(length(data)) FROM t;
SELECT a.name, count(*) AS c FROM t a JOIN t b USING (name) GROUP BY a.name ORDER BY c DESC, a.name LIMIT 5;
SELECT id, sum(value) OVER (ORDER BY id ROWS 10 PRECEDING) FROM t WHERE id % 5000 = 0;
INSERT INTO t VALUES (100000, 'big', 0, zeroblob(8000000));
SELECT length(hex(data)) FROM t WHERE id = 100000;
DELETE FROM t WHERE id % 3 = 0;
VACUUM;
PRAGMA integrity_check;
SELECT nosuch FROM t;
SCRIPT
cat > "$work/life" <<'SCRIPT'
rm -f "$1"/db*
sqlite3 "$1/db" < "$1/script.sql"
SCRIPT
compare_runs "sqlite3" bash "$work/life" "$work"

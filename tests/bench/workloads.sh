# workloads.sh - the workloads of tests/bench/programs, which sources this file. A workload NAME is
#
#   needs_NAME      the programs that it needs, and Debian's packages of them: PROGRAM=PACKAGE
#   prepare_NAME    makes its input in the current folder, once; always makes an equal input
#   run_NAME        runs it in a copy of that folder, by `under COMMAND...`, and prints an output
#                   that must not depend on the allocator
#
# Nothing is downloaded, and random numbers are drawn from a seed. Each workload takes about a
# second.
workloads=(sqlite3 redis gcc numpy python git sort lua perl jq xmllint stress-ng)

# noise LINES TEXT - prints the text LINES times, a line each. @1 becomes the line's number, and @2
# to @4 become random numbers.
noise() {
  luajit - "$1" "$2" << 'LUA'
local count, text = ...
local seed, value = 42, {}
for i = 1, tonumber(count) do
  value["1"] = i
  for k = 2, 4 do
    seed = seed * 16807 % 2147483647
    value[tostring(k)] = seed
  end
  print((text:gsub("@(%d)", value)))
end
LUA
}

needs_sqlite3=sqlite3=sqlite3
prepare_sqlite3() {
  cat > script.sql << 'SQL'
CREATE TABLE t (id INTEGER PRIMARY KEY, name TEXT, value INTEGER, data BLOB);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 120000)
  INSERT INTO t SELECT i, 'name' || (i * 7919 % 10007), i % 1000, zeroblob(i % 200) FROM n;
CREATE INDEX by_name ON t (name);
SELECT name, count(*), sum(value) FROM t GROUP BY name ORDER BY 3 DESC, 1 LIMIT 5;
SELECT length(group_concat(a.name || b.id)) FROM t a JOIN t b USING (name) WHERE a.id % 9 = 0;
SELECT sum(length(json_object('id', id, 'name', name, 'value', json_array(value, id)))) FROM t;
SELECT max(length(upper(replace(name, 'n', 'mm')) || hex(data))) FROM t;
UPDATE t SET name = name || 'x' WHERE id % 4 = 0;
DELETE FROM t WHERE id % 3 = 0;
SELECT count(*), sum(value), sum(length(data)) FROM t;
SQL
}
run_sqlite3() { under sqlite3 :memory: < script.sql; }

# The figures are the server's, from its start to its end. The client has the C library's malloc.
needs_redis="redis-server=redis-server redis-benchmark=redis-tools redis-cli=redis-tools"
prepare_redis() { :; }
run_redis() {
  local socket=$PWD/redis.sock server
  ask() { redis-cli -s "$socket" "$@"; }
  under redis-server --port 0 --unixsocket "$socket" --save '' --appendonly no \
    --enable-debug-command local > log 2>&1 &
  server=$!
  trap 'ask shutdown nosave > /dev/null 2>&1 || true' EXIT
  while ! ask ping > /dev/null 2>&1; do
    if ! kill -0 "$server" 2> /dev/null; then cat log >&2; return 1; fi
    sleep 0.01
  done
  redis-benchmark -s "$socket" -q -n 100000 -r 50000 -c 20 -P 16 -d 200 \
    -t set,get,lpush,rpop,sadd,hset,zadd > benchmark
  ask flushall
  ask eval 'for i = 1, 50000 do redis.call("set", "k" .. i, string.rep("v" .. i, i % 50)) end
    for i = 1, 50000 do redis.call("hset", "h" .. i % 500, "field" .. i, i) end return "filled"' 0
  ask debug digest
  ask shutdown nosave || true # it gets no answer: the connection ends
  wait "$server"
  trap - EXIT
}

needs_gcc=gcc=gcc
prepare_gcc() {
  noise 250 'struct s@1 { int a[@2 % 9 + 1]; struct s@1 *next; const char *name; };
static int f@1(struct s@1 *s, int n) {
  int sum = 0;
  for (int i = 0; i < n; i++) {
    if (s->a[i % (int)(sizeof s->a / sizeof *s->a)] > @2 % 1000) sum += i * @3 % 77;
    else if (s->next) sum ^= s->a[0] << (i & 7);
    switch (n & 7) { case 0: sum++; break; case 3: sum -= @4; break; case 5: sum *= 3; }
  }
  return s->name ? sum + s->name[n & 3] : f@1(s->next, n - 1);
}
int g@1(int n) { struct s@1 s = { { @3 }, 0, "name@2" }; return f@1(&s, n) + n; }' \
    > file.c
}
run_gcc() { under gcc -O1 -S -o - file.c | cksum; }

needs_numpy="/usr/bin/python3=python3 numpy=python3-numpy"
prepare_numpy() {
  cat > script.py << 'PYTHON'
import numpy as np
total = 0
for size in (2, 4, 8, 16):                      # temporaries of megabytes
    a = np.arange(size << 17, dtype=np.int64)
    for i in range(48 // size):
        total += int(((a * 3 + i) % 1001 - a // 7).sum())
small = [np.arange(i % 90 + 1) for i in range(60000)]
for i in range(150000):                         # and of some hundred bytes
    x = small[i % 60000]
    total += int((x + i)[-1])
keep = {}
for i in range(40000):
    keep[i * 7919 % 5003] = np.zeros(i % 700, dtype=np.uint8)
print(total, sum(len(x) for x in keep.values()))
PYTHON
}
run_numpy() { under /usr/bin/python3 script.py; }

# Runs without Python's own allocator of small objects.
needs_python=/usr/bin/python3=python3
prepare_python() {
  cat > script.py << 'PYTHON'
import json
class Node:
    def __init__(self, key, left, right):
        self.key, self.left, self.right = key, left, right
def tree(depth):
    return Node(depth, tree(depth - 1), tree(depth - 1)) if depth else None
def count(node):
    return 1 + count(node.left) + count(node.right) if node else 0
print(sum(count(tree(13)) for _ in range(6)))
rows = [{"id": i, "name": f"name{i}", "tags": [str(i * k) for k in range(5)]} for i in range(25000)]
text = json.dumps(rows)
print(len(text), sum(len(r["tags"]) for r in json.loads(text)))
words = {}
for i in range(200000):
    words.setdefault("w%d" % (i * 7919 % 20011), []).append(i)
print(len(words), max(map(len, words.values())))
PYTHON
}
run_python() { PYTHONMALLOC=malloc under /usr/bin/python3 script.py; }

needs_git=git=git
prepare_git() {
  export HOME=$PWD GIT_CONFIG_NOSYSTEM=1
  noise 12000 '@2 @3 @4' > numbers
  awk '
    function put(path, from, n,   text, i) {
      for (i = 0; i < n; i++) text = text line[(from + i * 7) % lines] "\n"
      printf "M 644 inline %s\ndata %d\n%s\n", path, length(text), text
    }
    { line[lines++] = $0 }
    END {
      for (c = 1; c <= 240; c++) {
        printf "commit refs/heads/main\nmark :%d\n", c
        printf "committer a <a@b> %d +0000\ndata 8\ncommit %c\n", 1700000000 + c, 65 + c % 26
        if (c > 1) printf "from :%d\n", c - 1
        for (f = 0; f < 8; f++)
          put("dir" (c * 3 + f) % 9 "/file" (c * 7 + f) % 40, int(c / 9) * 131 + f, 150 + c % 50)
      }
    }' numbers > stream
  git init -q -b main repo
  git -C repo fast-import --quiet < stream
}
run_git() {
  export HOME=$PWD GIT_CONFIG_NOSYSTEM=1
  cp -r repo copy
  under git -C copy repack -q -a -d -f --threads=1
  under git -C copy log -p --stat --no-renames | cksum
  under git -C copy rev-list --objects --all | sort | cksum
  under git -C copy fsck --full --no-progress
}

needs_sort=sort=coreutils
prepare_sort() { noise 500000 '@2 word@3 line @1' > lines; }
run_sort() { LC_ALL=C under sort -k2,2 -k1,1n lines | cksum; }

needs_lua=lua5.4=lua5.4
prepare_lua() {
  cat > script.lua << 'LUA'
local function tree(depth)
  if depth == 0 then return {} end
  return { tree(depth - 1), tree(depth - 1), depth = depth }
end
local function count(t) return t[1] and 1 + count(t[1]) + count(t[2]) or 1 end
local total = 0
for _ = 1, 10 do total = total + count(tree(14)) end
local words, parts = {}, {}
for i = 1, 200000 do
  local word = "word" .. i * 7919 % 30011
  words[word] = (words[word] or 0) + 1
  parts[#parts + 1] = function() return word, i end
end
local keys = {}
for key, n in pairs(words) do keys[#keys + 1] = key .. "=" .. n end
table.sort(keys)
print(total, #table.concat(keys, ","), select(2, parts[77]()))
LUA
}
run_lua() { under lua5.4 script.lua; }

needs_perl=perl=perl
prepare_perl() {
  cat > script.pl << 'PERL'
my (%n, %list, $total);
for my $i (1 .. 250000) {
  my $word = "word" . $i * 7919 % 40009;
  $n{$word}++;
  push @{ $list{substr $word, 0, 7} }, { id => $i, name => "$word-$i" };
}
$total += length join ",", map { $_->{name} } @{ $list{$_} } for sort keys %list;
my $text = join " ", sort keys %n;
$text =~ s/(\d+)/<$1>/g for 1 .. 3;
print scalar(keys %n), " $total ", length $text, "\n";
PERL
}
run_perl() { PERL_HASH_SEED=0 under perl script.pl; }

needs_jq=jq=jq
prepare_jq() {
  { echo '['
    noise 90000 '{"id":@1,"name":"n@2","at":{"x":@3,"y":[@4,null,true,"text"]}},'
    echo '{"id":0,"name":"","at":{"x":0,"y":[]}}]'
  } > file.json
}
run_jq() {
  under jq -c 'group_by(.at.x % 100) | map({n: length, names: (map(.name) | join(",") | length),
    sum: (map(.at.y[0] // 0) | add)})' file.json | cksum
}

needs_xmllint=xmllint=libxml2-utils
prepare_xmllint() {
  { echo '<rows>'
    noise 160000 '<row id="r@1" at="@2"><name>n@3</name><value kind="v">@4</value> text </row>'
    echo '</rows>'
  } > file.xml
}
run_xmllint() {
  under xmllint --format file.xml | cksum
  under xmllint --xpath 'count(//row[value > 1000000000])' file.xml
}

needs_stress_ng=stress-ng=stress-ng
prepare_stress_ng() { :; }
run_stress_ng() {
  under stress-ng --no-rand-seed --malloc 2 --malloc-ops 2000000 --malloc-max 4096 \
    --malloc-bytes 4K --malloc-touch --metrics-brief 2>&1 |
    awk '$4 == "malloc" { print "bogo ops", $5 }'
}

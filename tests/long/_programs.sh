# _programs.sh - the programs that tests/long/programs runs, and the work of each program.
#
# program PATH PACKAGE[,PACKAGE...] < WORK
#
# PATH is the program, and PACKAGE the Debian packages of the work. WORK is a script for bash. It
# runs with -eu in an empty folder, with PATH=/usr/sbin:/usr/bin:/sbin:/bin, HOME in that folder,
# and
#   $TEXT  a text of 675 lines        $NUMBERS  the numbers to 20,000, one in each line
#   $PORT  a free port of TCP on 127.0.0.1
# It must end with 0, and its output must be equal in two runs: no times, addresses, process ids, or
# figures of malloc such as Redis' `memory usage`. It starts a server in the background, and ends it
# with `kill` and `wait`.

# ---- Languages -------------------------------------------------------------------------------

program /usr/bin/gcc gcc,libc6-dev <<'WORK'
cat > fib.c <<'C'
#include <stdio.h>
#include <stdlib.h>
static long fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
int main(void) {
  long *all[64];
  for (int i = 0; i < 64; i++) all[i] = malloc(i * 100 + 8), *all[i] = fib(i % 20);
  for (int i = 0; i < 64; i++) printf("%ld\n", *all[i]), free(all[i]);
}
C
gcc -O2 -g -flto fib.c -o fib && ./fib
gcc -O3 -S fib.c -o - | cksum
echo 'int f( {' | gcc -x c -c - -o /dev/null || echo "status $?"
WORK

program /usr/bin/g++ g++ <<'WORK'
cat > words.cc <<'CC'
#include <fstream>
#include <iostream>
#include <map>
#include <regex>
#include <string>
int main(int, char **argv) {
  std::map<std::string, int> count;
  std::ifstream in(argv[1]);
  for (std::string word; in >> word;) count[std::regex_replace(word, std::regex("[^a-z]"), "")]++;
  for (auto &e : count) if (e.second > 40) std::cout << e.first << ' ' << e.second << '\n';
}
CC
g++ -O1 words.cc -o words && ./words "$TEXT"
WORK

program /usr/bin/clang clang <<'WORK'
printf 'int f(int *a, int n) { int s = 0; for (int i = 0; i < n; i++) s += a[i] * i; return s; }\n' > f.c
clang -O3 -S f.c -o - | cksum
clang -O1 -emit-llvm -c f.c -o f.bc && cksum < f.bc
clang -Xclang -ast-dump -fsyntax-only -fno-color-diagnostics f.c | sed 's/0x[0-9a-f]*//g' | cksum
clang -c -x c - -o /dev/null <<< 'int f( {' || echo "status $?"
WORK

program /usr/bin/perl perl <<'WORK'
perl -e 'my %h; while (<>) { $h{lc $1}++ while /(\w+)/g } print "$_ $h{$_}\n" for grep { $h{$_} > 30 } sort keys %h' "$TEXT"
perl -e 'my @a = map { { n => $_, s => "x" x $_ } } 1 .. 3000; print length(join "", map { $_->{s} } @a), "\n"'
perl -e 'for (1 .. 5) { my $p = fork // die; if (!$p) { my @x = (1) x 50000; exit 3 } waitpid $p, 0; print $? >> 8, "\n" }'
perl -e 'use threads; print join(",", map { $_->join } map { my $n = $_; threads->create(sub { my $s = 0; $s += $_ for 1 .. $n * 1000; $s }) } 1 .. 4), "\n"'
WORK

program /usr/bin/python3 python3 <<'WORK'
/usr/bin/python3 - "$TEXT" <<'PY'
import collections, json, sqlite3, sys, threading, zlib, ctypes, multiprocessing
words = open(sys.argv[1]).read().split()
print(collections.Counter(words).most_common(9))
print(len(json.dumps([{"n": i, "s": "x" * (i % 50)} for i in range(20000)])), zlib.crc32(zlib.compress(b"ab" * 90000)))
db = sqlite3.connect(":memory:")
db.execute("create table t(a, b)")
db.executemany("insert into t values (?, ?)", ((i, str(i)) for i in range(5000)))
print(db.execute("select count(*), sum(a) from t").fetchone())
with multiprocessing.Pool(2) as pool: print(pool.map(abs, range(-5, 5)))
out = []
all = [threading.Thread(target=lambda: out.append(sum(bytearray(100000)))) for _ in range(4)]
for t in all: t.start()
for t in all: t.join()
print(out, ctypes.CDLL(None).abs(-4))
PY
PYTHONMALLOC=malloc /usr/bin/python3 -c 'print(sum(len(str(i)) for i in range(100000)))'
PYTHONMALLOC=debug /usr/bin/python3 -c 'print(sum(len(str(i)) for i in range(100000)))'
WORK

program /usr/bin/ruby ruby <<'WORK'
ruby -rjson -rset -e 'w = File.read(ARGV[0]).scan(/\w+/).tally; puts w.sort.first(20).inspect; puts JSON.generate((1..3000).map { |i| {i => "x" * (i % 90)} }).size' "$TEXT"
ruby -e 'puts (1..4).map { |i| Thread.new { (1..i * 9000).map(&:to_s).join.size } }.map(&:value).inspect; GC.start; GC.compact if GC.respond_to?(:compact); puts 2 ** 9000 % 1000007'
ruby -e '3.times { |i| pid = fork { exit i }; Process.wait pid; puts $?.exitstatus }'
WORK

program /usr/bin/node nodejs <<'WORK'
node -e 'const z = require("zlib"), b = Buffer.alloc(300000, "loam"); console.log(z.gunzipSync(z.gzipSync(b)).length, require("crypto").createHash("sha256").update(b).digest("hex"))'
node -e 'const {Worker, isMainThread, parentPort} = require("worker_threads"); if (isMainThread) { let n = 0; for (let i = 0; i < 3; i++) new Worker(__filename.length ? "require(\"worker_threads\").parentPort.postMessage([...Array(9999).keys()].reduce((a, b) => a + b))" : "", {eval: true}).on("message", m => { if (++n == 3) console.log(m) }) }'
node -e 'console.log(JSON.stringify([...Array(20000).keys()].map(i => ({i, s: "x".repeat(i % 40)}))).length); process.exitCode = 4' || echo "status $?"
WORK

program /usr/bin/php php-cli <<'WORK'
php -r 'echo 1, "\n";'
php -r '$w = array_count_values(str_word_count(strtolower(file_get_contents($argv[1])), 1)); arsort($w); ksort($w); echo count($w), " ", md5(serialize($w)), "\n";' "$TEXT"
php -r 'for ($i = 0, $a = []; $i < 50000; $i++) $a[] = ["n" => $i]; echo strlen(json_encode($a)), "\n"; ini_set("memory_limit", "4M"); $s = str_repeat("x", 9000000);' || echo "status $?"
php -m | sort | cksum
WORK

program /usr/bin/lua5.4 lua5.4 <<'WORK'
lua5.4 -e 'local t = {} for i = 1, 200000 do t[i] = {tostring(i), i} end local n = 0 for _, v in ipairs(t) do n = n + #v[1] end print(n) t = nil collectgarbage() print(collectgarbage("count") < 200)'
lua5.4 -e 'print(#string.rep("x", 30000000)) print(pcall(string.rep, "x", 1 << 46))'
WORK

program /usr/bin/luajit luajit <<'WORK'
luajit -e 'local ffi = require("ffi") ffi.cdef[[void *malloc(size_t); void free(void *);]] for i = 1, 200000 do local p = ffi.C.malloc(i % 999) ffi.C.free(p) end local t = {} for i = 1, 99999 do t[i] = {i} end print(#t)'
luajit -bl -e 'local x = 1 + 2 print(x)' - 2> /dev/null | wc -l
WORK

program /usr/bin/guile guile-3.0 <<'WORK'
export GUILE_AUTO_COMPILE=0
guile -c '(use-modules (srfi srfi-1)) (display (fold + 0 (iota 100000))) (newline) (display (string-length (apply string-append (map number->string (iota 2000))))) (newline)'
guile -c '(use-modules (ice-9 threads)) (display (map (lambda (n) (join-thread (call-with-new-thread (lambda () (* n n))))) (iota 5))) (newline) (exit 3)' || echo "status $?"
WORK

program /usr/bin/sbcl sbcl <<'WORK'
sbcl --noinform --non-interactive --no-userinit --eval '(print (loop for i below 100000 sum (length (format nil "~d" i))))' --eval '(print (let ((h (make-hash-table :test (function equal)))) (dotimes (i 20000) (setf (gethash (format nil "k~d" i) h) i)) (hash-table-count h)))' --eval '(sb-ext:gc :full t)' --eval '(terpri)'
WORK

program /usr/bin/ocaml ocaml-nox <<'WORK'
cat > sum.ml <<'ML'
let rec build n acc = if n = 0 then acc else build (n - 1) ((n, string_of_int n) :: acc)
let () = Gc.compact (); Printf.printf "%d\n" (List.fold_left (fun a (n, s) -> a + n + String.length s) 0 (build 200000 []))
ML
ocaml sum.ml
ocamlfind ocamlopt sum.ml -o sum 2> /dev/null || ocamlopt sum.ml -o sum
./sum
WORK

program /usr/bin/ghc ghc <<'WORK'
cat > Main.hs <<'HS'
import qualified Data.Map as M
main :: IO ()
main = print (M.foldl (+) 0 (M.fromListWith (+) [(i `mod` 997, i) | i <- [1 .. 100000 :: Int]]))
HS
ghc -v0 -O1 Main.hs -o main && ./main
WORK

program /usr/bin/rustc rustc <<'WORK'
cat > main.rs <<'RS'
use std::collections::HashMap;
fn main() {
    let text = std::fs::read_to_string(std::env::args().nth(1).unwrap()).unwrap();
    let mut m: HashMap<&str, usize> = HashMap::new();
    for w in text.split_whitespace() { *m.entry(w).or_default() += 1; }
    let mut v: Vec<_> = m.into_iter().filter(|e| e.1 > 40).collect();
    v.sort();
    println!("{:?}", v);
    let all: Vec<_> = (0..4u64).map(|i| std::thread::spawn(move || (0..i * 99999).map(|x| vec![x; 3].len() as u64).sum::<u64>())).collect();
    println!("{:?}", all.into_iter().map(|t| t.join().unwrap()).collect::<Vec<_>>());
}
RS
rustc -O main.rs && ./main "$TEXT"
rustc - -o bad <<< 'fn main() { let x: u8 = "a"; }' 2> why || echo "status $?"
cat why
WORK

program /usr/bin/go golang-go,gcc,libc6-dev <<'WORK'
export GOCACHE=$HOME/cache GOPATH=$HOME/go GOFLAGS=-mod=mod GOTOOLCHAIN=local
cat > main.go <<'GO'
package main

// #include <stdlib.h>
// static long use(int n) { long s = 0; for (int i = 0; i < n; i++) { char *p = malloc(i); s += p != 0; free(p); } return s; }
import "C"
import "fmt"

func main() {
	done := make(chan int64)
	for i := 0; i < 8; i++ {
		go func(n int) { done <- int64(C.use(C.int(n * 1000))) }(i)
	}
	var sum int64
	for i := 0; i < 8; i++ {
		sum += <-done
	}
	fmt.Println(sum)
}
GO
go run main.go
go vet main.go
WORK

program /usr/bin/javac default-jdk-headless <<'WORK'
java -version 2> version && wc -l < version
cat > Main.java <<'JAVA'
import java.util.*;
import java.util.stream.*;
public class Main {
  public static void main(String[] a) throws Exception {
    System.out.println(IntStream.range(0, 200000).parallel().mapToObj(Integer::toString).mapToInt(String::length).sum());
    var b = java.nio.ByteBuffer.allocateDirect(30 << 20);
    var z = new java.util.zip.Deflater();
    z.setInput(new byte[1 << 20]);
    z.finish();
    System.out.println(b.capacity() + " " + z.deflate(new byte[1 << 20]));
    System.exit(6);
  }
}
JAVA
javac Main.java && java -Xmx200m -cp . Main || echo "status $?"
WORK

program /usr/bin/tclsh tcl <<'WORK'
tclsh <<'TCL'
set n 0
for {set i 0} {$i < 60000} {incr i} { dict incr d [expr {$i % 97}] $i; lappend l "item $i" }
puts "[dict get $d 5] [llength [lsort -unique $l]] [string length [join $l ,]]"
interp create sub
puts [sub eval {expr 2**200}]
TCL
WORK

program /usr/bin/swipl swi-prolog-nox <<'WORK'
swipl -q -g 'numlist(1, 50000, L), sum_list(L, S), writeln(S), findall(X-Y, (between(1, 90, X), between(1, 90, Y), X * Y =:= 360), P), writeln(P), halt(2)' || echo "status $?"
swipl -q -g 'findall(I, (between(1, 4, N), thread_create((numlist(1, 9999, L), length(L, _)), I0), thread_join(I0, _), I = N), Is), writeln(Is), halt'
WORK

program /usr/bin/erl erlang-base <<'WORK'
erl -noshell -eval 'S = self(), [spawn(fun() -> S ! lists:sum(lists:seq(1, N)) end) || N <- lists:seq(1, 500)], io:format("~p~n", [lists:sum([receive X -> X end || _ <- lists:seq(1, 500)])]), io:format("~p~n", [erlang:crc32(binary:copy(<<"loam">>, 500000))]), halt(3).' || echo "status $?"
WORK

program /usr/bin/octave-cli octave <<'WORK'
octave-cli --no-init-file --no-history --eval 'A = magic(200); [q, r] = qr(A); printf("%.6f %.6f\n", norm(A), abs(det(A(1:3, 1:3)))); s = struct("a", num2cell(1:500)); printf("%d %d\n", sum([s.a]), numel(zeros(1000, 1000))); x = fft(1:4096); printf("%.3f\n", abs(x(2)));'
WORK

program /usr/bin/R r-base-core <<'WORK'
R --vanilla --slave -e 'set.seed(1); x <- rnorm(50000); print(summary(lm(x ~ seq_along(x)))$r.squared < 1); print(sum(table(sample(letters, 1e5, TRUE)))); print(nchar(paste(1:20000, collapse = ""))); invisible(gc()); m <- matrix(1:250000, 500); print(sum(m %*% m)); quit(status = 7)' || echo "status $?"
WORK

# ---- Data and text ---------------------------------------------------------------------------

program /usr/bin/sqlite3 sqlite3 <<'WORK'
sqlite3 t.db "create table t(a integer primary key, b text); with recursive n(i) as (select 1 union all select i + 1 from n where i < 30000) insert into t select i, hex(i * 7919) from n; create index i on t(b);"
sqlite3 t.db "select count(*), sum(a), min(b), max(b) from t; select count(*) from t x join t y on x.b = y.b; select group_concat(b) from (select b from t order by b limit 9); pragma integrity_check; vacuum; select sqlite3_no();" || echo "status $?"
sqlite3 t.db .dump | cksum
WORK

program /usr/bin/jq jq <<'WORK'
seq 1 20000 | jq -s 'map({n: ., s: tostring}) | group_by(.n % 7) | map({k: .[0].n, c: length, m: (map(.n) | add)})'
jq . <<< '{"a": [1, 2' || echo "status $?"
WORK

program /usr/bin/gawk gawk <<'WORK'
gawk '{ for (i = 1; i <= NF; i++) n[tolower($i)]++ } END { PROCINFO["sorted_in"] = "@ind_str_asc"; for (w in n) if (n[w] > 30) print w, n[w] }' "$TEXT"
gawk 'BEGIN { for (i = 0; i < 200000; i++) s = s "x"; print length(s); print 2 ^ 0.5; exit 4 }' || echo "status $?"
WORK

program /usr/bin/sort coreutils,sed,grep <<'WORK'
sort -R --random-source="$TEXT" "$NUMBERS" | sort --parallel=2 -S 64K -n | cksum
grep -oE '[[:alpha:]]+' "$TEXT" | tr A-Z a-z | sort | uniq -c | sort -rn | head -n 20
sed -E 's/(.)(.)/\2\1/g; H; $!d; x' "$TEXT" | cksum
join <(sort "$NUMBERS") <(sort "$NUMBERS") | split -l 999 && cat x?? | sha256sum
ls -lR /usr/share/common-licenses | wc -l; du -s /usr/share/common-licenses | cut -f 2; expr 7 \* 6; printf '%q\n' 'a b'
WORK

program /usr/bin/bc bc,dc <<'WORK'
echo 'scale = 300; 4 * a(1); 2 ^ 3000 % 1000007' | bc -l
dc -e '2 5000 ^ 7 % p 300 k 2 v p'
WORK

program /usr/bin/xmllint libxml2-utils,xsltproc <<'WORK'
{ echo '<r>'; seq -f '<e n="%g"><v>text &amp; more</v></e>' 5000; echo '</r>'; } > a.xml
xmllint --xpath 'sum(//e/@n)' a.xml && echo
xmllint --format --c14n a.xml | cksum
xsltproc - a.xml <<'XSL'
<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform"><xsl:output method="text"/>
<xsl:template match="/"><xsl:for-each select="//e[@n mod 999 = 0]"><xsl:value-of select="@n"/>;</xsl:for-each></xsl:template></xsl:stylesheet>
XSL
echo '<a><b></a>' | xmllint - || echo "status $?"
WORK

program /usr/bin/pandoc pandoc <<'WORK'
{ echo '# Title'; sed 's/^/- item *x* `y` /' "$TEXT" | head -n 200; } > a.md
pandoc -t html a.md | cksum
pandoc -t latex a.md | cksum
pandoc -f html -t markdown <(pandoc -t html a.md) | head -n 5
WORK

program /usr/bin/groff groff <<'WORK'
export SOURCE_DATE_EPOCH=1700000000 TZ=UTC
zcat -f /usr/share/man/man1/ls.1.gz > ls.1 2> /dev/null || { echo '.TH LS 1'; head -n 300 "$TEXT"; } > ls.1
groff -man -Tutf8 ls.1 | cksum
groff -man -t -e -Tps ls.1 | grep -v '^%%CreationDate' | cksum
WORK

program /usr/bin/tex texlive-base,texlive-binaries <<'WORK'
export SOURCE_DATE_EPOCH=1700000000 FORCE_SOURCE_DATE=1
{ echo '\hsize=12cm'; sed 's/[#$%&_^{}~\\<>]//g' "$TEXT"; echo '\bye'; } > a.tex
tex -ini -interaction=batchmode 'plain \dump' > log && wc -l < log
tex -interaction=batchmode '&./plain' a.tex > log || echo "status $?"
tail -n 1 log && tail -c +60 a.dvi | cksum # the date is before that
WORK

program /usr/bin/gs ghostscript,poppler-utils <<'WORK'
printf '%%!PS\n/Helvetica findfont 20 scalefont setfont 1 1 40 { 15 mul 50 exch moveto (loam of the land) show } for showpage\n' > a.ps
gs -q -dSAFER -dBATCH -dNOPAUSE -sDEVICE=ppmraw -r72 -sOutputFile=a.ppm a.ps && cksum < a.ppm
gs -q -dSAFER -dBATCH -dNOPAUSE -sDEVICE=pdfwrite -sOutputFile=a.pdf a.ps
pdftotext a.pdf - | cksum
pdftoppm -r 50 a.pdf page && cksum page-1.ppm
WORK

program /usr/bin/gnuplot gnuplot-nox <<'WORK'
gnuplot -e 'set terminal dumb 60 20; plot sin(x), cos(x) * x / 9'
gnuplot -e 'set terminal svg; set samples 900; splot x * y' | cksum
WORK

program /usr/bin/dot graphviz <<'WORK'
{ echo 'digraph g {'; for i in {1..120}; do echo "n$((i / 3)) -> n$i; n$((i * 7 % 97)) -> n$i;"; done; echo '}'; } > a.dot
dot -Tplain a.dot | cksum
dot -Tsvg a.dot | cksum
neato -Tplain a.dot 2>&1 | cksum
WORK

# ---- Pictures, sound, archives ---------------------------------------------------------------

program /usr/bin/convert imagemagick <<'WORK'
convert -size 400x300 gradient:red-blue -rotate 30 -blur 0x3 -resize 50% a.ppm && cksum < a.ppm
convert a.ppm -strip a.png && identify -format '%w %h %m %k\n' a.png
convert nosuch.png b.png || echo "status $?"
WORK

program /usr/bin/ffmpeg ffmpeg <<'WORK'
ffmpeg -nostdin -v error -f lavfi -i testsrc=d=2:s=320x240:r=10 -f lavfi -i sine=d=2 -c:v mpeg4 -c:a flac -fflags +bitexact -flags:v +bitexact -threads 2 a.mkv
cksum < a.mkv
ffmpeg -nostdin -v error -i a.mkv -vf scale=160:120 -f framemd5 - | tail -n 3
ffprobe -v error -show_entries stream=codec_name,width a.mkv
ffmpeg -nostdin -v error -i nosuch.mkv b.mkv || echo "status $?"
WORK

program /usr/bin/sox sox <<'WORK'
sox -D -n -r 8000 a.wav synth 3 sine 440 tremolo 5 reverb && cksum < a.wav
sox -D a.wav -r 11025 b.wav rate -v speed 1.3 && cksum < b.wav
sox a.wav -n stat 2>&1 | head -n 4
WORK

program /usr/bin/tar tar,xz-utils,bzip2,gzip <<'WORK'
mkdir in && cd in && split -l 2000 "$NUMBERS" && cd ..
tar --sort=name --mtime=@0 --owner=0 --group=0 -cf a.tar in
for z in gzip\ -n bzip2 xz\ -T2 xz\ -9e; do tar -I "$z" -cf a.z --sort=name --mtime=@0 in; cksum < a.z; tar -I "${z%% *}" -tf a.z | wc -l; done
xz -dc <<< nonsense || echo "status $?"
WORK

program /usr/bin/zstd zstd <<'WORK'
for level in 1 9 19; do zstd -q -T2 -"$level" -c "$NUMBERS" > a.zst; cksum < a.zst; zstd -q -dc a.zst | cmp - "$NUMBERS"; done
zstd -q --train "$TEXT" -B500 -o dictionary 2>&1 && zstd -q -D dictionary -c "$TEXT" | cksum
zstd -q -b1e3 -i0 "$NUMBERS" > log 2>&1; echo "status $?"
WORK

program /usr/bin/7z p7zip-full,zip,unzip <<'WORK'
cp "$NUMBERS" numbers && touch -d @1700000000 numbers
7z a -mx=5 -mmt=2 a.7z numbers > log && 7z t a.7z | grep Ok
zip -qX9 a.zip numbers && unzip -tqq a.zip && cksum < a.zip
unzip -q "$TEXT" > log 2>&1 || echo "status $?"
WORK

program /usr/bin/rsync rsync <<'WORK'
mkdir -p a/b && cp "$NUMBERS" a/n && cp "$TEXT" a/b/t
rsync -a a/ c/ && diff -r a c && echo x >> a/n && touch -d @1000000000 a/n # rsync -i tells of another second
rsync -ac --no-whole-file -i a/ c/ && diff -r a c
rsync -a nosuch/ d/ > log 2>&1 || echo "status $?"
WORK

# ---- Development -----------------------------------------------------------------------------

program /usr/bin/git git <<'WORK'
export GIT_CONFIG_NOSYSTEM=1 GIT_{AUTHOR,COMMITTER}_{NAME,EMAIL}=a@b GIT_{AUTHOR,COMMITTER}_DATE='1700000000 +0000'
git init -q -b main r && cd r
for i in 1 2 3 4 5; do for j in {1..20}; do seq "$i" $((i * j + 100)) > "f$j"; done; git add . && git commit -qm "c$i"; done
git log --stat --format='%H %s' | tail -n 9; git blame f7 | cksum; git gc -q --aggressive; git fsck --full --no-progress
git clone -q . ../c && git -C ../c rev-parse HEAD; git grep -c 99 | wc -l; git show nosuch || echo "status $?"
WORK

program /usr/bin/make make <<'WORK'
printf 'all: %s\n\t@echo all\nt%%:\n\t@echo $@ | tr t T >> $@\n' "$(seq -f 't%g' 1 60 | tr '\n' ' ')" > Makefile
make -j2 && cat t* | cksum && make
make nosuch || echo "status $?"
WORK

program /usr/bin/cmake cmake,ninja-build,gcc <<'WORK'
printf 'cmake_minimum_required(VERSION 3.20)\nproject(p C)\nadd_executable(p p.c)\nforeach(i RANGE 2000)\nlist(APPEND l "${i}")\nendforeach()\nlist(LENGTH l n)\nmessage(STATUS "n ${n}")\n' > CMakeLists.txt
echo 'int main(void) { return 5; }' > p.c
cmake -G Ninja -B b . | grep -v '^-- \(Generating\|Configuring\) done'
ninja -C b > log; b/p || echo "status $?"; ninja -C b
WORK

program /usr/bin/gdb gdb,gcc <<'WORK'
printf '#include <stdlib.h>\nint deep(int n) { int *p = malloc(40); *p = n; return n ? deep(n - 1) + *p : 0; }\nint main(void) { return deep(4); }\n' > a.c
gcc -g a.c -o a
gdb -nx -q -batch -ex 'break deep if n == 0' -ex run -ex 'print n' -ex 'bt' -ex continue ./a 2>&1 | grep -E '^(#|\$|\[Inf)' | sed -E 's/process [0-9]+/process N/; s/0x[0-9a-f]+/ADDRESS/g'
gdb -nx -q -batch -ex 'python print(sum(len(str(i)) for i in range(9999)))'
WORK

program /usr/bin/strace strace <<'WORK'
strace -f -e trace=openat -o log cat "$TEXT" | cksum
grep -c "$TEXT" log
strace -c -o log true; tail -n 1 log | grep -c total
WORK

program /usr/bin/nasm nasm <<'WORK'
{ echo 'bits 64'; for i in {1..4000}; do echo "l$i: mov rax, $i"; echo "jmp l$((i * 7 % 4000 + 1))"; done; } > a.asm
nasm -f elf64 a.asm -o a.o && nm a.o | cksum
nasm -f bin -o /dev/null - <<< 'mov eax' || echo "status $?"
WORK

program /usr/bin/bison bison,flex,m4 <<'WORK'
printf '%%token N\n%%left 0x2b\n%%%%\ne: e 0x2b e | N ;\n' | sed "s/0x2b/'+'/g" > g.y
bison -v g.y -o g.c && cksum < g.c && cksum < g.output
printf '%%%%\n[a-z]+ return 1;\n[0-9]+ return 2;\n.|\\n ;\n' | flex -t | cksum
m4 <<'M4'
define(`f', `ifelse($1, 0, 0, `eval($1 + f(decr($1)))')')f(200)
M4
WORK

program /usr/bin/vim vim-nox <<'WORK'
cp "$TEXT" a
vim -es -N -u NONE -i NONE a -c '%s/\<\(\w\)\(\w*\)/\2\1/g' -c 'g/^$/d' -c 'sort' -c 'norm ggVGgq' -c 'wq'
cksum < a
vim -es -N -u NONE -i NONE -c 'call writefile([string(len(join(map(range(20000), {i -> string(i)}), ","))), sha256("loam")], "b")' -c 'cq 3' || echo "status $?"
cat b
WORK

program /usr/bin/emacs emacs-nox <<'WORK'
emacs --batch -Q -l json --eval '(progn (dotimes (i 20000) (insert (format "%d\n" i))) (sort-lines t (point-min) (point-max)) (princ (md5 (current-buffer))) (garbage-collect) (princ (length (json-encode (number-sequence 1 2000)))) (terpri))'
printf '(defun f (n) (if (< n 2) n (+ (f (- n 1)) (f (- n 2)))))\n' > f.el
emacs --batch -Q -f batch-byte-compile f.el && emacs --batch -Q -l ./f.elc --eval '(progn (princ (f 18)) (terpri) (kill-emacs 4))' || echo "status $?"
WORK

# ---- Shells and systems ----------------------------------------------------------------------

program /usr/bin/bash bash <<'WORK'
bash -c 'declare -A a; for i in {1..5000}; do a[k$i]=$((i * i)); done; s=0; for k in "${!a[@]}"; do s=$((s + a[$k])); done; echo $s ${#a[@]}; x=$(printf "%s," {1..3000}); echo ${#x}'
bash -c 'for i in 1 2 3; do (exit $i) & wait $! || echo $?; done; kill -9 $$' || echo "status $?"
dash -c 'i=0; while [ $i -lt 3000 ]; do i=$((i + 1)); done; echo $i; trap "echo end" EXIT; exit 3' || echo "status $?"
WORK

program /usr/bin/zsh zsh <<'WORK'
zsh -fc 'typeset -A a; for i in {1..5000}; do a[k$i]=$i; done; print ${#a} ${(j:,:)${(on)${(k)a}}[1,5]}; print -l /usr/share/common-licenses/*(:t) | cksum; zmodload zsh/mathfunc; print $(( int(sqrt(2) * 1e6) )); exit 5' || echo "status $?"
WORK

program /usr/bin/busybox busybox-static <<'WORK'
busybox sha256sum < "$TEXT"
busybox awk '{ n += $1 } END { print n }' "$NUMBERS"
busybox sh -c 'seq 1 3000 | busybox sort -rn | busybox head -n 3; exit 3' || echo "status $?"
WORK

program /usr/bin/tmux tmux <<'WORK'
export TERM=screen LC_ALL=C.UTF-8
tmux -L s -f /dev/null new-session -d -x 80 -y 24 'seq 1 500; echo over > done; sleep 60'
for _ in {1..300}; do [ -e done ] && break; sleep 0.1; done
for _ in {1..300}; do [ "$(tmux -L s capture-pane -p | grep -c 500)" = 1 ] && break; sleep 0.1; done
tmux -L s capture-pane -p -S -40 | cksum
tmux -L s kill-server
WORK

program /usr/bin/qemu-img qemu-utils <<'WORK'
qemu-img create -q -f qcow2 a.qcow2 64M
qemu-io -c 'write -P 7 0 3M' -c 'write -P 9 20M 1M' -c 'read -P 7 1M 1M' a.qcow2 | grep -v sec
qemu-img convert -c -m 4 -O qcow2 a.qcow2 b.qcow2 && qemu-img compare a.qcow2 b.qcow2 && qemu-img check b.qcow2 | head -n 1
qemu-img info nosuch || echo "status $?"
WORK

# ---- Keys and the network --------------------------------------------------------------------

program /usr/bin/openssl openssl <<'WORK'
openssl genrsa -out k.pem 2048 2> log && openssl req -x509 -new -key k.pem -subj /CN=loam -days 9 -out c.pem
openssl verify -CAfile c.pem c.pem
for hash in sha256 blake2b512 sha3-512; do openssl dgst -"$hash" < "$TEXT"; done
openssl enc -aes-256-cbc -pbkdf2 -k x -S 0102030405060708 -in "$TEXT" | openssl enc -d -aes-256-cbc -pbkdf2 -k x -S 0102030405060708 | cmp - "$TEXT" && echo same
openssl dgst -sign k.pem -sha256 -out s "$TEXT" && openssl x509 -in c.pem -pubkey -noout > p.pem && openssl dgst -verify p.pem -sha256 -signature s "$TEXT"
openssl rsa -in nosuch 2> log || echo "status $?"
WORK

program /usr/bin/ssh-keygen openssh-client <<'WORK'
for kind in ed25519 rsa ecdsa; do ssh-keygen -q -t "$kind" -N '' -f "$kind" && ssh-keygen -lf "$kind.pub" | wc -w; done
ssh-keygen -q -Y sign -f ed25519 -n file "$TEXT" > sig < "$TEXT" || true
ssh-keygen -Y sign -q -f ed25519 -n file < "$TEXT" > sig && ssh-keygen -Y check-novalidate -n file -s sig < "$TEXT" | cut -d ' ' -f 1-3
ssh-keygen -lf "$TEXT" || echo "status $?"
WORK

program /usr/bin/gpg gpg,gpg-agent <<'WORK'
export GNUPGHOME=$HOME/g && mkdir -m 700 "$GNUPGHOME"
gpg -q --batch --passphrase '' --quick-gen-key loam@localhost ed25519 sign never 2> log
gpg -q --batch --sign -o s.gpg "$TEXT" && gpg -q --batch --verify s.gpg 2> log; grep -c 'Good signature' log
gpg -q --batch --passphrase x --pinentry-mode loopback -c -o e.gpg "$NUMBERS" && gpg -q --batch --passphrase x --pinentry-mode loopback -d e.gpg | cmp - "$NUMBERS" && echo same
gpgconf --kill gpg-agent
WORK

program /usr/bin/curl curl,python3 <<'WORK'
mkdir www && cp "$TEXT" "$NUMBERS" www
/usr/bin/python3 -m http.server -b 127.0.0.1 -d www "$PORT" > log 2>&1 &
for _ in {1..300}; do curl -s "http://127.0.0.1:$PORT/" > index && break; sleep 0.1; done
curl -s "http://127.0.0.1:$PORT/${TEXT##*/}" | cksum
curl -sZ --no-progress-meter --parallel-max 4 "http://127.0.0.1:$PORT/${NUMBERS##*/}?[1-8]" -o 'n#1' && cat n[1-8] | cksum
curl -sf "http://127.0.0.1:$PORT/nosuch" || echo "status $?"
kill %1; wait || true
WORK

program /usr/sbin/nginx nginx-light,curl <<'WORK'
mkdir www && cp "$TEXT" www/t && chmod -R a+rX .
printf 'daemon off; worker_processes 2; pid nginx.pid; error_log log; events {}\nhttp { access_log off; gzip on; gzip_min_length 1; gzip_types *; client_body_temp_path b; proxy_temp_path p; fastcgi_temp_path f; uwsgi_temp_path u; scgi_temp_path s; server { listen 127.0.0.1:%s; root www; location /x { return 418; } } }\n' "$PORT" > nginx.conf
nginx -p "$PWD" -c nginx.conf -e log &
for _ in {1..300}; do curl -s "http://127.0.0.1:$PORT/t" > t && break; sleep 0.1; done
for i in {1..40}; do curl -s --compressed "http://127.0.0.1:$PORT/t?$i"; done | cksum
curl -s "http://127.0.0.1:$PORT/x" -o /dev/null -w '%{http_code}\n'
nginx -p "$PWD" -c nginx.conf -e log -s reload; curl -s "http://127.0.0.1:$PORT/t" | cksum
nginx -p "$PWD" -c nginx.conf -e log -s quit; wait; echo "status $?"
WORK

program /usr/sbin/apache2 apache2-bin,curl <<'WORK'
m=/usr/lib/apache2/modules; mkdir www && cp "$TEXT" www/t && chmod -R a+rX .
printf 'ServerName x\nServerRoot %s\nPidFile %s/pid\nDefaultRuntimeDir %s\nErrorLog log\nListen 127.0.0.1:%s\nLoadModule mpm_event_module %s/mod_mpm_event.so\nLoadModule authz_core_module %s/mod_authz_core.so\nLoadModule deflate_module %s/mod_deflate.so\nLoadModule filter_module %s/mod_filter.so\nStartServers 2\nDocumentRoot %s/www\nSetOutputFilter DEFLATE\n' "$PWD" "$PWD" "$PWD" "$PORT" $m $m $m $m "$PWD" > a.conf
apache2 -f "$PWD/a.conf" -DFOREGROUND &
for _ in {1..300}; do curl -s "http://127.0.0.1:$PORT/t" > t && break; sleep 0.1; done
for i in {1..40}; do curl -s --compressed "http://127.0.0.1:$PORT/t?$i"; done | cksum
curl -s "http://127.0.0.1:$PORT/nosuch" -o /dev/null -w '%{http_code}\n'
kill %1; wait; echo "status $?"
WORK

program /usr/sbin/haproxy haproxy,curl,python3 <<'WORK'
mkdir www && cp "$TEXT" www/t && : > log
/usr/bin/python3 -u -m http.server -b 127.0.0.1 -d www 0 > log 2>&1 &
for _ in {1..300}; do grep -q port log && break; sleep 0.1; done
back=$(grep -o 'port [0-9]*' log | cut -d ' ' -f 2)
printf 'global\n nbthread 2\ndefaults\n mode http\n timeout connect 5s\n timeout client 9s\n timeout server 9s\nfrontend f\n bind 127.0.0.1:%s\n default_backend b\nbackend b\n server s 127.0.0.1:%s\n' "$PORT" "$back" > h.cfg
haproxy -db -q -f h.cfg &
for _ in {1..300}; do curl -sf "http://127.0.0.1:$PORT/t" > t && break; sleep 0.1; done
for i in {1..30}; do curl -s "http://127.0.0.1:$PORT/t?$i"; done | cksum
curl -s "http://127.0.0.1:$PORT/nosuch" -o /dev/null -w '%{http_code}\n'
kill %2; wait %2 || echo "status $?"; kill %1; wait || true
WORK

program /usr/bin/memcached memcached,python3 <<'WORK'
memcached -u nobody -l 127.0.0.1 -p "$PORT" -U 0 -m 32 -t 2 &
/usr/bin/python3 - "$PORT" <<'PY'
import socket, sys, time
for _ in range(300):
    try: s = socket.create_connection(("127.0.0.1", int(sys.argv[1]))); break
    except OSError: time.sleep(0.1)
f = s.makefile("rwb")
for i in range(3000):
    f.write(b"set k%d 0 0 %d\r\n%s\r\n" % (i, i % 900, b"x" * (i % 900)))
f.flush()
print(sum(f.readline() == b"STORED\r\n" for _ in range(3000)))
f.write(b"get k77\r\nincr none 1\r\nquit\r\n"); f.flush()
print(f.read())
PY
kill %1; wait || echo "status $?"
WORK

program /usr/bin/redis-server redis-server,redis-tools <<'WORK'
redis-server --port 0 --unixsocket "$PWD/s" --save '' --appendonly yes --dir "$PWD" > log &
r() { redis-cli -s s "$@"; }
for _ in {1..300}; do [ "$(r ping 2> /dev/null)" = PONG ] && break; sleep 0.1; done
seq 1 20000 | sed 's/.*/set k& v&/' | r --pipe | tail -n 1
r eval 'for i = 1, 5000 do redis.call("zadd", "z", i % 97, "m" .. i) end return redis.call("zcard", "z")' 0
r dbsize; r get k777; r zrange z 0 3 withscores; r bgrewriteaof
r shutdown nosave; wait; echo "status $?"
WORK

program /usr/lib/postgresql/15/bin/postgres postgresql-15 <<'WORK'
bin=/usr/lib/postgresql/15/bin; as=
[ "$(id -u)" != 0 ] || { chown postgres . && as='setpriv --reuid=postgres --regid=postgres --init-groups'; }
$as "$bin/initdb" -D d -A trust -N --no-locale -E UTF8 > log
$as "$bin/postgres" -D d -h '' -k "$PWD" -c fsync=off > log 2>&1 &
p() { $as "$bin/psql" -XqAt -h "$PWD" -d postgres "$@"; }
for _ in {1..300}; do p -c 'select 1' > up 2>&1 && break; sleep 0.1; done
p -c 'create table t as select i, md5(i::text) m from generate_series(1, 30000) i; create index on t (m); analyze t'
p -c 'select count(*), sum(i), min(m), max(m) from t' -c "select md5(string_agg(m, ',' order by m)) from t" -c 'select a.i % 5, count(*) from t a join t b on a.i = b.i + 1 group by 1 order by 1'
p -c 'select no' || echo "status $?"
kill -INT %1; wait; echo "status $?"
WORK

program /usr/sbin/mariadbd mariadb-server,mariadb-client <<'WORK'
user=$(id -un); mkdir d
mariadb-install-db --no-defaults --user="$user" --datadir="$PWD/d" --auth-root-authentication-method=normal > log 2>&1
mariadbd --no-defaults --user="$user" --datadir="$PWD/d" --socket="$PWD/s" --skip-networking --innodb-buffer-pool-size=32M > log 2>&1 &
m() { mariadb --no-defaults -u root -S s -N -B "$@"; }
for _ in {1..600}; do m -e 'select 1' > up 2>&1 && break; sleep 0.1; done
m -e 'create database x'
m x -e 'create table t (i int primary key, m char(32)) select seq i, md5(seq) m from seq_1_to_20000; alter table t add index (m)'
m x -e 'select count(*), sum(i), min(m), max(m) from t; select a.i % 5 k, count(*) from t a join t b on a.i = b.i + 1 group by k order by k; check table t'
m -e 'select no' || echo "status $?"
m -e shutdown; wait; echo "status $?"
WORK

program /usr/sbin/dnsmasq dnsmasq-base,python3 <<'WORK'
dnsmasq -k -C /dev/null -p "$PORT" -a 127.0.0.1 -z -u "$(id -un)" -x "$PWD/pid" --no-resolv --no-hosts -A /loam.test/10.1.2.3 > log 2>&1 &
/usr/bin/python3 - "$PORT" <<'PY'
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(1)
for i in range(200):
    q = i.to_bytes(2, "big") + b"\1\0\0\1\0\0\0\0\0\0\4loam\4test\0\0\1\0\1"
    for _ in range(60):
        try:
            s.sendto(q, ("127.0.0.1", int(sys.argv[1])))
            a = s.recv(512)
            break
        except OSError: pass
print(a[-4:])
PY
kill %1; wait; echo "status $?"
WORK

program /usr/bin/chromium chromium <<'WORK'
page='data:text/html,<p id=p></p><script>p.textContent=[...Array(9999).keys()].reduce((a,b)=>a+b)</script>'
timeout 100 chromium --headless --no-sandbox --disable-gpu --user-data-dir="$HOME/c" --dump-dom "$page" 2> log
WORK

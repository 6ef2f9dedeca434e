# perl.sh - perl: hashes, strings that grow, regular expressions, sort, fork.
. tests/system/_lib.sh
need perl

cat > "$work/script.pl" <<'SCRIPT'
use strict; use warnings;
my (%h, @a);
my $x = 42;
for my $i (1 .. 60000) { $x = ($x * 1103515245 + 12345) % 2147483648; $h{$x % 5000} .= chr(97 + $x % 26); push @a, $x }
my $s = join ",", map { "$_=$h{$_}" } sort { $a <=> $b } keys %h;
my $n = () = $s =~ /([a-m]+)([n-z]+)/g;
print length($s), " $n ", (sort { $a <=> $b } @a)[30000], "\n";
my $big = "ab" x 2_000_000; substr($big, 1_000_000, 10) = "x" x 500_000; print length($big), "\n";
my @nested = map { { id => $_, list => [1 .. $_ % 50] } } 1 .. 5000;
my $sum = 0; $sum += @{ $_->{list} } for @nested; print "$sum\n";
my $pid = fork // die; if (!$pid) { my @b = (1) x 100000; exit(scalar(@b) == 100000 ? 3 : 4) }
waitpid $pid, 0; print $? >> 8, "\n";
die "the end\n";
SCRIPT
compare_runs "perl" perl "$work/script.pl"

# Perl writes $0 to the place where the kernel put argv, as servers do that show their present work.
LOAM_SERVICE=1 exec_under_policy perl -e '$0 = "master process of a server with a long name"; $| = 1; print "up\n"; sleep 60' \
  > "$work/up" &
children=$!
for _ in $(seq 100); do [ -s "$work/up" ] && break; sleep 0.1; done
"$LOAM" reload "$children" > "$work/out" 2>&1 || fail "reload: $(cat "$work/out")" # the program writes its entry
answer_of "$children" | grep -q '"program":"perl"' || fail "argv: $(answer_of "$children")"
echo "ok: a program that rewrites argv keeps its name"

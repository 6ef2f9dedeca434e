# extreme.sh - policies that ask of every allocation what a machine has little of: the program goes on.
. tests/system/_lib.sh
need "$CC" perl

# every STRATEGY - a policy that gives all memory to it, or to plain memory.
every() {
  policy=$work/every.lua
  printf 'local most, rest = loam.%s, loam.host {}\n' "$1" > "$policy"
  printf 'return loam.policy { pick = function(req) return most:or_else(rest) end }\n' >> "$policy"
}
cat > "$work/script.pl" <<'SCRIPT'
my %h; $h{$_ % 7919} .= $_ for 1 .. 300_000;
my $n = 0; $n += length for values %h; print "$n\n";
SCRIPT
build many.c
for strategy in 'host { guard = true }' 'host { guard = 4 }' 'host { huge = "2MiB" }' \
  'host { huge = "1GiB" }' 'host { lock = true }' 'host { limit = 100000 }' 'host { align = 65536 }' \
  'host { prefault = true, zero = true }' 'host { numa = "interleave" }' 'system {}' 'device {}'; do
  every "$strategy"
  same "$strategy: many blocks" "$program"
  same "$strategy: perl" perl "$work/script.pl"
done

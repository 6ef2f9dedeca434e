# gcc.sh - the compiler with its separate processes, and the program that it makes.
. tests/system/_lib.sh
need "$CC" "$CXX"

cat > "$work/program.cc" <<'SOURCE'
#include <algorithm>
#include <iostream>
#include <map>
#include <string>
#include <vector>
template <int N> struct Fib { static const long value = Fib<N - 1>::value + Fib<N - 2>::value; };
template <> struct Fib<0> { static const long value = 0; };
template <> struct Fib<1> { static const long value = 1; };
int main() {
  std::map<std::string, std::vector<long>> m;
  for (int i = 0; i < 1000; i++) m["k" + std::to_string(i % 13)].push_back(i * Fib<40>::value);
  for (auto &e : m) std::cout << e.first << ' ' << *std::max_element(e.second.begin(), e.second.end()) << '\n';
}
SOURCE
cat > "$work/life" <<'SCRIPT'
set -e
cd "$1"
"$2" -O2 -c program.cc -o program.o
"$2" program.o -o program
cksum < program.o
./program
echo 'int f( {' | "$2" -x c++ -c - -o /dev/null 2>&1 || echo "status $?"
SCRIPT
compare_runs "gcc" bash "$work/life" "$work" "$CXX"

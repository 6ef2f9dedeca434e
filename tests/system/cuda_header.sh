#!/usr/bin/env bash
# cuda_header.sh - tests/standin/cuda.h agrees with the header of the CUDA Toolkit in every number,
# size and offset.
set -euo pipefail
toolkit=${CUDA_HOME:-/usr/local/cuda}/include
[ -e "$toolkit/cuda.h" ] || { echo "skipped: there is no CUDA Toolkit to compare with"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

numbers=$(grep -oE '\bCU(DA_ERROR)?_[A-Z_0-9]+\b' tests/standin/cuda.h | grep -v '_H$' | sort -u)
{
  echo '#include <cuda.h>'
  echo '#include <stddef.h>'
  echo '#include <stdio.h>'
  # shellcheck disable=SC2028
  echo 'static void say(const char *what, long long is) { printf("%s %lld\n", what, is); }'
  echo 'int main(void) {'
  for name in $numbers; do echo "say(\"$name\", (long long)($name));"; done
  for type in CUuuid CUipcMemHandle CUmemLocation CUmemAllocationProp CUmemAccessDesc \
    CUmemPoolProps CUdeviceptr CUmemGenericAllocationHandle CUdevice_attribute; do
    echo "say(\"$type\", (long long)sizeof($type));"
  done
  for place in CUmemAllocationProp,location CUmemAllocationProp,allocFlags CUmemAccessDesc,flags \
    CUmemPoolProps,handleTypes CUmemPoolProps,location CUmemPoolProps,maxSize; do
    echo "say(\"$place\", (long long)offsetof($place));"
  done
  echo '}'
} > "$work/say.c"
"${CC:-cc}" -w -Itests/standin "$work/say.c" -o "$work/ours"
"${CC:-cc}" -w "-I$toolkit" "$work/say.c" -o "$work/theirs"
"$work/ours" > "$work/ours.txt"
"$work/theirs" > "$work/theirs.txt"
diff "$work/ours.txt" "$work/theirs.txt"
echo "$(wc -l < "$work/ours.txt") numbers, sizes and places are the same"

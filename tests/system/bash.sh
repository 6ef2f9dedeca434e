# bash.sh - shell scripts: many short processes, subshells, here documents, arrays.
. tests/system/_lib.sh
need bash seq tr wc

cat > "$work/script" <<'SCRIPT'
declare -A count
for i in $(seq 1 3000); do key=k$((i % 97)); count[$key]=$((${count[$key]:-0} + i)); done
for key in $(printf '%s\n' "${!count[@]}" | sort); do echo "$key ${count[$key]}"; done
text=
for i in {1..2000}; do text+="line $i"$'\n'; done
echo "${#text} $(wc -l <<< "$text") $(tr a-z A-Z <<< "${text:0:40}" | head -n 1)"
for i in 1 2 3; do (exit "$i"); echo "subshell $?"; done
f() { local n=$1; ((n < 2)) && echo "$n" || echo $(($(f $((n - 1))) + $(f $((n - 2))))); }
f 7
cat <(echo process) <(echo substitution) | sort
nosuchcommand
exit 7
SCRIPT
compare_runs "bash" bash "$work/script"

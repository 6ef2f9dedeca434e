# batch.sh - `loam explain --batch` with a named pipe, with standard input, and with a missing file.
. tests/system/_lib.sh
need mkfifo timeout
[ -x "${LOAM:-}" ] || skip "no loam command in LOAM"

mkfifo "$work/requests"
printf 'malloc.any\t100\nmalloc.any\t3145728\n' > "$work/lines"
cat "$work/lines" > "$work/requests" &
children=$!
timeout 60 "$LOAM" explain "$policy" --batch "$work/requests" > "$work/of_pipe" || fail "a pipe: status $?"
"$LOAM" explain "$policy" --batch - < "$work/lines" > "$work/of_input" || fail "standard input: status $?"
"$LOAM" explain "$policy" --batch "$work/lines" > "$work/of_file" || fail "a file: status $?"
[ "$(grep -c '"name":"large"' "$work/of_file")" = 1 ] || fail "$(cat "$work/of_file")"
cmp "$work/of_file" "$work/of_pipe" && cmp "$work/of_file" "$work/of_input" || fail "the answers differ"
echo "ok: a batch comes from a file, a pipe with a name or standard input"

"$LOAM" explain "$policy" --batch "$work/none" > "$work/out" 2> "$work/err" && fail "no file is taken"
grep -qx "loam: $work/none: No such file or directory" "$work/err" || fail "$(cat "$work/err")"
[ ! -s "$work/out" ] || fail "$(cat "$work/out")"
echo "ok: a file that cannot be read is named"

# story_usage.sh COMMAND... - a story takes the path of its policy, and prints its usage without
# one.
"$@" examples/story.lua | diff -u examples/story.expected - || exit 1
words=$("$@" 2>&1)
status=$?
[[ $status = 2 && $words == usage:*story*POLICY* ]] || {
  echo "exit status $status: $words"
  exit 1
}

# failed.awk - prints why tests failed, from the JUnit file of ctest: the last lines of each failed
# test, and the first lines that report a problem if they come earlier. Omits lines about passed
# cases.
function plain(text) {
  gsub(/&lt;/, "<", text)
  gsub(/&gt;/, ">", text)
  gsub(/&quot;/, "\"", text)
  gsub(/&apos;/, "'", text)
  gsub(/&amp;/, "\\&", text)
  return text
}
function tell(   i, from) {
  from = n > MOST ? n - MOST + 1 : 1
  print "\nFailed: " name " (" why ")"
  if (trouble && trouble < from) {
    for (i = trouble; i < from && i < trouble + MOST / 2; i++) print "  " line[i]
    if (i < from) print "  ..."
  }
  for (i = from; i <= n; i++) print "  " line[i]
}
BEGIN { MOST = 30 }
/<testcase / { split($0, part, "\""); name = part[2]; why = "" }
/<failure/ { split($0, part, "\""); why = part[2] == "" ? "failed" : part[2] }
/<system-out>/ { inside = 1; n = trouble = 0; sub(/.*<system-out>/, "") }
inside {
  text = $0
  sub(/<\/system-out>.*/, "", text)
  if (text ~ /[^ ]/ && text !~ /^\[ RUN  |^\[       OK/) {
    line[++n] = plain(text)
    if (!trouble && text ~ /ERROR|WARNING: |FAIL|Traceback|[Ff]ailed|rror: |not true/) trouble = n
  }
}
/<\/system-out>/ {
  if (why != "") tell()
  inside = 0
}

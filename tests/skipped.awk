# skipped.awk - prints the skipped tests and the reasons, from the JUnit file of ctest: for a whole
# test its last line, for a test of a cmocka program the line before its mark, for a test of a
# busted spec the line after its mark.
function tell(what, why) {
  if (what in told) return
  told[what] = 1
  if (!count++) print "Skipped:"
  print "  " what (why == "" ? "" : ": " why)
}
/<testcase / { split($0, part, "\""); name = part[2]; whole = 0 }
/<skipped message="SKIP/ { whole = 1 }
/<system-out>/ { inside = 1; sub(/.*<system-out>/, "") }
/<\/system-out>/ {
  if (whole) tell(name, last)
  inside = 0
}
inside && /^\[  SKIPPED \] [a-z_0-9]+$/ { tell(name ", " $4, last ~ /^\[/ ? "" : last) }
inside && pending { tell(name ", " $0, ""); pending = 0 }
inside && /^Pending -&gt; / { pending = 1 }
inside && NF { last = $0 }

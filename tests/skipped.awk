# skipped.awk - what of a run was skipped and why, from the JUnit file that ctest writes: whole
# tests by their last line; tests of a cmocka program by the line before their mark; those of a
# busted spec by the lines after theirs.
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

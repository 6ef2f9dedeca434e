# misuse.awk - prints the results of tests/bench/misuse as a table: how many of each class were
# caught and, after a plus, how many were caught late.
function heading(what,   i) {
  printf "%-18s%6s", what, ""
  for (i = 1; i <= n; i++) printf "%15s", name[i]
  print ""
}

function line(what, of,   i) {
  printf "%-18s%6s", what, of
  for (i = 1; i <= n; i++) printf "%15s", cell[i]
  print ""
}

BEGIN { n = split(names, name, " ") }
{
  if (!($1 in of)) order[++classes] = $1
  if (!(($1, $2) in seen)) { seen[$1, $2] = 1; of[$1]++; all++; row[++rows] = $1 FS $2 }
  got[$1, $3, $4]++
  total[$3, $4]++
  was[$1 FS $2, $3] = $4
}
END {
  if (cases) {
    heading("case")
    for (r = 1; r <= rows; r++) {
      split(row[r], key, FS)
      for (i = 1; i <= n; i++) cell[i] = was[row[r], name[i]]
      printf "%-24s", key[2]
      for (i = 1; i <= n; i++) printf "%15s", cell[i]
      print ""
    }
    print ""
  }
  heading("caught +late")
  for (c = 1; c <= classes; c++) {
    for (i = 1; i <= n; i++) {
      late = got[order[c], name[i], "late"]
      cell[i] = got[order[c], name[i], "caught"] + 0 (late ? " +" late : "")
    }
    line(order[c], of[order[c]])
  }
  split("caught late missed spoilt", word, " ")
  for (w = 1; w <= 4; w++) {
    for (i = 1; i <= n; i++) cell[i] = total[name[i], word[w]] + 0
    line(word[w] " in all", all)
  }
}

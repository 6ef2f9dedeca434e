# abi.awk - shortens structs that begin with their size to the fields that the last version had.
#
#   awk -f abi.awk OLD NEW
#
# Prints the description NEW. loam reads the size with which a program was compiled, so fields that
# are added at the end of such a struct are compatible. Without them abidiff compares the earlier
# fields.
function attribute(name) {
  return match($0, name "='[^']*'") ? substr($0, RSTART + length(name) + 2, RLENGTH - length(name) - 3) : ""
}
/<class-decl / && !/is-declaration-only/ {
  struct = attribute("name")
  fields = 0
  if (FNR != NR && struct in bits) sub(/size-in-bits='[0-9]*'/, "size-in-bits='" bits[struct] "'")
  if (FNR == NR) size = attribute("size-in-bits")
}
/<\/class-decl>/ { struct = "" }
struct != "" && /<data-member / { fields++ }
FNR == NR {
  if (struct != "" && fields == 1 && /<var-decl / && attribute("name") == "size") bits[struct] = size
  if (struct in bits) count[struct] = fields
  next
}
struct in bits && fields > count[struct] { next }
{ print }

# loam.bash - completion of the loam command for bash.

_loam() {
  local word=${COMP_WORDS[COMP_CWORD]} verb=${COMP_WORDS[1]} words=
  local verbs="check explain plan diff test compile run ps status stats top owner metrics profile pages reload wait rebalance demote sleep wake doctor schema help"
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    words="$verbs --help --version"
  elif [[ $verb == @(help|schema) ]]; then
    ((COMP_CWORD > 2)) || words=${verbs% help}
    [[ $verb == help ]] || words=$(tr ' ' '\n' <<< "$words" | grep -vxE 'compile|run|metrics|profile|schema')
  elif [[ $verb == run && " ${COMP_WORDS[*]:2:COMP_CWORD-2} " == *" -- "* ]]; then
    compopt -o default # the words of the command that is run
    return
  elif [[ $word == -* ]]; then
    words=$("$1" "$verb" --help 2>/dev/null | sed -n 's/^  \(--[a-z-]*\).*/\1/p')
  elif ((COMP_CWORD == 2)) &&
    [[ $verb =~ ^(status|stats|owner|profile|pages|reload|rebalance|demote|sleep|wake)$ ]]; then
    words=$("$1" ps 2>/dev/null | awk 'NR > 1 { print $1 }')
  else
    case "$verb ${COMP_WORDS[COMP_CWORD-1]}" in
      "top --by") words="tag strategy node process service" ;;
      "top --sort") # which columns there are depends on --by
        words=$("$1" "${COMP_WORDS[@]:1:COMP_CWORD-2}" --sort '?' 2>&1 | sed -n "s/.* is none of //p" | tr -d ,) ;;
      "top --every" | "top --count" | "top --filter") ;;
      "stats --by") words="tag strategy class strategy,class tag,class tag,strategy,class" ;;
      "profile --format") words="pprof speedscope collapsed svg text" ;;
      "profile --sample") words="inuse_space inuse_objects alloc_space alloc_objects" ;;
      "profile --on") words="near-limit=90% failed signal" ;;
      "diff --allow") words="denied fallback limits options moved granted renamed apply undecided" ;;
      "demote --to") words="node cold pageout" ;;
      "sleep --to") words="pinned discard"; compopt -o dirnames ;;
      *" --pid" | top\ *) words=$("$1" ps 2>/dev/null | awk 'NR > 1 { print $1 }') ;;
      *) compopt -o default; return ;;
    esac
  fi
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")
}
complete -F _loam loam

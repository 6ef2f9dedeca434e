# loam.bash - completion of the loam command for bash.

_loam() {
  local word=${COMP_WORDS[COMP_CWORD]} verb=${COMP_WORDS[1]}
  local verbs="check explain plan diff test compile run ps status stats top owner metrics profile pages reload wait rebalance demote sleep wake doctor schema help --help --version"
  COMPREPLY=()
  if ((COMP_CWORD == 1)) || [[ $verb == @(help|schema) ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$verbs" -- "$word")
  elif [[ $word == -* ]]; then
    local options
    options=$(loam "$verb" --help 2>/dev/null | sed -n 's/^  \(--[a-z-]*\).*/\1/p')
    mapfile -t COMPREPLY < <(compgen -W "$options" -- "$word")
  elif [[ $verb == top && ${COMP_WORDS[COMP_CWORD-1]} == --by ]]; then
    mapfile -t COMPREPLY < <(compgen -W "tag strategy node process service" -- "$word")
  elif [[ $verb == stats && ${COMP_WORDS[COMP_CWORD-1]} == --by ]]; then
    mapfile -t COMPREPLY < <(compgen -W "tag strategy class strategy,class tag,class tag,strategy,class" -- "$word")
  elif [[ $verb == sleep && ${COMP_WORDS[COMP_CWORD-1]} == --to && $word != */* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "pinned discard" -- "$word")
  elif [[ ${COMP_WORDS[COMP_CWORD-1]} == --pid || $verb == top ]] ||
    { [[ $verb =~ ^(status|stats|owner|profile|pages|reload|rebalance|demote|sleep|wake)$ ]] && ((COMP_CWORD == 2)); }; then
    mapfile -t COMPREPLY < <(compgen -W "$(loam ps 2>/dev/null | awk 'NR > 1 { print $1 }')" -- "$word")
  else
    compopt -o default
  fi
}
complete -F _loam loam

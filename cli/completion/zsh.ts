import type { CompletionNode, Word } from './nodes.ts';
import { valuesText } from './values.ts';

/** A script for zsh, to be sourced, or to be found as `_svc` in `$fpath`. */
export const zshScript = (nodes: CompletionNode[]): string => `#compdef svc svc-relay
# Completes svc and svc-relay in zsh.
_svc_node() {
  names=() flags=() valued=() argument=
  case $1 in
${nodes.map(nodeCase).join('\n')}
    *) return 1 ;;
  esac
}

# Completes a value: words, files, or what svc knows now. Those are names that others chose: compadd quotes them.
_svc_values() {
  local -a found
  case $1 in
    '') return 1 ;;
    @files) _files ;;
    @*)
      [[ -z $elsewhere ]] || return 1
      found=("\${(@f)$(command svc completion zsh --values "\${1#@}" </dev/null 2>/dev/null)}")
      compadd -a found
      ;;
    *)
      found=("\${(@s:|:)1}")
      compadd -a found
      ;;
  esac
}

# Completes the value of the option $1, when it takes one.
_svc_option() {
  local entry
  for entry in "\${valued[@]}"; do
    [[ \${entry%%=*} == "$1" ]] || continue
    _svc_values "\${entry#*=}"
    return 0
  done
  return 1
}

_svc() {
  local -a names flags valued
  local argument given elsewhere word node=\${words[1]:t}
  local -i at
  _svc_node "$node" || return 1
  for (( at = 2; at < CURRENT; at++ )); do
    word=\${words[at]}
    if [[ $word == -* ]]; then
      [[ $word == --relay || $word == --relay=* ]] && elsewhere=1
      (( \${valued[(I)\${(b)word}=*]} )) || continue
      (( ++at == CURRENT )) || continue
      _svc_option "$word"
      return
    elif _svc_node "$node/$word"; then
      node=$node/$word
    else
      _svc_node "$node"
      given=1
    fi
  done
  if [[ $PREFIX == --*=* ]]; then
    word=\${PREFIX%%=*}
    compset -P 1 '*='
    _svc_option "$word"
  elif [[ $PREFIX == -* || -n $given || -z $names$argument ]]; then
    _describe -o option flags
  elif [[ -n $argument ]]; then
    _svc_values "$argument"
  else
    _describe command names
  fi
}

if [[ \${funcstack[1]} == _svc ]]; then
  _svc "$@"
else
  compdef _svc svc svc-relay
fi
`;

function nodeCase({ path, words, options, argument }: CompletionNode): string {
  const valued = options.flatMap(({ word, values }) =>
    values === undefined ? [] : [quoted(`${word}=${valuesText(values)}`)],
  );
  const parts = [
    ...(words.length > 0 ? [`names=(${described(words)})`] : []),
    `flags=(${described(options)})`,
    ...(valued.length > 0 ? [`valued=(${valued.join(' ')})`] : []),
    ...(argument === undefined ? [] : [`argument=${quoted(valuesText(argument))}`]),
  ];
  return `    ${path}) ${parts.join(' ')} ;;`;
}

const described = (words: Word[]): string =>
  words.map(({ word, summary }) => quoted(summary === '' ? word : `${word}:${summary}`)).join(' ');

const quoted = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`;

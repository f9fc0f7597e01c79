import type { CompletionNode, Word } from './nodes.ts';

/** A script for zsh, to be sourced, or to be found as `_svc` in `$fpath`. */
export const zshScript = (nodes: CompletionNode[]): string => `#compdef svc svc-relay
# Completes svc and svc-relay in zsh.
_svc_node() {
  names=() flags=() valued=() file=
  case $1 in
${nodes.map(nodeCase).join('\n')}
    *) return 1 ;;
  esac
}

_svc() {
  local -a names flags valued
  local file given word node=\${words[1]:t}
  local -i at
  _svc_node "$node" || return 1
  for (( at = 2; at < CURRENT; at++ )); do
    word=\${words[at]}
    if [[ $word == -* ]]; then
      (( \${valued[(Ie)$word]} )) || continue
      (( ++at == CURRENT )) || continue
      _files
      return
    elif _svc_node "$node/$word"; then
      node=$node/$word
    else
      _svc_node "$node"
      given=1
    fi
  done
  if [[ $PREFIX == --*=* ]]; then
    compset -P '*='
    _files
  elif [[ $PREFIX == -* || -n $given || -z $names$file ]]; then
    _describe -o option flags
  elif [[ -n $file ]]; then
    _files
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

function nodeCase({ path, words, options, takesFile }: CompletionNode): string {
  const valued = options.filter(({ takesValue }) => takesValue).map(({ word }) => word);
  const parts = [
    ...(words.length > 0 ? [`names=(${described(words)})`] : []),
    `flags=(${described(options)})`,
    ...(valued.length > 0 ? [`valued=(${valued.join(' ')})`] : []),
    ...(takesFile ? ['file=1'] : []),
  ];
  return `    ${path}) ${parts.join(' ')} ;;`;
}

const described = (words: Word[]): string =>
  words.map(({ word, summary }) => quoted(summary === '' ? word : `${word}:${summary}`)).join(' ');

const quoted = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`;

import type { CompletionNode, Word } from './nodes.ts';

/** A script for bash from 3.2 up; before 4.0 it completes no files. */
export const bashScript = (nodes: CompletionNode[]): string => `# Completes svc and svc-relay in bash.
_svc_relay_node() {
  words= options= valued= file=
  case $1 in
${nodes.map(nodeCase).join('\n')}
    *) return 1 ;;
  esac
}

_svc_relay() {
  local words options valued file at given word=\${COMP_WORDS[COMP_CWORD]} node=\${COMP_WORDS[0]##*/}
  COMPREPLY=()
  _svc_relay_node "$node" || return 0
  for (( at = 1; at < COMP_CWORD; at++ )); do
    case \${COMP_WORDS[at]} in
      -*)
        [[ " $valued " == *" \${COMP_WORDS[at]} "* ]] || continue
        (( at++ ))
        # Bash makes three words of --port=80.
        [[ \${COMP_WORDS[at]} == = ]] && (( at++ ))
        if (( at >= COMP_CWORD )); then
          compopt -o default 2>/dev/null
          return 0
        fi
        ;;
      *)
        if _svc_relay_node "$node/\${COMP_WORDS[at]}"; then
          node=$node/\${COMP_WORDS[at]}
        else
          _svc_relay_node "$node"
          given=1
        fi
        ;;
    esac
  done
  if [[ $word == -* || -z $words$file || $given ]]; then
    COMPREPLY=($(compgen -W "$options" -- "$word"))
  elif [[ $file ]]; then
    compopt -o default 2>/dev/null
  else
    COMPREPLY=($(compgen -W "$words" -- "$word"))
  fi
  return 0
}

complete -F _svc_relay svc svc-relay
`;

function nodeCase({ path, words, options, takesFile }: CompletionNode): string {
  const parts = [
    ...(words.length > 0 ? [`words='${joined(words)}'`] : []),
    `options='${joined(options)}'`,
    ...(options.some(({ takesValue }) => takesValue)
      ? [`valued='${joined(options.filter(({ takesValue }) => takesValue))}'`]
      : []),
    ...(takesFile ? ['file=1'] : []),
  ];
  return `    ${path}) ${parts.join(' ')} ;;`;
}

const joined = (words: Word[]): string => words.map(({ word }) => word).join(' ');

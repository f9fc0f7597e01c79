import type { CompletionNode, Word } from './nodes.ts';
import { valuesText } from './values.ts';

/** A script for bash from 3.2 up; before 4.0 it completes no files. */
export const bashScript = (nodes: CompletionNode[]): string => `# Completes svc and svc-relay in bash.
_svc_relay_node() {
  words= options= valued= argument=
  case $1 in
${nodes.map(nodeCase).join('\n')}
    *) return 1 ;;
  esac
}

# Completes a value: words, files, or what svc knows now. Those are names that others chose: they are only ever quoted.
_svc_relay_values() {
  local value quote= typed=\${word#=}
  case $1 in
    '') return ;;
    @files)
      compopt -o default 2>/dev/null
      return
      ;;
    @*) [[ $elsewhere ]] && return ;;
    *)
      COMPREPLY=($(compgen -W "\${1//|/ }" -- "$typed"))
      return
      ;;
  esac
  if [[ $typed == [\\"\\']* ]]; then
    quote=\${typed:0:1}
    typed=\${typed:1}
  fi
  typed=\${typed//\\\\/}
  while IFS= read -r value; do
    [[ $value && \${value//\\\\/} == "$typed"* ]] || continue
    case $quote in
      \\') [[ $value == *\\'* ]] && continue ;;
      \\") [[ $value == *[\\\\\\"\\$\\\`\\!]* ]] && continue ;;
      *) printf -v value %q "$value" ;;
    esac
    COMPREPLY+=("$value")
  done < <(command svc completion bash --values "\${1#@}" </dev/null 2>/dev/null)
}

_svc_relay() {
  local words options valued argument at entry given elsewhere IFS=$' \\t\\n'
  local word=\${COMP_WORDS[COMP_CWORD]} node=\${COMP_WORDS[0]##*/}
  COMPREPLY=()
  _svc_relay_node "$node" || return 0
  for (( at = 1; at < COMP_CWORD; at++ )); do
    case \${COMP_WORDS[at]} in
      -*)
        [[ \${COMP_WORDS[at]} == --relay ]] && elsewhere=1
        for entry in $valued; do
          [[ \${entry%%=*} == "\${COMP_WORDS[at]}" ]] || continue
          (( at++ ))
          # Bash makes three words of --port=80.
          [[ \${COMP_WORDS[at]} == = ]] && (( at < COMP_CWORD )) && (( at++ ))
          if (( at >= COMP_CWORD )); then
            _svc_relay_values "\${entry#*=}"
            return 0
          fi
          break
        done
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
  if [[ $word == -* || -z $words$argument || $given ]]; then
    COMPREPLY=($(compgen -W "$options" -- "$word"))
  elif [[ $argument ]]; then
    _svc_relay_values "$argument"
  else
    COMPREPLY=($(compgen -W "$words" -- "$word"))
  fi
  return 0
}

complete -F _svc_relay svc svc-relay
`;

function nodeCase({ path, words, options, argument }: CompletionNode): string {
  const valued = options.flatMap(({ word, values }) => (values === undefined ? [] : [`${word}=${valuesText(values)}`]));
  const parts = [
    ...(words.length > 0 ? [`words='${joined(words)}'`] : []),
    `options='${joined(options)}'`,
    ...(valued.length > 0 ? [`valued='${valued.join(' ')}'`] : []),
    ...(argument === undefined ? [] : [`argument='${valuesText(argument)}'`]),
  ];
  return `    ${path}) ${parts.join(' ')} ;;`;
}

const joined = (words: Word[]): string => words.map(({ word }) => word).join(' ');

import type { CompletionNode } from './nodes.ts';
import type { Values } from './values.ts';

/** A script for fish from 3.0 up. */
export const fishScript = (nodes: CompletionNode[]): string => `# Completes svc and svc-relay in fish.
set -g __svc_nodes ${nodes.map(({ path }) => path).join(' ')}
set -g __svc_valued ${nodes.flatMap(valuedOptions).map(quoted).join(' ')}

# Whether the words before the cursor lead to a node, and, with a second argument, none follows it yet.
function __svc_at
    set -l words (commandline -opc)
    set -l node (string replace -r '.*/' '' -- $words[1])
    set -l skip 0
    set -l given 0
    for word in $words[2..-1]
        if test $skip = 1
            set skip 0
        else if contains -- "$node $word" $__svc_valued
            set skip 1
        else if contains -- "$node/$word" $__svc_nodes
            set node "$node/$word"
        else if not string match -q -- '-*' $word
            set given 1
        end
    end
    test "$node" = $argv[1]; and test $given = 0 -o (count $argv) = 1
end

# What svc knows now: names that others chose, which fish quotes. Nothing for a relay elsewhere.
function __svc_values
    string match -qr -- '^--relay(=|$)' (commandline -opc); and return
    command svc completion fish --values $argv[1] </dev/null 2>/dev/null
end

complete -c svc -e
complete -c svc-relay -e
complete -c svc -f
complete -c svc-relay -f
${nodes.flatMap(nodeLines).join('\n')}
`;

const valuedOptions = ({ path, options }: CompletionNode): string[] =>
  options.filter(({ values }) => values !== undefined).map(({ word }) => `${path} ${word}`);

function nodeLines({ path, words, options, argument }: CompletionNode): string[] {
  const start = `complete -c ${path.split('/', 1)[0]} -n '__svc_at ${path}'`;
  const first = start.replace(/'$/, " first'");
  return [
    ...words.map(({ word, summary }) => `${first} -a ${word}${summary === '' ? '' : ` -d ${quoted(summary)}`}`),
    ...(argument === undefined ? [] : [`${first}${offered(argument)}`]),
    ...options.map(({ word, summary, values }) => {
      const name = word.startsWith('--') ? `-l ${word.slice(2)}` : `-s ${word.slice(1)}`;
      const value = values === undefined ? '' : ` ${values === '@files' ? '-r' : '-x'}${offered(values)}`;
      return `${start} ${name}${value} -d ${quoted(summary)}`;
    }),
  ];
}

function offered(values: Values): string {
  if (values === '@files') return ' -F';
  if (typeof values === 'string') return ` -a '(__svc_values ${values.slice(1)})'`;
  return values.length === 0 ? '' : ` -a '${values.join(' ')}'`;
}

const quoted = (text: string): string => `'${text.replace(/[\\']/g, '\\$&')}'`;

import { actionsOf, type CommandEntry, nameOf, nestedPrograms, programs } from './commands.ts';
import type { Writer } from './output.ts';

/** The way in which the user called this program. Messages name further commands in the same way (contract 11 §1). */
export interface Invocation {
  /** Only `npx svc` finds the program. */
  npx: boolean;
  /** The given `--relay`. */
  relay?: string;
  /** The given `--settings`. */
  settings?: string;
  /** Members for the first JSON document. */
  extra?: object;
}

const lists: [prefix: string, commands: CommandEntry[]][] = [
  ...Object.values(programs).map(({ commands }): [string, CommandEntry[]] => ['', commands]),
  ...Object.entries(nestedPrograms).map(([word, { commands }]): [string, CommandEntry[]] => [`${word} `, commands]),
];

/** Words that follow `svc` or `svc-relay` in a message which names a command. */
const WORDS = [
  ...Object.keys(nestedPrograms),
  ...Object.values(programs).flatMap(({ commands }) =>
    commands.flatMap((entry) => [nameOf(entry), entry.alias ?? []].flat()),
  ),
  '--help',
  '<command>',
];

/** Before a command in a text: a space, a quote or a colour, as in `run: svc pair`. */
const BEFORE = '(?<=^|[\\s\'"`(]|\\u001b\\[\\d+m)';

/** Such a command, not yet called by `npx`. */
const COMMAND = new RegExp(`${BEFORE}(?<!npx )svc(?:-relay)?(?= (?:${WORDS.join('|')})(?![\\w-]))`, 'gm');

/** Commands with their actions that take an option, longest first: `devices revoke`, `devices`. */
function pathsWith(target: NonNullable<CommandEntry['target']>): string {
  const paths = lists.flatMap(([prefix, commands]) =>
    commands
      .filter((entry) => entry.target === target)
      .flatMap((entry) => {
        const path = `${prefix}${nameOf(entry)}`;
        return [path, ...actionsOf(entry).map((action) => `${path} ${action}`)];
      }),
  );
  return [...new Set(paths)].sort((a, b) => b.length - a.length).join('|');
}

const commandsWith = (target: NonNullable<CommandEntry['target']>) =>
  new RegExp(
    `${BEFORE}((?:npx )?svc(?:-relay)? (?:${pathsWith(target)}))(?![\\w-])(?!(?: [a-z-]+)? --(?:${target}|help))`,
    'gm',
  );
const WITH_RELAY = commandsWith('relay');
const WITH_SETTINGS = commandsWith('settings');

/**
 * True if the program was called where only `npx svc` finds it again: by `npx`, from `node_modules/.bin`, or by
 * `npm start`. `script` is `process.argv[1]`.
 */
export const isRunByNpm = (script: string, env: Record<string, string | undefined>): boolean =>
  /[\\/]node_modules[\\/]\.bin[\\/][^\\/]+$/.test(script) ||
  // A shell in the relay inherits the variable, but calls the program by another name.
  (env.npm_lifecycle_event === 'start' && /\.js$/.test(script));

/** Names the commands in a text as the user has to call them: `npx svc pair --relay URL` for `svc pair`. */
export function asInvoked(text: string, { npx, relay, settings }: Invocation): string {
  let named = npx ? text.replace(COMMAND, 'npx $&') : text;
  if (relay !== undefined) named = named.replace(WITH_RELAY, (path) => `${path} --relay ${word(relay)}`);
  if (settings !== undefined) named = named.replace(WITH_SETTINGS, (path) => `${path} --settings ${word(settings)}`);
  return named;
}

/** A word quoted for a shell. */
const word = (text: string): string => (/^[\w@%+=:,./~-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

/** The same stream, which names the commands in the texts of this program as the user has to call them. */
export function withInvokedNames<Stream extends Writer>(
  stream: Stream,
  invocation: Invocation,
  onWrite: (text: string) => void = () => {},
): Stream {
  return new Proxy(stream, {
    get(target, name) {
      if (name === 'asInvoked') return (text: string) => asInvoked(text, invocation);
      if (name === 'takeExtra') {
        return () => {
          const { extra } = invocation;
          invocation.extra = undefined;
          return extra;
        };
      }
      if (name === 'write') {
        return (text: string, ...rest: []) => {
          onWrite(text);
          return target.write(text, ...rest);
        };
      }
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === 'function' ? value.bind(target) : value;
    },
  });
}

import { nestedPrograms, programs } from './commands.ts';
import type { Writer } from './output.ts';

/** Words that follow `svc` or `svc-relay` in a message which names a command. */
const WORDS = [
  ...Object.keys(nestedPrograms),
  ...Object.values(programs).flatMap(({ commands }) => commands.map(({ usage }) => usage.split(' ', 1)[0])),
  '--help',
];

/** Such a command, not yet called by `npx`: after a space, a quote or a colour, as in `run: svc pair`. */
const COMMAND = new RegExp(
  `(?<=^|[\\s'"\`(]|\\u001b\\[\\d+m)(?<!npx )svc(?:-relay)?(?= (?:${WORDS.join('|')})\\b)`,
  'gm',
);

/**
 * Whether the program was called where only `npx svc` finds it again: by `npx`, from `node_modules/.bin`, or by
 * `npm start`. `script` is `process.argv[1]`.
 */
export const isCalledByNpm = (script: string, env: Record<string, string | undefined>): boolean =>
  /[\\/]node_modules[\\/]\.bin[\\/][^\\/]+$/.test(script) ||
  // A shell in the relay inherits the variable, but calls the program by another name.
  (env.npm_lifecycle_event === 'start' && /\.js$/.test(script));

/** Names commands as the user has to call them: `npx svc pair` for `svc pair`. */
export const asCalled = (text: string): string => text.replace(COMMAND, 'npx $&');

/** The same stream, with the commands in its text named as the user has to call them. */
export function namedAsCalled<Stream extends Writer>(stream: Stream): Stream {
  return new Proxy(stream, {
    get(target, name) {
      if (name === 'write') return (text: string, ...rest: []) => target.write(asCalled(text), ...rest);
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === 'function' ? value.bind(target) : value;
    },
  });
}

import { readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import fc from 'fast-check';
import { expect } from 'vitest';

/** How many times the runs of a normal suite: `FUZZ_ROUNDS=20` is the long version. */
const ROUNDS = Number(process.env.FUZZ_ROUNDS ?? 1);

/** Settings of a property with this many runs in a normal suite. `FUZZ_SEED` repeats the cases of a run. */
export function fuzzRuns(runs: number): { numRuns: number; seed: number; endOnFailure: boolean } {
  const seed = process.env.FUZZ_SEED === undefined ? Date.now() & 0x7fffffff : Number(process.env.FUZZ_SEED);
  const numRuns = Math.ceil(runs * ROUNDS);
  if (ROUNDS > 1) process.stderr.write(`fuzz: ${numRuns} runs, FUZZ_SEED=${seed}\n`);
  // A run that waits for an answer in vain takes `TIMEOUT`, and shrinking would repeat it until the case times out.
  return { numRuns, seed, endOnFailure: process.env.FUZZ_SEED === undefined };
}

/** For a case that makes `fuzzRuns`. */
export const LONG = { timeout: 300_000 * Math.max(1, ROUNDS) };

const ROOT = fileURLToPath(new URL('../../', import.meta.url));

function sourcesOf(folder: string): string[] {
  return readdirSync(join(ROOT, folder), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && entry.name.endsWith('.ts'))
    .map((entry) => readFileSync(join(entry.parentPath, entry.name), 'utf8'));
}

const matches = (text: string, pattern: RegExp): string[] => [...text.matchAll(pattern)].map((found) => found[1] ?? '');
const KEYWORDS = /^(?:await|async|const|export|from|function|import|return|throw|typeof|undefined|null|string|type)$/;

/** Lower-case words of the source file that declares a handler: its query's names are among them. */
export function wordsBeside(handler: string): string[] {
  const source = sourcesOf('handlers').find((text) => text.includes(`const ${handler}:`)) ?? '';
  return [...new Set(matches(source, /\b([a-z]+(?:_[a-z]+)*)\b/g))].filter((word) => !KEYWORDS.test(word));
}

/** Every request header that the relay reads. */
export const headersRead = (): string[] => [
  ...new Set(
    ['handlers', 'lib', 'cli/runtime'].flatMap((folder) =>
      sourcesOf(folder).flatMap((text) => matches(text, /(?:headers\.(?:get|has)|label)\((?:\w+, )?'([\w-]+)'/g)),
    ),
  ),
];

/** The types of a channel's messages, with and without its name, as its source names them. */
export function typesOf(channel: string): string[] {
  const source = readFileSync(join(ROOT, `handlers/channels/${channel}.ts`), 'utf8');
  const found = matches(source, /(?:case|[!=]==) '([a-z][a-z_.]*)'/g);
  return [...new Set([...found, ...found.map((type) => (type.includes('.') ? `${type}s` : `${channel}.${type}`))])];
}

/**
 * Collects the names of the members that anything reads of a parsed JSON value while `run` lasts, so that fuzzing knows
 * the fields of messages and bodies without a list of them.
 */
export async function namesReadDuring(run: () => Promise<void>): Promise<Set<string>> {
  const names = new Set<string>();
  const { parse } = JSON;
  const watched = (value: unknown): unknown =>
    typeof value !== 'object' || value === null
      ? value
      : new Proxy(value, {
          get(target, name) {
            if (typeof name === 'string' && !(name in Object.prototype) && !(name in Array.prototype)) names.add(name);
            return watched(Reflect.get(target, name));
          },
        });
  JSON.parse = ((text: string, reviver) => watched(parse(text, reviver))) as typeof parse;
  try {
    await run();
  } finally {
    JSON.parse = parse;
  }
  for (const name of ['then', 'toJSON', 'channel', 'frames', '$$typeof', 'asymmetricMatch', 'nodeType'])
    names.delete(name);
  return names;
}

/** Texts that have broken parsers, tables, and formats before. */
const TEXTS = [
  ...[
    '',
    ' ',
    '0',
    '1',
    '-1',
    'x',
    'true',
    'null',
    'default',
    '*',
    '.',
    '..',
    '/',
    '~',
    '%',
    '%00',
    '\0',
    '\n',
    '\r\n',
  ],
  ...['__proto__', 'constructor', 'toString', 'hasOwnProperty', 'prototype', 'length', 'valueOf', 'then'],
  ...['\ud800', '\udfff', '\ufeff', '\u202e', '\u0000\u0001', 'é', '💥', 'a\u0301', '\u2028', 'ﬀ', 'İ', 'ẞ'],
  ...['1e999', '-0', 'NaN', 'Infinity', '0x10', '1_000', '9007199254740993', '2026-01-01', '2026-02-30T25:61:61Z'],
  ...[
    'png',
    'text/plain',
    'image/png',
    'a/b; c="',
    'http://127.0.0.1:1/',
    'https://x/',
    'ws://x',
    'file:///etc/passwd',
  ],
  ...[
    'http://[::1',
    'http://a b',
    'javascript:0',
    '127.0.0.1',
    '::1',
    '[::]',
    'localhost',
    'a'.repeat(129),
    'a'.repeat(5000),
  ],
  ...[
    'YWJj',
    '====',
    'iVBORw0KGgoAAAANSUhEUg==',
    '{}',
    '[]',
    '{"a":',
    '$(id)',
    '`id`',
    "'; --",
    '%s%n',
    '\x1b[2J',
    '\\u0000',
  ],
];
const NUMBERS = [
  0,
  -0,
  1,
  -1,
  0.5,
  2,
  80,
  65_535,
  65_536,
  2 ** 31,
  2 ** 32,
  2 ** 53,
  -(2 ** 53),
  1e21,
  1e308,
  -1e308,
  5e-324,
];

/** A JSON value of any shape: mostly one that breaks what expects another. `known` are texts with a meaning here. */
export function anyValue(known: () => readonly string[]): fc.Arbitrary<unknown> {
  const text = fc.oneof(
    fc.constantFrom(...TEXTS),
    fc.nat(1000).map((at) => {
      const texts = known();
      return texts[at % Math.max(1, texts.length)] ?? '';
    }),
    fc.string({ unit: 'binary', maxLength: 40 }),
  );
  return fc.oneof(
    { weight: 5, arbitrary: text },
    { weight: 3, arbitrary: fc.constantFrom<unknown>(...NUMBERS) },
    { weight: 3, arbitrary: fc.constantFrom<unknown>(null, true, false, [], {}, [[]], [null], { '': null }) },
    { weight: 1, arbitrary: fc.array(text, { maxLength: 5 }) },
    { weight: 1, arbitrary: fc.dictionary(text, fc.oneof(text, fc.constantFrom(...NUMBERS)), { maxKeys: 4 }) },
    { weight: 1, arbitrary: fc.jsonValue() },
  );
}

/** A JSON object with some of the members `names`, and perhaps others. Members may be objects of them again. */
export function anyObject(
  names: readonly string[],
  value: fc.Arbitrary<unknown>,
): fc.Arbitrary<Record<string, unknown>> {
  const name = fc.oneof(
    { weight: 12, arbitrary: fc.constantFrom(...(names.length > 0 ? names : ['x'])) },
    { weight: 1, arbitrary: fc.constantFrom(...TEXTS) },
  );
  const flat = fc.array(fc.tuple(name, value), { maxLength: 8 }).map((members) => Object.fromEntries(members));
  const nested = fc.oneof({ weight: 4, arbitrary: value }, { weight: 1, arbitrary: fc.oneof(flat, fc.array(flat)) });
  // Gets past the first checks of those that want texts here and numbers there.
  const plausible = fc.array(fc.constantFrom<unknown>(80, 80, 'x', 'default'), { minLength: 20, maxLength: 20 });
  return fc.oneof(
    { weight: 3, arbitrary: fc.array(fc.tuple(name, nested), { maxLength: 8 }).map((all) => Object.fromEntries(all)) },
    { weight: 2, arbitrary: plausible.map((all) => Object.fromEntries(names.map((name, at) => [name, all[at % 20]]))) },
  );
}

/** Ways to spoil the text of a JSON value. */
export const spoiled = (text: fc.Arbitrary<string>): fc.Arbitrary<string> =>
  fc.tuple(text, fc.nat(10), fc.nat(1000)).map(([text, way, at]) => {
    const cut = text.length === 0 ? 0 : at % text.length;
    switch (way) {
      case 0:
        return text.slice(0, cut);
      case 1:
        return `${text.slice(0, cut)}\0${text.slice(cut)}`;
      case 2:
        return `\ufeff${text}`;
      case 3:
        return text + text;
      case 4:
        return text.replace(/:("[^"]*"|\d+)/, ':1e999');
      case 5:
        return text.replace('{', '{"__proto__":{"ok":1},');
      case 6:
        return `${'['.repeat(at)}${text}${']'.repeat(at)}`;
      case 7:
        return `${'{"a":'.repeat(at)}${text}${'}'.repeat(at)}`;
      case 8:
        return `{"a":[${Array.from({ length: at }, () => '{}').join()}],"b":${text || 0}}`;
      case 9:
        return text.replaceAll('"', "'");
      default:
        return JSON.stringify(text);
    }
  });

/** Lines of a log that tell of a fault in the relay itself. */
export const faults = (log: readonly string[]): string[] =>
  log.filter((line) =>
    /\[ERROR\]|(?:Type|Range|Reference|Syntax)Error|internal error|is not a function|Cannot read|uncaught|unhandled/i.test(
      line,
    ),
  );

/** Sockets, files and terminals that this process has open, without what its threads have for themselves. */
export const descriptors = (): number =>
  readdirSync('/proc/self/fd').filter((fd) => {
    try {
      return !/^(?:pipe|anon_inode):/.test(readlinkSync(`/proc/self/fd/${fd}`));
    } catch {
      return false;
    }
  }).length;

/** Errors that would have ended the relay's process, from now on. */
export function watchCrashes(): { expectNone(): void; stop(): void } {
  const seen: unknown[] = [];
  const note = (error: unknown) => void seen.push(error);
  process.on('uncaughtExceptionMonitor', note).on('unhandledRejection', note);
  return {
    expectNone: () => expect(seen).toEqual([]),
    stop: () => void process.off('uncaughtExceptionMonitor', note).off('unhandledRejection', note),
  };
}

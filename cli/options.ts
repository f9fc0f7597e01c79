import { isIP } from 'node:net';
import { parseArgs } from 'node:util';
import type { Command } from 'cac';
import { RelayError } from '../lib/errors.ts';
import { visibleName } from '../lib/kit/text.ts';
import { didYouMean } from './did-you-mean.ts';
import { UsageError } from './output.ts';

/** Given options by camelCase name: text, `true` for a flag, `false` for a `--no-…` flag. Holds no defaults. */
export type Options = Record<string, string | boolean | undefined>;

export interface CommandLine {
  positionals: string[];
  options: Options;
}

export interface KnownOption {
  names: string[];
  takesValue: boolean;
  /** `[value]`: may stand alone. The next word is its value only when it begins with a digit. */
  optional: boolean;
  /** The word between `<` and `>` or the brackets; empty for a flag. */
  placeholder: string;
  negated: boolean;
  description: string;
}

const camelCase = (name: string): string => name.replace(/-([a-z0-9])/g, (_, letter: string) => letter.toUpperCase());

/** The options of a command, each under every word that a command line may use for it. */
export function knownOptions(command: Command): Map<string, KnownOption> {
  const known = new Map<string, KnownOption>();
  for (const option of command.options) {
    const [flags = '', placeholder = ''] = option.rawName.split(/[<[>\]]/);
    const row = { ...option, takesValue: option.required === true, optional: option.required === false, placeholder };
    for (const flag of flags.split(',')) known.set(flag.trim().replace(/^--?/, ''), row);
  }
  return known;
}

/**
 * Parses the words after a command's name by the options the command defined. cac's own parser is too lenient: it turns
 * the code `000123` into the number 123, and an option given twice into an array.
 * @throws UsageError for an unknown option, a missing or surplus value, an option given twice, too few or many words.
 */
export function parseCommandLine(command: Command, words: string[]): CommandLine {
  const known = knownOptions(command);
  const { tokens } = parseArgs({
    args: words,
    strict: false,
    tokens: true,
    options: Object.fromEntries(
      [...known].map(([flag, { takesValue }]) => [
        flag,
        { type: takesValue ? 'string' : 'boolean', ...(flag.length === 1 && { short: flag }) } as const,
      ]),
    ),
  });
  const positionals: string[] = [];
  const options: Options = {};
  const usedIndexes = new Set<number>();
  for (const token of tokens) {
    if (token.kind === 'positional' && !usedIndexes.has(token.index)) positionals.push(token.value);
    if (token.kind !== 'option') continue;
    const option = known.get(token.name);
    if (!option) throw new UsageError(`unknown option ${token.rawName}${suggestion(token.rawName, known)}`);
    if (option.names.some((name) => options[name] !== undefined)) {
      throw new UsageError(`${token.rawName} is given more than once`);
    }
    const following = option.optional && token.value === undefined ? valueAfter(token.index, tokens) : undefined;
    if (following) usedIndexes.add(following.index);
    const value = following?.value ?? optionValue(option, token);
    for (const name of option.names) options[name] = value;
  }
  checkPositionals(command, positionals);
  return { positionals, options };
}

const suggestion = (name: string, known: Map<string, KnownOption>): string =>
  name.startsWith('--')
    ? didYouMean(
        name,
        [...known.keys()].map((flag) => `--${flag}`),
      )
    : '';

type Token = NonNullable<ReturnType<typeof parseArgs>['tokens']>[number];

/** The word after an option with an optional value, when it looks like one. */
function valueAfter(index: number, tokens: Token[]): { index: number; value: string } | undefined {
  const next = tokens.find((token) => token.index === index + 1);
  return next?.kind === 'positional' && /^\d/.test(next.value) ? next : undefined;
}

function optionValue(option: KnownOption, token: { rawName: string; value?: string; inlineValue?: boolean }) {
  if (option.optional) return token.value || true;
  if (!option.takesValue) {
    if (token.value !== undefined) throw new UsageError(`${token.rawName} takes no value`);
    return !option.negated;
  }
  // In `--ttl --no-qr` the value was forgotten. A value that begins with a dash is written as `--ttl=-x`.
  if (!token.value || (!token.inlineValue && token.value.startsWith('-'))) {
    throw new UsageError(`${token.rawName} needs a value`);
  }
  return token.value;
}

function checkPositionals(command: Command, positionals: string[]): void {
  const missing = command.args.filter((arg) => arg.required)[positionals.length];
  if (missing) throw new UsageError(`missing <${missing.value}>`);
  const surplus = positionals[command.args.length];
  if (surplus !== undefined && !command.args.some((arg) => arg.variadic)) {
    throw new UsageError(`unexpected argument '${surplus}'`);
  }
}

/**
 * The converted value of one option, or undefined when it is not given. `flag` is its full name, such as `--port`.
 * @throws UsageError naming the option, when `convert` throws a `RelayError`.
 */
export function option<T>(options: Options, flag: `--${string}`, convert: (text: string) => T): T | undefined {
  const value = options[camelCase(flag.slice(2))];
  if (typeof value !== 'string') return undefined;
  try {
    return convert(value);
  } catch (error) {
    if (error instanceof RelayError) throw new UsageError(`${flag}: ${error.message}`);
    throw error;
  }
}

/** True if a flag is given. */
export const flag = (options: Options, name: `--${string}`): boolean => options[camelCase(name.slice(2))] === true;

/** True if an option is given, whatever its value. */
export const isGiven = (options: Options, name: `--${string}`): boolean =>
  options[camelCase(name.slice(2))] !== undefined;

/** True if a flag is given in its negated form. `name` omits the `no-`. */
export const negated = (options: Options, name: `--${string}`): boolean => options[camelCase(name.slice(2))] === false;

/** @throws UsageError for a given option that belongs to other actions than this one. */
export function checkOwners(
  options: Options,
  action: string,
  owners: Readonly<Record<`--${string}`, readonly string[]>>,
): void {
  for (const [name, actions] of Object.entries(owners)) {
    if (!isGiven(options, name as `--${string}`) || actions.includes(action)) continue;
    // Made only when it is needed, since it takes 9 ms.
    const listed = new Intl.ListFormat('en-GB').format(actions.map((word) => `'${word}'`));
    throw new UsageError(`${name} belongs to ${listed}`);
  }
}

const invalid = (message: string) => new RelayError('invalid', message);

export const asText = (text: string): string => text;

/** A whole number in a range. */
export const asWhole =
  (min: number, max: number) =>
  (text: string): number => {
    const number = Number(text);
    if (/^\d+$/.test(text) && text.length <= String(max).length && number >= min && number <= max) return number;
    throw invalid(`must be a whole number from ${min} to ${max}`);
  };

export const asPort = asWhole(1, 65_535);

/** A host name or address, without the brackets of `[::1]`. */
export function asHost(text: string): string {
  const host = text.replace(/^\[(.*)\]$/, '$1');
  if (isIP(host) || /^[A-Za-z0-9_]([A-Za-z0-9._-]{0,252})$/.test(text)) return host;
  throw invalid('must be a host name or an IP address, without scheme, port or path');
}

/** An absolute http(s) URL without user info, trailing slashes removed. */
export function asHttpUrl(text: string): string {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (!url || !/^https?:$/.test(url.protocol)) throw invalid('must be an http:// or https:// URL');
  if (url.username || url.password) throw invalid('must not contain a user name or password');
  return text.trim().replace(/\/+$/, '');
}

/** A name of a device or tool: one line of visible characters. */
export function asName(text: string): string {
  const name = text.trim();
  if (name === '' || name !== visibleName(name)) throw invalid('must be 1 to 128 visible characters in one line');
  return name;
}

/** One of a few words, in any case. */
export function asChoice<const T extends string>(...choices: T[]): (text: string) => T {
  return (text) => {
    const choice = choices.find((candidate) => candidate === text.trim().toLowerCase());
    if (choice === undefined) throw invalid(`must be one of ${choices.join(', ')}`);
    return choice;
  };
}

/** Converts seconds such as `2` or `0.5` into milliseconds; at most a minute. */
export function asTimeout(text: string): number {
  const seconds = Number(text);
  if (!/^\d{1,3}(?:\.\d{1,3})?$/.test(text) || seconds <= 0 || seconds > 60) {
    throw invalid('must be a number of seconds, more than 0 and at most 60');
  }
  return seconds * 1000;
}

/**
 * The action word after a command's name, in any case. Without one it is the first choice.
 * @throws UsageError naming the choices.
 */
export function actionOf<const T extends string>(word: string | undefined, ...choices: [T, ...T[]]): T {
  const action = word === undefined ? choices[0] : choices.find((choice) => choice === word.toLowerCase());
  if (action !== undefined) return action;
  const must = `must be ${choices.slice(0, -1).join(', ')} or ${choices.at(-1)}`;
  throw new UsageError(`unknown action '${word}': ${must}${didYouMean(word ?? '', choices)}`);
}

/** A sample rate of voice, in hertz. */
export const asRate = asWhole(8000, 96_000);

import { RelayError } from '../errors.ts';
import { closestWord } from '../kit/closest-word.ts';
import { GRANTS } from '../sessions/grants.ts';
import { CHANNEL_NAME, MAX_DURATION, MAX_GRANTS } from './policy.ts';

const UNITS = { s: 1, m: 60, h: 3600, d: 86_400, w: 604_800, y: 31_536_000 } as const;
const WORDS = [
  [UNITS.y, 'year'],
  [UNITS.d, 'day'],
  [UNITS.h, 'hour'],
  [UNITS.m, 'minute'],
  [UNITS.s, 'second'],
] as const;

const invalid = (message: string) => new RelayError('invalid', message);

/**
 * Parses `30d`, `1y`, `90` (seconds) or `never` into whole seconds, 0 = never (contract 01 §9.4). A year has 365 days.
 * @throws RelayError `invalid`, also for `0d`, which reads like "at once" but would mean "never".
 */
export function parseDuration(text: string): number {
  const word = text.trim().toLowerCase();
  if (word === 'never' || word === '0') return 0;
  const match = /^(\d{1,12})([smhdwy]?)$/.exec(word);
  if (!match) throw invalid("must be like 7d, 12h, 1y or 'never' (a whole number and one of s m h d w y)");
  const seconds = Number(match[1]) * UNITS[(match[2] || 's') as keyof typeof UNITS];
  if (seconds === 0) throw invalid("must be more than 0, or 'never'");
  if (seconds > MAX_DURATION) throw invalid("must be at most 100y, or 'never'");
  return seconds;
}

/** Formats seconds: "30 days", "1 year 35 days", "never expires". */
export function describeDuration(seconds: number): string {
  if (seconds === 0) return 'never expires';
  let rest = seconds;
  const parts: string[] = [];
  for (const [size, word] of WORDS) {
    const count = Math.floor(rest / size);
    rest -= count * size;
    if (count > 0) parts.push(`${count} ${word}${count === 1 ? '' : 's'}`);
  }
  return parts.join(' ') || '0 seconds';
}

/**
 * Parses the grants of `svc pair --grants`: `terminal=7d,bridge=1d`. Channels need not be known.
 * @throws RelayError `invalid` naming the item at fault.
 */
export function parseGrants(text: string): Record<string, number> {
  const grants: Record<string, number> = {};
  for (const item of text.split(',')) {
    const at = item.indexOf('=');
    const channel = item.slice(0, Math.max(at, 0)).trim().toLowerCase();
    if (at < 0) throw invalid(`'${item.trim()}' must be like channel=7d`);
    if (!CHANNEL_NAME.test(channel)) throw invalid(`'${channel}' is no channel name`);
    if (Object.hasOwn(grants, channel)) throw invalid(`${channel} is named more than once`);
    try {
      grants[channel] = parseDuration(item.slice(at + 1));
    } catch (error) {
      throw invalid(`${channel} ${(error as Error).message}`);
    }
  }
  if (Object.keys(grants).length > MAX_GRANTS) throw invalid(`must name at most ${MAX_GRANTS} channels`);
  return grants;
}

/**
 * Parses the names of `svc pair --only` and `--without`: `chat,files` (contract 09 §1).
 * @throws RelayError `invalid` naming a grant that does not exist.
 */
export function parseGrantNames(text: string): string[] {
  const names = text.split(',').map((name) => name.trim().toLowerCase());
  for (const name of names) checkGrantName(name);
  return [...new Set(names)];
}

/** @throws RelayError `invalid` naming the grant that was probably meant, or listing all of them. */
export function checkGrantName(name: string): void {
  if (GRANTS.includes(name)) return;
  const suggestion = closestWord(name, GRANTS);
  throw invalid(
    suggestion === undefined
      ? `'${name}' is no grant: use ${GRANTS.join(', ')}`
      : `'${name}' is no grant; did you mean ${suggestion}?`,
  );
}

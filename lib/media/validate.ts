import type { Host } from '../host/index.ts';
import type { OpenBytes } from '../host/media.ts';
import type { DenyList } from './deny-list.ts';
import { isUnder } from './paths.ts';

/** Why a path is refused, in the order of the checks (contract 04 §2). */
export type PathRefusal =
  | 'invalid'
  | 'relative'
  | 'protected'
  | 'outside'
  | 'missing'
  | 'irregular'
  | 'unreadable'
  | 'too-large';

export const REFUSAL_TEXT: Record<PathRefusal, string> = {
  invalid: 'path is missing or invalid',
  relative: 'path is not absolute',
  protected: 'path is in a protected location',
  outside: 'path is not under an allowed root',
  missing: 'file does not exist',
  irregular: 'path is not a regular file',
  unreadable: 'file cannot be read',
  'too-large': 'file is too large',
};

export interface PathRules {
  host: Host;
  isDenied: DenyList;
  /** Real paths; if absent, every unprotected location is allowed. */
  roots?: readonly string[];
  /** Bytes. */
  cap?: number;
}

export type Validated = { ok: true; path: string; file: OpenBytes } | { ok: false; refusal: PathRefusal };

const refused = (refusal: PathRefusal): Validated => ({ ok: false, refusal });

/**
 * THE path validator: opens the file of an untrusted path, and guarantees that the checked real path is that of the open
 * file. The first failed check decides. Location is checked before existence, so that a refusal does not reveal which files
 * exist.
 */
export async function openPath(path: unknown, rules: PathRules): Promise<Validated> {
  const { host, cap } = rules;
  const located = await locate(path, rules);
  if (typeof located === 'string') return refused(located);
  const file = await host.media.open(located.path);
  if (typeof file === 'string') return refused(file);
  if (cap !== undefined && file.size > cap) {
    await file.close();
    return refused('too-large');
  }
  return { ok: true, path: located.path, file };
}

/** The real path for an untrusted one, if its location may be served, even if it does not exist. Else the failed check. */
export async function locate(
  path: unknown,
  { host, isDenied, roots }: Pick<PathRules, 'isDenied' | 'roots'> & { host: Pick<Host, 'media'> },
): Promise<{ path: string } | PathRefusal> {
  if (typeof path !== 'string' || path === '') return 'invalid';
  if (path.includes('\0') || !path.startsWith('/')) return 'relative';
  const real = await host.media.resolve(path);
  if (await isDenied(real)) return 'protected';
  if (roots && !roots.some((root) => isUnder(real, root))) return 'outside';
  return { path: real };
}

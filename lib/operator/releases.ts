import { isObject } from '../kit/json.ts';

type Triple = [major: number, minor: number, patch: number];

/** Up to 15 digits a part, so that every part is an exact number. What follows the triple is ignored. */
const TRIPLE = /^v?(\d{1,15})\.(\d{1,15})\.(\d{1,15})(?!\d)/;

function tripleOf(version: string): Triple | null {
  const match = TRIPLE.exec(version);
  return match && [Number(match[1]), Number(match[2]), Number(match[3])];
}

/** Below, at or above zero as `a` is older than, the same as or newer than `b`; 0 when either is no `X.Y.Z` (contract 01 §8.3). */
export function compareVersions(a: string, b: string): number {
  const left = tripleOf(a);
  const right = tripleOf(b);
  if (!left || !right) return 0;
  return left[0] - right[0] || left[1] - right[1] || left[2] - right[2];
}

/** The highest `X.Y.Z` of a feed's `server-v*` releases, else of its `plugin-v*` ones, else null (contract 07 §5.3). */
export function latestRelease(feed: unknown[]): string | null {
  const tags = feed
    .filter(isObject)
    .filter(({ tag_name, draft }) => typeof tag_name === 'string' && draft !== true)
    .map(({ tag_name }) => tag_name as string);
  return highest(tags, 'server-v') ?? highest(tags, 'plugin-v');
}

function highest(tags: string[], prefix: string): string | null {
  return tags
    .filter((tag) => tag.startsWith(prefix))
    .flatMap((tag) => tripleOf(tag.slice(prefix.length))?.join('.') ?? [])
    .reduce<string | null>((best, version) => (best && compareVersions(best, version) >= 0 ? best : version), null);
}

import { readCandidates } from '../../../lib/companion/link/pairing-url.ts';

export { withMailbox } from '../../../lib/companion/link/new-routes.ts';

const MAX_ADDRESSES = 4;

/**
 * The addresses of this page at the routes of `routes.updated` (contract 11 §2), best first, without the one at `base`; null
 * for what is no list of routes.
 */
export function readPageAddresses(endpoints: unknown, base: string): string[] | null {
  try {
    const { usable } = readCandidates(endpoints);
    const plain = usable.filter(({ pinned, broker }) => !pinned && !broker);
    const pages = plain
      .sort((one, other) => one.priority - other.priority)
      .map(({ url }) => url.replace(/^ws/i, 'http').replace(/\/ws$/, '/app/'));
    return [...new Set(pages)]
      .filter((page) => new URL('.', page).origin !== new URL(base).origin)
      .slice(0, MAX_ADDRESSES);
  } catch {
    return null;
  }
}

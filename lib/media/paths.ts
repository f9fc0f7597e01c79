/** The components of an absolute path. */
export const componentsOf = (path: string): string[] => path.split('/').filter((part) => part !== '');

/** Unicode's case folding as file systems do it: `ſ` equals `s`, and `é` may be one code point or two. */
export const fold = (text: string): string => text.normalize('NFC').toUpperCase().toLowerCase();

export type SameName = (one: string, other: string) => boolean;
export const exactly: SameName = (one, other) => one === other;
export const anyCase: SameName = (one, other) => fold(one) === fold(other);

/**
 * `path` spelled with the components of `root`, if it equals it or is below it; else null. Compares components, never string
 * prefixes.
 */
export function spelledUnder(path: string, root: string, same: SameName = exactly): string | null {
  const [parts, above] = [componentsOf(path), componentsOf(root)];
  if (above.length > parts.length || !above.every((part, at) => same(part, parts[at] as string))) return null;
  return `/${[...above, ...parts.slice(above.length)].join('/')}`;
}

export const isUnder = (path: string, root: string): boolean => spelledUnder(path, root) !== null;

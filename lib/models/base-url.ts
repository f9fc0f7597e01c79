/** An http(s) URL without credentials, query, fragment and slashes at its end; null for anything else. */
export function cleanBase(text: string): string | null {
  if (!URL.canParse(text)) return null;
  const { protocol, username, password, origin, pathname } = new URL(text);
  if (!/^https?:$/.test(protocol) || username || password) return null;
  return origin + pathname.replace(/\/+$/, '');
}

import { isLoopbackName } from '../kit/addresses.ts';
import { parseObject } from '../kit/json.ts';

// Rewrites the answers of a dashboard so that it works below `/dashboard` (contract 08 §4.3).

const PREFIX = '/dashboard';

/** A path of the dashboard as seen by its client. `path` begins with a slash and may have a query. */
function prefixed(path: string): string {
  const end = path.search(/[?#]/);
  const pathname = end < 0 ? path : path.slice(0, end);
  return pathname === PREFIX || pathname.startsWith(`${PREFIX}/`) ? path : PREFIX + path;
}

const isRootRelative = (text: string): boolean => text.startsWith('/') && !text.startsWith('//');

/** `Set-Cookie` with its path forced below `/dashboard`, and without a domain. Other attributes keep their order. */
export function rewriteCookie(value: string): string {
  let hasPath = false;
  const remaining: string[] = [];
  for (const [index, part] of value.split(';').entries()) {
    const name = index === 0 ? '' : (part.split('=', 1)[0] as string).trim().toLowerCase();
    if (name === 'domain') continue;
    if (name !== 'path') remaining.push(part);
    else if (!hasPath) {
      remaining.push(` Path=${PREFIX}`);
      hasPath = true;
    }
  }
  if (!hasPath) remaining.push(` Path=${PREFIX}`);
  return remaining.join(';');
}

/**
 * `Location` for the client; null if it must be dropped. `host` is the upstream's authority. An identity provider on https
 * is unchanged.
 */
export function rewriteLocation(value: string, host: string): string | null {
  if (isRootRelative(value)) return prefixed(value);
  if (!/^https?:\/\//i.test(value) || !URL.canParse(value)) return null;
  const url = new URL(value);
  const upstream = new URL(`http://${host}/`);
  const port = url.port || (url.protocol === 'https:' ? '443' : '80');
  // The upstream is on this host, whatever name it uses for itself.
  if (isLoopbackName(url.hostname) && port === (upstream.port || '80')) {
    return prefixed(url.pathname + url.search);
  }
  return url.protocol === 'https:' ? value : null;
}

/** Largest body that is buffered and rewritten. A larger one passes unchanged. */
export const MAX_REWRITTEN = 1024 * 1024;

export type Rewriting = 'html' | 'json';

/** The rewrite function for a body of this type; null if it stays unchanged. */
export function rewritingOf(contentType: string | undefined): Rewriting | null {
  const [type = ''] = (contentType ?? '').split(';', 1);
  const media = type.trim().toLowerCase();
  if (media === 'text/html') return 'html';
  return media === 'application/json' ? 'json' : null;
}

const LINKS = /(fetch\(['"]|href=['"])(?=\/auth\/)|(href=['"])(?=\/login)|(url\(['"])(?=\/fonts\/)/g;
const FALLBACK = /(window\.location\.assign\(\(data && data\.next\) \|\| )(['"])\/\2/g;

/** The links of a login page, in any ASCII-compatible encoding: `text` has one byte per character. */
export const rewriteHtml = (text: string): string =>
  text.replace(LINKS, (link) => link + PREFIX).replace(FALLBACK, `$1$2${PREFIX}/$2`);

/** A JSON object with its `next` below `/dashboard`; any other text unchanged. */
export function rewriteJson(text: string): string {
  // Most answers contain no such member, and need not be parsed.
  if (!text.includes('next') && !text.includes('\\u')) return text;
  const value = parseObject(text);
  const next = value?.next;
  if (typeof next !== 'string' || !isRootRelative(next)) return text;
  const path = prefixed(next);
  return path === next ? text : JSON.stringify({ ...value, next: path });
}

import { plainAddress } from '../access/peer.ts';
import type { HostNetwork } from '../host/index.ts';

/** A host as written in a URL, with IPv6 in brackets. */
export const urlHost = (host: string): string => (host.includes(':') ? `[${unbracket(host)}]` : host);

/** A host without the brackets of IPv6. */
export const unbracket = (host: string): string => host.replace(/^\[(.*)\]$/, '$1');

/** The canonical spelling of a host name or address (`127.1` and `0:0::1` have others); null when invalid. */
function normalize(host: string): string | null {
  const plain = plainAddress(unbracket(host));
  const url = `http://${urlHost(plain)}/`;
  return URL.canParse(url) ? unbracket(new URL(url).hostname) : null;
}

/** Whether the text is a host name or address alone: no port, path, user or zone. */
export function isHost(text: string): boolean {
  if (text.length > 253) return false;
  const plain = /^[^\s/?#@\\:%[\]]+$/.test(text) || /^(?:[0-9a-f:.]+:[0-9a-f:.]*|\[[0-9a-f:.]+\])$/i.test(text);
  return plain && normalize(text) !== null;
}

/** Whether a bind address means every address of the machine. */
export const isWildcard = (host: string): boolean => ['0.0.0.0', '::'].includes(normalize(host) ?? '');

/** Whether a name resolves to the machine that resolves it. */
export function isLoopbackName(host: string): boolean {
  const name = normalize(host)?.replace(/\.$/, '') ?? '';
  return name === 'localhost' || name.endsWith('.localhost') || name === '::1' || /^127(?:\.\d+){3}$/.test(name);
}

/**
 * A host as other machines on this network reach it: loopback and wildcard names become the LAN address, if there is
 * one (contract 01 §5.3). Returned without brackets.
 */
export async function lanForm(host: string, network: HostNetwork | undefined): Promise<string> {
  const plain = unbracket(host);
  if (!isLoopbackName(plain) && !isWildcard(plain)) return plain;
  return (await network?.lanAddress()) ?? plain;
}

export interface UrlParts {
  /** Lower case. */
  scheme: string;
  /** Without brackets. */
  host: string;
  /** As written; undefined when the URL has none. */
  port?: number;
  /** Path, query and fragment. */
  rest: string;
}

const URL_PARTS = /^([a-z]+):\/\/(?:[^/?#@]*@)?(\[[0-9a-f:.]+\]|[^:/?#@[\]\s]+)(?::(\d{1,5}))?([/?#].*)?$/i;

/**
 * Splits a URL; null when it is invalid. Unlike `new URL`, this keeps a port that is the scheme's default, and the path
 * as written.
 */
export function splitUrl(url: string): UrlParts | null {
  const match = URL_PARTS.exec(url);
  if (!match) return null;
  const [, scheme = '', host = '', port, rest = ''] = match;
  return { scheme: scheme.toLowerCase(), host: unbracket(host), port: port ? Number(port) : undefined, rest };
}

/** The port of a URL that names none. */
export const defaultPort = (scheme: string): number => (/^(?:https|wss)$/.test(scheme) ? 443 : 80);

/** The URL of `parts`. */
export const joinUrl = ({ scheme, host, port, rest }: UrlParts): string =>
  `${scheme}://${urlHost(host)}${port === undefined ? '' : `:${port}`}${rest}`;

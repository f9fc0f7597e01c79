import { isObject, parseObject } from '../../kit/json.ts';
import { isDigest, isId } from '../ids.ts';

/** Digests that one host may have, while its token is replaced. */
const MAX_DIGESTS = 2;

/**
 * Reads a credentials file (contract 08 §7.1): `{"hosts":{"<ID>":{"host_token_sha256":"<digest>"}}}`, where a list of two
 * digests is accepted too.
 * @returns the digests by host ID, or a sentence about the error, which never quotes a possible token.
 */
export function parseHosts(text: string): Map<string, string[]> | string {
  const document = parseObject(text);
  if (!document) return 'it is not a JSON object';
  const { hosts, ...rest } = document;
  if (!isObject(hosts) || Object.keys(rest).length > 0) return 'it must have one member, "hosts", an object';
  const result = new Map<string, string[]>();
  for (const [index, [id, entry]] of Object.entries(hosts).entries()) {
    const place = `host ${index + 1}`;
    if (!isId(id)) return `${place} has a name that is no host ID: 22 characters of base64url`;
    if (!isObject(entry) || Object.keys(entry).join() !== 'host_token_sha256') {
      return `${place} must have one member, "host_token_sha256"`;
    }
    const digests = Array.isArray(entry.host_token_sha256) ? entry.host_token_sha256 : [entry.host_token_sha256];
    if (digests.length === 0 || digests.length > MAX_DIGESTS) return `${place} must have one or two digests`;
    if (!digests.every(isDigest)) {
      return `${place} must have digests of 43 characters, as \`svc reach token\` prints them, and not the token itself`;
    }
    result.set(id, digests);
  }
  return result;
}

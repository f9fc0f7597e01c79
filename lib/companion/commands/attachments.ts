import { isObject } from '../../kit/json.ts';
import type { MediaSource } from '../types.ts';
import { type Args, pick } from './args.ts';

const TOKEN = /^[A-Za-z0-9_-]{1,256}$/;
const MAX_ATTACHMENTS = 20;

/** `MEDIA:svc-relay://<tok>`, `svc-relay://<tok>`, `MEDIA:<tok>`, a bare token, `MEDIA:/abs/path`; null for none of them. */
function mediaText(value: string): MediaSource | null {
  const rest = value.trim().replace(/^MEDIA:/, '');
  if (rest.startsWith('/') && rest.length > 1 && rest !== value.trim()) return { path: rest };
  const token = rest.replace(/^svc-relay:\/\//, '');
  return TOKEN.test(token) ? { token } : null;
}

const hostPath = (value: string): MediaSource | null => (value.startsWith('/') ? { path: value } : null);

const parsed = (value: unknown, parse: (text: string) => MediaSource | null): MediaSource | null =>
  typeof value === 'string' ? parse(value) : null;

function one(entry: unknown): MediaSource | null {
  if (!isObject(entry)) return null;
  const path = pick(entry, 'path');
  const source =
    path === undefined ? parsed(pick(entry, 'media', 'media_token', 'token'), mediaText) : parsed(path, hostPath);
  const [contentType, fileName] = [pick(entry, 'content_type'), pick(entry, 'file_name')];
  if (!source || ![contentType, fileName].every((name) => name === undefined || typeof name === 'string')) return null;
  return { ...source, contentType: contentType as string | undefined, fileName: fileName as string | undefined };
}

/** Everything a body attaches, in order; null when any of it is malformed (contract 03 §5, Attachments). */
export function attachmentsOf(args: Args): MediaSource[] | null {
  const found: (MediaSource | null)[] = [];
  const add = (names: string[], parse: (value: unknown) => MediaSource | null, many: boolean) => {
    for (const name of names) {
      const value = pick(args, name);
      if (value === undefined) continue;
      if (many !== Array.isArray(value)) found.push(null);
      else found.push(...(many ? (value as unknown[]) : [value]).slice(0, MAX_ATTACHMENTS + 1).map(parse));
    }
  };
  add(['path'], (value) => parsed(value, hostPath), false);
  add(['paths'], (value) => parsed(value, hostPath), true);
  add(['media', 'media_token'], (value) => parsed(value, mediaText), false);
  add(['media_tokens'], (value) => parsed(value, mediaText), true);
  add(['attachments'], one, true);
  const sources = found.filter((source) => source !== null);
  return sources.length === found.length && sources.length <= MAX_ATTACHMENTS ? sources : null;
}

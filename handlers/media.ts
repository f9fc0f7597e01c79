import { RelayError } from '../lib/errors.ts';
import type { FolderEntry } from '../lib/media/folders.ts';
import { isToken, type Media } from '../lib/media/media.ts';
import type { MediaEntry } from '../lib/media/media-index.ts';
import { baseName, mediaType } from '../lib/media/names.ts';
import type { Relay } from '../lib/relay.ts';
import { json, readJson } from '../lib/web/json.ts';
import { chunksOf } from '../lib/web/streams.ts';
import { hasGrant } from './guards.ts';
import { answerMedia } from './media-answer.ts';
import { type Handler, isYes, lastOf, pathParam, type RelayRequest } from './request.ts';

const BODY_LIMIT = 2 * 1024 * 1024;

/** A media token in a path of the route table. Excludes the fixed names at the same place. */
export const MEDIA_TOKEN = '(?!(register|upload|by-path|folder|recent|inspect)(/|$)):token';

function mediaOf({ media }: Relay): Media {
  if (media) return media;
  throw new RelayError('unsupported', 'this relay stores no media');
}

/** A flag in JSON or a query: `true`, an integer other than zero, or a word for yes (contract 04 §3.2). */
function flagOf(value: unknown): boolean {
  if (typeof value === 'string') return /^(?:1|true|yes|on)$/i.test(value.trim());
  return value === true || (Number.isInteger(value) && value !== 0);
}

/** `POST /media/register` (contract 04 §3.3). */
export const registerMedia: Handler = async (request, relay) => {
  const media = mediaOf(relay);
  const body = await readJson(request, { limit: BODY_LIMIT });
  const contentType = typeof body.content_type === 'string' ? mediaType(body.content_type) : null;
  if (contentType === null) throw new RelayError('invalid', 'content_type must be a media type');
  const { file_name: name = null } = body;
  if (name !== null && typeof name !== 'string') throw new RelayError('invalid', 'file_name must be a string or null');
  const entry = await media.register({
    path: body.path,
    contentType,
    fileName: name && baseName(name),
    sensitive: flagOf(body.sensitive),
    owned: body.owned_file === true,
  });
  return json({ ...ticket(entry), sensitive: entry.sensitive });
};

const ticket = ({ token, expiresAt }: MediaEntry) => ({ ok: true, token, expires_at: expiresAt });

/** `POST /media/{token}/sensitive` (contract 04 §3.4). */
export const markSensitive: Handler = async (request, relay) => {
  const token = pathParam(request, 'token');
  if (isToken(token) && (await mediaOf(relay).markSensitive(token))) return json({ ok: true });
  throw noMedia();
};

const noMedia = () => new RelayError('not-found', 'there is no such media, or it has expired');

/** The device's name for an upload that it may send again, which is not in the contract. */
function uploadKey({ headers }: RelayRequest): string | undefined {
  const key = headers.get('idempotency-key');
  if (key === null) return undefined;
  if (/^[\x21-\x7e]{1,256}$/.test(key)) return key;
  throw new RelayError('invalid', 'Idempotency-Key must be 1 to 256 visible ASCII characters');
}

/** `POST /media/upload` (contract 04 §3.5). */
export const uploadMedia: Handler = async (request, relay) => {
  const { headers } = request;
  const length = headers.get('content-length');
  const entry = await mediaOf(relay).upload({
    contentType: headers.get('content-type'),
    contentLength: length === null ? null : Number(length),
    chunks: request.chunks?.() ?? chunksOf(request.body),
    owner: request.session?.family ?? '',
    key: uploadKey(request),
    isWelcome: () => hasGrant(request, relay, 'files'),
  });
  return json(ticket(entry));
};

/** `GET /media/{token}` (contract 04 §3.6). */
export const getMedia: Handler = async (request, relay) => {
  const media = mediaOf(relay);
  const token = pathParam(request, 'token');
  if (!isToken(token)) throw noMedia();
  return answerMedia(request, await media.open(token));
};

/** `GET /media/by-path` (contract 04 §3.7). */
export const getByPath: Handler = async (request, relay) => {
  const media = mediaOf(relay);
  const { path = '', content_type: hint = '', sensitive } = queryOf(request);
  if (path.trim() === '') throw new RelayError('invalid', 'the query parameter path is missing');
  const found = await media.openPath(path.trim(), mediaType(hint));
  return answerMedia(request, { ...found, sensitive: flagOf(sensitive) });
};

/**
 * `GET /media/folder`: the allowed folders, or with `path`, the contents of one. Not in the contract; checks and statuses
 * are those of `/media/by-path`.
 */
export const getFolder: Handler = async (request, relay) => {
  const path = (queryOf(request).path ?? '').trim();
  const folder = await mediaOf(relay).folder(path === '' ? null : path);
  const place = folder.path === null ? {} : { path: folder.path, parent: folder.parent, truncated: folder.isCut };
  return json({ ok: true, ...place, entries: folder.entries.map(entryRow) });
};

/** `GET /media/recent`: the newest files below the agent's workspace and the folders that the owner has allowed. */
export const getRecent: Handler = async (_request, relay) =>
  json({ ok: true, entries: (await mediaOf(relay).recent()).map(entryRow) });

const entryRow = ({ name, path, kind, size, modified }: FolderEntry) => ({
  name,
  path,
  kind,
  ...(kind === 'file' && { size }),
  modified_at: modified / 1000,
});

/** `GET /media/inspect` (contract 04 §3.10). */
export const inspectMedia: Handler = (request, relay) => {
  const { include_expired: expired = '' } = queryOf(request);
  const media = mediaOf(relay)
    .list(isYes(expired))
    .map((entry) => ({
      token: entry.token,
      file_name: baseName(entry.fileName ?? entry.place),
      content_type: entry.contentType,
      size: entry.size,
      created_at: entry.createdAt,
      expires_at: entry.expiresAt,
      last_accessed: entry.lastAccessed,
      is_expired: entry.isExpired,
    }));
  return json({ media });
};

const queryOf = (request: RelayRequest): Partial<Record<string, string>> => lastOf(request.query);

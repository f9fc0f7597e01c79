import { RelayError } from '../lib/errors.ts';
import { type Conditions, contentTooLarge, memoryFilenameFault, type Saved } from '../lib/profiles/documents.ts';
import type { Relay } from '../lib/relay.ts';
import { json, readJson } from '../lib/web/json.ts';
import { isKnown } from '../lib/web/ranges.ts';
import { WebResponse } from '../lib/web/response.ts';
import { type Handler, lastOf, pathSegment, type RelayRequest } from './request.ts';

/** Maximum bytes of a body, with every character of the document escaped. */
const BODY_LIMIT = 8 * 1024 * 1024;

/** The profile in the path, and the files of profiles. A segment that cannot be decoded matches no profile. */
function named(request: RelayRequest, { profileFiles: files }: Relay) {
  if (!files) throw new RelayError('unsupported', 'this relay runs without a host, so it has no profile files');
  const profile = pathSegment(request, 'name');
  if (profile !== null) return { profile, files };
  throw new RelayError('not-found', 'profile_not_found', { extra: { profile: request.params.name } });
}

const withEtag = (etag: string | null) => (etag === null ? undefined : { etag });

/** `GET /api/profiles/{name}/config` (contract 07 §1.5). */
export const getProfileConfig: Handler = async (request, relay) => {
  const { files, profile } = named(request, relay);
  const config = await files.config(profile);
  return json({ profile, path: 'config.yaml', config, readonly: true });
};

/** `GET /api/profiles/{name}/skills` (contract 07 §1.5). */
export const getProfileSkills: Handler = async (request, relay) => {
  const { files, profile } = named(request, relay);
  const skills = await files.skills(profile);
  return json({ profile, skills, total: skills.length });
};

/** `GET /api/profiles/{name}/soul` (contract 07 §1.5). */
export const getProfileSoul: Handler = async (request, relay) => {
  const { files, profile } = named(request, relay);
  const { content, exists, size, truncated, etag } = await files.soul(profile);
  const body = {
    profile,
    path: 'SOUL.md',
    content,
    exists,
    size_bytes: size,
    truncated: truncated || undefined,
    etag: etag ?? undefined,
  };
  return json(body, 200, withEtag(etag));
};

/** `GET /api/profiles/{name}/memory` (contract 07 §1.5). */
export const getProfileMemory: Handler = async (request, relay) => {
  const { files, profile } = named(request, relay);
  const entries = (await files.memory(profile)).map(({ filename, content, size, truncated, etag }) => ({
    name: filename.slice(0, -'.md'.length),
    filename,
    path: `memories/${filename}`,
    content,
    size_bytes: size,
    truncated,
    etag,
  }));
  return json({ profile, memories_dir: 'memories', entries, total: entries.length });
};

/**
 * `GET /api/profiles/{name}/avatar` (contract 07 §1.5). With `?missing=204`, a profile without a picture answers 204, since
 * browsers report every 404 as an error of the page.
 */
export const getProfileAvatar: Handler = async (request, relay) => {
  const { files, profile } = named(request, relay);
  const avatar = await files.avatar(profile).catch((error) => {
    const isMissing = error instanceof RelayError && error.message === 'profile_avatar_not_found';
    if (isMissing && lastOf(request.query).missing === '204') return null;
    throw error;
  });
  if (avatar === null) return new WebResponse(null, { status: 204 });
  const { filename, type, bytes, etag } = avatar;
  const headers = {
    'content-type': type,
    // One of a few ASCII names, so there is nothing to escape.
    'content-disposition': `inline; filename="${filename}"`,
    'cache-control': 'private, max-age=3600',
    'x-content-type-options': 'nosniff',
    etag,
  };
  if (isKnown(request.headers, etag)) return new WebResponse(null, { status: 304, headers });
  return new WebResponse(bytes, { headers });
};

/** `PUT /api/profiles/{name}/soul` (contract 07 §1.5). */
export const putProfileSoul: Handler = async (request, relay) => {
  const { files, profile } = named(request, relay);
  const found = await files.find(profile);
  const saved = await found.writeSoul(await contentOf(request), conditionsOf(request));
  return savedResponse(saved, { profile, path: 'SOUL.md' });
};

/** `PUT /api/profiles/{name}/memory/{filename}` (contract 07 §1.5). */
export const putProfileMemory: Handler = async (request, relay) => {
  const { files, profile } = named(request, relay);
  const found = await files.find(profile);
  const filename = pathSegment(request, 'filename');
  const fault = filename === null ? 'a filename must be percent-encoded UTF-8' : memoryFilenameFault(filename);
  if (filename === null || fault !== null) {
    throw new RelayError('invalid', 'invalid_filename', { extra: { detail: fault } });
  }
  const saved = await found.writeMemory(filename, await contentOf(request), conditionsOf(request));
  return savedResponse(saved, { profile, filename, path: `memories/${filename}` });
};

const conditionsOf = ({ headers }: RelayRequest): Conditions => ({
  ifMatch: headers.get('if-match'),
  ifNoneMatch: headers.get('if-none-match'),
});

const savedResponse = ({ bytes, etag }: Saved, what: Record<string, string>): Response =>
  json({ ok: true, ...what, bytes_written: bytes, etag }, 200, withEtag(etag));

/** `PUT /api/skills/toggle` (contract 07 §1.5): refuses, because the agent's own configuration switches skills. */
export const toggleSkill: Handler = () => {
  const detail = 'skills are switched on and off in the configuration of the agent';
  throw new RelayError('unsupported', 'skill_toggle_not_implemented', { extra: { detail } });
};

/** The text in a body `{"content": string}`. */
async function contentOf(request: RelayRequest): Promise<string> {
  const { content } = await readJson(request, { limit: BODY_LIMIT }).catch((error: unknown) => {
    if (!(error instanceof RelayError)) throw error;
    if (error.kind === 'invalid') throw invalidBody(error.message);
    if (error.kind === 'too-large') throw contentTooLarge(announcedSize(request));
    throw error;
  });
  if (typeof content !== 'string') throw invalidBody('content must be a string');
  if (!content.isWellFormed()) throw invalidBody('content has half of a surrogate pair');
  return content;
}

const invalidBody = (detail: string) => new RelayError('invalid', 'invalid_body', { extra: { detail } });

/** The announced size of a body that is over the limit; undefined if the client announced none, or less. */
function announcedSize({ headers }: RelayRequest): number | undefined {
  const announced = Number(headers.get('content-length') ?? Number.NaN);
  return announced > BODY_LIMIT ? announced : undefined;
}

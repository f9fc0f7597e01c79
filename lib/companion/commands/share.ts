import { isObject } from '../../kit/json.ts';
import { withTimeout } from '../../kit/timeouts.ts';
import { alwaysAsk, checkDeadline } from '../gates/consent.ts';
import { type CommandCall, CommandFailure, type Handler, Refused, throwIfRefused } from '../gates/gate.ts';
import { isBlocked } from '../gates/standing.ts';
import type { MediaSource, UploadFile } from '../types.ts';
import { type Args, pick } from './args.ts';
import { RECIPIENT } from './personal.ts';

const FETCH_TIMEOUT_MS = 15_000;
const MEDIA_TOKEN = /^[A-Za-z0-9_-]{1,256}$/;
const MAX_ATTACHMENTS = 20;

const shareFailure = (reason: string, error: string) => new CommandFailure(400, error, { status: 'failed', reason });

function optionalText(args: Args, ...names: string[]): string {
  const value = pick(args, ...names) ?? '';
  if (typeof value !== 'string') throw shareFailure('invalid_schema', `${names[0]} must be a string`);
  return value;
}

interface ShareArgs {
  sources: MediaSource[];
  /** Package to share with, or '' for any. */
  target: string;
  title: string;
}

/** Validates everything before anybody is asked (contract 03 §5). */
function shareArgs({ args, env }: CommandCall): ShareArgs {
  const sources = attachmentsOf(args);
  if (!sources) throw shareFailure('invalid_schema', 'malformed attachment');
  const target = optionalText(args, 'package').trim();
  if (isBlocked(env.settings, target)) throw new Refused({ kind: 'blocked-share-target', package: target });
  return { sources, target, title: optionalText(args, 'title') };
}

async function fetchAll({ env }: CommandCall, sources: MediaSource[]): Promise<UploadFile[]> {
  if (sources.length === 0) return [];
  const { fetchMedia } = env;
  if (!fetchMedia) throw shareFailure('media_fetch_failed', 'this phone cannot fetch media yet');
  // The cause is neither reported nor logged: it may contain the token, which grants access to the file.
  const fetching = Promise.all(sources.map(fetchMedia));
  const timing = { clock: env.clock, timeout: FETCH_TIMEOUT_MS };
  const files = await withTimeout(timing, fetching, () => null).catch(() => null);
  if (!files) throw shareFailure('media_fetch_failed', 'an attachment could not be fetched');
  return files;
}

async function openShare(call: CommandCall, request: { text: string; to?: string }, share: ShareArgs) {
  const files = await fetchAll(call, share.sources);
  throwIfRefused(checkDeadline(call));
  const result = await call.env.device.share({ ...request, title: share.title, package: share.target, files });
  if (result !== 'opened') throw shareFailure(result, `sharing failed: ${result.replaceAll('_', ' ')}`);
  return {
    attachments: files.length,
    content_types: files.map(({ type }) => type),
    ...(share.target !== '' && { package: share.target }),
  };
}

const countText = (sources: MediaSource[]) => `${sources.length} attachment${sources.length === 1 ? '' : 's'}`;

export const shareMedia: Handler = async (call) => {
  const share = shareArgs(call);
  const text = optionalText(call.args, 'text', 'body');
  if (text === '' && share.sources.length === 0) throw shareFailure('invalid_schema', 'nothing to share');
  const detail = `Share ${countText(share.sources)}${share.target ? ` with ${share.target}` : ''}: ${text}`;
  throwIfRefused(await alwaysAsk(call, 'Share from this phone?', detail));
  const opened = await openShare(call, { text }, share);
  const summary = `Share sheet opened with ${countText(share.sources)}`;
  return { ok: true, status: 'share_opened', mode: 'user_confirmed_share', ...opened, summary };
};

export const sendMms: Handler = async (call) => {
  const share = shareArgs(call);
  const to = optionalText(call.args, 'to');
  if (!RECIPIENT.test(to)) throw shareFailure('invalid_schema', 'to must be a phone number');
  const text = optionalText(call.args, 'body', 'text');
  throwIfRefused(await alwaysAsk(call, 'Write a media message?', `MMS to ${to}, ${countText(share.sources)}: ${text}`));
  const opened = await openShare(call, { text, to }, share);
  const summary = `Message to ${to} opened with ${countText(share.sources)}`;
  return { ok: true, status: 'compose_opened', mode: 'user_confirmed_mms_handoff', to, ...opened, summary };
};

/** All attachments of a body in order, or null when any of them is malformed (contract 03 §5, Attachments). */
function attachmentsOf(args: Args): MediaSource[] | null {
  const found: (MediaSource | null)[] = [];
  const add = (names: string[], parse: (value: unknown) => MediaSource | null, isList: boolean) => {
    for (const name of names) {
      const value = pick(args, name);
      if (value === undefined) continue;
      if (isList !== Array.isArray(value)) found.push(null);
      else found.push(...(isList ? (value as unknown[]) : [value]).slice(0, MAX_ATTACHMENTS + 1).map(parse));
    }
  };
  add(['path'], (value) => parseIfText(value, hostPath), false);
  add(['paths'], (value) => parseIfText(value, hostPath), true);
  add(['media', 'media_token'], (value) => parseIfText(value, mediaText), false);
  add(['media_tokens'], (value) => parseIfText(value, mediaText), true);
  add(['attachments'], attachment, true);
  const sources = found.filter((source) => source !== null);
  return sources.length === found.length && sources.length <= MAX_ATTACHMENTS ? sources : null;
}

/** Parses the forms of contract 03 §5: `MEDIA:svc-relay://<tok>`, `svc-relay://<tok>`, `MEDIA:<tok>`, `<tok>`, `MEDIA:/path`. */
function mediaText(value: string): MediaSource | null {
  const rest = value.trim().replace(/^MEDIA:/, '');
  if (rest.startsWith('/') && rest.length > 1 && rest !== value.trim()) return { path: rest };
  const token = rest.replace(/^svc-relay:\/\//, '');
  return MEDIA_TOKEN.test(token) ? { token } : null;
}

const hostPath = (value: string): MediaSource | null => (value.startsWith('/') ? { path: value } : null);

const parseIfText = (value: unknown, parse: (text: string) => MediaSource | null): MediaSource | null =>
  typeof value === 'string' ? parse(value) : null;

/** One entry of `attachments`. */
function attachment(entry: unknown): MediaSource | null {
  if (!isObject(entry)) return null;
  const path = pick(entry, 'path');
  const source =
    path === undefined
      ? parseIfText(pick(entry, 'media', 'media_token', 'token'), mediaText)
      : parseIfText(path, hostPath);
  const [contentType, fileName] = [pick(entry, 'content_type'), pick(entry, 'file_name')];
  if (!source || ![contentType, fileName].every((name) => name === undefined || typeof name === 'string')) return null;
  return { ...source, contentType: contentType as string | undefined, fileName: fileName as string | undefined };
}

import { withTimeout } from '../../kit/timeouts.ts';
import type { device } from '../../operations/device.ts';
import { alwaysAsk, checkDeadline } from '../gates/consent.ts';
import { type CommandCall, CommandFailure, Refused, throwIfRefused } from '../gates/gate.ts';
import { isBlocked } from '../gates/standing.ts';
import type { MediaSource, UploadFile } from '../types.ts';
import type { ArgsOf, HandlerOf, Problem } from './args.ts';

const FETCH_TIMEOUT_MS = 15_000;

const shareFailure = (reason: string, error: string) => new CommandFailure(400, error, { status: 'failed', reason });

/** The failure for malformed arguments (contract 03 §5). */
export const badShare = ({ message }: Problem): CommandFailure => shareFailure('invalid_schema', message);

type ShareArgs = Omit<ArgsOf<typeof device.shareMedia>, 'text' | 'device'>;

type Share = ReturnType<typeof shareOf>;

/**
 * `target` is the package to share with, or '' for any.
 * @throws Refused if it is on the blocklist, before anybody is asked (contract 03 §5).
 */
function shareOf({ env }: CommandCall, { title, package: target, ...attachments }: ShareArgs) {
  if (isBlocked(env.settings, target)) throw new Refused({ kind: 'blocked-share-target', package: target });
  return { sources: sourcesOf(attachments), target, title };
}

async function fetchAll({ env }: CommandCall, sources: MediaSource[]): Promise<UploadFile[]> {
  if (sources.length === 0) return [];
  const { fetchMedia } = env;
  if (!fetchMedia) throw shareFailure('media_fetch_failed', 'this phone cannot fetch media yet');
  // The cause is neither reported nor logged, since it may contain the token, which grants access to the file.
  const fetching = Promise.all(sources.map(fetchMedia));
  const timing = { clock: env.clock, timeout: FETCH_TIMEOUT_MS };
  const files = await withTimeout(timing, fetching, () => null).catch(() => null);
  if (!files) throw shareFailure('media_fetch_failed', 'an attachment could not be fetched');
  return files;
}

async function openShare(call: CommandCall, request: { text: string; to?: string }, share: Share) {
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

export const shareMedia: HandlerOf<typeof device.shareMedia> = async (call, { text, ...args }) => {
  const share = shareOf(call, args);
  const detail = `Share ${countText(share.sources)}${share.target ? ` with ${share.target}` : ''}: ${text}`;
  throwIfRefused(await alwaysAsk(call, 'Share from this phone?', detail));
  const opened = await openShare(call, { text }, share);
  const summary = `Share sheet opened with ${countText(share.sources)}`;
  return { ok: true, status: 'share_opened', mode: 'user_confirmed_share', ...opened, summary };
};

export const sendMms: HandlerOf<typeof device.sendMms> = async (call, { to, body: text, ...args }) => {
  const share = shareOf(call, args);
  throwIfRefused(await alwaysAsk(call, 'Write a media message?', `MMS to ${to}, ${countText(share.sources)}: ${text}`));
  const opened = await openShare(call, { text, to }, share);
  const summary = `Message to ${to} opened with ${countText(share.sources)}`;
  return { ok: true, status: 'compose_opened', mode: 'user_confirmed_mms_handoff', to, ...opened, summary };
};

const isGiven = (value: string | undefined): value is string => value !== undefined;

/** All attachments in order. */
const sourcesOf = ({
  path,
  paths = [],
  media,
  media_token,
  media_tokens = [],
  attachments = [],
}: Omit<ShareArgs, 'title' | 'package'>): MediaSource[] => [
  ...[path, ...paths].filter(isGiven).map((path) => ({ path })),
  ...[media, media_token, ...media_tokens].filter(isGiven).map(mediaSource),
  ...attachments.map(({ path, media, media_token, token, content_type: contentType, file_name: fileName }) => {
    const source = path === undefined ? mediaSource(media ?? media_token ?? token ?? '') : { path };
    return { ...source, contentType, fileName };
  }),
];

/** `MEDIA:/abs/path` is a path; all other forms that the schema accepts end with the token. */
function mediaSource(value: string): MediaSource {
  const rest = value.trim().replace(/^MEDIA:/, '');
  return rest.startsWith('/') ? { path: rest } : { token: rest.replace(/^svc-relay:\/\//, '') };
}

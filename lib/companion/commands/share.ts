import { withTimeout } from '../../kit/timeouts.ts';
import { isBlocked } from '../gates/blocklist.ts';
import { alwaysAsk, inTime } from '../gates/consent.ts';
import { type Call, CommandFailure, type Handler, Refused } from '../gates/gate.ts';
import type { MediaSource, UploadFile } from '../types.ts';
import { type Args, pick } from './args.ts';
import { attachmentsOf } from './attachments.ts';
import { insist, RECIPIENT } from './personal.ts';

const FETCH_MS = 15_000;

const failed = (reason: string, error: string) => new CommandFailure(400, error, { status: 'failed', reason });

function optional(args: Args, ...names: string[]): string {
  const value = pick(args, ...names) ?? '';
  if (typeof value !== 'string') throw failed('invalid_schema', `${names[0]} must be a string`);
  return value;
}

/** Everything that can be wrong is found before anybody is asked (contract 03 §5). */
function plan(call: Call) {
  const { args } = call;
  const sources = attachmentsOf(args);
  if (!sources) throw failed('invalid_schema', 'an attachment is not understood');
  const target = optional(args, 'package').trim();
  if (isBlocked(call.env.settings, target)) throw new Refused({ kind: 'blocked-share-target', package: target });
  return { sources, target, title: optional(args, 'title') };
}

async function fetchAll({ env }: Call, sources: MediaSource[]): Promise<UploadFile[]> {
  if (sources.length === 0) return [];
  const { fetchMedia } = env;
  if (!fetchMedia) throw failed('media_fetch_failed', 'this phone cannot fetch media yet');
  // Why not is not said, nor logged: it may name the token, which is a key to the file.
  const files = await withTimeout(
    { clock: env.clock, timeout: FETCH_MS },
    Promise.all(sources.map(fetchMedia)),
    () => null,
  ).catch(() => null);
  if (!files) throw failed('media_fetch_failed', 'an attachment could not be fetched');
  return files;
}

async function open(call: Call, request: { text: string; to?: string }, what: ReturnType<typeof plan>) {
  const files = await fetchAll(call, what.sources);
  insist(inTime(call));
  const result = await call.env.device.share({ ...request, title: what.title, package: what.target, files });
  if (result !== 'opened') throw failed(result, `sharing failed: ${result.replaceAll('_', ' ')}`);
  return {
    attachments: files.length,
    content_types: files.map(({ type }) => type),
    ...(what.target !== '' && { package: what.target }),
  };
}

const count = (sources: MediaSource[]) => `${sources.length} attachment${sources.length === 1 ? '' : 's'}`;

export const shareMedia: Handler = async (call) => {
  const what = plan(call);
  const text = optional(call.args, 'text', 'body');
  if (text === '' && what.sources.length === 0) throw failed('invalid_schema', 'nothing to share');
  const detail = `Share ${count(what.sources)}${what.target ? ` with ${what.target}` : ''}: ${text}`;
  insist(await alwaysAsk(call, 'Share from this phone?', detail));
  const opened = await open(call, { text }, what);
  const summary = `Share sheet opened with ${count(what.sources)}`;
  return { ok: true, status: 'share_opened', mode: 'user_confirmed_share', ...opened, summary };
};

export const sendMms: Handler = async (call) => {
  const what = plan(call);
  const to = optional(call.args, 'to');
  if (!RECIPIENT.test(to)) throw failed('invalid_schema', 'to must be a phone number');
  const text = optional(call.args, 'body', 'text');
  insist(await alwaysAsk(call, 'Write a media message?', `MMS to ${to}, ${count(what.sources)}: ${text}`));
  const opened = await open(call, { text, to }, what);
  const summary = `Message to ${to} opened with ${count(what.sources)}`;
  return { ok: true, status: 'compose_opened', mode: 'user_confirmed_mms_handoff', to, ...opened, summary };
};

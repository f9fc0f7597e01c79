import type { Config } from '../config.ts';
import { RelayError } from '../errors.ts';
import { mayCarryCredentials } from '../kit/addresses.ts';
import { base64, concatBytes, utf8ToBytes } from '../kit/bytes.ts';
import { type Clock, seconds } from '../kit/clock.ts';
import { isObject, parseJson } from '../kit/json.ts';
import { decodeUtf8 } from '../kit/text.ts';

const MAX_FEED = 2 * 1024 * 1024;
const FEED_TIMEOUT = 4_000;
const MAX_REDIRECTS = 5;
/** Milliseconds for which a result and a failure are cached, and between two refreshes. */
const LIFETIME = 3_600_000;
const FAILURE_LIFETIME = 300_000;
const MIN_REFRESH_PERIOD = 60_000;

/** The result, as shown by `GET /relay/update-check` and `svc relay update-check --json`. */
export interface UpdateResult {
  current: string;
  latest: string | null;
  update_available: boolean;
  update_command: string | null;
  /** One short sentence without URL or credentials. Absent without a feed, since phones would always show it. */
  error?: string;
}

export interface UpdateCheckDeps {
  config: Pick<Config, 'updateFeedUrl'>;
  /** The running version. */
  version: string;
  fetch?: typeof fetch;
  /** The command that updates this installation to a version; null if no command can. */
  updateCommand?(latest: string): string | null;
  /** Milliseconds for the whole exchange with the feed. */
  timeout?: number;
}

export type UpdateCheck = ReturnType<typeof createUpdateCheck>;

/**
 * Reads the release feed once, for a newer release (contract 01 §8.3, 07 §5.3). Never rejects: a failure is the result's
 * `error`. Without a feed there is no result, which is not a failure.
 */
export async function checkForUpdate(deps: UpdateCheckDeps): Promise<UpdateResult> {
  const none = { current: deps.version, latest: null, update_available: false, update_command: null };
  const { updateFeedUrl } = deps.config;
  if (!updateFeedUrl) return none;
  try {
    const latest = latestRelease(await readFeed(feedUrl(updateFeedUrl), deps));
    if (latest === null) return { ...none, error: 'the release feed lists no release' };
    const available = compareVersions(latest, deps.version) > 0;
    return {
      ...none,
      latest,
      update_available: available,
      update_command: (available && deps.updateCommand?.(latest)) || null,
    };
  } catch (error) {
    return { ...none, error: sentenceOf(error) };
  }
}

/** A cached `checkForUpdate`; concurrent callers share one request to the feed. */
export function createUpdateCheck({ clock, ...deps }: UpdateCheckDeps & { clock: Clock }) {
  let last: { result: UpdateResult; at: number; checkedAt: number } | undefined;
  let flight: Promise<UpdateResult> | undefined;

  async function check(): Promise<UpdateResult> {
    const result = await checkForUpdate(deps);
    last = { result, at: clock.monotonic(), checkedAt: seconds(clock) };
    flight = undefined;
    return result;
  }

  return {
    /** When the last result was obtained, epoch seconds; null before the first. */
    checkedAt: (): number | null => last?.checkedAt ?? null,
    /** The cached result, or a new one: after an hour (5 minutes for a failure), or with `refresh`, at most once a minute. */
    async result(refresh = false): Promise<UpdateResult> {
      if (flight) return flight;
      if (last) {
        const lifetime = refresh ? MIN_REFRESH_PERIOD : last.result.error === undefined ? LIFETIME : FAILURE_LIFETIME;
        if (clock.monotonic() - last.at < lifetime) return last.result;
      }
      flight = check();
      return flight;
    },
  };
}

/** Messages of `fetch` may quote the URL with its credentials, so only our own sentences are shown. */
function sentenceOf(error: unknown): string {
  if (error instanceof RelayError) return error.message;
  if ((error as { name?: unknown })?.name === 'TimeoutError') return 'the release feed did not answer in time';
  return 'the release feed cannot be reached';
}

function feedUrl(text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : null;
  if (url && mayCarryCredentials(url)) return url;
  throw new RelayError('invalid', 'the release feed must be an https URL');
}

async function readFeed(feed: URL, deps: UpdateCheckDeps): Promise<unknown[]> {
  const signal = AbortSignal.timeout(deps.timeout ?? FEED_TIMEOUT);
  const response = await open(feed, deps, signal);
  if (!response.ok) {
    response.body?.cancel().catch(() => {});
    throw new RelayError('unavailable', `the release feed answered ${response.status}`);
  }
  const releases = parseJson(decodeUtf8(await readBounded(response)));
  if (!Array.isArray(releases)) throw new RelayError('unavailable', 'the release feed is not a list of releases');
  return releases;
}

/**
 * Follows redirects itself: a feed may move, but not to another scheme, and its credentials must not go to another origin.
 */
async function open(feed: URL, { fetch = globalThis.fetch, version }: UpdateCheckDeps, signal: AbortSignal) {
  let url = new URL(feed);
  for (let hops = 0; hops <= MAX_REDIRECTS; hops++) {
    const headers: Record<string, string> = { accept: 'application/json', 'user-agent': `svc-relay/${version}` };
    if (url.origin === feed.origin && (feed.username || feed.password)) headers.authorization = basic(feed);
    // `fetch` refuses a URL with credentials.
    url.hash = url.username = url.password = '';
    const response = await fetch(url, { headers, redirect: 'manual', signal });
    const location = response.headers.get('location');
    if (![301, 302, 303, 307, 308].includes(response.status) || location === null) return response;
    response.body?.cancel().catch(() => {});
    if (!URL.canParse(location, url)) break;
    const target = new URL(location, url);
    if (target.protocol !== feed.protocol) {
      throw new RelayError('unavailable', 'the release feed redirects to another scheme');
    }
    url = feedUrl(target.href);
  }
  throw new RelayError('unavailable', 'the release feed redirects without end');
}

const basic = ({ username, password }: URL): string =>
  `Basic ${base64(utf8ToBytes(`${decodeURIComponent(username)}:${decodeURIComponent(password)}`))}`;

async function readBounded(response: Response): Promise<Uint8Array> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  // Leaving the loop cancels the body.
  for await (const chunk of response.body ?? []) {
    size += chunk.byteLength;
    if (size > MAX_FEED) throw new RelayError('too-large', 'the release feed is too large');
    chunks.push(chunk);
  }
  return concatBytes(...chunks);
}

type Triple = [major: number, minor: number, patch: number];

/** At most 15 digits per part, so that every part is an exact number. Suffixes are ignored. */
const TRIPLE = /^v?(\d{1,15})\.(\d{1,15})\.(\d{1,15})(?!\d)/;

function tripleOf(version: string): Triple | null {
  const match = TRIPLE.exec(version);
  return match && [Number(match[1]), Number(match[2]), Number(match[3])];
}

/** Negative if `a` is older than `b`, positive if newer; 0 if equal or if either is not `X.Y.Z` (contract 01 §8.3). */
export function compareVersions(a: string, b: string): number {
  const left = tripleOf(a);
  const right = tripleOf(b);
  if (!left || !right) return 0;
  return left[0] - right[0] || left[1] - right[1] || left[2] - right[2];
}

/** The highest `X.Y.Z` among a feed's `server-v*` releases, else its `plugin-v*` ones, else null (contract 07 §5.3). */
export function latestRelease(feed: unknown[]): string | null {
  const tags = feed
    .filter(isObject)
    .filter(({ tag_name, draft }) => typeof tag_name === 'string' && draft !== true)
    .map(({ tag_name }) => tag_name as string);
  return highest(tags, 'server-v') ?? highest(tags, 'plugin-v');
}

function highest(tags: string[], prefix: string): string | null {
  return tags
    .filter((tag) => tag.startsWith(prefix))
    .flatMap((tag) => tripleOf(tag.slice(prefix.length))?.join('.') ?? [])
    .reduce<string | null>((best, version) => (best && compareVersions(best, version) >= 0 ? best : version), null);
}

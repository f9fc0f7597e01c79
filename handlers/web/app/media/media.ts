import { SEALED_TYPE } from '../../../../lib/media/sealed-type.ts';
import { ApiError } from '../../shared/api.ts';
import type { App } from '../context.ts';
import type { SaveMedia } from '../worker/media.ts';

/** A file at the relay: by its token, or by its path on the host (contract 04 §3.6, §3.7). */
export type MediaPlace = { token: string } | { path: string };

/** A file before it is loaded. */
export interface Medium {
  place: MediaPlace;
  name: string;
  type: string;
  /** Bytes. */
  size: number;
  /** Marked by the agent: blurred until tapped, so that a bystander does not see it. */
  isSensitive: boolean;
  /** The file itself, as this browser has sent it. */
  copy?: File;
  /** The mailbox has it sealed: its name and type are in it. */
  isSealed?: boolean;
  /** A sentence about the state of the file at home, if this browser shows its own copy. */
  note?: string;
}

const MiB = 1024 * 1024;
const ANSWER_TIMEOUT = 30_000;

/** Sentences for the statuses of a refused file. They contain no path. */
const REFUSALS: Readonly<Record<number, string>> = {
  0: 'The relay does not answer.',
  403: 'The relay does not hand out this file.',
  404: 'This file no longer exists.',
  410: 'Home could not open this file, and has nothing of it. Send it again.',
};
const AT_HOME = 'This file is at home, and home cannot be reached now.';
const ON_ITS_WAY = 'This file is on its way home. Try again in a moment.';
const CLOSED = 'This file is sealed, and this browser cannot open it.';
const NO_WORKER = 'The service worker could not be started. Reload the page.';

/** Sentences beside a copy, by the status of home's answer. */
const NOTES: Readonly<Record<number, string>> = {
  404: 'Home does not have this file: here is the copy of this browser.',
  410: REFUSALS[410] as string,
};

/** Files of the relay: streamed through the service worker, or loaded whole in a page without one. */
export function createMedia({ api, settings, base, session, pageStore }: App) {
  const worker = () => (isSecureContext ? navigator.serviceWorker?.controller : null) ?? null;

  const maxSize = () => settings.values.max_inbound_mb.value * MiB;

  function refusalOf({ status, message, retryAfter }: ApiError): string {
    if (status !== 503) return REFUSALS[status] ?? message;
    if (session.isAtMailbox.peek()) return AT_HOME;
    return retryAfter === undefined ? message : ON_ITS_WAY;
  }

  async function open(place: MediaPlace, method: 'GET' | 'HEAD', signal: AbortSignal): Promise<Response> {
    try {
      return await api.open(routeOf(place), { method, signal });
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      throw new ApiError(refusalOf(error), error.status);
    }
  }

  /** The copy of this browser, where it has sent the file to its mailbox. */
  async function own(place: MediaPlace, name: string): Promise<Medium | undefined> {
    if (!('token' in place)) return undefined;
    const loaded = await import('./copies.ts').catch(() => undefined);
    const copy = await loaded?.openCopies(pageStore).get(place.token);
    return copy && { place, name: name || copy.name, type: copy.type, size: copy.size, isSensitive: false, copy };
  }

  /** Has the service worker fetch a file for the page. Resolves with the relay's status, 0 without an answer. */
  async function prepareSave(route: string): Promise<number> {
    const ended = new AbortController();
    const { signal } = ended;
    const answer = new Promise<number>((resolve, reject) => {
      const ask = () => {
        const asked = worker();
        if (!asked) return reject(new Error(NO_WORKER));
        const { port1, port2 } = new MessageChannel();
        port1.onmessage = ({ data }) => asked === worker() && resolve(Number(data));
        signal.addEventListener('abort', () => port1.close());
        asked.postMessage({ name: 'save-media', route } satisfies SaveMedia, [port2]);
      };
      ask();
      // A browser drops messages to a worker that it is replacing, and only the next one answers for the page then.
      navigator.serviceWorker?.addEventListener('controllerchange', ask, { signal });
      const timer = setTimeout(() => resolve(0), ANSWER_TIMEOUT);
      signal.addEventListener('abort', () => clearTimeout(timer));
    });
    return answer.finally(() => ended.abort());
  }

  return {
    /** Facts that the relay reports about a file. An empty `name` is replaced by the relay's. @throws ApiError */
    async look(place: MediaPlace, name: string, signal: AbortSignal): Promise<Medium> {
      const isAway = session.isAtMailbox.peek() || !session.isOnline.peek();
      const here = isAway ? await own(place, name) : undefined;
      if (here) return here;
      const found = await open(place, 'HEAD', signal).catch((error) => error as unknown);
      if (!(found instanceof Response)) {
        const copy = found instanceof ApiError ? await own(place, name) : undefined;
        if (!copy) throw found;
        return { ...copy, note: NOTES[(found as ApiError).status] };
      }
      const { headers } = found;
      const type = headers.get('content-type') ?? '';
      const isSealed = type === SEALED_TYPE;
      return {
        place,
        name: name || (isSealed ? '' : nameIn(headers.get('content-disposition') ?? '')),
        type,
        size: Number(headers.get('content-length')),
        isSensitive: /^(?:1|true)$/i.test(headers.get('x-media-sensitive') ?? ''),
        isSealed,
      };
    },

    /** The address for an element that shows the file; null where there is no service worker to get it from home. */
    addressOf: ({ place, copy, isSealed }: Medium): string | null =>
      worker() && !copy && !isSealed && !session.isAtMailbox.peek() ? routeOf(place) : null,

    /** True if the settings allow files of this size. */
    isAllowed: (size: number): boolean => size <= maxSize(),

    /** True if the settings allow to load this many bytes automatically over the present network. */
    isSmall: (size: number): boolean =>
      size <= settings.values.auto_fetch_mb.value * MiB &&
      (settings.values.auto_fetch_on_cellular.value || !isOnCellular()),

    /** The whole file; with its own name and type, where it was sealed. @throws Error in words for people */
    async load({ place, copy }: Medium, signal: AbortSignal): Promise<Blob> {
      if (copy) return copy;
      const response = await open(place, 'GET', signal);
      if (response.headers.get('content-type') !== SEALED_TYPE || !('token' in place)) return response.blob();
      try {
        const { openFile } = await import('../files/seal.ts');
        return await openFile({ base, session }, response, { token: place.token, maxSize: maxSize() });
      } catch (cause) {
        throw signal.aborted ? cause : new Error(CLOSED, { cause });
      }
    },

    /** Saves a file to the browser's downloads as it arrives. @throws Error worded for people */
    async save({ place }: Medium): Promise<void> {
      const route = routeOf(place);
      const status = await prepareSave(route);
      if (status !== 200) throw new Error(REFUSALS[status] ?? 'The file could not be loaded.');
      // The worker answers with an attachment, so the page stays.
      location.assign(new URL(`app/${route}`, base));
    },
  };
}

/** True if the browser reports a mobile network. Most report nothing. */
const isOnCellular = (): boolean =>
  (navigator as Navigator & { connection?: { type?: string } }).connection?.type === 'cellular';

/** The relay's route for a file; below the page, its service worker answers it. */
const routeOf = (place: MediaPlace): string =>
  'token' in place ? `media/${place.token}` : `media/by-path?path=${encodeURIComponent(place.path)}`;

/** The name in a `Content-Disposition` (contract 04 §3.9), preferably the encoded one, which has every character. */
function nameIn(disposition: string): string {
  const encoded = /filename\*=UTF-8''([^;]+)/.exec(disposition)?.[1];
  try {
    if (encoded !== undefined) return decodeURIComponent(encoded);
  } catch {
    // The plain name follows.
  }
  return /filename="([^"]*)"/.exec(disposition)?.[1] ?? '';
}

import { ApiError } from '../../shared/api.ts';
import type { App } from '../context.ts';
import type { RenewBearer, SaveMedia } from '../worker/media.ts';

/** A file at the relay: by the token that it was given, or by its path on the host (contract 04 §3.6, §3.7). */
export type MediaPlace = { token: string } | { path: string };

/** A file before any of it is loaded. */
export interface Medium {
  place: MediaPlace;
  name: string;
  type: string;
  /** Bytes. */
  size: number;
  /** Marked by the agent: blurred until tapped, so that a bystander does not see it. */
  isSensitive: boolean;
}

const MiB = 1024 * 1024;
const ANSWER_TIMEOUT = 30_000;

/** Sentences for the statuses of a file that is not given. They name no path. */
const REFUSALS: Readonly<Record<number, string>> = {
  0: 'The relay does not answer.',
  403: 'The relay does not hand out this file.',
  404: 'This file is not there any more.',
};

export type Media = ReturnType<typeof createMedia>;

/** Files of the relay: streamed through the service worker, or loaded whole in a page without one. */
export function createMedia({ api, settings, base }: App) {
  const worker = () => (isSecureContext ? navigator.serviceWorker?.controller : null) ?? null;

  async function open(place: MediaPlace, method: 'GET' | 'HEAD', signal: AbortSignal): Promise<Response> {
    try {
      return await api.open(routeOf(place), { method, signal });
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      throw new ApiError(REFUSALS[error.status] ?? error.message, error.status);
    }
  }

  return {
    /** Facts that the relay reports about a file. An empty `name` becomes the relay's. @throws ApiError */
    async look(place: MediaPlace, name: string, signal: AbortSignal): Promise<Medium> {
      const { headers } = await open(place, 'HEAD', signal);
      return {
        place,
        name: name || nameIn(headers.get('content-disposition') ?? ''),
        type: headers.get('content-type') ?? '',
        size: Number(headers.get('content-length')),
        isSensitive: /^(?:1|true)$/i.test(headers.get('x-media-sensitive') ?? ''),
      };
    },

    /** The address for an element that shows the file; null where there is no service worker to answer. */
    addressOf: (place: MediaPlace): string | null => (worker() ? routeOf(place) : null),

    /** True if the settings allow to load so many bytes at once. */
    isAllowed: (size: number): boolean => size <= settings.values.max_inbound_mb.value * MiB,

    /** True if the settings allow to load so many bytes without being asked, over the network of now. */
    isSmall: (size: number): boolean =>
      size <= settings.values.auto_fetch_mb.value * MiB &&
      (settings.values.auto_fetch_on_cellular.value || !isOnCellular()),

    /** The whole file. @throws ApiError */
    load: async ({ place }: Medium, signal: AbortSignal): Promise<Blob> => (await open(place, 'GET', signal)).blob(),

    /** Saves a file where the browser saves files, as it arrives. @throws Error in words for people */
    async save({ place }: Medium): Promise<void> {
      const route = routeOf(place);
      const status = await new Promise<number>((resolve) => {
        const { port1, port2 } = new MessageChannel();
        const timer = setTimeout(() => resolve(0), ANSWER_TIMEOUT);
        port1.onmessage = ({ data }) => {
          clearTimeout(timer);
          resolve(Number(data));
          port1.close();
        };
        worker()?.postMessage({ name: 'save-media', route } satisfies SaveMedia, [port2]);
      });
      if (status !== 200) throw new Error(REFUSALS[status] ?? 'The file could not be loaded.');
      // The worker answers with an attachment, which leaves the page where it is.
      location.assign(new URL(`app/${route}`, base));
    },
  };
}

/** True if the browser says that it uses a mobile network. Most say nothing. */
const isOnCellular = (): boolean =>
  (navigator as Navigator & { connection?: { type?: string } }).connection?.type === 'cellular';

/** The relay's route for a file, and below the page what its service worker answers. */
const routeOf = (place: MediaPlace): string =>
  'token' in place ? `media/${place.token}` : `media/by-path?path=${encodeURIComponent(place.path)}`;

/** The name in a `Content-Disposition` (contract 04 §3.9); the encoded one has every character. */
function nameIn(disposition: string): string {
  const encoded = /filename\*=UTF-8''([^;]+)/.exec(disposition)?.[1];
  try {
    if (encoded !== undefined) return decodeURIComponent(encoded);
  } catch {
    // The plain one follows.
  }
  return /filename="([^"]*)"/.exec(disposition)?.[1] ?? '';
}

/** Gets another bearer for the service worker, when the relay does not accept the one that is stored. */
export function renewForWorker(renew: (used: string) => Promise<boolean>): void {
  if (!('serviceWorker' in navigator)) return;
  navigator.serviceWorker.addEventListener('message', ({ data, ports }: MessageEvent<RenewBearer | undefined>) => {
    if (data?.name !== 'renew-bearer') return;
    void renew(data.used).then((isRenewed) => ports[0]?.postMessage(isRenewed));
  });
}

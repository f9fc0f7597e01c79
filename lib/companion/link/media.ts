import { RelayError } from '../../errors.ts';
import type { CallRelay, RelayCall, RelayResponse } from '../../host/dial.ts';
import { concatBytes, utf8ToBytes } from '../../kit/bytes.ts';
import { type Clock, seconds } from '../../kit/clock.ts';
import { createSemaphore } from '../../kit/semaphore.ts';
import { decodeUtf8 } from '../../kit/text.ts';
import { baseName, contentDisposition, DEFAULT_TYPE } from '../../media/names.ts';
import type { FetchMedia, MediaSource, Upload, UploadFile } from '../types.ts';
import { callRoute, refuseKey } from './endpoints.ts';
import { routeTo } from './reach.ts';
import type { PairingStore } from './settings.ts';

/** Files are held in memory as a whole. */
const MAX_FILE_BYTES = 100 * 1024 * 1024;

/** A broker admits six tunnels per device (contract 08 §7.7), and one of them is the link's. */
const MAX_TUNNELS = 4;
const MAX_WAITING = 64;
const NEVER = new AbortController().signal;

export interface MediaParts {
  callRelay: CallRelay;
  store: PairingStore;
  clock: Clock;
}

/** The phone's media calls: with the bearer of its pairing, to the endpoint that last worked (contract 03 §5, §7). */
export function createMediaClient({ callRelay, store, clock }: MediaParts): { upload: Upload; fetchMedia: FetchMedia } {
  const tunnels = createSemaphore(MAX_TUNNELS, MAX_WAITING);
  function callPaired(
    request: Pick<RelayCall, 'method' | 'path' | 'headers' | 'body' | 'limit'>,
  ): Promise<RelayResponse> {
    const pairing = store.pairing();
    const called = callRoute(pairing);
    if (!pairing || !called) throw new RelayError('unavailable', 'this phone is not paired');
    const { endpoint, bearer } = called;
    const call: RelayCall = {
      ...request,
      socketUrl: endpoint.url,
      route: routeTo(endpoint, pairing, seconds(clock)),
      headers: { ...request.headers, authorization: bearer },
      refuse: (spki) => refuseKey(pairing.tofu_pins, endpoint, spki),
    };
    return endpoint.broker ? tunnels.run(NEVER, () => callRelay(call)) : callRelay(call);
  }

  return {
    async upload(file) {
      const boundary = `svc-${crypto.randomUUID()}`;
      const { status, bytes } = await callPaired({
        method: 'POST',
        path: '/media/upload',
        headers: { 'content-type': `multipart/form-data; boundary=${boundary}` },
        body: multipart(file, boundary),
        limit: 64 * 1024,
      });
      if (status !== 200) return { status };
      const { token } = JSON.parse(decodeUtf8(bytes)) as { token?: unknown };
      if (typeof token !== 'string') throw new RelayError('bad-gateway', 'the relay did not return a token');
      return { token };
    },

    async fetchMedia(source) {
      const path = pathOf(source);
      const { status, headers, bytes } = await callPaired({ method: 'GET', path, headers: {}, limit: MAX_FILE_BYTES });
      if (status !== 200) throw new RelayError('bad-gateway', `the relay answered ${status}`);
      const type = headers['content-type']?.split(';')[0]?.trim();
      return {
        name: baseName(source.fileName ?? fileNameOf(headers['content-disposition'])) ?? 'attachment',
        type: source.contentType ?? type ?? DEFAULT_TYPE,
        bytes,
      };
    },
  };
}

function pathOf(source: MediaSource): string {
  if ('token' in source) return `/media/${encodeURIComponent(source.token)}`;
  const query = new URLSearchParams({ path: source.path });
  if (source.contentType !== undefined) query.set('content_type', source.contentType);
  return `/media/by-path?${query}`;
}

function multipart({ name, type, bytes }: UploadFile, boundary: string): Uint8Array {
  const fileName = /filename="([^"]*)"/.exec(contentDisposition(name))?.[1] ?? 'file';
  const head = [
    `--${boundary}`,
    `content-disposition: form-data; name="file"; filename="${fileName}"`,
    `content-type: ${type}`,
    '',
    '',
  ].join('\r\n');
  return concatBytes(utf8ToBytes(head), bytes, utf8ToBytes(`\r\n--${boundary}--\r\n`));
}

/** The UTF-8 file name in a `Content-Disposition`, which arrives with one character per byte. */
function fileNameOf(disposition = ''): string {
  const raw = /filename="([^"]*)"/.exec(disposition)?.[1] ?? '';
  return decodeUtf8(Uint8Array.from(raw, (unit) => unit.charCodeAt(0)));
}

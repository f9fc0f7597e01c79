import { RelayError } from '../../errors.ts';
import type { CallRelay, RelayCall, RelayResponse } from '../../host/dial.ts';
import { concatBytes, utf8ToBytes } from '../../kit/bytes.ts';
import { type Clock, seconds } from '../../kit/clock.ts';
import { parseObject } from '../../kit/json.ts';
import { createSemaphore } from '../../kit/semaphore.ts';
import { decodeUtf8 } from '../../kit/text.ts';
import { baseName, contentDisposition, DEFAULT_TYPE } from '../../media/names.ts';
import { isSealedToken, maxSealedSize } from '../../media/sealed.ts';
import { SEALED_TYPE } from '../../media/sealed-type.ts';
import type { FetchMedia, MediaSource, Upload, UploadFile } from '../types.ts';
import { callRoute, type Endpoint, refuseKey } from './endpoints.ts';
import { routeTo } from './reach.ts';
import { type MediaKeys, openUpload, sealUpload } from './sealed-media.ts';
import type { Sealing } from './sealing.ts';
import type { Pairing, PairingStore } from './settings.ts';

/** Files are held in memory as a whole. */
export const MAX_FILE_BYTES = 100 * 1024 * 1024;

/** A broker admits six tunnels per device (contract 08 §7.7), one of which belongs to the link. */
const MAX_TUNNELS = 4;
const MAX_WAITING = 64;
/** Bytes of a refusal's body that are parsed: a relay's reasons are short. */
const MAX_REFUSAL_BYTES = 4096;
const NEVER = new AbortController().signal;

export interface MediaDeps {
  callRelay: CallRelay;
  store: PairingStore;
  clock: Clock;
  /** Keys of the sealed mailbox; without them, files go there unsealed. */
  sealing?: Pick<Sealing, 'keys'>;
}

/** The phone's media calls, with the bearer of its pairing, to the endpoint that last worked (contract 03 §5, §7). */
export function createMediaClient({ callRelay, store, clock, sealing }: MediaDeps): {
  upload: Upload;
  fetchMedia: FetchMedia;
} {
  const tunnels = createSemaphore(MAX_TUNNELS, MAX_WAITING);

  /** The pairing, and the route for its next call. */
  function routeOf(): { pairing: Pairing; endpoint: Endpoint; bearer: string } {
    const pairing = store.pairing();
    const target = callRoute(pairing);
    if (!pairing || !target) throw new RelayError('unavailable', 'this phone is not paired');
    return { pairing, ...target };
  }

  /** At the mailbox, the keys for sealed files; undefined if nothing is sealed. */
  async function keysFor({ endpoint, pairing: { box } }: ReturnType<typeof routeOf>): Promise<MediaKeys | undefined> {
    const found = endpoint.mailbox && box?.uploads ? await sealing?.keys() : undefined;
    return found && { ...found, deviceId: store.deviceId };
  }

  function callPaired(
    { pairing, endpoint, bearer }: ReturnType<typeof routeOf>,
    request: Pick<RelayCall, 'method' | 'path' | 'headers' | 'body' | 'limit'>,
  ): Promise<RelayResponse> {
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
      const route = routeOf();
      const keys = await keysFor(route);
      const sealed = keys && (await sealUpload(file, keys));
      const boundary = `svc-${crypto.randomUUID()}`;
      const { status, bytes } = await callPaired(route, {
        method: 'POST',
        path: '/media/upload',
        headers: { 'content-type': `multipart/form-data; boundary=${boundary}` },
        body: multipart(sealed?.file ?? file, boundary),
        limit: 64 * 1024,
      });
      if (status !== 200) return { status };
      const token = parseObject(decodeUtf8(bytes))?.token;
      if (typeof token !== 'string') throw new RelayError('bad-gateway', 'the relay did not return a token');
      // Home accepts a sealed file under this token only.
      if (sealed && token !== sealed.token) throw new RelayError('bad-gateway', 'the mailbox took another file');
      return { token };
    },

    async fetchMedia(source) {
      const path = pathOf(source);
      const route = routeOf();
      const limit = route.endpoint.mailbox ? maxSealedSize(MAX_FILE_BYTES) : MAX_FILE_BYTES;
      const { status, headers, bytes } = await callPaired(route, { method: 'GET', path, headers: {}, limit });
      if (status !== 200) throw new RelayError('bad-gateway', refusalOf(status, bytes));
      const type = headers['content-type']?.split(';')[0]?.trim();
      if (type === SEALED_TYPE && 'token' in source && isSealedToken(source.token)) {
        const keys = await keysFor(route);
        if (!keys) throw new RelayError('bad-gateway', 'the file is sealed for another device');
        return openUpload(bytes, source.token, keys);
      }
      return {
        name: baseName(source.fileName ?? fileNameOf(headers['content-disposition'])) ?? 'attachment',
        type: source.contentType ?? type ?? DEFAULT_TYPE,
        bytes,
      };
    },
  };
}

/** The status of a refusal, and the relay's reason: at the mailbox, that home is off and since when. */
function refusalOf(status: number, bytes: Uint8Array): string {
  const reason = bytes.length <= MAX_REFUSAL_BYTES ? parseObject(decodeUtf8(bytes))?.error : undefined;
  return `the relay answered ${status}${typeof reason === 'string' ? `: ${reason}` : ''}`;
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

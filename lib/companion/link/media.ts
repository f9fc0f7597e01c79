import { RelayError } from '../../errors.ts';
import type { Call, HttpAnswer, HttpCall } from '../../host/dial.ts';
import { concatBytes, utf8ToBytes } from '../../kit/bytes.ts';
import { decodeUtf8 } from '../../kit/text.ts';
import { baseName, contentDisposition, DEFAULT_TYPE } from '../../media/names.ts';
import type { FetchMedia, MediaSource, Upload, UploadFile } from '../types.ts';
import { attemptOrder } from './endpoints.ts';
import { checkPin } from './pins.ts';
import type { PairingStore } from './settings.ts';

/** A phone takes no more than this; it holds a file whole. */
const LARGEST = 100 * 1024 * 1024;

/** The phone's media calls, with the bearer of its pairing, where its socket was last good (contract 03 §5, §7). */
export function createMediaLink({ call, store }: { call: Call; store: PairingStore }): {
  upload: Upload;
  fetchMedia: FetchMedia;
} {
  function ask(request: Pick<HttpCall, 'method' | 'path' | 'headers' | 'body' | 'limit'>): Promise<HttpAnswer> {
    const pairing = store.pairing();
    const endpoint = pairing && attemptOrder(pairing.endpoints, pairing.last_good)[0];
    if (!pairing || !endpoint) throw new RelayError('unavailable', 'this phone is not paired');
    return call({
      ...request,
      socketUrl: endpoint.url,
      headers: { ...request.headers, authorization: `Bearer ${pairing.session_token}` },
      refuse(spki) {
        const check = checkPin(pairing.tofu_pins, endpoint.url, spki);
        if (check.kind === 'refused') return check.reason;
        // The socket has been there before: a key that it has not seen is somebody else's.
        return check.kind === 'first' ? 'the relay is not known here yet' : null;
      },
    });
  }

  return {
    async upload(file) {
      const boundary = `svc-${crypto.randomUUID()}`;
      const { status, bytes } = await ask({
        method: 'POST',
        path: '/media/upload',
        headers: { 'content-type': `multipart/form-data; boundary=${boundary}` },
        body: multipart(file, boundary),
        limit: 64 * 1024,
      });
      if (status !== 200) return { status };
      const { token } = JSON.parse(decodeUtf8(bytes)) as { token?: unknown };
      if (typeof token !== 'string') throw new RelayError('bad-gateway', 'the relay gave no token');
      return { token };
    },

    async fetchMedia(source) {
      const path = pathOf(source);
      const { status, headers, bytes } = await ask({ method: 'GET', path, headers: {}, limit: LARGEST });
      if (status !== 200) throw new RelayError('bad-gateway', `the relay answered ${status}`);
      const type = headers['content-type']?.split(';')[0]?.trim();
      return {
        name: baseName(source.fileName ?? nameIn(headers['content-disposition'])) ?? 'attachment',
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

/** The file name of a `Content-Disposition` whose bytes are one character each. */
function nameIn(disposition = ''): string {
  const raw = /filename="([^"]*)"/.exec(disposition)?.[1] ?? '';
  return decodeUtf8(Uint8Array.from(raw, (sign) => sign.charCodeAt(0)));
}

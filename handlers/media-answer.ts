import { utf8ToBytes } from '../lib/kit/bytes.ts';
import type { ServedMedia } from '../lib/media/media.ts';
import { contentDisposition } from '../lib/media/names.ts';
import { errorResponse } from '../lib/web/json.ts';
import { httpDate, select } from '../lib/web/ranges.ts';
import { WebResponse } from '../lib/web/response.ts';
import type { RelayRequest } from './request.ts';

/**
 * Answers with a file, a range of it, or only its headers (contract 04 §3.6). Closes the file, or passes that on to the
 * body, in every case.
 */
export async function answerMedia(request: RelayRequest, media: ServedMedia): Promise<Response> {
  const { bytes } = media;
  const { size, modified } = bytes;
  try {
    const etag = `"${bytes.tag}"`;
    const selection = select(request.headers, { size, etag, modified });
    if (selection.kind === 'unsatisfiable') {
      const headers = { 'content-range': `bytes */${size}`, 'accept-ranges': 'bytes' };
      return errorResponse(416, 'the range is outside of the file', headers);
    }
    const headers: Record<string, string> = {
      'content-type': media.contentType,
      'content-disposition': headerText(contentDisposition(media.fileName), request),
      'cache-control': 'private, max-age=3600',
      'accept-ranges': 'bytes',
      etag,
      'last-modified': httpDate(modified),
      'x-content-type-options': 'nosniff',
      // A page or drawing of the agent runs no script in the relay's origin.
      'content-security-policy': 'sandbox',
    };
    if (media.sensitive) headers['x-media-sensitive'] = '1';
    if (selection.kind === 'unchanged') return new WebResponse(null, { status: 304, headers });

    const isPart = selection.kind === 'part';
    const [start, end] = isPart ? [selection.start, selection.end] : [0, size - 1];
    if (isPart) headers['content-range'] = `bytes ${start}-${end}/${size}`;
    headers['content-length'] = String(end - start + 1);
    const status = isPart ? 206 : 200;
    if (request.method === 'HEAD' || size === 0) return new WebResponse(null, { status, headers });
    return new WebResponse(await bytes.body(start, end), { status, headers });
  } finally {
    await bytes.close();
  }
}

/**
 * Non-ASCII text as a header's value, UTF-8 on the wire: Node sends a header's characters as Latin-1 bytes, while the edge
 * encodes them as UTF-8 itself.
 */
function headerText(text: string, request: RelayRequest): string {
  if (request.peer.via === 'edge') return text;
  return Array.from(utf8ToBytes(text), (byte) => String.fromCharCode(byte)).join('');
}

import { RelayError } from '../lib/errors.ts';
import { json, readJson } from '../lib/web/json.ts';
import type { Handler } from './request.ts';

/** Bytes of a body: 25 MiB in base64 and the JSON around them. */
const LIMIT = 36 * 1024 * 1024;

/** `POST /clipboard/inbox` (contract 04 §6). */
export const postClipboard: Handler = async (request, relay) => {
  if (!relay.clipboard)
    throw new RelayError('unsupported', 'this relay runs without a host, so it has no clipboard inbox');
  const entry = await relay.clipboard.receive(request.session?.family ?? '', async () => {
    const body = await readJson(request, { limit: LIMIT });
    return {
      format: text(body, 'format'),
      bytesBase64: text(body, 'bytes_base64'),
      filenameHint: body.filename_hint == null ? undefined : text(body, 'filename_hint'),
    };
  });
  return json({ ok: true, path: entry.path, size_bytes: entry.sizeBytes, swept_stale: entry.sweptStale });
};

function text(body: Record<string, unknown>, field: string): string {
  const value = body[field];
  if (typeof value === 'string') return value;
  throw new RelayError('invalid', `${field} must be a string`);
}

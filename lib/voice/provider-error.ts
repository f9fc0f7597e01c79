import { isObject, parseObject } from '../kit/json.ts';
import { decodeUtf8 } from '../kit/text.ts';
import { readUpTo } from '../web/streams.ts';

const MAX_ERROR_BYTES = 8 * 1024;

/** True if a reply that should be audio is text, such as an error or a page. */
export const isTextType = (contentType: string): boolean => /^(?:text\/|application\/json)/i.test(contentType);

/**
 * The provider's message in the body of an error: the message of `error`, `detail` or `message`, else the whole text. Not
 * redacted yet. Reads at most 8 KiB.
 */
export async function readProviderError(body: AsyncIterable<Uint8Array>): Promise<string> {
  const text = decodeUtf8(await readUpTo(body, MAX_ERROR_BYTES)).trim();
  const json = parseObject(text);
  if (!json) return text;
  for (const value of [json.error, json.detail, json.message]) {
    const message = isObject(value) ? (value.message ?? value.status) : value;
    if (typeof message === 'string' && message.trim() !== '') return message.trim();
  }
  return text;
}

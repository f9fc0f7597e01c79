import { Response as FetchResponse } from '@whatwg-node/fetch';
import type { PipedBody } from '../host/media.ts';

export type WebBody = string | Uint8Array | ReadableStream<Uint8Array> | PipedBody;

/** Options of `WebResponse`. */
export interface WebResponseInit {
  status?: number;
  headers?: Record<string, string>;
  /** The body is already encoded as `content-encoding` says; the edge would compress it again otherwise. */
  encodeBody?: 'manual';
}

/**
 * The `Response` of every handler: on Node the plain object of `@whatwg-node/fetch`, at the edge a subclass of the
 * platform's own. Node's global `Response` sets up a web stream for each body, which doubles what a small response costs
 * (2026-11).
 */
export class WebResponse extends FetchResponse {
  /** The body as given, so that Node can write it without a stream. */
  readonly content: WebBody | null;
  /** Called once by the runtime: true if the whole response was written to the connection, else false. */
  sent?: (isWhole: boolean) => void;

  constructor(content: WebBody | null, { status = 200, headers, encodeBody }: WebResponseInit = {}) {
    // A copy, because the package adds `content-length` to its input; pairs are twice as fast as a record.
    const pairs = headers && Object.entries(headers);
    const init = { status, headers: pairs, ...(encodeBody && { encodeBody }) };
    super(isPiped(content) ? null : (content as BodyInit | null), init);
    this.content = content;
  }
}

export const isPiped = (content: WebBody | null): content is PipedBody =>
  typeof content === 'object' && content !== null && 'pipe' in content;

import { concatBytes, utf8ToBytes } from '../kit/bytes.ts';
import type { Clock } from '../kit/clock.ts';
import { decodeUtf8 } from '../kit/text.ts';
import { WebResponse } from '../web/response.ts';

/** Milliseconds within which most calls end. Their events are sent as one body, which costs less than a stream. */
const SOON = 250;
/** Bytes buffered for a client that does not read. Over it, the stream ends, and the client may resume. */
const MAX_WAITING = 1024 * 1024;

export interface Delivery {
  clock: Clock;
  /** Responds at once, since the first event may take long. */
  isListening: boolean;
  /** Called once, when everything is sent or can no longer be sent. */
  done(): void;
}

/** Converts a response of the package into one of the runtimes, with bounds on the bytes buffered for the client. */
export async function deliver(response: Response, { clock, isListening, done }: Delivery): Promise<WebResponse> {
  const { status, body } = response;
  const headers = Object.fromEntries(response.headers);
  // Node manages the connection itself.
  delete headers.connection;
  headers['x-content-type-options'] = 'nosniff';
  headers['cache-control'] = 'no-store';
  if (!body || !headers['content-type']?.startsWith('text/event-stream')) {
    const text = body ? await response.text() : null;
    done();
    return new WebResponse(text, { status, headers });
  }

  const reader = body.getReader();
  const early: Uint8Array[] = [];
  let reading = reader.read();
  if (!isListening) {
    let cancel = () => {};
    const deadline = new Promise<undefined>((resolve) => {
      cancel = clock.after(SOON, () => resolve(undefined));
    });
    for (;;) {
      const next = await Promise.race([reading, deadline]);
      if (next === undefined) break;
      if (next.done) {
        cancel();
        const whole = new WebResponse(decodeUtf8(concatBytes(...early)), { status, headers });
        whole.sent = done;
        return whole;
      }
      early.push(next.value);
      reading = reader.read();
    }
  }
  // The first bytes also send the head of the response.
  const first = early.length > 0 ? early : [utf8ToBytes(': \n\n')];
  return new WebResponse(stream(reader, reading, first, done), { status, headers });
}

type Reader = ReadableStreamDefaultReader<Uint8Array>;

/** Reads the package's output immediately, since the package writes without backpressure. */
function stream(
  reader: Reader,
  reading: ReturnType<Reader['read']>,
  waiting: Uint8Array[],
  done: () => void,
): ReadableStream<Uint8Array> {
  let size = waiting.reduce((sum, { byteLength }) => sum + byteLength, 0);
  let isOver = false;
  let wake = () => {};

  function end(): void {
    if (isOver) return;
    isOver = true;
    wake();
  }

  async function pump(): Promise<void> {
    for (let next = await reading; !next.done && !isOver; next = await reader.read()) {
      if (size > MAX_WAITING) {
        waiting.length = 0;
        break;
      }
      waiting.push(next.value);
      size += next.value.byteLength;
      wake();
    }
    if (!isOver) void reader.cancel().catch(() => {});
    end();
  }
  void pump().catch(end);

  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        if (waiting.length === 0 && !isOver) {
          await new Promise<void>((resolve) => {
            wake = resolve;
          });
        }
        const chunk = waiting.shift();
        if (chunk) {
          size -= chunk.byteLength;
          controller.enqueue(chunk);
        } else {
          controller.close();
          done();
        }
      },
      cancel() {
        end();
        done();
        return reader.cancel();
      },
    },
    { highWaterMark: 0 },
  );
}

import { concatBytes, utf8ToBytes } from '../kit/bytes.ts';
import type { Clock } from '../kit/clock.ts';
import { decodeUtf8 } from '../kit/text.ts';
import { WebResponse } from '../web/response.ts';

/** Milliseconds in which most calls end: their events are then one body, which costs less than a stream. */
const SOON = 250;
/** Bytes that may wait for a client that does not read when more comes: its stream then ends, and it may resume. */
const MAX_WAITING = 1024 * 1024;

export interface Delivery {
  clock: Clock;
  /** Answers at once, since nothing may come for long. */
  isListening: boolean;
  /** Called once, when everything is with the client, or never will be. */
  done(): void;
}

/** A response of the package in the form that the runtimes send, with bounds on what waits for the client. */
export async function deliver(response: Response, { clock, isListening, done }: Delivery): Promise<WebResponse> {
  const { status, body } = response;
  const headers = Object.fromEntries(response.headers);
  // Node manages the connection by itself.
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
    const late = new Promise<undefined>((resolve) => {
      cancel = clock.after(SOON, () => resolve(undefined));
    });
    for (;;) {
      const next = await Promise.race([reading, late]);
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

/** The package's output, read at once: it writes however much waits already. */
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

import { RelayError } from '../lib/errors.ts';
import { utf8ToBytes } from '../lib/kit/bytes.ts';
import type { RelayEvent, Subscription } from '../lib/operator/events.ts';
import type { Relay } from '../lib/relay.ts';
import { json } from '../lib/web/json.ts';
import { WebResponse } from '../lib/web/response.ts';
import { operatorRefusal } from './guards.ts';
import { type Handler, integerOf, lastOf } from './request.ts';

/** Milliseconds between comments, which show both sides that the connection is alive. */
const COMMENT_PERIOD = 15_000;
/** Characters of new events that may be queued for a listener. Over it, the listener is disconnected, and resumes. */
const MAX_WAITING = 1024 * 1024;
const MAX_LINES = 500;

/** `GET /relay/log?limit=`: the last lines of the log (contract 09 §4). */
export const relayLog: Handler = (request, relay) => {
  const limit = integerOf(lastOf(request.query).limit, 'limit', { min: 1, max: MAX_LINES, otherwise: MAX_LINES });
  return json({ lines: relay.log.tail?.last(limit) ?? [] });
};

/**
 * `GET /relay/events`: all events as they happen (contract 09 §4). Resumes after `Last-Event-ID`. If that is unknown or
 * absent, the first event is `reset`, after which the listener has to read the state again.
 */
export const relayEvents: Handler = (request, relay) => {
  const after = Number(request.headers.get('last-event-id') ?? Number.NaN);
  // Nobody reads the stream of a `HEAD`, which the edge would wait for.
  const isAsked = request.method !== 'HEAD';
  // An operator token is valid for minutes, so the stream that it opened must not continue for days.
  const mayFollow = async () => request.peer.via !== 'edge' || (await operatorRefusal(request, relay)) === undefined;
  const from = Number.isSafeInteger(after) ? after : undefined;
  return new WebResponse(isAsked ? follow(relay, from, mayFollow) : null, {
    headers: {
      'content-type': 'text/event-stream',
      'x-content-type-options': 'nosniff',
      'cache-control': 'no-store',
      // Tells proxies such as nginx not to buffer the stream.
      'x-accel-buffering': 'no',
    },
  });
};

const textOf = ({ id, event, data }: RelayEvent): string => `id: ${id}\nevent: ${event}\ndata: ${data}\n\n`;

/** Calls `mayFollow` with every comment. @throws RelayError `rate-limited` if there are too many listeners. */
function follow(
  { events, clock }: Relay,
  after: number | undefined,
  mayFollow: () => Promise<boolean>,
): ReadableStream<Uint8Array> {
  let waiting = '';
  let wake = () => {};
  let isOver = false;
  let cancelComment = () => {};

  const put = (text: string): void => {
    waiting += text;
    if (waiting.length > MAX_WAITING) end();
    wake();
  };
  const subscription: Subscription | undefined = events.subscribe(after, (event) => put(textOf(event)));
  if (!subscription) throw new RelayError('rate-limited', 'too many listeners follow the events', { retryAfter: 15 });

  function end(): void {
    isOver = true;
    subscription?.end();
    cancelComment();
    wake();
  }
  function comment(): void {
    cancelComment = clock.after(COMMENT_PERIOD, async () => {
      if (!(await mayFollow())) end();
      if (isOver) return;
      put(': \n\n');
      if (!isOver) comment();
    });
  }
  const { missed, latest } = subscription;
  // Not counted as queued: the ring may contain more than the limit, and the listener would keep reconnecting.
  const backlog = [...(missed ?? [])];
  // The first bytes also send the head of the response.
  put(missed ? ': \n\n' : `id: ${latest}\nevent: reset\ndata: {}\n\n`);
  comment();

  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        if (waiting === '' && !isOver) {
          await new Promise<void>((resolve) => {
            wake = resolve;
          });
        }
        const missing = backlog.shift();
        if (isOver) controller.close();
        else if (missing) controller.enqueue(utf8ToBytes(textOf(missing)));
        else {
          controller.enqueue(utf8ToBytes(waiting));
          waiting = '';
        }
      },
      cancel: end,
    },
    { highWaterMark: 0 },
  );
}

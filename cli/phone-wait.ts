import { asObject } from '../lib/kit/json.ts';
import { keepAlive } from './keep-alive.ts';
import { type PhoneRelay, Unreachable } from './phone-relay.ts';

/** The longest a poll may wait, s; the relay allows 30. */
const WINDOW = 25;
const GRACE = 10_000;
const RETRY = 1000;

export interface PhoneReply extends Record<string, unknown> {
  text: string;
}

export interface WaitParts {
  relay: PhoneRelay;
  chatId: string;
  messageId: string;
  seconds: number;
  stop?: AbortSignal;
}

/**
 * Waits for the reply to a message that is about to be sent, from now on: an agent that reads every reply must not be
 * there first. Only replies in this chat, or to this message, that come from now on are taken from the relay; all
 * others stay for their readers. A relay that restarts is waited for. `replies` is empty when time is up.
 */
export function startWaiting(parts: WaitParts): { replies: Promise<PhoneReply[]>; end(): void } {
  const over = new AbortController();
  const end = () => over.abort();
  parts.stop?.addEventListener('abort', end);
  const replies = keepAlive(poll(parts, over.signal)).finally(() => parts.stop?.removeEventListener('abort', end));
  // When the sending fails first, nobody looks at this.
  replies.catch(() => {});
  return { replies, end };
}

async function poll({ relay, chatId, messageId, seconds }: WaitParts, signal: AbortSignal): Promise<PhoneReply[]> {
  const wanted = new URLSearchParams({ chat_id: chatId, reply_to: messageId, since: String(Date.now()) });
  const deadline = performance.now() + seconds * 1000;
  for (let left = seconds; left > 0 && !signal.aborted; left = (deadline - performance.now()) / 1000) {
    const timeout = Math.min(left, WINDOW);
    try {
      const answer = await relay.call({
        method: 'GET',
        path: `/phone/replies?${wanted}&timeout=${timeout.toFixed(3)}`,
        timeout: timeout * 1000 + GRACE,
        signal,
      });
      const replies = Array.isArray(answer.replies) ? answer.replies.filter(isReply) : [];
      if (replies.length > 0) return replies;
    } catch (error) {
      if (!(error instanceof Unreachable)) throw error;
      if (!signal.aborted) await pause(Math.min(RETRY, left * 1000), signal);
    }
  }
  return [];
}

const isReply = (value: unknown): value is PhoneReply => typeof asObject(value)?.text === 'string';

const pause = (ms: number, signal: AbortSignal): Promise<void> =>
  new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      signal.removeEventListener('abort', done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    signal.addEventListener('abort', done);
  });

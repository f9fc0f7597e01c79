import { asObject } from '../../lib/kit/json.ts';
import { keepAlive } from '../keep-alive.ts';
import { type OperatorRelay, Unreachable } from '../operator-relay.ts';
import { pause } from '../pause.ts';

/** Seconds of one poll; the relay allows 30. */
const POLL_WINDOW = 25;
/** Seconds for which a reply is leased to this command, which acknowledges it once it is printed. */
const LEASE = 30;
/** Milliseconds that the answer to a poll may take beyond its window. */
const GRACE = 10_000;
/** Milliseconds between attempts while the relay does not answer. */
const RETRY_DELAY = 1000;

export interface PhoneReply extends Record<string, unknown> {
  text: string;
  /** Index of the offered answer (contract 09 §10). */
  answer_index?: number;
}

/** The received replies, empty if time is up. */
export interface Waited {
  replies: PhoneReply[];
  /** Takes them from the relay, which otherwise gives them to the next reader. Never rejects. */
  acknowledge(): Promise<void>;
}

export interface WaitOptions {
  relay: OperatorRelay;
  /** Any later reply in this chat counts too. */
  chatId?: string;
  messageId: string;
  seconds: number;
  stop?: AbortSignal;
}

/**
 * Starts to wait for the reply to a message before it is sent, so that an agent that reads every reply does not get it
 * first. Takes only replies to this message, or new ones in its chat; all others stay for their readers. Survives a restart
 * of the relay. If no reply arrives in time, the promise resolves with an empty list.
 */
export function startWaiting(options: WaitOptions): { replies: Promise<Waited>; end(): void } {
  const over = new AbortController();
  const end = () => over.abort();
  options.stop?.addEventListener('abort', end);
  const replies = keepAlive(poll(options, over.signal)).finally(() => options.stop?.removeEventListener('abort', end));
  // Nobody awaits this if sending fails first.
  replies.catch(() => {});
  return { replies, end };
}

async function poll({ relay, chatId, messageId, seconds }: WaitOptions, signal: AbortSignal): Promise<Waited> {
  const wanted = new URLSearchParams({ reply_to: messageId, lease: String(LEASE) });
  if (chatId !== undefined) {
    wanted.set('chat_id', chatId);
    wanted.set('since', String(Date.now()));
  }
  const deadline = performance.now() + seconds * 1000;
  for (let left = seconds; left > 0 && !signal.aborted; left = (deadline - performance.now()) / 1000) {
    const timeout = Math.min(left, POLL_WINDOW);
    try {
      const answer = await relay.call({
        method: 'GET',
        path: `/phone/replies?${wanted}&timeout=${timeout.toFixed(3)}`,
        timeout: timeout * 1000 + GRACE,
        signal,
      });
      const replies = Array.isArray(answer.replies) ? answer.replies.filter(isReply) : [];
      if (replies.length > 0) return { replies, acknowledge: () => acknowledge(relay, answer.lease_id) };
    } catch (error) {
      if (!(error instanceof Unreachable)) throw error;
      if (!signal.aborted) await pause(Math.min(RETRY_DELAY, left * 1000), signal);
    }
  }
  return { replies: [], acknowledge: async () => {} };
}

/** A relay that gave no lease has already released the replies. */
async function acknowledge(relay: OperatorRelay, leaseId: unknown): Promise<void> {
  if (typeof leaseId !== 'string') return;
  const call = () => relay.call({ method: 'POST', path: '/phone/replies/ack', body: { lease_id: leaseId } });
  // A relay that restarts remembers the lease.
  await call().catch(async (error) => {
    if (!(error instanceof Unreachable)) return;
    await pause(RETRY_DELAY);
    await call().catch(() => {});
  });
}

const isReply = (value: unknown): value is PhoneReply => typeof asObject(value)?.text === 'string';

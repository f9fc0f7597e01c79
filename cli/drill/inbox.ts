import { pause } from '../pause.ts';
import type { Stage } from './stage.ts';
import { createLog, type Log } from './tally.ts';

/** Milliseconds. */
const RETRY = 200;
/** Seconds. */
const LEASE = 3;
/** Attempts at an acknowledgement before its lease is left to end. */
const MAX_ATTEMPTS = 3;

/** Replies of one sender, which are numbered in their text: `drill reply 17`. */
export interface Replies {
  /** Counts every time that one was handed out. */
  readonly received: Log;
  /** Replies handed out again before they were taken, which a lease that ended allows. */
  readonly repeated: number;
  /** Replies handed out although they were taken already, or under a second id. */
  readonly doubled: number;
}

export type Inbox = ReturnType<typeof createInbox>;

/** The operator's reader of all replies, with leases. */
export function createInbox(stage: Stage) {
  const senders = new Map<string, ReturnType<typeof createSender>>();

  /** Counts a reply that was handed out, and returns what to do when its lease was acknowledged. */
  function note(reply: unknown): (() => void)[] {
    const { text, message_id: id } = reply as { text?: unknown; message_id?: unknown };
    const [, name = '', number] = /^(.{1,40}) (\d{1,9})$/.exec(String(text)) ?? [];
    const sender = senders.get(name);
    return sender ? [sender.handedOut(Number(number), String(id))] : [];
  }

  async function acknowledge(leaseId: string, count: number, marks: (() => void)[]): Promise<void> {
    for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
      const body = { lease_id: leaseId };
      const answer = await stage.asOperator({ method: 'POST', path: '/phone/replies/ack', body });
      if (!answer) continue;
      // With fewer, some had been taken or given to another lease before.
      if (answer.body.taken === count) for (const take of marks) take();
      return;
    }
  }

  return {
    /** The replies whose text begins with this name. */
    from(name: string): Replies {
      const sender = createSender();
      senders.set(name, sender);
      return sender;
    },
    /** Reads replies until the signal. */
    async read(signal: AbortSignal): Promise<void> {
      while (!signal.aborted) {
        const answer = await stage.asOperator({ path: `/phone/replies?timeout=1&lease=${LEASE}` });
        if (answer?.status !== 200) {
          await pause(RETRY, signal);
          continue;
        }
        const list = Array.isArray(answer.body.replies) ? answer.body.replies : [];
        const received = list.flatMap(note);
        if (typeof answer.body.lease_id === 'string') await acknowledge(answer.body.lease_id, list.length, received);
      }
    },
  };
}

function createSender() {
  const received = createLog();
  const handled = createLog();
  const ids: string[] = [];
  let doubled = 0;
  return {
    received,
    get repeated() {
      return received.again - doubled;
    },
    get doubled() {
      return doubled;
    },
    handedOut(number: number, id: string): () => void {
      ids[number] ??= id;
      if (received.add(number) > 1 && (handled.times(number) > 0 || ids[number] !== id)) doubled++;
      return () => void handled.add(number);
    },
  };
}

import { describeError } from '../errors.ts';
import type { Log } from '../log.ts';
import { type Cursor, encodeFrame, encodeOp, type Frame, type Op, parseFrame } from './frames.ts';
import type { Outbox } from './outbox.ts';

/** Maximum unacknowledged ops in flight, and ops that wait to be applied. */
const WINDOW = 200;
const MAX_QUEUED = 4 * WINDOW;
/** Maximum characters of an op in pieces. */
const MAX_OP = 8 * 1024 * 1024;

export interface ChannelDeps {
  outbox: Outbox;
  log: Log;
  /**
   * Applies an op of the other side before it returns, with all of its writes in this turn. Idempotent. Rejects if that
   * could not be stored.
   */
  apply(op: Op): Promise<unknown>;
  /** A running change that the op has to wait for. */
  busy(op: Op): Promise<unknown> | undefined;
  /** The other side does not know this side's ops, so everything has to be sent. */
  resync(): void;
  send(text: string): void;
  /** An acknowledgement has made room for refused ops. */
  roomMade?(): void;
  /** Ends the connection, with the reason. */
  fail(reason: string): void;
}

export type Channel = ReturnType<typeof createChannel>;

/** The ops of both sides on one authenticated connection (contract 12 §2). */
export function createChannel({ outbox, log, apply, busy, resync, send, roomMade, fail }: ChannelDeps) {
  const queue: Op[] = [];
  /** The pieces of an op that have arrived. */
  let pieces = '';
  /** Numbers of the ops that were sent and are not acknowledged. */
  let flight: number[] = [];
  let sent = 0;
  let isApplying = false;
  let isOver = false;

  function pump(): void {
    if (isOver || flight.length >= WINDOW) return;
    for (const op of outbox.after(sent, WINDOW - flight.length)) {
      for (const text of encodeOp(op)) send(text);
      sent = op.oseq;
      flight.push(sent);
    }
  }

  function stop(): void {
    isOver = true;
    queue.length = 0;
    pieces = '';
  }

  /** Later changes may arrive before the socket has closed: to acknowledge one would also acknowledge the one that failed. */
  function giveUp(reason: string): void {
    if (isOver) return;
    stop();
    fail(reason);
  }

  function enqueue(op: Op): void {
    if (queue.push(op) > MAX_QUEUED) giveUp('too many changes at once');
    else void work();
  }

  function join({ text, last }: Frame & { type: 'part' }): void {
    pieces += text;
    if (pieces.length > MAX_OP) giveUp('a change is too long');
    if (!last || isOver) return;
    const whole = parseFrame(pieces);
    pieces = '';
    if (whole?.type === 'op') enqueue(whole);
    else giveUp('the pieces of a change do not fit');
  }

  async function work(): Promise<void> {
    if (isApplying) return;
    isApplying = true;
    try {
      while (queue.length > 0 && !isOver) await applyNext();
    } catch (error) {
      log.warn(`a change of the other side could not be applied: ${describeError(error)}`);
      giveUp('a change could not be applied');
    } finally {
      isApplying = false;
    }
  }

  /** Applies the received ops up to the first one that has to wait: one batch of writes, one acknowledgement. */
  async function applyNext(): Promise<void> {
    const first = queue[0] as Op;
    for (let wait = busy(first); wait; wait = busy(first)) await wait;
    const writes: Promise<unknown>[] = [];
    let place = first;
    outbox.batch(() => {
      while (queue[0] && (queue[0] === first || !busy(queue[0]))) {
        place = queue.shift() as Op;
        if (place.oseq > outbox.applied.oseq) writes.push(apply(place));
      }
      if (writes.length > 0) writes.push(outbox.apply(place));
    });
    const { oseq, epoch, origin } = place;
    await Promise.all(writes);
    const upto: Cursor = writes.length > 0 ? { epoch, oseq } : outbox.applied;
    if (!isOver) send(encodeFrame({ type: 'ack', origin, upto: upto.oseq, epoch: upto.epoch }));
  }

  return {
    /** Number of received ops that are not applied yet. */
    get queued(): number {
      return queue.length;
    },

    /** Starts to send after the position in the other side's hello. */
    start(peer: Cursor): void {
      if (outbox.isKnown(peer)) outbox.acknowledge(peer);
      else {
        log.info('the other side of the mirror is of another state: everything is compared anew');
        outbox.restart(peer);
        resync();
      }
      pump();
    },

    /** Something was offered, or the connection has survived a sleep. */
    flush: pump,

    receive(frame: Frame & { type: 'op' | 'part' | 'ack' }): void {
      if (isOver) return;
      if (frame.type === 'part') join(frame);
      else if (frame.type === 'op') enqueue(frame);
      else {
        outbox.acknowledge({ epoch: frame.epoch, oseq: frame.upto });
        flight = flight.filter((oseq) => oseq > frame.upto);
        roomMade?.();
        pump();
      }
    },

    stop,
  };
}

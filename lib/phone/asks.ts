import type { Metadata, PhoneHistoryItem, Reply } from '../../storage/schema.ts';
import { describeError, RelayError } from '../errors.ts';
import type { Cancel, Clock } from '../kit/clock.ts';
import type { Log } from '../log.ts';
import { newMessageId } from './message.ts';
import type { Shown } from './shown.ts';

/** Maximum open questions. */
const MAX_ASKS = 256;
/** Maximum milliseconds. As long as a message waits for a phone. */
const MAX_TIMEOUT = 86_400_000;

/** `low` is silent, `high` raises a notification even while the chat is open on the phone (contract 04 §5.3). */
export type Urgency = 'low' | 'normal' | 'high';
export const URGENCIES = ['low', 'normal', 'high'] as const satisfies readonly Urgency[];

const SURFACING: Readonly<Record<Urgency, string | null>> = { low: 'inbox', normal: null, high: 'notification' };

/** The `surfacing` of a message with this urgency. */
export const surfacingOf = (urgency: Urgency | undefined): string | null => SURFACING[urgency ?? 'normal'];

/** State of an unanswered question. */
export type AskProgress = 'queued' | 'sent' | 'shown';

export interface Ask {
  text: string;
  title?: string | null;
  /** 1 to 4 answers to choose from; by default, those listed in the text (contract 09 §10). */
  answers?: readonly string[];
  chat_id?: string | null;
  urgency?: Urgency;
  metadata?: Metadata;
  /** The caller, for the log. */
  by?: string;
  /** Milliseconds until the question is withdrawn, at most a day. */
  timeoutMs: number;
  /** Withdraws the question. */
  signal?: AbortSignal;
  /** Called with every new state of the question. */
  onProgress?(state: AskProgress): void;
}

/** `answer_index` is the index of an offered answer; absent for free text. `by` is the device's name. */
export interface Answered {
  answer: string;
  answer_index?: number;
  by: string;
  after_s: number;
}

/** `gone`: withdrawn by another caller, dropped from a full queue, or expired, or the relay stops. */
export interface Unanswered {
  answer: null;
  no_answer: true;
  reason: 'timeout' | 'aborted' | 'gone';
}

export type AskResult = Answered | Unanswered;

export interface AsksDeps {
  clock: Clock;
  log: Log;
  /** Sends the question, to which the relay adds `metadata.answers`. */
  push(body: Readonly<Record<string, unknown>>, by: string | undefined): Promise<unknown>;
  /** Withdraws the question from phones. */
  withdraw(messageId: string): Promise<unknown>;
}

interface Pending {
  startedAt: number;
  words?: Shown;
  progress: AskProgress | null;
  onProgress(state: AskProgress): void;
  settle(result: AskResult): void;
  /** Why the wait ended while an answer was being stored. */
  missed?: Unanswered['reason'];
}

/** An answer that is being stored. */
interface Claim {
  /** It is stored: passes it to the caller. */
  pass(): void;
  /** It could not be stored: the question is open again, unless its wait has ended meanwhile. */
  release(): void;
}

const unanswered = (reason: Unanswered['reason']): Unanswered => ({ answer: null, no_answer: true, reason });

/** Open questions whose callers wait for the answer (contract 09 §7). */
export function createAsks({ clock, log, push, withdraw }: AsksDeps) {
  const open = new Map<string, Pending>();
  let isStopped = false;

  async function withdrawn(messageId: string): Promise<void> {
    await withdraw(messageId).catch((error) => {
      log.warn(`a question could not be withdrawn: ${describeError(error)}`);
    });
  }

  return {
    /**
     * Sends a question to the phone and waits for its answer. The first reply from any device with the question in
     * `reply_to` is the answer. That consumes it: `GET /phone/replies` does not return it, but the history shows it. An
     * unanswered question is withdrawn when its time is up, when `signal` aborts and when the relay stops; a later answer
     * has no effect, and its device is told so.
     * @throws RelayError `invalid` for a bad field, `rate-limited` if too many callers wait, `unavailable` if the question
     * could not be stored.
     */
    async ask(ask: Ask): Promise<AskResult> {
      const { text, title, answers, chat_id, urgency, metadata, signal } = ask;
      if (isStopped) return unanswered('gone');
      if (signal?.aborted) return unanswered('aborted');
      if (!(ask.timeoutMs > 0)) throw new RelayError('invalid', 'the time for an answer must be greater than zero');
      if (open.size >= MAX_ASKS) {
        throw new RelayError('rate-limited', 'too many questions wait for an answer: try again later', {
          retryAfter: 5,
        });
      }
      const messageId = newMessageId();
      const result = new Promise<AskResult>((resolve) => {
        let cancel: Cancel = () => {};
        const end = (reason: Unanswered['reason']) => {
          // An answer that is still being stored counts.
          if (open.get(messageId) === pending) pending.settle(unanswered(reason));
          else pending.missed = reason;
        };
        const onAbort = () => end('aborted');
        const pending: Pending = {
          startedAt: clock.monotonic(),
          progress: null,
          onProgress: (state) => ask.onProgress?.(state),
          settle(result) {
            if (open.get(messageId) === pending) open.delete(messageId);
            cancel();
            signal?.removeEventListener('abort', onAbort);
            resolve(result);
          },
        };
        cancel = clock.after(Math.min(ask.timeoutMs, MAX_TIMEOUT), () => end('timeout'));
        signal?.addEventListener('abort', onAbort);
        // Before the question is sent, since the answer may come while the question is still being stored.
        open.set(messageId, pending);
      });
      const end = result.then(async (outcome) => {
        if (outcome.answer === null) await withdrawn(messageId);
        return outcome;
      });
      try {
        const surfacing = surfacingOf(urgency);
        const message = { message_id: messageId, text, title, answers, chat_id, surfacing };
        await push({ ...message, metadata: { ...metadata, question: true } }, ask.by);
      } catch (error) {
        open.get(messageId)?.settle(unanswered('gone'));
        await end;
        throw error;
      }
      return end;
    },

    /** Records the words of a question as devices show them. */
    worded(messageId: string, words: Shown): void {
      const pending = open.get(messageId);
      if (pending) pending.words = words;
    },

    wordsOf: (messageId: string): Shown | undefined => open.get(messageId)?.words,

    /**
     * Claims the first reply to an open question, from the device of this name; undefined for any other reply.
     */
    claim({ reply_to: messageId, text, answer_index }: Reply, device: string): Claim | undefined {
      const pending = messageId === null ? undefined : open.get(messageId);
      if (!pending || messageId === null) return undefined;
      open.delete(messageId);
      const by = device || 'a device without a name';
      const after_s = Math.round((clock.monotonic() - pending.startedAt) / 100) / 10;
      return {
        pass: () => pending.settle({ answer: text, ...(answer_index !== undefined && { answer_index }), by, after_s }),
        release() {
          open.set(messageId, pending);
          const missed = pending.missed ?? (isStopped ? 'gone' : undefined);
          if (missed) pending.settle(unanswered(missed));
        },
      };
    },

    /** The state of messages has changed. */
    changed(items: readonly PhoneHistoryItem[]): void {
      if (open.size === 0) return;
      for (const item of items) {
        const pending = item.kind === 'message' ? open.get(item.message_id) : undefined;
        if (!pending || item.kind !== 'message' || item.state === 'answered') continue;
        if (item.state !== 'queued' && item.state !== 'sent' && item.state !== 'shown') {
          pending.settle(unanswered('gone'));
        } else if (item.state !== pending.progress) {
          pending.progress = item.state;
          try {
            pending.onProgress(item.state);
          } catch (error) {
            log.warn(`progress of a question could not be reported: ${describeError(error)}`);
          }
        }
      }
    },

    /** Ends every wait and withdraws the questions. */
    async stop(): Promise<void> {
      isStopped = true;
      const ids = [...open.keys()];
      for (const pending of [...open.values()]) pending.settle(unanswered('gone'));
      await Promise.all(ids.map(withdrawn));
    },
  };
}

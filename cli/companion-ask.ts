import type { Confirm, Decision, Question } from '../lib/companion/types.ts';
import type { Cancel, Clock } from '../lib/kit/clock.ts';

export type Approve = 'ask' | 'never' | 'always';

/** A question that waits for an answer. */
export interface OpenQuestion extends Question {
  /** Monotonic milliseconds at which silence becomes a denial. */
  deadline: number;
}

export type Answer = 'allowed' | 'denied' | 'timeout' | 'nobody' | 'gone';

export interface AskerParts {
  approve: Approve;
  /** Whether there is anybody who could answer. */
  attended: boolean;
  clock: Clock;
  onAsked(question: OpenQuestion): void;
  onAnswered(question: Question, answer: Answer): void;
}

export interface Asker {
  confirm: Confirm;
  /** The oldest first. */
  open(): readonly OpenQuestion[];
  /** Answers the question of this request, else the oldest one. False when there is none. */
  answer(decision: Exclude<Decision, boolean>, requestId?: string): boolean;
  /** Denies what is open. */
  close(): void;
}

interface Entry {
  question: OpenQuestion;
  settle(decision: Decision, answer: Answer): void;
}

/** Brings the phone's questions to whoever sits at the terminal, or answers them as `--approve` says. */
export function createAsker({ approve, attended, clock, onAsked, onAnswered }: AskerParts): Asker {
  const entries: Entry[] = [];

  const confirm: Confirm = (question) => {
    if (approve !== 'ask' || !attended) {
      onAnswered(question, approve === 'always' ? 'allowed' : approve === 'never' ? 'denied' : 'nobody');
      return Promise.resolve(approve === 'always');
    }
    return new Promise((resolve) => {
      let cancel: Cancel = () => {};
      const entry: Entry = {
        question: { ...question, deadline: clock.monotonic() + question.timeoutMs },
        settle(decision, answer) {
          cancel();
          const at = entries.indexOf(entry);
          if (at < 0) return;
          entries.splice(at, 1);
          onAnswered(question, answer);
          resolve(decision);
        },
      };
      cancel = clock.after(question.timeoutMs, () => entry.settle(false, 'timeout'));
      question.gone?.addEventListener('abort', () => entry.settle(false, 'gone'), { once: true });
      entries.push(entry);
      onAsked(entry.question);
    });
  };

  return {
    confirm,
    open: () => entries.map(({ question }) => question),
    answer(decision, requestId) {
      const entry = requestId === undefined ? entries[0] : entries.find((one) => one.question.requestId === requestId);
      entry?.settle(decision, decision.allowed ? 'allowed' : 'denied');
      return entry !== undefined;
    },
    close() {
      for (const entry of [...entries]) entry.settle(false, 'denied');
    },
  };
}

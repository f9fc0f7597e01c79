import type { Confirm, Decision, Question } from '../../lib/companion/types.ts';
import type { Cancel, Clock } from '../../lib/kit/clock.ts';

export type ApprovalMode = 'ask' | 'never' | 'always';

export interface OpenQuestion extends Question {
  /** When silence becomes a denial, monotonic ms. */
  deadline: number;
}

/**
 * Outcome of a question. `nobody`: nobody was there to ask. `gone`: the caller of the command has disconnected.
 * `frozen`: the relay was frozen.
 */
export type QuestionOutcome = 'allowed' | 'denied' | 'timeout' | 'nobody' | 'gone' | 'frozen';

export interface QuestionsDeps {
  approve: ApprovalMode;
  /** True if a person or script can answer. */
  attended: boolean;
  clock: Clock;
  onAsked(question: OpenQuestion): void;
  onAnswered(question: Question, outcome: QuestionOutcome): void;
}

export type Questions = ReturnType<typeof createQuestions>;

interface Entry {
  question: OpenQuestion;
  settle(decision: Decision, outcome: QuestionOutcome): void;
}

/** Passes the phone's questions to the person at the terminal, or answers them as `--approve` says. */
export function createQuestions({ approve, attended, clock, onAsked, onAnswered }: QuestionsDeps) {
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
        settle(decision, outcome) {
          cancel();
          const at = entries.indexOf(entry);
          if (at < 0) return;
          entries.splice(at, 1);
          onAnswered(question, outcome);
          resolve(decision);
        },
      };
      cancel = clock.after(question.timeoutMs, () => entry.settle(false, 'timeout'));
      const { gone } = question;
      const drop = () => entry.settle(false, gone?.reason === 'frozen' ? 'frozen' : 'gone');
      gone?.addEventListener('abort', drop, { once: true });
      entries.push(entry);
      onAsked(entry.question);
    });
  };

  return {
    confirm,
    /** Oldest first. */
    open: (): readonly OpenQuestion[] => entries.map(({ question }) => question),
    /** Answers the question of this request, or the oldest one. Returns false if no question is open. */
    answer(decision: Exclude<Decision, boolean>, requestId?: string): boolean {
      const entry =
        requestId === undefined ? entries[0] : entries.find(({ question }) => question.requestId === requestId);
      entry?.settle(decision, decision.allowed ? 'allowed' : 'denied');
      return entry !== undefined;
    },
    /** Denies all open questions. */
    close(): void {
      for (const entry of [...entries]) entry.settle(false, 'denied');
    },
  };
}

import { effect, type ReadonlySignal, signal } from '@preact/signals';
import type { TokenUsage, Turn } from './chat/turns.ts';
import type { App } from './context.ts';

/** Times in milliseconds, the newest last. */
export type Samples = readonly number[];

/** Figures of this page since it was loaded (specification 2.1). */
export interface Figures {
  /** From sending a message to the first text or thought of the answer. */
  firstToken: Samples;
  /** From sending a message to the end of a complete answer. */
  completion: Samples;
  /** Round trips to the relay. */
  health: Samples;
  /** Sum of the answers whose usage the API server has reported, and their number. */
  tokens: TokenUsage & { answers: number };
  /** Numbers of answers by their end. Those that a person stopped count for neither. */
  streams: { done: number; broken: number };
}

/** Maximum samples of each kind. */
const MAX_SAMPLES = 500;

/** Times of one answer, from the moment of the request. */
export interface AnswerTimer {
  /** Called with the answer after each change. */
  follow(turn: Turn): void;
}

/** Collects the figures. They are in memory only, end with the page, and are sent nowhere. */
export function createAnalytics({ session }: Pick<App, 'session'>, now: () => number = () => performance.now()) {
  const figures = signal<Figures>({
    firstToken: [],
    completion: [],
    health: [],
    tokens: { input: 0, output: 0, total: 0, answers: 0 },
    streams: { done: 0, broken: 0 },
  });

  function add(kind: 'firstToken' | 'completion' | 'health', sample: number): void {
    figures.value = { ...figures.value, [kind]: [...figures.value[kind], sample].slice(-MAX_SAMPLES) };
  }

  function ended({ state, usage }: Turn): void {
    const { streams, tokens } = figures.value;
    if (state === 'done' || state === 'broken') {
      figures.value = { ...figures.value, streams: { ...streams, [state]: streams[state] + 1 } };
    }
    if (!usage) return;
    const { input, output, total } = usage;
    figures.value = {
      ...figures.value,
      tokens: {
        input: tokens.input + input,
        output: tokens.output + output,
        total: tokens.total + total,
        answers: tokens.answers + 1,
      },
    };
  }

  const close = effect(() => {
    const { value } = session.proof;
    if (value) queueMicrotask(() => add('health', value.roundTrip));
  });

  return {
    close,
    figures: figures as ReadonlySignal<Figures>,
    startAnswer(): AnswerTimer {
      const startedAt = now();
      let hasBegun = false;
      let isOver = false;
      return {
        follow(turn) {
          if (isOver) return;
          if (!hasBegun && (turn.text !== '' || turn.reasoning !== '')) {
            hasBegun = true;
            add('firstToken', now() - startedAt);
          }
          if (turn.state === 'streaming') return;
          isOver = true;
          if (turn.state === 'done') add('completion', now() - startedAt);
          ended(turn);
        },
      };
    },
  };
}

/** The middle of some samples; undefined without any. */
export function median(samples: Samples): number | undefined {
  const sorted = samples.toSorted((a, b) => a - b);
  const middle = sorted.length / 2;
  const high = sorted[Math.floor(middle)];
  const low = sorted[Math.ceil(middle) - 1];
  return high === undefined || low === undefined ? undefined : (high + low) / 2;
}

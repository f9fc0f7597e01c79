import { type Deferred, deferred } from '../kit/deferred.ts';

export interface PauseSwitch {
  pause(): void;
  resume(): void;
  /** Resolves at once, or when the pause ends. */
  resumed(): Promise<void>;
}

/** Lets a loop be paused from outside. */
export function createPauseSwitch(): PauseSwitch {
  let paused: Deferred | undefined;
  return {
    pause() {
      paused ??= deferred();
    },
    resume() {
      paused?.resolve();
      paused = undefined;
    },
    async resumed() {
      // In a loop, because it may be paused again before this continues.
      while (paused) await paused.promise;
    },
  };
}

import { type Deferred, deferred } from '../kit/deferred.ts';

/** Lets a loop be paused from outside. */
export function createPauseSwitch() {
  let paused: Deferred | undefined;
  return {
    pause(): void {
      paused ??= deferred();
    },
    resume(): void {
      paused?.resolve();
      paused = undefined;
    },
    /** Resolves at once, or when the pause ends. */
    async resumed(): Promise<void> {
      // In a loop, because it may be paused again before this continues.
      while (paused) await paused.promise;
    },
  };
}

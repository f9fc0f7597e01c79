export interface PauseSwitch {
  pause(): void;
  resume(): void;
  /** Resolves at once, or when the pause ends. */
  resumed(): Promise<void>;
}

/** Lets a loop be paused from outside. */
export function createPauseSwitch(): PauseSwitch {
  let paused: { promise: Promise<void>; end(): void } | undefined;
  return {
    pause() {
      paused ??= startPause();
    },
    resume() {
      paused?.end();
      paused = undefined;
    },
    async resumed() {
      // In a loop, because it may be paused again before this continues.
      while (paused) await paused.promise;
    },
  };
}

function startPause() {
  let end = () => {};
  const promise = new Promise<void>((resolve) => {
    end = resolve;
  });
  return { promise, end };
}

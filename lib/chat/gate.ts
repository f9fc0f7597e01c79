export interface Gate {
  close(): void;
  open(): void;
  /** Waits while it is closed. */
  passed(): Promise<void>;
}

/** Holds up a loop while it is closed. It begins open. */
export function createGate(): Gate {
  let closed: PromiseWithResolvers | undefined;
  return {
    close() {
      closed ??= withResolvers();
    },
    open() {
      closed?.resolve();
      closed = undefined;
    },
    async passed() {
      while (closed) await closed.promise;
    },
  };
}

interface PromiseWithResolvers {
  promise: Promise<void>;
  resolve(): void;
}

function withResolvers(): PromiseWithResolvers {
  let resolve = () => {};
  const promise = new Promise<void>((settle) => {
    resolve = settle;
  });
  return { promise, resolve };
}

export interface Deferred {
  promise: Promise<void>;
  resolve(): void;
}

/** `Promise.withResolvers`, which Node 20 lacks, for a promise without a value that never rejects. */
export function deferred(): Deferred {
  let resolve: () => void = () => {};
  const promise = new Promise<void>((done) => {
    resolve = done;
  });
  return { promise, resolve };
}

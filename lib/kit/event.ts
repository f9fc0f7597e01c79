/** An event of a domain: `emit` calls the listeners, in the order in which they came, before it returns. */
export function createEvent<Args extends unknown[]>() {
  const listeners = new Set<(...args: Args) => unknown>();
  return {
    /** Calls back whenever it happens. Returns a function that ends it. */
    on(listener: (...args: Args) => unknown): () => void {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
    emit(...args: Args): void {
      for (const listener of [...listeners]) listener(...args);
    },
    clear: (): void => listeners.clear(),
  };
}

/**
 * The part of an `AbortSignal` that reports a disconnected caller. Node 20 creates hidden classes for every real signal: 1 KB
 * of garbage that only a major collection frees (2026-11). On hot paths, requests pass a cheaper object instead.
 */
export interface HangUp {
  readonly aborted: boolean;
  addEventListener(type: 'abort', listener: () => void): void;
  removeEventListener(type: 'abort', listener: () => void): void;
}

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
 * Tells when a caller has disconnected. Every `AbortSignal` does, but on Node 20 each of them leaves 1 KB that only a marking
 * of the whole heap frees (2026-11), so requests have something simpler.
 */
export interface HangUp {
  readonly aborted: boolean;
  addEventListener(type: 'abort', listener: () => void): void;
  removeEventListener(type: 'abort', listener: () => void): void;
}

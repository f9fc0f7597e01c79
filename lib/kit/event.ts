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

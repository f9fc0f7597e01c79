export interface Ring<T> {
  /** Adds the newest entry; the oldest makes room for it. Whoever added it may still change it. */
  add(entry: T): void;
  /** The newest entries, newest first. */
  list(limit: number): T[];
}

/** The last `size` commands. A settled command holds its own record: nothing here is ever searched. */
export function createRing<T>(size = 100): Ring<T> {
  const ring: T[] = [];
  let next = 0;
  return {
    add(entry) {
      ring[next] = entry;
      next = (next + 1) % size;
    },
    list(limit) {
      const count = Math.min(limit, ring.length);
      return Array.from({ length: count }, (_, at) => ring[(next - 1 - at + 2 * size) % size] as T);
    },
  };
}

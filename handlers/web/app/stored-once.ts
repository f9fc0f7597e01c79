import { get, type UseStore, update } from 'idb-keyval';

/** The stored value, or a new one, which is stored before it is used. If another tab stores one first, that wins. */
export async function storedOnce<T>(name: string, database: UseStore, make: () => Promise<T>): Promise<T> {
  const stored = await get<T>(name, database);
  if (stored) return stored;
  const made: T = await make();
  let winner = made;
  await update<T>(
    name,
    (other) => {
      winner = other ?? made;
      return winner;
    },
    database,
  );
  return winner;
}

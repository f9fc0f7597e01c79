/** Member of one indexed set at a time. `index` belongs to the set. */
export interface Indexed {
  index: number;
}

/**
 * An unordered set in one array; `add` and `remove` take constant time. For members that come and go all the time: a `Set`
 * replaces its hash table as it churns, and old tables keep dead members reachable, so that whole sockets reach the old
 * generation before they are collected (seen 2026-11).
 */
export class IndexedSet<T extends Indexed> {
  readonly #members: T[] = [];

  get size(): number {
    return this.#members.length;
  }

  add(member: T): void {
    member.index = this.#members.push(member) - 1;
  }

  /** Returns whether it was a member. */
  remove(member: T): boolean {
    if (this.#members[member.index] !== member) return false;
    const last = this.#members.pop() as T;
    if (last !== member) this.#members[member.index] = last;
    last.index = member.index;
    member.index = -1;
    return true;
  }

  /** A copy, safe to iterate while members leave. */
  snapshot(): T[] {
    return [...this.#members];
  }
}

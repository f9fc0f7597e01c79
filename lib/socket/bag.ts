/** Something that lies in one bag at a time. `place` is the bag's business. */
export interface Member {
  place: number;
}

/**
 * What is there now, in no order. For what comes and goes all the time a `Set` is no good: its outgrown tables hold on
 * to dead members, and each to the next table, so that whole sockets grow old before they are collected (2026-11).
 */
export class Bag<T extends Member> {
  readonly #members: T[] = [];

  get size(): number {
    return this.#members.length;
  }

  add(member: T): void {
    member.place = this.#members.push(member) - 1;
  }

  /** Whether it was there. */
  remove(member: T): boolean {
    if (this.#members[member.place] !== member) return false;
    const last = this.#members.pop() as T;
    if (last !== member) this.#members[member.place] = last;
    last.place = member.place;
    member.place = -1;
    return true;
  }

  /** A copy, for those who change the bag as they go through it. */
  all(): T[] {
    return [...this.#members];
  }
}

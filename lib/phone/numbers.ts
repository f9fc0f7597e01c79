import type { PhoneHistoryItem } from '../../storage/schema.ts';

/**
 * Above every `seq` that home gives. An item of the edge to which home has yet to give one has this and its place at the edge,
 * so that it comes last and no number of home is taken.
 */
export const UNNUMBERED = 1_000_000_000_000;

/**
 * The `seq` under which clients see an item (contract 12 §2). At the edge of a mirror (`isEdge`) it is home's once home has
 * given it; `item.seq` is only the item's place here then. Anywhere else it is that place.
 */
export const seqOf = ({ seq, home }: PhoneHistoryItem, isEdge: boolean): number =>
  isEdge ? (home ?? UNNUMBERED + seq) : seq;

/**
 * The place behind which a client has yet to read, for the `seq` that it names as read. `items` are in the order in which
 * they have come here. Home's numbers may come in another order than they were given: a client that has read the item with a
 * number has read what came before that item, and nothing else.
 */
export function placeOf(items: Iterable<PhoneHistoryItem>, since: number): number {
  if (since > UNNUMBERED) return since - UNNUMBERED;
  let next: number | undefined;
  for (const item of items) {
    if (item.home === since) return item.seq;
    if (seqOf(item, true) > since) next ??= item.seq;
  }
  return next === undefined ? Number.POSITIVE_INFINITY : next - 1;
}

/** A `since` for exactly what comes after the item with a place. */
export const cursorOf = (place: number, isEdge: boolean): number => (isEdge ? UNNUMBERED + place : place);

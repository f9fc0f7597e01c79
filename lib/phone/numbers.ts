import type { PhoneHistoryItem } from '../../storage/schema.ts';

/**
 * Higher than every `seq` of home. An item of the edge without a number of home has this plus its place at the edge, so that
 * it comes last and takes no number of home.
 */
export const UNNUMBERED = 1_000_000_000_000;

/**
 * The `seq` of an item as shown to clients (contract 12 §2). At the edge of a mirror (`isEdge`) it is home's, once assigned,
 * and `item.seq` is only the place of the item there. Elsewhere it is that place.
 */
export const seqOf = ({ seq, home }: PhoneHistoryItem, isEdge: boolean): number =>
  isEdge ? (home ?? UNNUMBERED + seq) : seq;

/**
 * The place after which a client continues to read, for the last `seq` that it has read. `items` are in the order of their
 * arrival here. Home's numbers may arrive in another order than they were assigned: a client that has read the item with a
 * number has read the items that arrived before it, and no others.
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

/** A `since` for exactly the items after the one at a place. */
export const cursorOf = (place: number, isEdge: boolean): number => (isEdge ? UNNUMBERED + place : place);

/** Items of the provider's history that may still be playing. */
const MAX_ITEMS = 16;
/** Maximum deltas of one item; further ones count as part of the last. */
const MAX_DELTAS = 20_000;
/** Milliseconds after the expected end of the audio for which a phone without reports counts as playing. */
const GRACE = 2000;
/** The same for a phone that has reported something. */
const REPORTING_GRACE = 10_000;

interface Item {
  itemId: string;
  contentIndex: number;
  responseId: string;
  /** Ids of the audio events, ascending, and where each ends in the item, in milliseconds. */
  ids: number[];
  ends: number[];
  /** Start of the first of them; everything before is settled. */
  base: number;
}

/** A position at which the provider's history is to be cut. */
export interface Cut {
  itemId: string;
  contentIndex: number;
  /** Milliseconds of the item that were heard. */
  audioEndMs: number;
  responseId: string;
  /** Share (0 to 1) of the audio so far that was heard. */
  share: number;
}

/** One audio event that was sent. */
export interface SentAudio {
  audioEventId: number;
  /** Milliseconds. */
  duration: number;
  /** Absent for speech outside the provider's history. */
  itemId?: string;
  contentIndex?: number;
  responseId: string;
}

/** Tracks how much of the sent speech the phone has played (contract 06 §6.6). Times are monotonic milliseconds. */
export class PlaybackLedger {
  readonly #items: Item[] = [];
  #last = 0;
  /** Everything up to this id was played or cut. */
  #settled = 0;
  /** Time at which a phone that plays without a pause has finished. */
  #playedAt = 0;

  sent({ audioEventId, duration, itemId, contentIndex = 0, responseId }: SentAudio, now: number): void {
    this.#last = audioEventId;
    this.#playedAt = Math.max(this.#playedAt, now) + duration;
    if (itemId === undefined) return;
    let item = this.#items.find((other) => other.itemId === itemId && other.contentIndex === contentIndex);
    if (!item) {
      item = { itemId, contentIndex, responseId, ids: [], ends: [], base: 0 };
      this.#items.push(item);
      if (this.#items.length > MAX_ITEMS) this.#items.shift();
    }
    const end = endOf(item) + duration;
    if (item.ids.length < MAX_DELTAS) {
      item.ids.push(audioEventId);
      item.ends.push(end);
    } else {
      item.ids[item.ids.length - 1] = audioEventId;
      item.ends[item.ends.length - 1] = end;
    }
  }

  /** A phone that was away plays the rest from now on. */
  resumed(now: number, played: number): void {
    const unplayed = this.#items.map((item) => endOf(item) - playedOf(item, played));
    this.#playedAt = Math.max(this.#playedAt, now + unplayed.reduce((sum, duration) => sum + duration, 0));
  }

  /** True if the phone has played everything, by its own report (`played`) or because enough time has passed. */
  isAllPlayed(played: number, now: number): boolean {
    if (Math.max(played, this.#settled) >= this.#last) return true;
    return now > this.#playedAt + (played === 0 ? GRACE : REPORTING_GRACE);
  }

  /** Items that are not heard any further, each returned once. `isCertain`: the phone was playing. */
  cut(played: number, now: number, isCertain: boolean): Cut[] {
    if (!isCertain && this.isAllPlayed(played, now)) {
      this.#settle();
      return [];
    }
    const cuts = this.#items
      .filter(({ ids }) => (ids.at(-1) ?? 0) > Math.max(played, this.#settled))
      .map((item) => ({
        itemId: item.itemId,
        contentIndex: item.contentIndex,
        audioEndMs: Math.floor(playedOf(item, played)),
        responseId: item.responseId,
        share: playedOf(item, played) / Math.max(endOf(item), 1),
      }));
    this.#settle();
    return cuts;
  }

  /** Nothing sent so far can be cut any more. */
  forgetItems(): void {
    this.#items.length = 0;
  }

  #settle(): void {
    this.#settled = this.#last;
    // More of an item may still come.
    for (const item of this.#items) {
      item.base = endOf(item);
      item.ids = [];
      item.ends = [];
    }
  }
}

const endOf = ({ ends, base }: Item): number => ends.at(-1) ?? base;

/** Milliseconds of an item that end with an audio event that was played. */
function playedOf({ ids, ends, base }: Item, played: number): number {
  const at = ids.findLastIndex((id) => id <= played);
  return ends[at] ?? base;
}

/** Milliseconds of a frame that go into work which may wait. The rest is the browser's, on a phone of a quarter of the speed too. */
const BUDGET = 5;
const FRAME = 16;
/** Parts of it in a frame: the browser has to draw what each of them makes. */
const MAX_PARTS = 3;

export type Frames = ReturnType<typeof createFrames>;

/** Spreads work over frames, so that no page of it holds up a finger. What was asked for last comes first. */
export function createFrames() {
  /** Each does a part of its work and says whether there is more. */
  const waiting = new Set<() => boolean>();
  let frame = 0;
  let frameEnd = 0;
  let budgetEnd = 0;

  function hasTime(): boolean {
    const now = performance.now();
    if (now >= frameEnd) {
      frameEnd = now + FRAME;
      budgetEnd = now + BUDGET;
    }
    return now < budgetEnd;
  }

  function run(): void {
    frame = 0;
    frameEnd = 0;
    for (let part = 0; part < MAX_PARTS && hasTime(); part++) {
      const next = [...waiting].at(-1);
      if (!next) return;
      if (!next()) waiting.delete(next);
    }
    if (waiting.size > 0) frame = requestAnimationFrame(run);
  }

  return {
    /** Whether this frame has time for more. */
    hasTime,
    /** Does `work` in the next frames, until it says that there is no more. The same one again is asked for once. */
    request(work: () => boolean): void {
      waiting.add(work);
      if (frame === 0) frame = requestAnimationFrame(run);
    },
    cancel(work: () => boolean): void {
      waiting.delete(work);
    },
    close(): void {
      cancelAnimationFrame(frame);
      waiting.clear();
    },
  };
}

/** Entries of a queue that are handled at once, whatever the frame. */
const MAX_QUEUED = 1000;
/** Milliseconds until they are handled in a page that draws no frames because nobody sees it. */
const HIDDEN_DELAY = 200;

/** Collects what comes between two frames and hands it over with the next one. */
export function createFrameQueue<T>(handle: (entries: readonly T[]) => void) {
  let entries: T[] = [];
  let frame = 0;
  let timer: ReturnType<typeof setTimeout> | undefined;

  function flush(): void {
    cancelAnimationFrame(frame);
    clearTimeout(timer);
    timer = undefined;
    const all = entries;
    entries = [];
    if (all.length > 0) handle(all);
  }

  return {
    add(entry: T): void {
      entries.push(entry);
      if (entries.length >= MAX_QUEUED) flush();
      if (entries.length === 0 || timer !== undefined) return;
      frame = requestAnimationFrame(flush);
      timer = setTimeout(flush, HIDDEN_DELAY);
    },
    flush,
    close(): void {
      entries = [];
      flush();
    },
  };
}

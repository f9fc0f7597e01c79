/**
 * Milliseconds of a frame that go into work which may wait. The rest is the browser's, on a phone of a quarter of the
 * speed too.
 */
const BUDGET = 5;
const FRAME = 16;
/** Parts of it in a frame: the browser has to draw what each of them makes. */
const MAX_PARTS = 3;

/** Remaining work: none, some that fits into this frame if there is time, or some that needs a frame of its own. */
export type Left = 'nothing' | 'more' | 'another frame';

export type Frames = ReturnType<typeof createFrames>;

/** Spreads work over frames, so that no page of it holds up a finger. The latest request comes first. */
export function createFrames() {
  /** Each does a part of its work. */
  const waiting = new Set<() => Left>();
  let frame = 0;
  let frameEnd = 0;
  let budgetEnd = 0;
  let cost = 0;
  const drawn = new MessageChannel();
  // This arrives when the frame is drawn: the browser takes no message between the work and its layout.
  drawn.port1.onmessage = ({ data: begunAt }: MessageEvent<number>) => {
    cost = performance.now() - begunAt;
  };

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
    drawn.port2.postMessage(performance.now());
    for (let part = 0; part < MAX_PARTS && hasTime(); part++) {
      const next = [...waiting].at(-1);
      if (!next) return;
      const left = next();
      if (left === 'nothing') waiting.delete(next);
      if (left === 'another frame') break;
    }
    if (waiting.size > 0) frame = requestAnimationFrame(run);
  }

  return {
    /** True if this frame has time for more. */
    hasTime,
    /** Milliseconds that the last frame with work took until it was drawn. */
    get cost(): number {
      return cost;
    },
    /** Does `work` in the next frames, until nothing of it is left. The same one again is asked for once. */
    request(work: () => Left): void {
      waiting.add(work);
      if (frame === 0) frame = requestAnimationFrame(run);
    },
    cancel(work: () => Left): void {
      waiting.delete(work);
    },
    close(): void {
      cancelAnimationFrame(frame);
      drawn.port1.close();
      waiting.clear();
    },
  };
}

/** Entries of a queue that are handled at once, however soon. */
const MAX_QUEUED = 1000;

/** Collects what comes within `delay` milliseconds and hands it over together. */
export function createQueue<T>(delay: number, handle: (entries: readonly T[]) => void) {
  let entries: T[] = [];
  let timer: ReturnType<typeof setTimeout> | undefined;

  function flush(): void {
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
      else timer ??= setTimeout(flush, delay);
    },
    flush,
    close(): void {
      entries = [];
      flush();
    },
  };
}

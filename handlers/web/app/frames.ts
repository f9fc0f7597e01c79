/** Milliseconds per frame for work that can wait. The rest is the browser's, even on a phone of a quarter of the speed. */
const BUDGET = 5;
const FRAME = 16;
/** Maximum parts of such work per frame, since the browser has to render the result of each. */
const MAX_PARTS = 3;

/** Remaining work: none, some that fits into this frame if there is time, or some that needs a new frame. */
export type Left = 'nothing' | 'more' | 'another frame';

export type Frames = ReturnType<typeof createFrames>;

/** Spreads work over frames, so that it never delays a touch. The latest request comes first. */
export function createFrames() {
  /** Functions that each do a part of their work. */
  const waiting = new Set<() => Left>();
  let frame = 0;
  let frameEnd = 0;
  let budgetEnd = 0;
  let cost = 0;
  const drawn = new MessageChannel();
  // This message arrives when the frame is rendered, since the browser handles none between the work and its layout.
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
    /** True if this frame has time for more work. */
    hasTime,
    /** Milliseconds from the start of the last frame with work until it was rendered. */
    get cost(): number {
      return cost;
    },
    /** Runs `work` in the next frames until nothing is left. A repeated request counts once. */
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

/** Queue length that is handled at once, before the delay. */
const MAX_QUEUED = 1000;

/** Collects entries for `delay` milliseconds and handles them together. */
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

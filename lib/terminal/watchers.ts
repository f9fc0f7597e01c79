import type { Size } from './names.ts';
import { createPacing } from './pacing.ts';
import { type Event, type Reason, reasonOf } from './states.ts';
import type { Attached, Viewer } from './viewer.ts';

/** Maximum watchers of one shell. Each may have one screen waiting to be sent. */
export const MAX_WATCHERS = 8;

/** One socket's view of a shell (contract 09 §1). */
export interface Watch {
  /** The client has rendered this many characters since its attach. Ignored without a window. */
  acknowledge(chars: unknown): void;
  /** Ends it, like an event ends a session. No effect once it is over. */
  end(event: Event, end?: { id?: string }): void;
}

export interface WatcherOptions {
  viewer: Viewer;
  window?: number;
  facts: Attached;
  /** The screen at the start; undefined if unknown. */
  shown?: string;
  /** The present screen, for a watcher that has missed output. */
  redraw(): Promise<string | undefined>;
  limits: { high: number; low: number };
}

/**
 * The sockets that watch a bare shell. They never slow it down: a watcher that does not read misses output, and gets the
 * screen once it reads again.
 */
export function createWatchers() {
  const all = new Set<ReturnType<typeof createWatcher>>();

  return {
    get size() {
      return all.size;
    },
    /** Adds a watcher, and confirms that to it. Undefined if there are too many. */
    add(options: WatcherOptions): Watch | undefined {
      if (all.size >= MAX_WATCHERS) return undefined;
      const watcher = createWatcher(options);
      all.add(watcher);
      return {
        acknowledge: watcher.acknowledge,
        end(event, end) {
          if (all.delete(watcher)) watcher.end(reasonOf(event), end);
        },
      };
    },
    push(text: string): void {
      for (const watcher of all) watcher.push(text);
    },
    resized(size: Size): void {
      for (const watcher of all) watcher.resized(size);
    },
    /** The shell has ended. */
    end(reason: Reason, exitCode?: number): void {
      for (const watcher of all) watcher.end(reason, { exitCode });
      all.clear();
    },
  };
}

function createWatcher({ viewer, window, facts, shown, redraw, limits }: WatcherOptions) {
  const pacing = createPacing(window);
  /** Reasons why nothing is sent now. */
  const waits = new Set<'client' | 'window'>();
  let isBehind = false;
  let isCatchingUp = false;
  let isOver = false;

  const send = (text: string): void => sendPaced(pacing.push(text));

  function sendPaced(text: string): void {
    if (text !== '') viewer.output(text);
    if (pacing.isReading) go('window');
    else waits.add('window');
  }

  function go(reason: 'client' | 'window'): void {
    waits.delete(reason);
    if (isBehind && !isCatchingUp && waits.size === 0) void catchUp();
  }

  async function catchUp(): Promise<void> {
    isCatchingUp = true;
    const text = await redraw();
    isCatchingUp = false;
    // If it waits again, it stays behind until the next turn.
    if (isOver || waits.size > 0) return;
    isBehind = false;
    if (text !== undefined) send(text);
  }

  viewer.attached(facts);
  const unfollow = viewer.follow({ ...limits, pause: () => void waits.add('client'), resume: () => go('client') });
  if (shown !== undefined) send(shown);

  return {
    push(text: string): void {
      if (isBehind || waits.size > 0) isBehind = true;
      else send(text);
    },
    acknowledge: (chars: unknown): void => sendPaced(pacing.acknowledge(chars)),
    resized: (size: Size): void => viewer.resized?.(size),
    end(reason?: Reason, end: { exitCode?: number; id?: string } = {}): void {
      isOver = true;
      unfollow();
      if (reason) viewer.detached(reason, end);
    },
  };
}

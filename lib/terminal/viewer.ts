import type { Size } from './names.ts';
import type { Reason } from './states.ts';

/** One attach of one socket to a session. */
export interface Viewer {
  /** Called before anything else. */
  attached(facts: Attached): void;
  output(text: string): void;
  /** The program's screen has another size. For watchers only, since attached clients choose the size. */
  resized?(size: Size): void;
  /** The last call. `exitCode` comes with `eof`; `id` is that of the message that ended the session. */
  detached(reason: Reason, end: { exitCode?: number; id?: string }): void;
  /** Subscribes to the client's backpressure; returns the unsubscribe function. */
  follow(limits: { high: number; low: number; pause(): void; resume(): void }): () => void;
}

export interface Attached {
  pid: number;
  shell: string;
  size: Size;
  reattach: boolean;
  replay?: string;
}

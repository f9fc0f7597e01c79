import type { Terminal } from '../host/index.ts';
import type { Clock } from '../kit/clock.ts';

const MOST_UNWRITTEN = 4 * 1024 * 1024;
/** More than this within `WINDOW` ms is a paste, over when nothing came for `QUIET` ms and all of it is written. */
const PASTE = 2048;
const WINDOW = 100;
const QUIET = 500;

export interface InputParts {
  terminal: Pick<Terminal, 'write' | 'unwritten'>;
  clock: Pick<Clock, 'after' | 'monotonic'>;
  /** Whoever reads has set its terminal up; nothing is written before. At once without. */
  ready?: Promise<unknown>;
  /** Who must know of a paste before it comes, and after it came. */
  paste?: { begin(): Promise<void>; end(): void };
}

/** What is typed into a session, on its way to the program: whole and in order. */
export function createInput({ terminal, clock, ready, paste }: InputParts) {
  const encoder = new TextEncoder();
  /** What waits for a reader, or for the begin of a paste. */
  let held: Uint8Array[] = [];
  let heldSize = 0;
  let state: 'waiting' | 'typing' | 'beginning' | 'pasting' | 'closed' = ready ? 'waiting' : 'typing';
  let lastInput = Number.NEGATIVE_INFINITY;
  let windowStart = Number.NEGATIVE_INFINITY;
  let inWindow = 0;

  void ready?.then(() => {
    if (state !== 'waiting') return;
    state = 'typing';
    if (paste && heldSize > PASTE) void begin();
    else writeHeld();
  });

  function isPaste(bytes: number): boolean {
    lastInput = clock.monotonic();
    if (lastInput - windowStart > WINDOW) {
      windowStart = lastInput;
      inWindow = 0;
    }
    inWindow += bytes;
    return inWindow > PASTE;
  }

  async function begin(): Promise<void> {
    state = 'beginning';
    await paste?.begin();
    if (state !== 'beginning') {
      paste?.end();
      return;
    }
    state = 'pasting';
    writeHeld();
    waitForEnd();
  }

  function writeHeld(): void {
    for (const bytes of held) terminal.write(bytes);
    held = [];
    heldSize = 0;
  }

  function waitForEnd(): void {
    clock.after(QUIET, () => {
      if (state !== 'pasting') return;
      if (terminal.unwritten() > 0 || clock.monotonic() - lastInput < QUIET / 2) {
        waitForEnd();
        return;
      }
      state = 'typing';
      paste?.end();
    });
  }

  return {
    /** Types text. False, and nothing is typed, when more than 4 MiB would wait for the program. */
    write(text: string): boolean {
      if (state === 'closed') return true;
      const bytes = encoder.encode(text);
      if (terminal.unwritten() + heldSize + bytes.length > MOST_UNWRITTEN) return false;
      if (paste && state === 'typing' && isPaste(bytes.length)) void begin();
      else lastInput = clock.monotonic();
      if (state === 'waiting' || state === 'beginning') {
        held.push(bytes);
        heldSize += bytes.length;
      } else terminal.write(bytes);
      return true;
    },

    close(): void {
      if (state === 'pasting') paste?.end();
      state = 'closed';
      held = [];
      heldSize = 0;
    },
  };
}

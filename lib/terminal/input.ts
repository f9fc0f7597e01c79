import type { Terminal } from '../host/index.ts';
import { appendJoined } from '../kit/bytes.ts';
import type { Clock } from '../kit/clock.ts';

const MAX_UNWRITTEN = 4 * 1024 * 1024;
/** More bytes than this within `WINDOW` ms are a paste; it ends after `QUIET` ms without input, once all is written. */
const MIN_PASTE = 2048;
const WINDOW = 100;
const QUIET = 500;

export interface InputDeps {
  terminal: Pick<Terminal, 'write' | 'unwritten'>;
  clock: Pick<Clock, 'after' | 'monotonic'>;
  /** Resolves when the program has set up its terminal; nothing is written before. If absent, writes at once. */
  ready?: Promise<unknown>;
  /** Called before and after a paste. */
  paste?: { begin(): Promise<void>; end(): void };
}

/** Input of a session on its way to the program, complete and in order. */
export function createInput({ terminal, clock, ready, paste }: InputDeps) {
  const encoder = new TextEncoder();
  /** Input that waits for the program, or for the beginning of a paste. */
  let held: Uint8Array[] = [];
  let heldSize = 0;
  let state: 'waiting' | 'typing' | 'beginning' | 'pasting' | 'closed' = ready ? 'waiting' : 'typing';
  let lastInput = Number.NEGATIVE_INFINITY;
  let windowStart = Number.NEGATIVE_INFINITY;
  let inWindow = 0;

  void ready?.then(() => {
    if (state !== 'waiting') return;
    state = 'typing';
    if (paste && heldSize > MIN_PASTE) void begin();
    else writeHeld();
  });

  function isPaste(bytes: number): boolean {
    lastInput = clock.monotonic();
    if (lastInput - windowStart > WINDOW) {
      windowStart = lastInput;
      inWindow = 0;
    }
    inWindow += bytes;
    return inWindow > MIN_PASTE;
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
    /** Types text. Returns false, without typing it, if more than 4 MiB would wait for the program. */
    write(text: string): boolean {
      if (state === 'closed') return true;
      const bytes = encoder.encode(text);
      if (terminal.unwritten() + heldSize + bytes.length > MAX_UNWRITTEN) return false;
      if (paste && state === 'typing' && isPaste(bytes.length)) void begin();
      else lastInput = clock.monotonic();
      if (state === 'waiting' || state === 'beginning') {
        appendJoined(held, bytes);
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

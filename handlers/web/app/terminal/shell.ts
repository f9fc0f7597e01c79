import { type ReadonlySignal, signal } from '@preact/signals';
import type { Message } from '../../../../lib/socket/envelope.ts';
import type { Port } from '../session.ts';

/** Characters of output that the relay may send before they are rendered (contract 09 §1). */
export const WINDOW = 65_536;
/** Frequent enough that less than a quarter of the window, below which the relay keeps reading, is ever unacknowledged. */
const ACKNOWLEDGE_EVERY = WINDOW / 8;
/** Characters of one input message; the relay accepts 1 MiB. */
const MAX_INPUT = 262_144;
/** Characters of input buffered before the first answer to the attach; further ones are lost. */
const MAX_EARLY = 4096;
/** Cancels any escape sequence in which the lost output ended. */
const CANCEL = '\x18';

export type ShellState =
  /** Waits for the connection, or for the answer to the attach. */
  | { name: 'waiting' }
  | { name: 'attached' }
  /** `reason` as in contract 02 §3.6. */
  | { name: 'ended'; reason: string }
  | { name: 'failed'; message: string };

/** The screen of a shell. */
export interface ShellView {
  readonly size: { cols: number; rows: number };
  /** Shows a screen of this fixed size, for a shell that is only watched. */
  fix(size: { cols: number; rows: number }): void;
  write(text: string, done?: () => void): void;
}

export interface ShellDeps {
  port: Pick<Port, 'send'>;
  /** Name of the session. */
  name: string;
  /** True to only watch: typed text does not reach the shell, and its size stays (contract 09 §1). */
  isWatch?: boolean;
  view: ShellView;
  /** A problem that does not end the shell. */
  onProblem(message: string): void;
}

export type Shell = ReturnType<typeof createShell>;

/**
 * A shell at home on a screen of the page: attached when there is a connection and again after each loss, paced by the
 * rendering of its output, until it ends (contract 02 §3, 09 §1).
 */
export function createShell({ port, name, isWatch = false, view, onProblem }: ShellDeps) {
  const state = signal<ShellState>({ name: 'waiting' });
  let isFirst = true;
  /** True if tmux keeps the shell while the relay restarts. */
  let isKept = false;
  /**
   * Text typed while the relay opens the shell; null if nothing is buffered: nobody must type into a shell that was restored
   * unseen.
   */
  let early: string | null = null;
  /** Counts the attaches, since output of one may be rendered during another. */
  let attach = 0;
  let drawn = 0;
  let acknowledged = 0;

  const send = (type: string, payload: Record<string, unknown> = {}): boolean =>
    port.send(`terminal.${type}`, { session_name: name, ...payload });

  function print(text: string): void {
    const current = attach;
    view.write(text, () => {
      if (current !== attach) return;
      drawn += text.length;
      if (drawn - acknowledged < ACKNOWLEDGE_EVERY) return;
      acknowledged = drawn;
      send('ack', { chars: drawn });
    });
  }

  function attached({ replay, tmux_available: isTmux, cols, rows }: Message['payload']): void {
    attach++;
    isKept = isTmux === true;
    resized({ cols, rows });
    drawn = acknowledged = 0;
    view.write(CANCEL);
    // On a screen that has shown this shell before, the lines of the replay already exist.
    if (isFirst && typeof replay === 'string') view.write(isTmux ? `${replay.replaceAll('\n', '\r\n')}\r\n` : replay);
    isFirst = false;
    state.value = { name: 'attached' };
    if (!isWatch) send('resize', view.size);
    const held = early;
    early = null;
    if (held) type(held);
  }

  function type(data: string): void {
    if (isWatch) return;
    if (state.value.name === 'attached') for (const piece of piecesOf(data)) send('input', { data: piece });
    else if (early !== null && early.length + data.length <= MAX_EARLY) early += data;
  }

  function resized({ cols, rows }: Message['payload']): void {
    if (isWatch && typeof cols === 'number' && typeof rows === 'number') view.fix({ cols, rows });
  }

  function lost(): void {
    early = null;
    if (state.value.name === 'attached') state.value = { name: 'waiting' };
  }

  return {
    name,
    isWatch,
    state: state as ReadonlySignal<ShellState>,

    /** Attaches, or starts a new shell. No effect without a connection: call it again with the next one. */
    attach(): void {
      state.value = { name: 'waiting' };
      const isSent = send('attach', { ...view.size, window: WINDOW, ...(isWatch && { mode: 'watch' }) });
      early = isSent && isFirst ? '' : null;
    },

    /** The connection is lost. */
    lost,

    receive({ type, payload }: Message): void {
      if (payload.session_name !== name) return;
      switch (type) {
        case 'terminal.attached':
          attached(payload);
          return;
        case 'terminal.output':
          if (typeof payload.data === 'string') print(payload.data);
          return;
        case 'terminal.resized':
          resized(payload);
          return;
        case 'terminal.detached':
          early = null;
          if (isKept && payload.reason === 'server shutdown') lost();
          else state.value = { name: 'ended', reason: String(payload.reason) };
          return;
        case 'terminal.error':
          early = null;
          if (state.value.name === 'waiting') state.value = { name: 'failed', message: String(payload.message) };
          else onProblem(String(payload.message));
      }
    },

    /**
     * Types text. While the relay opens the shell, input is buffered; while detached, it is lost, as on a screen that is
     * off.
     */
    type,

    resize(size: { cols: number; rows: number }): void {
      if (state.value.name === 'attached' && !isWatch) send('resize', size);
    },

    /** Detaches; the shell keeps running at home. */
    detach: () => void send('detach'),
    /** Ends the shell with everything that runs in it. */
    kill: () => void send('kill'),
  };
}

/** Text in pieces that fit into a message, without splitting a surrogate pair. */
function* piecesOf(text: string): Iterable<string> {
  for (let start = 0; start < text.length; ) {
    let end = Math.min(text.length, start + MAX_INPUT);
    if (end < text.length && /[\ud800-\udbff]/.test(text[end - 1] as string)) end--;
    yield text.slice(start, end);
    start = end;
  }
}

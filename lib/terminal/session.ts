import { describeError } from '../errors.ts';
import type { Exit, Terminal } from '../host/index.ts';
import type { Cancel, Clock } from '../kit/clock.ts';
import type { Log } from '../log.ts';
import { createInput, type InputParts } from './input.ts';
import type { Size } from './names.ts';
import { createOutput } from './output.ts';
import { createScreen, type Replay } from './screen.ts';
import { type Event, type Reason, type State, step } from './states.ts';

/** Unsent bytes above which a terminal is not read, and below which it is again (contract 02 §1.7). */
const HIGH = 1024 * 1024;
const LOW = 256 * 1024;
/** How long a program may take to end after SIGHUP, and a tmux client to start before it gets one. */
const PATIENCE = 1_000;
/** What a program without a client may print: a flood for nobody must not keep the relay busy. */
const PARKED_BYTES = 256 * 1024;
const PARKED_PERIOD = 100;

/** Whoever sees a session: one attach of one socket. */
export interface Viewer {
  /** Called before anything else. */
  attached(facts: Attached): void;
  output(text: string): void;
  /** The last call. `exitCode` comes with `eof`; `id` is that of the message that asked for the end. */
  detached(reason: Reason, end: { exitCode?: number; id?: string }): void;
  /** Follows what waits to be sent to the client; returns the end of it. */
  follow(limits: { high: number; low: number; pause(): void; resume(): void }): () => void;
}

export interface Attached {
  pid: number;
  shell: string;
  size: Size;
  reattach: boolean;
  replay?: string;
}

export interface SessionParts {
  name: string;
  shell: string;
  /** The tmux session it shows; a bare shell without. */
  tmuxName?: string;
  size: Size;
  terminal: Terminal;
  clock: Clock;
  log: Log;
  paste?: InputParts['paste'];
  /** Without a client the shell is kept for a while. */
  parks: boolean;
  /** Its state is another one. */
  changed(state: State): void;
}

export type Session = ReturnType<typeof createSession>;

/** A program on a pseudo-terminal and whoever sees it, as `states.ts` has it. Starts out `attaching`. */
export function createSession(parts: SessionParts) {
  const { name, shell, tmuxName, terminal, clock, log } = parts;
  const { pid } = terminal;
  const decoder = new TextDecoder('utf-8', { ignoreBOM: true });
  /** Why the terminal is not read, if it is not. */
  const holds = new Set<'client' | 'screen' | 'parked'>();
  const exit = deferred();
  const output = createOutput(clock, (text) => viewer?.output(text));
  const screen =
    parts.parks && tmuxName === undefined
      ? createScreen({
          size: parts.size,
          clock,
          pressure: (tooMuch) => (tooMuch ? hold : letGo)('screen'),
          failed: (error) => log.warn(`terminal ${name}: its screen cannot be kept: ${describeError(error)}`),
        })
      : undefined;
  const firstOutput = deferred();
  const input = createInput({
    terminal,
    clock,
    // Until a tmux client has made its terminal raw, Ctrl-C is for the client, and lost.
    ready: tmuxName === undefined ? undefined : drew(),
    paste: parts.paste,
  });

  let state: State = 'attaching';
  let viewer: Viewer | undefined;
  let unfollow: () => void = () => {};
  let size = parts.size;
  let ending: Promise<void> | undefined;
  let isReading = false;
  let allowance = PARKED_BYTES;
  let nextPeriod: Cancel | undefined;
  let printed = 0;

  terminal.onExit((how) => {
    if (state !== 'closed') take(decoder.decode(), 0);
    nextPeriod?.();
    exit.resolve();
    firstOutput.resolve();
    happen('exit', { exitCode: exitCode(how) });
    input.close();
    terminal.close();
    log.debug(`terminal ${name}: ${printed} bytes of output`);
  });
  terminal.onWriteFailed(() => void happen('write-failed'));

  function hold(why: 'client' | 'screen' | 'parked'): void {
    holds.add(why);
    terminal.pause();
  }

  function letGo(why: 'client' | 'screen' | 'parked'): void {
    if (holds.delete(why) && holds.size === 0) terminal.resume();
  }

  function received(bytes: Uint8Array): void {
    printed += bytes.length;
    firstOutput.resolve();
    if (state === 'closed') return;
    take(decoder.decode(bytes, { stream: true }), bytes.length);
    if (!viewer) ration(bytes.length);
  }

  function take(text: string, bytes: number): void {
    if (text === '') return;
    screen?.write(text);
    if (viewer) output.push(text, bytes);
  }

  function ration(bytes: number): void {
    allowance -= bytes;
    nextPeriod ??= clock.after(PARKED_PERIOD, () => {
      nextPeriod = undefined;
      allowance = PARKED_BYTES;
      letGo('parked');
    });
    if (allowance <= 0) hold('parked');
  }

  function read(): void {
    if (isReading) return;
    isReading = true;
    terminal.onOutput(received);
  }

  /** Lets an event happen; false when it means nothing now. */
  function happen(event: Event, end: { exitCode?: number; id?: string; silent?: boolean } = {}): boolean {
    const next = step(state, event, parts.parks);
    if (!next) return false;
    state = next.state;
    if (next.state === 'closed' || next.state === 'parked') leave(next.reason, end);
    if (next.state === 'closed') {
      log.info(`terminal ${name} (pid ${pid}, ${shell}) closed: ${next.reason ?? event}`);
      screen?.close();
    }
    if (next.end) void finish();
    parts.changed(state);
    return true;
  }

  /** The viewer goes: it gets what waits for it, unless it may not, and its one farewell. */
  function leave(reason: Reason | undefined, { silent, ...end }: { exitCode?: number; id?: string; silent?: boolean }) {
    const last = viewer;
    if (reason === 'grant expired') output.drop();
    else if (last) output.flush();
    output.drop();
    viewer = undefined;
    unfollow();
    letGo('client');
    if (last && reason && !silent) last.detached(reason, end);
  }

  /** Ends the program: SIGHUP, a second, SIGKILL. Resolves when it has been reaped. */
  function finish(): Promise<void> {
    ending ??= (async () => {
      // Nobody reads any more, but a program that prints on its way out must not be stuck.
      holds.clear();
      terminal.resume();
      read();
      if (tmuxName !== undefined) await within(PATIENCE, firstOutput.promise);
      terminal.kill('SIGHUP');
      if (!(await within(PATIENCE, exit.promise))) {
        terminal.kill('SIGKILL');
        terminal.close();
        await exit.promise;
      }
    })();
    return ending;
  }

  /** A tmux client has begun to draw, so its session is there and its terminal raw; or it has ended. */
  function drew(): Promise<unknown> {
    return within(5 * PATIENCE, firstOutput.promise);
  }

  /** Whether a promise is fulfilled within so many milliseconds. */
  function within(ms: number, promise: Promise<void>): Promise<boolean> {
    return new Promise((resolve) => {
      const cancel = clock.after(ms, () => resolve(false));
      void promise.then(() => {
        cancel();
        resolve(true);
      });
    });
  }

  function resize(next: Size): void {
    if (state === 'closed') return;
    size = next;
    terminal.resize(next);
    screen?.resize(next);
  }

  return {
    name,
    tmuxName,
    pid,
    shell,
    get state() {
      return state;
    },
    get size() {
      return size;
    },
    /** Fulfilled when the program has been reaped. */
    exited: exit.promise,
    drew,
    happen,

    /** Hands it to a viewer: tells that it is attached, then lets output come. */
    open(next: Viewer, { redraw, ...facts }: { reattach: boolean } & Partial<Replay>): void {
      viewer = next;
      happen('opened');
      letGo('parked');
      next.attached({ pid, shell, size, ...facts });
      log.info(`terminal ${name} (pid ${pid}, ${shell}) attached${facts.reattach ? ' again' : ''}`);
      unfollow = next.follow({ high: HIGH, low: LOW, pause: () => hold('client'), resume: () => letGo('client') });
      // As a tmux client does, and for the same reason: not every client shows `replay`.
      if (redraw) next.output(redraw);
      read();
    },

    /**
     * Takes a parked shell out of the parking place: gives what shows its screen at a new size. Output waits until
     * `open`.
     */
    async wake(next: Size): Promise<Partial<Replay>> {
      if (!happen('reattach')) return {};
      hold('parked');
      nextPeriod?.();
      nextPeriod = undefined;
      allowance = PARKED_BYTES;
      resize(next);
      return (await screen?.replay()) ?? {};
    },

    /** Nobody came for a shell that was woken. */
    sleep(): void {
      if (happen('lost')) letGo('parked');
    },

    /** Types text. False when more than 4 MiB would wait for the program. */
    write(text: string): boolean {
      output.hurry();
      return input.write(text);
    },

    resize,
  };
}

/** `Promise.withResolvers`, which Node 20 does not have. */
function deferred(): { promise: Promise<void>; resolve(): void } {
  let resolve: () => void = () => {};
  const promise = new Promise<void>((done) => {
    resolve = done;
  });
  return { promise, resolve };
}

const SIGNALS: Record<string, number> = {
  SIGHUP: 1,
  SIGINT: 2,
  SIGQUIT: 3,
  SIGILL: 4,
  SIGTRAP: 5,
  SIGABRT: 6,
  SIGBUS: 7,
  SIGFPE: 8,
  SIGKILL: 9,
  SIGSEGV: 11,
  SIGPIPE: 13,
  SIGALRM: 14,
  SIGTERM: 15,
};

/** As a shell counts it: 128 and the signal's number for a program that was killed. */
const exitCode = ({ code, signal }: Exit): number | undefined =>
  code ?? (signal !== null && SIGNALS[signal] !== undefined ? 128 + SIGNALS[signal] : undefined);

import { describeError } from '../errors.ts';
import type { Terminal } from '../host/index.ts';
import type { Cancel, Clock } from '../kit/clock.ts';
import { deferred } from '../kit/deferred.ts';
import { withTimeout } from '../kit/timeouts.ts';
import type { Log } from '../log.ts';
import { createInput, type InputDeps } from './input.ts';
import { createLastLine } from './last-line.ts';
import type { Size } from './names.ts';
import { createOutput } from './output.ts';
import { createPacing } from './pacing.ts';
import { createScreen, type Replay } from './screen.ts';
import { type Event, type Reason, type State, step } from './states.ts';
import type { Viewer } from './viewer.ts';
import { createWatchers, type Watch } from './watchers.ts';

/** Unsent bytes above which a terminal is paused, and below which it is resumed (contract 02 §1.7). */
const HIGH_WATER = 1024 * 1024;
const LOW_WATER = 256 * 1024;
/** Milliseconds for a program to exit after SIGHUP, and for a tmux client to start before it gets one. */
const EXIT_TIMEOUT = 1_000;
/** Milliseconds for a tmux client to start drawing. */
const DRAW_TIMEOUT = 5_000;
/** Bytes that a parked program may print per period, so that an unseen flood does not keep the relay busy. */
const PARKED_ALLOWANCE = 256 * 1024;
const PARKED_PERIOD = 100;

export interface SessionDeps {
  name: string;
  shell: string;
  /** Name of its tmux session; absent for a bare shell. */
  tmuxName?: string;
  /** Variable in the environment of a bare shell, `NAME=value`, unique to it. */
  mark: string;
  size: Size;
  terminal: Terminal;
  /** True if the client only watches; a tmux client then leaves size and input to others. */
  isWatch?: boolean;
  clock: Clock;
  log: Log;
  paste?: InputDeps['paste'];
  /** True if the shell is parked while it has no client. */
  parks: boolean;
  /** Called after each change of state. */
  onChange(state: State): void;
}

/** The end of a session for its viewer. `silent`: the viewer is not notified. */
interface End {
  exitCode?: number;
  id?: string;
  silent?: boolean;
}

export type Session = ReturnType<typeof createSession>;

/** A program on a pseudo-terminal and its viewer, with the states of `states.ts`. Starts as `attaching`. */
export function createSession(deps: SessionDeps) {
  const { name, shell, tmuxName, terminal, clock, log } = deps;
  const { pid } = terminal;
  const decoder = new TextDecoder('utf-8', { ignoreBOM: true });
  const flow = createFlow(terminal, clock);
  const exit = deferred();
  const firstOutput = deferred();
  const output = createOutput(clock, send);
  const watchers = createWatchers();
  /** Under tmux, the client's output contains no lines of the program. */
  const lastLine = tmuxName === undefined ? createLastLine() : undefined;
  const createdAt = clock.now();
  const screen =
    deps.parks && tmuxName === undefined
      ? createScreen({
          size: deps.size,
          clock,
          onPressure: (isHigh) => (isHigh ? flow.pause('screen') : flow.resume('screen')),
          onFailure: (error) => log.warn(`terminal ${name}: cannot keep its screen: ${describeError(error)}`),
        })
      : undefined;
  const input = createInput({
    terminal,
    clock,
    // Until a tmux client has made its terminal raw, the terminal itself handles Ctrl-C, which would be lost.
    ready: tmuxName === undefined ? undefined : hasDrawn(),
    paste: deps.paste,
  });

  let state: State = 'attaching';
  let viewer: Viewer | undefined;
  let pacing = createPacing();
  let unfollow: () => void = () => {};
  let size = deps.size;
  let ending: Promise<void> | undefined;
  let isReading = false;
  let printed = 0;
  let activeAt = createdAt;

  terminal.onExit((exitCode) => {
    if (state !== 'closed') take(decoder.decode(), 0);
    flow.stop();
    exit.resolve();
    firstOutput.resolve();
    dispatch('exit', { exitCode });
    input.close();
    terminal.close();
    log.debug(`terminal ${name}: ${printed} bytes of output`);
  });
  terminal.onWriteFailed(() => void dispatch('write-failed'));

  function received(bytes: Uint8Array): void {
    printed += bytes.length;
    activeAt = clock.now();
    firstOutput.resolve();
    if (state === 'closed') return;
    take(decoder.decode(bytes, { stream: true }), bytes.length);
    if (!viewer) flow.ration(bytes.length);
  }

  function take(text: string, bytes: number): void {
    if (text === '') return;
    screen?.write(text);
    lastLine?.push(text);
    if (viewer || watchers.size > 0) output.push(text, bytes);
  }

  function send(text: string): void {
    show(text);
    watchers.push(text);
  }

  /** Sends a text to the viewer alone. */
  const show = (text: string): void => sendPaced(pacing.push(text));

  /** Sends the text that the window allows, and stops or continues reading. */
  function sendPaced(text: string): void {
    if (text !== '') viewer?.output(text);
    if (pacing.isReading) flow.resume('window');
    else flow.pause('window');
  }

  /** Restarts or stops the count of characters that the viewer has rendered. Held text is sent first. */
  function setWindow(window: number | undefined): void {
    const held = pacing.rest();
    pacing = createPacing(window);
    flow.resume('window');
    if (held !== '') show(held);
  }

  function startReading(): void {
    if (isReading) return;
    isReading = true;
    terminal.onOutput(received);
  }

  /** Applies an event. Returns false if it has no effect in the current state. */
  function dispatch(event: Event, end: End = {}): boolean {
    const next = step(state, event, deps.parks);
    if (!next) return false;
    state = next.state;
    if (next.state === 'closed' || next.state === 'parked') dropViewer(next.reason, end);
    if (next.state === 'closed') {
      log.info(`terminal ${name} (pid ${pid}, ${shell}) closed: ${next.reason ?? event}`);
      watchers.end(event === 'shutdown' ? 'server shutdown' : 'eof', end.exitCode);
      screen?.close();
    }
    if (next.end) void finish();
    deps.onChange(state);
    return true;
  }

  /** Detaches the viewer, which gets pending output, unless its grant is gone, and one farewell. */
  function dropViewer(reason: Reason | undefined, { silent, ...end }: End) {
    const last = viewer;
    if (reason === 'grant expired') viewer = undefined;
    output.flush();
    // The end does not wait for the client's rendering.
    setWindow(undefined);
    viewer = undefined;
    unfollow();
    flow.resume('client');
    if (last && reason && !silent) last.detached(reason, end);
  }

  /** Ends the program: SIGHUP, then SIGKILL after a second. Resolves when it has been reaped. */
  function finish(): Promise<void> {
    ending ??= (async () => {
      // Nobody reads any more, but a program that prints before it exits must not block.
      flow.release();
      startReading();
      if (tmuxName !== undefined) await isDone(firstOutput.promise, EXIT_TIMEOUT);
      terminal.kill('SIGHUP');
      if (!(await isDone(exit.promise, EXIT_TIMEOUT))) {
        terminal.kill('SIGKILL');
        terminal.close();
        await exit.promise;
      }
    })();
    return ending;
  }

  /** Resolves once a tmux client has drawn, so that its session exists and its terminal is raw, or once it has exited. */
  function hasDrawn(): Promise<unknown> {
    return isDone(firstOutput.promise, DRAW_TIMEOUT);
  }

  /** True if a promise resolves within `timeout` milliseconds. */
  function isDone(promise: Promise<void>, timeout: number): Promise<boolean> {
    return withTimeout(
      { clock, timeout },
      promise.then(() => true),
      () => false,
    );
  }

  function resize(next: Size): void {
    if (state === 'closed') return;
    size = next;
    terminal.resize(next);
    screen?.resize(next);
    watchers.resized(next);
    if (deps.isWatch) viewer?.resized?.(next);
  }

  /** The present screen, without pending output, which was sent by then. */
  async function glance(isWhole: boolean): Promise<string | undefined> {
    const shown = await screen?.glance(isWhole);
    output.flush();
    return shown;
  }

  return {
    name,
    tmuxName,
    mark: deps.mark,
    pid,
    shell,
    isWatch: deps.isWatch === true,
    /** Epoch milliseconds. */
    createdAt,
    /** Epoch milliseconds of its last output. */
    get activeAt() {
      return activeAt;
    },
    /** The last non-blank line; empty for a blank screen and under tmux. */
    get lastLine() {
      return lastLine?.text ?? '';
    },
    /** Number of sockets that see it. */
    get attached() {
      return (viewer ? 1 : 0) + watchers.size;
    },
    get state() {
      return state;
    },
    get size() {
      return size;
    },
    /** Resolves when the program has been reaped. */
    exited: exit.promise,
    hasDrawn,
    dispatch,

    /** Attaches a viewer, confirms that to it, then passes output. */
    open(next: Viewer, { redraw, window, ...facts }: { reattach: boolean; window?: number } & Partial<Replay>): void {
      viewer = next;
      dispatch('opened');
      setWindow(window);
      flow.resume('parked');
      next.attached({ pid, shell, size, ...facts });
      log.info(`terminal ${name} (pid ${pid}, ${shell}) attached${facts.reattach ? ' again' : ''}`);
      unfollow = next.follow({
        high: HIGH_WATER,
        low: LOW_WATER,
        pause: () => flow.pause('client'),
        resume: () => flow.resume('client'),
      });
      // Like a tmux client, because not every client shows `replay`.
      if (redraw) show(redraw);
      startReading();
    },

    glance,

    /**
     * Lets another socket watch a bare shell, starting from the screen of a `glance` in this turn. Undefined if too many do.
     */
    watch: (viewer: Viewer, shown: string | undefined, window?: number): Watch | undefined =>
      watchers.add({
        viewer,
        window,
        facts: { pid, shell, size, reattach: true },
        shown,
        redraw: () => glance(false),
        limits: { high: HIGH_WATER, low: LOW_WATER },
      }),

    /** Unparks the shell and returns a replay of its screen at a new size. Output waits for `open`. */
    async unpark(next: Size): Promise<Partial<Replay>> {
      if (!dispatch('reattach')) return {};
      flow.pause('parked');
      flow.stop();
      resize(next);
      return (await screen?.replay()) ?? {};
    },

    /** Parks an unparked shell again, because its client has gone. */
    repark(): void {
      if (dispatch('lost')) flow.resume('parked');
    },

    /** Begins another attach of the same viewer, after its confirmation. */
    reopen: setWindow,

    /** The viewer has rendered this many characters since its attach. Ignored without a window. */
    acknowledge: (chars: unknown): void => sendPaced(pacing.acknowledge(chars)),

    /** Types text. Returns false if more than 4 MiB would wait for the program. */
    write(text: string): boolean {
      output.flushNow();
      return input.write(text);
    },

    resize,
  };
}

type PauseReason = 'client' | 'screen' | 'parked' | 'window';

/** Flow control of a terminal, which is read while there is no reason to pause it. */
function createFlow(terminal: Pick<Terminal, 'pause' | 'resume'>, clock: Clock) {
  const reasons = new Set<PauseReason>();
  let allowance = PARKED_ALLOWANCE;
  let nextPeriod: Cancel | undefined;

  function pause(reason: PauseReason): void {
    reasons.add(reason);
    terminal.pause();
  }

  function resume(reason: PauseReason): void {
    if (reasons.delete(reason) && reasons.size === 0) terminal.resume();
  }

  return {
    pause,
    resume,

    /** Resumes the terminal regardless of any reasons. */
    release(): void {
      reasons.clear();
      terminal.resume();
    },

    /** Counts output without a viewer, and pauses the terminal once it exceeds the allowance of the period. */
    ration(bytes: number): void {
      allowance -= bytes;
      nextPeriod ??= clock.after(PARKED_PERIOD, () => {
        nextPeriod = undefined;
        allowance = PARKED_ALLOWANCE;
        resume('parked');
      });
      if (allowance <= 0) pause('parked');
    },

    /** Stops rationing. */
    stop(): void {
      nextPeriod?.();
      nextPeriod = undefined;
      allowance = PARKED_ALLOWANCE;
    },
  };
}

import type { Terminal } from '@xterm/headless';
import type { Cancel, Clock } from '../kit/clock.ts';
import { createBacklog } from './backlog.ts';
import type { Size } from './names.ts';

/** Limits of a replay: lines above the screen, and its length, for which lines are dropped (contract 02 §8). */
const MAX_SCROLLBACK = 200;
const MAX_REPLAY = 65_536;
/** Unparsed characters above which they are parsed, above which the program is paused, and below which it is resumed. */
const PARSE_MARK = 512 * 1024;
const HIGH_WATER = 1024 * 1024;
const LOW_WATER = 256 * 1024;
const SLICE = 32 * 1024;
/** Milliseconds without output after which the backlog is parsed, ready for a returning client. */
const QUIET = 100;

export interface ScreenDeps {
  size: Size;
  clock: Pick<Clock, 'after' | 'monotonic'>;
  /** Too much output is unparsed (true), or no longer is (false). */
  onPressure(isHigh: boolean): void;
  /** The screen is lost, so there will be no replay. */
  onFailure(error: unknown): void;
}

export interface Replay {
  /** For a new terminal of the same size: lines above the screen, text, colours, cursor and modes. */
  replay: string;
  /** For a terminal in any state: resets it, then shows the visible screen. */
  redraw: string;
}

/** Resets to the primary screen, without modes, margins or content. Scrolled lines stay. */
const CLEAR =
  '\x1b[?1049l\x1b[?1;6;9;45;66;1000;1002;1003;1004;1005;1006;1015;1016;2004l\x1b[?7;25h\x1b[4l\x1b[ q\x1b[m\x1b[r\x1b[H\x1b[2J';

/**
 * The screen of a bare shell in a headless terminal, so that a returning client sees it as it was. Parsing is far slower
 * than a pseudo-terminal, so it waits for a pause and skips most lines that scroll by unseen.
 */
export function createScreen({ size, clock, onPressure, onFailure }: ScreenDeps) {
  const backlog = createBacklog(MAX_SCROLLBACK, size);
  let engine: Promise<Engine> | undefined;
  let feeding: Promise<void> | undefined;
  let isPressed = false;
  let isClosed = false;
  let lastWrite = 0;
  let idle: Cancel | undefined;
  /** Glances that wait for the end of a slice. */
  let glances: { isWhole: boolean; answer(text: string | undefined): void }[] = [];

  function relieve(): void {
    if (isPressed && backlog.length < LOW_WATER) {
      isPressed = false;
      onPressure(false);
    }
  }

  /** Parses the backlog in slices, and yields to other work between them. */
  async function feed(): Promise<void> {
    engine ??= loadEngine(size);
    const { terminal, serialize } = await engine;
    while (!isClosed) {
      if (backlog.length > SLICE) backlog.trim();
      if (glances.length > 0) answerGlances(serialize);
      const next = backlog.take(SLICE);
      if (next === undefined) return;
      if (typeof next === 'string') await new Promise<void>((resolve) => terminal.write(next, resolve));
      else terminal.resize(next.cols, next.rows);
      relieve();
    }
  }

  function answerGlances(serialize: Engine['serialize']): void {
    const rest = backlog.peek();
    for (const { isWhole, answer } of glances) answer(CLEAR + (isWhole ? withinLimit(serialize) : serialize(0)) + rest);
    glances = [];
  }

  function settle(): Promise<void> {
    feeding ??= feed()
      .catch((error) => {
        close();
        onFailure(error);
      })
      .finally(() => {
        feeding = undefined;
        if (glances.length > 0) void settle();
      });
    return feeding;
  }

  function close(): void {
    isClosed = true;
    backlog.clear();
    idle?.();
    for (const { answer } of glances) answer(undefined);
    glances = [];
    engine?.then(({ terminal }) => terminal.dispose()).catch(() => {});
    relieve();
  }

  function waitForQuiet(): void {
    idle ??= clock.after(QUIET, () => {
      idle = undefined;
      if (isClosed || backlog.isEmpty) return;
      if (clock.monotonic() - lastWrite < QUIET / 2) waitForQuiet();
      else void settle();
    });
  }

  return {
    write(text: string): void {
      if (isClosed) return;
      backlog.text(text);
      lastWrite = clock.monotonic();
      waitForQuiet();
      if (backlog.length <= PARSE_MARK) return;
      if (!feeding) backlog.trim();
      if (backlog.length <= LOW_WATER) return;
      void settle();
      if (backlog.length > HIGH_WATER && !isPressed) {
        isPressed = true;
        onPressure(true);
      }
    },

    resize(next: Size): void {
      if (isClosed) return;
      backlog.resize(next);
      waitForQuiet();
    },

    /** Returns the text that reproduces this screen, or undefined once the screen is closed. */
    async replay(): Promise<Replay | undefined> {
      do await settle();
      while (!backlog.isEmpty && !isClosed);
      if (isClosed || !engine) return undefined;
      const { serialize } = await engine;
      return { replay: withinLimit(serialize), redraw: CLEAR + serialize(0) };
    },

    /**
     * A text that shows the screen on a terminal in any state, with the lines above it if `isWhole`, for a watcher while the
     * program prints: does not wait for a pause, and appends unparsed text as it is.
     */
    glance(isWhole: boolean): Promise<string | undefined> {
      if (isClosed) return Promise.resolve(undefined);
      return new Promise((answer) => {
        glances.push({ isWhole, answer });
        void settle();
      });
    },

    close,
  };
}

/** As many of the lines above the screen as fit into a replay. */
function withinLimit(serialize: Engine['serialize']): string {
  let lines = MAX_SCROLLBACK;
  let text = serialize(lines);
  while (text.length > MAX_REPLAY && lines > 0) {
    lines = lines > 10 ? lines >> 1 : 0;
    text = serialize(lines);
  }
  return text;
}

interface Engine {
  terminal: Terminal;
  serialize(scrollback: number): string;
}

/** Loaded with the first shell that needs it, to save other relays memory and start time. */
async function loadEngine({ cols, rows }: Size): Promise<Engine> {
  const [{ Terminal }, { SerializeAddon }] = await Promise.all([
    import('@xterm/headless').then(commonJs),
    import('@xterm/addon-serialize').then(commonJs),
  ]);
  const terminal = new Terminal({ cols, rows, scrollback: MAX_SCROLLBACK, allowProposedApi: true, logLevel: 'off' });
  const serializer = new SerializeAddon();
  terminal.loadAddon(serializer as never);
  const extras = followExtras(terminal);
  return { terminal, serialize: (scrollback) => serializer.serialize({ scrollback }) + extras() };
}

/** Both packages are CommonJS, whose named exports a bundler sees and Node does not. */
const commonJs = <T>(module: T): T => (module as { default?: T }).default ?? module;

/** Private modes unknown to the serializer, with their initial states. */
const MODES = new Map([
  [25, true],
  [1005, false],
  [1006, false],
  [1015, false],
  [1016, false],
]);

/** Tracks state that the serializer omits: cursor visibility and shape, mouse encodings, title, margins. */
function followExtras(terminal: Terminal): () => string {
  const modes = new Map(MODES);
  let shape = '';
  let title = '';
  const reset = () => {
    for (const [mode, initial] of MODES) modes.set(mode, initial);
    shape = '';
    return false;
  };
  const setModes = (isSet: boolean) => (params: (number | number[])[]) => {
    for (const mode of params) if (typeof mode === 'number' && modes.has(mode)) modes.set(mode, isSet);
    return false;
  };
  const { parser } = terminal;
  parser.registerCsiHandler({ prefix: '?', final: 'h' }, setModes(true));
  parser.registerCsiHandler({ prefix: '?', final: 'l' }, setModes(false));
  parser.registerCsiHandler({ intermediates: '!', final: 'p' }, reset);
  parser.registerEscHandler({ final: 'c' }, reset);
  parser.registerCsiHandler({ intermediates: ' ', final: 'q' }, ([style]) => {
    shape = style ? `\x1b[${style} q` : '';
    return false;
  });
  terminal.onTitleChange((text) => {
    title = text;
  });

  return () => {
    let text = margins(terminal);
    for (const [mode, isSet] of modes) if (isSet !== MODES.get(mode)) text += `\x1b[?${mode}${isSet ? 'h' : 'l'}`;
    return text + shape + (title === '' ? '' : `\x1b]0;${title}\x07`);
  };
}

/** Sets scrolling margins other than the whole screen. That moves the cursor, which is then restored. */
function margins(terminal: Terminal): string {
  // There is no public API for margins (6.0). If this one disappears, only a scrolled region is lost.
  const core = (terminal as unknown as { _core?: { buffer?: { scrollTop?: number; scrollBottom?: number } } })._core;
  const { scrollTop, scrollBottom } = core?.buffer ?? {};
  if (scrollTop === undefined || scrollBottom === undefined) return '';
  if (scrollTop === 0 && scrollBottom === terminal.rows - 1) return '';
  const { cursorX, cursorY } = terminal.buffer.active;
  const row = terminal.modes.originMode ? cursorY - scrollTop : cursorY;
  return `\x1b[${scrollTop + 1};${scrollBottom + 1}r\x1b[${row + 1};${cursorX + 1}H`;
}

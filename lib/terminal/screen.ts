import type { Terminal } from '@xterm/headless';
import type { Cancel, Clock } from '../kit/clock.ts';
import { createBacklog } from './backlog.ts';
import type { Size } from './names.ts';

/** Lines above the screen that a replay has at most, and its length where fewer lines keep to it (contract 02 §8). */
const SCROLLBACK = 200;
const REPLAY_CHARS = 65_536;
/** Characters that may wait unparsed: above the first they are trimmed and parsed, above the second the program waits. */
const MANY = 512 * 1024;
const TOO_MANY = 1024 * 1024;
const FEW = 256 * 1024;
const SLICE = 32 * 1024;
/** After so long without output what waits is parsed, ready for whoever comes back. */
const QUIET = 100;

export interface ScreenParts {
  size: Size;
  clock: Pick<Clock, 'after' | 'monotonic'>;
  /** Too much waits to be parsed (true), or no longer (false). */
  pressure(tooMuch: boolean): void;
  /** The screen cannot be kept: there will be no replay. */
  failed(error: unknown): void;
}

export interface Replay {
  /** For a fresh terminal of the screen's size: lines above the screen, text, colours, cursor and modes. */
  replay: string;
  /** For a terminal in whatever state: what is visible, and nothing of what was. */
  redraw: string;
}

/** The first screen, no modes, no margins, nothing on it. Scrolled lines stay. */
const CLEAR =
  '\x1b[?1049l\x1b[?1;6;9;45;66;1000;1002;1003;1004;1005;1006;1015;1016;2004l\x1b[?7;25h\x1b[4l\x1b[ q\x1b[m\x1b[r\x1b[H\x1b[2J';

export type Screen = ReturnType<typeof createScreen>;

/**
 * The screen of a bare shell, kept by a headless terminal, so that whoever attaches again sees it as it was. Parsing
 * is far slower than a pseudo-terminal: it waits for a quiet moment, and of what scrolls by unseen it is spared most.
 */
export function createScreen({ size, clock, pressure, failed }: ScreenParts) {
  const backlog = createBacklog(SCROLLBACK, size);
  let engine: Promise<Engine> | undefined;
  let feeding: Promise<void> | undefined;
  let isPressed = false;
  let isClosed = false;
  let lastWrite = 0;
  let idle: Cancel | undefined;

  function relieve(): void {
    if (isPressed && backlog.length < FEW) {
      isPressed = false;
      pressure(false);
    }
  }

  /** Parses all that waits, in slices between which other work gets its turn. */
  async function feed(): Promise<void> {
    engine ??= loadEngine(size);
    const { terminal } = await engine;
    while (!isClosed) {
      if (backlog.length > SLICE) backlog.trim();
      const next = backlog.take(SLICE);
      if (next === undefined) return;
      if (typeof next === 'string') await new Promise<void>((resolve) => terminal.write(next, resolve));
      else terminal.resize(next.cols, next.rows);
      relieve();
    }
  }

  function settle(): Promise<void> {
    feeding ??= feed()
      .catch((error) => {
        close();
        failed(error);
      })
      .finally(() => {
        feeding = undefined;
      });
    return feeding;
  }

  function close(): void {
    isClosed = true;
    backlog.clear();
    idle?.();
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
      if (backlog.length <= MANY) return;
      if (!feeding) backlog.trim();
      if (backlog.length <= FEW) return;
      void settle();
      if (backlog.length > TOO_MANY && !isPressed) {
        isPressed = true;
        pressure(true);
      }
    },

    resize(next: Size): void {
      if (isClosed) return;
      backlog.resize(next);
      waitForQuiet();
    },

    /** What brings a client to the same screen. Undefined when there is none. */
    async replay(): Promise<Replay | undefined> {
      do await settle();
      while (!backlog.isEmpty && !isClosed);
      if (isClosed || !engine) return undefined;
      const { serialize } = await engine;
      let lines = SCROLLBACK;
      let text = serialize(lines);
      while (text.length > REPLAY_CHARS && lines > 0) {
        lines = lines > 10 ? lines >> 1 : 0;
        text = serialize(lines);
      }
      return { replay: text, redraw: CLEAR + serialize(0) };
    },

    close,
  };
}

interface Engine {
  terminal: Terminal;
  serialize(scrollback: number): string;
}

/** Loaded with the first shell that needs it: a relay without bare shells does without its memory and start time. */
async function loadEngine({ cols, rows }: Size): Promise<Engine> {
  const [{ Terminal }, { SerializeAddon }] = await Promise.all([
    import('@xterm/headless').then(commonJs),
    import('@xterm/addon-serialize').then(commonJs),
  ]);
  const terminal = new Terminal({ cols, rows, scrollback: SCROLLBACK, allowProposedApi: true, logLevel: 'off' });
  const serializer = new SerializeAddon();
  terminal.loadAddon(serializer as never);
  const extras = followExtras(terminal);
  return { terminal, serialize: (scrollback) => serializer.serialize({ scrollback }) + extras() };
}

/** Both packages are CommonJS whose names Node does not see; a bundler does. */
const commonJs = <T>(module: T): T => (module as { default?: T }).default ?? module;

/** Private modes the serializer does not know, and what they are without having been set. */
const MODES = new Map([
  [25, true],
  [1005, false],
  [1006, false],
  [1015, false],
  [1016, false],
]);

/** Follows the state that the serializer leaves out: cursor visibility and shape, mouse encodings, title, margins. */
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

/** Scrolling margins other than the whole screen; setting them moves the cursor, so it is put back. */
function margins(terminal: Terminal): string {
  // No public way to ask (seen with 6.0): without this one a scrolled region would be lost, nothing else.
  const core = (terminal as unknown as { _core?: { buffer?: { scrollTop?: number; scrollBottom?: number } } })._core;
  const { scrollTop, scrollBottom } = core?.buffer ?? {};
  if (scrollTop === undefined || scrollBottom === undefined) return '';
  if (scrollTop === 0 && scrollBottom === terminal.rows - 1) return '';
  const { cursorX, cursorY } = terminal.buffer.active;
  const row = terminal.modes.originMode ? cursorY - scrollTop : cursorY;
  return `\x1b[${scrollTop + 1};${scrollBottom + 1}r\x1b[${row + 1};${cursorX + 1}H`;
}

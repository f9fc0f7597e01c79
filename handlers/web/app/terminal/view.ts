import { FitAddon } from '@xterm/addon-fit';
import { Unicode11Addon } from '@xterm/addon-unicode11';
import { type IBufferRange, Terminal } from '@xterm/xterm';
import { colorsOf } from './colors.ts';
import { followFingers, type Point } from './gestures.ts';
import { createInput, type ModifierState } from './input.ts';
import { findText, type Match, wordAt } from './search.ts';

export const MIN_FONT = 8;
export const MAX_FONT = 32;
/** Pixels of the smallest text, for a screen that is shown completely. */
const SMALLEST_FONT = 4;
/** Lines of scrollback. */
const SCROLLBACK = 5_000;
/** Lines of finger movement per wheel event, since programs scroll several lines for each. */
const LINES_PER_TURN = 3;

/** Appearance of a terminal, which may change at any time. */
export interface Appearance {
  fontSize: number;
  isDark: boolean;
  /** Provides the screen's text to screen readers, and announces output. */
  screenReader: boolean;
  isCalm: boolean;
}

export interface ViewOptions {
  /** Filled by the terminal. */
  host: HTMLElement;
  appearance: Appearance;
  modifiers: ModifierState;
  /** Name of the input field, for screen readers. */
  label: string;
  onInput(data: string): void;
  onResize(size: { cols: number; rows: number }): void;
  onFontSize(size: number): void;
  /** The selected text, or an empty one. */
  onSelection(text: string): void;
  onLeave(): void;
}

export type View = ReturnType<typeof createView>;

/** A terminal in the page: screen, keyboard, touch, selection and search. */
export function createView({ host, appearance, modifiers, label, ...events }: ViewOptions) {
  const terminal = new Terminal({
    allowProposedApi: true,
    fontFamily: getComputedStyle(host).fontFamily,
    lineHeight: 1.1,
    scrollback: SCROLLBACK,
    // Colours chosen by a program may be unreadable on this background.
    minimumContrastRatio: 4.5,
    ...optionsOf(appearance),
  });
  const fitting = new FitAddon();
  terminal.loadAddon(fitting);
  terminal.loadAddon(new Unicode11Addon());
  terminal.unicode.activeVersion = '11';
  terminal.open(host);

  const field = terminal.textarea as HTMLTextAreaElement;
  field.setAttribute('aria-label', label);
  const preview = document.createElement('span');
  preview.className = 'preview';
  host.append(preview);
  const input = createInput({
    terminal,
    field,
    root: host,
    modifiers,
    onPreview: showPreview,
    onLeave: events.onLeave,
  });
  terminal.onData((data) => {
    held = undefined;
    events.onInput(data);
  });
  terminal.element?.addEventListener('pointerdown', () => {
    held = undefined;
  });
  terminal.onResize(events.onResize);
  terminal.onSelectionChange(() => {
    const text = terminal.getSelection();
    const position = terminal.getSelectionPosition();
    if (position && text !== '') held = { position, text };
    events.onSelection(text);
  });

  const observer = new ResizeObserver(fill);
  observer.observe(host);
  const stopFingers = followFingers(host, { scroll, pinch, press, extend });
  const fontAtStart = appearance.fontSize;
  let fontSize = appearance.fontSize;
  let scrolled = 0;
  let anchor: { column: number; row: number; length: number } | undefined;
  let match: Match | undefined;
  /** The selection, unless the user has given it up. */
  let held: { position: IBufferRange; text: string } | undefined;
  /** Size of a screen that others have chosen. */
  let fixed: { cols: number; rows: number } | undefined;

  function fill(): void {
    // While hidden, it has no size.
    if (host.clientWidth === 0 || host.clientHeight === 0) return;
    const before = cursorRow();
    if (fixed) shrink(fixed);
    else fitting.fit();
    restoreSelection(cursorRow() - before);
  }

  /** Row of the cursor in the buffer, from which a lower screen drops the first rows. */
  function cursorRow(): number {
    const { baseY, cursorY } = terminal.buffer.active;
    return baseY + cursorY;
  }

  /**
   * Restores the selection while its text is still there. xterm drops it when the number of rows changes, as it does when the
   * search bar or a keyboard appears, and again when tmux then turns mouse reporting on. `moved` is the number of rows by
   * which the text has moved down.
   */
  function restoreSelection(moved = 0): void {
    if (!held || terminal.hasSelection()) return;
    const { position, text } = held;
    const { start, end } = position;
    if (start.y + moved >= 0) {
      terminal.select(start.x, start.y + moved, (end.y - start.y) * terminal.cols + end.x - start.x);
    }
    // xterm has reported that the selection is gone, but does not report the same one again.
    if (terminal.getSelection() === text) events.onSelection(text);
    else clearSelection();
  }

  function clearSelection(): void {
    held = undefined;
    terminal.clearSelection();
  }

  /** Makes the text as small as the complete screen requires. */
  function shrink({ cols, rows }: { cols: number; rows: number }): void {
    terminal.options.fontSize = fontSize;
    const room = fitting.proposeDimensions();
    const scale = room ? Math.min(1, room.cols / cols, room.rows / rows) : 1;
    terminal.options.fontSize = Math.max(SMALLEST_FONT, Math.floor(fontSize * scale * 4) / 4);
    if (terminal.cols !== cols || terminal.rows !== rows) terminal.resize(cols, rows);
  }

  function showPreview(text: string): void {
    preview.textContent = text;
    preview.style.left = field.style.left;
    preview.style.top = field.style.top;
  }

  const screen = (): DOMRect => (host.querySelector('.xterm-screen') ?? host).getBoundingClientRect();

  function scroll(distance: number, at: Point): void {
    const height = screen().height / terminal.rows;
    scrolled += distance / height;
    const isOwn = terminal.buffer.active.type === 'normal' && terminal.modes.mouseTrackingMode === 'none';
    const unit = terminal.modes.mouseTrackingMode === 'none' ? 1 : LINES_PER_TURN;
    const turns = Math.trunc(scrolled / unit);
    if (turns === 0) return;
    scrolled -= turns * unit;
    if (isOwn) terminal.scrollLines(-turns);
    else for (let turn = 0; turn < Math.abs(turns); turn++) turnWheel(-Math.sign(turns), at);
  }

  /** Sends wheel events, for programs that scroll themselves. */
  function turnWheel(deltaY: number, { x, y }: Point): void {
    const options = {
      deltaY,
      deltaMode: WheelEvent.DOM_DELTA_LINE,
      clientX: x,
      clientY: y,
      bubbles: true,
      cancelable: true,
    };
    host.querySelector('.xterm-screen')?.dispatchEvent(new WheelEvent('wheel', options));
  }

  function pinch(scale: number): void {
    const size = Math.round(Math.min(MAX_FONT, Math.max(MIN_FONT, fontAtStart * scale)));
    if (size !== fontSize) events.onFontSize(size);
  }

  function cellAt({ x, y }: Point): { column: number; row: number } {
    const { left, top, width, height } = screen();
    const clamp = (value: number, count: number) => Math.min(count - 1, Math.max(0, Math.floor(value)));
    return {
      column: clamp(((x - left) / width) * terminal.cols, terminal.cols),
      row: clamp(((y - top) / height) * terminal.rows, terminal.rows) + terminal.buffer.active.viewportY,
    };
  }

  function press(at: Point): void {
    const { column, row } = cellAt(at);
    anchor = { row, ...wordAt(terminal.buffer.active.getLine(row), column) };
    terminal.select(anchor.column, anchor.row, anchor.length);
    navigator.vibrate?.(10);
  }

  function extend(at: Point): void {
    if (!anchor) return;
    const { cols } = terminal;
    const { column, row } = cellAt(at);
    const here = row * cols + column;
    const first = anchor.row * cols + anchor.column;
    const start = Math.min(first, here);
    const end = Math.max(first + anchor.length, here + 1);
    terminal.select(start % cols, Math.floor(start / cols), end - start);
  }

  return {
    input,
    get size() {
      return { cols: terminal.cols, rows: terminal.rows };
    },
    fill,

    fix(size: { cols: number; rows: number }): void {
      fixed = size;
      fill();
    },

    setAppearance(next: Appearance): void {
      fontSize = next.fontSize;
      Object.assign(terminal.options, optionsOf(next));
      fill();
    },

    /** Prints output. `done` is called once it was processed. */
    write(text: string, done?: () => void): void {
      terminal.write(text, () => {
        restoreSelection();
        done?.();
      });
    },

    focus: () => terminal.focus(),
    get selection() {
      return terminal.getSelection();
    },
    clearSelection,
    selectScreen(): void {
      terminal.select(0, terminal.buffer.active.viewportY, terminal.cols * terminal.rows);
    },

    /** Selects the next match of a text and scrolls to it. Returns false if nothing matches. */
    find(text: string, direction: 'up' | 'down'): boolean {
      match = findText(terminal.buffer.active, text, terminal.hasSelection() ? match : undefined, direction);
      if (!match) {
        clearSelection();
        return false;
      }
      terminal.select(match.column, match.row, match.length);
      terminal.scrollToLine(Math.max(0, match.row - (terminal.rows >> 1)));
      return true;
    },

    dispose(): void {
      observer.disconnect();
      stopFingers();
      input.stop();
      terminal.dispose();
      preview.remove();
    },
  };

  function optionsOf({ fontSize, isDark, screenReader, isCalm }: Appearance) {
    return { fontSize, theme: colorsOf(isDark), screenReaderMode: screenReader, cursorBlink: !isCalm };
  }
}

/** Keys of the row above the on-screen keyboard that print nothing. */
export type KeyName =
  | 'Escape'
  | 'Tab'
  | 'Enter'
  | 'Backspace'
  | 'Delete'
  | 'ArrowUp'
  | 'ArrowDown'
  | 'ArrowRight'
  | 'ArrowLeft'
  | 'Home'
  | 'End'
  | 'PageUp'
  | 'PageDown';

export type ModifierName = 'shift' | 'ctrl' | 'alt';
/** `once`: for the next key. `locked`: until it is tapped again. */
export type Hold = 'off' | 'once' | 'locked';
export type Modifiers = Readonly<Record<ModifierName, Hold>>;

export const NO_MODIFIERS: Modifiers = { shift: 'off', ctrl: 'off', alt: 'off' };

/** Input that a key sends, and the modifiers after it. */
export interface Pressed {
  data: string;
  modifiers: Modifiers;
}

const NEXT: Record<Hold, Hold> = { off: 'once', once: 'locked', locked: 'off' };

/** The modifiers after a tap on one of them: once, locked, off. */
export const tapModifier = (modifiers: Modifiers, name: ModifierName): Modifiers => ({
  ...modifiers,
  [name]: NEXT[modifiers[name]],
});

export const isModified = ({ shift, ctrl, alt }: Modifiers): boolean =>
  shift !== 'off' || ctrl !== 'off' || alt !== 'off';

/** Final byte of a cursor key. In application cursor mode it follows `ESC O`, with modifiers always `ESC [`. */
const CURSOR: Partial<Record<KeyName, string>> = {
  ArrowUp: 'A',
  ArrowDown: 'B',
  ArrowRight: 'C',
  ArrowLeft: 'D',
  Home: 'H',
  End: 'F',
};
/** Number of a key that ends with `~`. */
const NUMBERED: Partial<Record<KeyName, number>> = { Delete: 3, PageUp: 5, PageDown: 6 };

/** Encodes a key as xterm does. */
export function pressKey(modifiers: Modifiers, key: KeyName, { applicationCursor = false } = {}): Pressed {
  return { data: encode(modifiers, key, applicationCursor), modifiers: spend(modifiers) };
}

function encode({ shift, ctrl, alt }: Modifiers, key: KeyName, applicationCursor: boolean): string {
  const code = 1 + (shift === 'off' ? 0 : 1) + (alt === 'off' ? 0 : 2) + (ctrl === 'off' ? 0 : 4);
  const cursor = CURSOR[key];
  if (cursor !== undefined) {
    if (code > 1) return `\x1b[1;${code}${cursor}`;
    return `\x1b${applicationCursor ? 'O' : '['}${cursor}`;
  }
  const number = NUMBERED[key];
  if (number !== undefined) return code > 1 ? `\x1b[${number};${code}~` : `\x1b[${number}~`;
  return (alt === 'off' ? '' : '\x1b') + encodeControl(key, shift !== 'off', ctrl !== 'off');
}

function encodeControl(key: KeyName, shift: boolean, ctrl: boolean): string {
  switch (key) {
    case 'Tab':
      return shift ? '\x1b[Z' : '\t';
    case 'Enter':
      return '\r';
    case 'Backspace':
      return ctrl ? '\b' : DELETE;
    default:
      return '\x1b';
  }
}

/** Input that Backspace sends. */
export const DELETE = '\x7f';

/**
 * Applies modifiers to typed text: those for the next key to its first character, locked ones to all of it. Text of a
 * keyboard is often longer than a key, such as a suggested word.
 */
export function typeText(modifiers: Modifiers, text: string): Pressed {
  if (text === '' || !isModified(modifiers)) return { data: text, modifiers };
  let data = '';
  let now = modifiers;
  for (const character of text) {
    data += modify(now, character);
    now = spend(now);
  }
  return { data, modifiers: now };
}

function modify({ shift, ctrl, alt }: Modifiers, character: string): string {
  if (character === DELETE) return (alt === 'off' ? '' : '\x1b') + (ctrl === 'off' ? DELETE : '\b');
  const shifted = shift === 'off' ? character : character.toUpperCase();
  const controlled = ctrl === 'off' ? shifted : (controlOf(shifted) ?? shifted);
  return (alt === 'off' ? '' : '\x1b') + controlled;
}

/** Control characters that keyboards also have on keys other than `@` to `_`. */
const CONTROLS: Record<string, string> = {
  ' ': '\0',
  '`': '\0',
  '2': '\0',
  '3': '\x1b',
  '{': '\x1b',
  '4': '\x1c',
  '|': '\x1c',
  '5': '\x1d',
  '}': '\x1d',
  '6': '\x1e',
  '~': '\x1e',
  '7': '\x1f',
  '/': '\x1f',
  '-': '\x1f',
  '8': DELETE,
  '?': DELETE,
};

/** The control character of Ctrl with a character; undefined for a character without one. */
function controlOf(character: string): string | undefined {
  const upper = character.toUpperCase();
  if (/^[@-_]$/.test(upper)) return String.fromCharCode(upper.charCodeAt(0) & 0x1f);
  return CONTROLS[character];
}

/** The modifiers once a key was pressed. */
const spend = (modifiers: Modifiers): Modifiers => ({
  shift: modifiers.shift === 'once' ? 'off' : modifiers.shift,
  ctrl: modifiers.ctrl === 'once' ? 'off' : modifiers.ctrl,
  alt: modifiers.alt === 'once' ? 'off' : modifiers.alt,
});

/** F1 to F12. */
export const FUNCTION_KEYS = ['F1', 'F2', 'F3', 'F4', 'F5', 'F6', 'F7', 'F8', 'F9', 'F10', 'F11', 'F12'] as const;

/** The other keys that print nothing. */
export const NAMED_KEYS = [
  'Escape',
  'Tab',
  'Enter',
  'Backspace',
  'Delete',
  'ArrowUp',
  'ArrowDown',
  'ArrowRight',
  'ArrowLeft',
  'Home',
  'End',
  'PageUp',
  'PageDown',
] as const;

export type KeyName = (typeof NAMED_KEYS | typeof FUNCTION_KEYS)[number];

export type ModifierName = 'shift' | 'ctrl' | 'alt';
/** `once`: for the next key. `locked`: until it is tapped again. */
export type Hold = 'off' | 'once' | 'locked';
export type Modifiers = Readonly<Record<ModifierName, Hold>>;

export const NO_MODIFIERS: Modifiers = { shift: 'off', ctrl: 'off', alt: 'off' };

/** Input for a key, and the modifiers afterwards. */
export interface Pressed {
  data: string;
  modifiers: Modifiers;
}

const NEXT: Record<Hold, Hold> = { off: 'once', once: 'locked', locked: 'off' };

/** The modifiers after a tap on one of them: off, once, locked, off. */
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
const NUMBERED: Partial<Record<KeyName, number>> = {
  Delete: 3,
  PageUp: 5,
  PageDown: 6,
  F5: 15,
  F6: 17,
  F7: 18,
  F8: 19,
  F9: 20,
  F10: 21,
  F11: 23,
  F12: 24,
};
/** Final byte of a key that follows `ESC O`, with modifiers `ESC [`. */
const APPLICATION: Partial<Record<KeyName, string>> = { F1: 'P', F2: 'Q', F3: 'R', F4: 'S' };

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
  const final = APPLICATION[key];
  if (final !== undefined) return code > 1 ? `\x1b[1;${code}${final}` : `\x1bO${final}`;
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

/** Control characters that are also on keys other than `@` to `_`. */
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

/** Returns the control character that Ctrl and a key produce, or undefined if they produce none. */
function controlOf(character: string): string | undefined {
  const upper = character.toUpperCase();
  if (/^[@-_]$/.test(upper)) return String.fromCharCode(upper.charCodeAt(0) & 0x1f);
  return CONTROLS[character];
}

/** The modifiers after a key press. */
const spend = (modifiers: Modifiers): Modifiers => ({
  shift: modifiers.shift === 'once' ? 'off' : modifiers.shift,
  ctrl: modifiers.ctrl === 'once' ? 'off' : modifiers.ctrl,
  alt: modifiers.alt === 'once' ? 'off' : modifiers.alt,
});

/** Effect of a key in the row: a key or a text, with its own modifiers; without them, the held ones apply. */
export type Stroke = { modifiers?: Modifiers } & ({ key: KeyName } | { type: string });

/** Names that people give to keys, in small letters. */
const NAMES: Record<string, KeyName> = {
  esc: 'Escape',
  escape: 'Escape',
  tab: 'Tab',
  enter: 'Enter',
  backspace: 'Backspace',
  del: 'Delete',
  delete: 'Delete',
  up: 'ArrowUp',
  down: 'ArrowDown',
  left: 'ArrowLeft',
  right: 'ArrowRight',
  home: 'Home',
  end: 'End',
  pgup: 'PageUp',
  pgdn: 'PageDown',
  ...Object.fromEntries(FUNCTION_KEYS.map((key) => [key.toLowerCase(), key])),
};
const MODIFIED = /^(ctrl|alt|shift)-(?=.)/i;
const ESCAPES: Record<string, string> = { n: '\r', t: '\t', s: ' ', '\\': '\\' };
const MAX_KEYS = 16;

/**
 * A person's own keys, separated by spaces: `Ctrl-R`, `Alt-.`, `F5`, or a text, in which `\n` is Enter, `\t` Tab and `\s` a
 * space.
 */
export function parseKeys(text: string): { text: string; strike: Stroke }[] {
  const words = text.split(/\s+/).filter((word) => word !== '');
  return words.slice(0, MAX_KEYS).map((word) => {
    const held = { ...NO_MODIFIERS };
    let rest = word;
    for (let match = MODIFIED.exec(rest); match; match = MODIFIED.exec(rest)) {
      held[match[1]?.toLowerCase() as ModifierName] = 'once';
      rest = rest.slice(match[0].length);
    }
    const key = NAMES[rest.toLowerCase()];
    if (key) return { text: word, strike: { key, modifiers: held } };
    const typed = rest.replace(/\\([nts\\])/g, (_, letter: string) => ESCAPES[letter] as string);
    return { text: word, strike: { type: typed, modifiers: held } };
  });
}

import type { Terminal } from '@xterm/xterm';
import { isComposed } from '../keyboard.ts';
import { type Change, createComposer, PADDING } from './compose.ts';
import { isModified, type KeyName, type Modifiers, NAMED_KEYS, pressKey, type Stroke, typeText } from './keys.ts';

/** The modifiers of the key row, which also apply to typed text. */
export interface ModifierState {
  value: Modifiers;
}

export interface InputDeps {
  terminal: Terminal;
  /** The field that receives the text, which is the terminal's own. */
  field: HTMLTextAreaElement;
  /** An ancestor of the terminal, which sees each event first. */
  root: HTMLElement;
  modifiers: ModifierState;
  /** Composed text that is not sent yet, to be shown at the cursor. */
  onPreview(text: string): void;
  /** The user wants to leave the terminal, in which Tab goes to the shell. */
  onLeave(): void;
}

/** Keys that the terminal would send without the modifiers of the row. */
const NAMED = new Set<string>(NAMED_KEYS);
const IS_MAC = /Mac|iPhone|iPad/.test(navigator.userAgent);

/**
 * Text from every keyboard takes one path: into the field, and from there through the composer. The terminal itself handles
 * only keys that print nothing, and those with Ctrl or Alt.
 */
export function createInput({ terminal, field, root, modifiers, onPreview, onLeave }: InputDeps) {
  const language = navigator.language.slice(0, 2);
  const composer = createComposer({ converts: ['ja', 'ko', 'zh'].includes(language) });
  const stopping = new AbortController();
  let lastKey: string | undefined;

  field.autocapitalize = 'off';
  field.autocomplete = 'off';
  field.spellcheck = false;
  field.setAttribute('autocorrect', 'off');
  field.setAttribute('enterkeyhint', 'enter');

  function clearField(): void {
    field.value = PADDING;
    field.setSelectionRange(PADDING.length, PADDING.length);
  }

  /** Forgets the context of the field after the cursor has moved. Pending input is sent first. */
  function restart(): void {
    const rest = composer.reset();
    onPreview('');
    if (rest !== '') terminal.input(rest);
    if (field.value !== PADDING) clearField();
  }

  function apply({ text, paste, reset }: Change): void {
    const { data, modifiers: next } = typeText(modifiers.value, text);
    // With a modifier, the field differs from the shell's line.
    const isForeign = text !== '' && isModified(modifiers.value);
    modifiers.value = next;
    if (data !== '') terminal.input(data);
    if (paste !== undefined) terminal.paste(paste);
    onPreview(composer.preview);
    if (isForeign) composer.reset();
    if (reset || isForeign) clearField();
  }

  function press(key: KeyName): void {
    restart();
    const { applicationCursorKeysMode: applicationCursor } = terminal.modes;
    const pressed = pressKey(modifiers.value, key, { applicationCursor });
    modifiers.value = pressed.modifiers;
    terminal.input(pressed.data);
  }

  function keyDown(event: KeyboardEvent): void {
    lastKey = event.key;
    if (isComposed(event) || isPrinting(event)) event.stopPropagation();
    else if (event.key === 'F6' && event.ctrlKey) take(event, onLeave);
    else if (isModified(modifiers.value) && NAMED.has(event.key)) take(event, () => press(event.key as KeyName));
    else if (!['Shift', 'Control', 'Alt', 'Meta', 'AltGraph', 'CapsLock'].includes(event.key)) restart();
  }

  function take(event: Event, act: () => void): void {
    event.stopPropagation();
    event.preventDefault();
    act();
  }

  const listen = <Type extends keyof HTMLElementEventMap>(
    type: Type,
    listener: (event: HTMLElementEventMap[Type]) => void,
  ) => root.addEventListener(type, listener, { capture: true, signal: stopping.signal });

  listen('keydown', keyDown);
  listen('keypress', (event) => event.stopPropagation());
  listen('beforeinput', (event) => {
    event.stopPropagation();
    composer.before(field.value);
  });
  listen('input', (event) => {
    event.stopPropagation();
    apply(composer.input(field.value, (event as InputEvent).inputType));
  });
  listen('compositionstart', (event) => {
    event.stopPropagation();
    composer.start(lastKey);
    lastKey = undefined;
  });
  listen('compositionupdate', (event) => event.stopPropagation());
  listen('compositionend', (event) => {
    event.stopPropagation();
    apply(composer.end(field.value));
  });
  listen('paste', (event) =>
    take(event, () => {
      restart();
      terminal.paste(event.clipboardData?.getData('text/plain') ?? '');
    }),
  );
  listen('focus', restart);
  listen('blur', () => {
    const rest = composer.reset();
    onPreview('');
    if (rest !== '') terminal.input(rest);
  });

  return {
    /** Presses a key of the row. */
    strike(stroke: Stroke): void {
      if (stroke.modifiers) modifiers.value = stroke.modifiers;
      if ('key' in stroke) press(stroke.key);
      else {
        restart();
        apply({ text: stroke.type, reset: false });
      }
    },
    paste(text: string): void {
      restart();
      terminal.paste(text);
    },
    stop: () => stopping.abort(),
  };
}

/** True if a key puts text into the field, as it does with Option on a Mac, and with AltGr elsewhere. */
function isPrinting(event: KeyboardEvent): boolean {
  if ([...event.key].length !== 1) return false;
  if (event.getModifierState('AltGraph')) return true;
  return !event.ctrlKey && !event.metaKey && (!event.altKey || IS_MAC);
}

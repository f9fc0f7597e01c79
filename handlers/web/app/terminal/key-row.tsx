import type { Signal } from '@preact/signals';
import { useT } from '../../shared/i18n.ts';
import { Icon } from '../../shared/icons.tsx';
import { type Hold, type KeyName, type ModifierName, type Modifiers, tapModifier } from './keys.ts';

/** A key: a name to press, a modifier to hold, or a text to type. `label` is the name of a picture. */
type Key = { text: string; label?: string } & ({ press: KeyName } | { hold: ModifierName } | { type: string });

const KEYS: readonly Key[] = [
  { text: 'Esc', press: 'Escape' },
  { text: 'Tab', press: 'Tab' },
  { text: 'Shift', hold: 'shift' },
  { text: 'Ctrl', hold: 'ctrl' },
  { text: 'Alt', hold: 'alt' },
  { text: '←', label: 'Left arrow', press: 'ArrowLeft' },
  { text: '↑', label: 'Up arrow', press: 'ArrowUp' },
  { text: '↓', label: 'Down arrow', press: 'ArrowDown' },
  { text: '→', label: 'Right arrow', press: 'ArrowRight' },
  { text: '|', type: '|' },
  { text: '/', type: '/' },
  { text: '-', type: '-' },
  { text: '~', type: '~' },
  { text: 'Home', press: 'Home' },
  { text: 'End', press: 'End' },
  { text: 'PgUp', press: 'PageUp' },
  { text: 'PgDn', press: 'PageDown' },
];

interface KeyRowProps {
  modifiers: Signal<Modifiers>;
  onPress(key: KeyName): void;
  onType(text: string): void;
  onPaste(): void;
}

/** The keys that an on-screen keyboard lacks. They leave the focus, and so the keyboard, where it is. */
export function KeyRow({ modifiers, onPress, onType, onPaste }: KeyRowProps) {
  const t = useT();
  const held: Record<Hold, string> = { off: '', once: t('for one key'), locked: t('locked') };

  function press(key: Key): void {
    if ('press' in key) onPress(key.press);
    else if ('type' in key) onType(key.type);
    else modifiers.value = tapModifier(modifiers.value, key.hold);
  }

  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: it keeps the focus from moving, and takes no input itself
    <div class="keys" onMouseDown={(event) => event.preventDefault()}>
      {KEYS.map((key) => {
        const hold = 'hold' in key ? modifiers.value[key.hold] : undefined;
        const name = key.label ? t(key.label) : hold && hold !== 'off' ? `${key.text}, ${held[hold]}` : undefined;
        return (
          <button
            key={key.text}
            type="button"
            class={`button key ${hold ?? ''}`}
            aria-label={name}
            aria-pressed={hold && hold !== 'off'}
            onClick={() => press(key)}
          >
            {key.text}
          </button>
        );
      })}
      <button type="button" class="button key" aria-label={t('Paste')} title={t('Paste')} onClick={onPaste}>
        <Icon name="paste" />
      </button>
    </div>
  );
}

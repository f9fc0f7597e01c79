import type { Signal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { Button } from '../../shared/components.tsx';
import { useT } from '../../shared/i18n.ts';
import { Icon } from '../../shared/icons.tsx';
import {
  FUNCTION_KEYS,
  type Hold,
  type KeyName,
  type ModifierName,
  type Modifiers,
  NO_MODIFIERS,
  parseKeys,
  type Stroke,
  tapModifier,
} from './keys.ts';

/** A key: a keystroke, or a modifier to hold. `label` describes a symbol. */
type Key = { text: string; label?: string } & ({ strike: Stroke } | { hold: ModifierName });

const press = (text: string, key: KeyName): Key => ({ text, strike: { key } });
const type = (text: string): Key => ({ text, strike: { type: text } });

const FIRST: readonly Key[] = [
  press('Esc', 'Escape'),
  press('Tab', 'Tab'),
  { text: 'Ctrl-C', strike: { type: 'c', modifiers: { ...NO_MODIFIERS, ctrl: 'once' } } },
  { text: 'Ctrl', hold: 'ctrl' },
  { text: 'Alt', hold: 'alt' },
  { text: 'Shift', hold: 'shift' },
];
const LAST: readonly Key[] = [
  type('|'),
  type('/'),
  type('-'),
  type('~'),
  press('Home', 'Home'),
  press('End', 'End'),
  press('PgUp', 'PageUp'),
  press('PgDn', 'PageDown'),
  ...FUNCTION_KEYS.map((key) => press(key, key)),
];
const ARROWS: readonly Key[] = [
  { ...press('←', 'ArrowLeft'), label: 'Left arrow' },
  { ...press('↑', 'ArrowUp'), label: 'Up arrow' },
  { ...press('↓', 'ArrowDown'), label: 'Down arrow' },
  { ...press('→', 'ArrowRight'), label: 'Right arrow' },
];

/** Milliseconds after which a held arrow repeats, and between two repetitions. */
const REPEAT_AFTER = 400;
const REPEAT_EVERY = 60;

interface KeyRowProps {
  modifiers: Signal<Modifiers>;
  /** The person's own keys, in the syntax of `parseKeys`. */
  own: string;
  onStrike(stroke: Stroke): void;
  onPaste(): void;
  onEdit(): void;
}

/**
 * The keys that an on-screen keyboard lacks, in one scrolling row, with the arrows at its end. They do not take the focus,
 * so the keyboard stays open.
 */
export function KeyRow({ modifiers, own, onStrike, onPaste, onEdit }: KeyRowProps) {
  const t = useT();
  const held: Record<Hold, string> = { off: '', once: t('for one key'), locked: t('locked') };

  function keyButton(key: Key, id: string) {
    const hold = 'hold' in key ? modifiers.value[key.hold] : undefined;
    const name = hold && hold !== 'off' ? `${key.text}, ${held[hold]}` : undefined;
    return (
      <button
        key={id}
        type="button"
        class={`button key ${hold ?? ''}`}
        aria-label={name}
        aria-pressed={hold && hold !== 'off'}
        onClick={() => {
          if ('hold' in key) modifiers.value = tapModifier(modifiers.value, key.hold);
          else onStrike(key.strike);
        }}
      >
        {key.text}
      </button>
    );
  }

  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: it keeps the focus from moving, and takes no input itself
    <div class="keys" onMouseDown={(event) => event.preventDefault()}>
      <div class="key-strip">
        {FIRST.map((key) => keyButton(key, key.text))}
        {parseKeys(own).map(({ text, strike }, at) => keyButton({ text, strike }, `own ${at}`))}
        {LAST.map((key) => keyButton(key, key.text))}
        <button type="button" class="button key" aria-label={t('Paste')} title={t('Paste')} onClick={onPaste}>
          <Icon name="paste" />
        </button>
        <Button icon="plus" label={t('Own keys')} onClick={onEdit} />
      </div>
      {/* biome-ignore lint/a11y/useSemanticElements: a fieldset has borders and a minimum width of its own */}
      <div class="arrow-pad" role="group" aria-label={t('Arrow keys')}>
        {ARROWS.map((key) => (
          <ArrowKey
            key={key.text}
            text={key.text}
            label={t(key.label ?? '')}
            onPress={() => 'strike' in key && onStrike(key.strike)}
          />
        ))}
      </div>
    </div>
  );
}

/** A key that repeats while it is held. */
function ArrowKey({ text, label, onPress }: { text: string; label: string; onPress(): void }) {
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  const repeated = useRef(false);
  const latest = useRef(onPress);
  latest.current = onPress;
  const stop = () => clearTimeout(timer.current);
  useEffect(() => stop, []);

  function repeat(): void {
    repeated.current = true;
    latest.current();
    timer.current = setTimeout(repeat, REPEAT_EVERY);
  }

  return (
    <button
      type="button"
      class="button key"
      aria-label={label}
      onPointerDown={() => {
        stop();
        repeated.current = false;
        timer.current = setTimeout(repeat, REPEAT_AFTER);
      }}
      onPointerUp={stop}
      onPointerCancel={stop}
      onPointerLeave={stop}
      onContextMenu={(event) => event.preventDefault()}
      onClick={() => {
        stop();
        if (!repeated.current) onPress();
        repeated.current = false;
      }}
    >
      {text}
    </button>
  );
}

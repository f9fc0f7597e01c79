import { useEffect, useRef } from 'preact/hooks';
import { useT } from '../../shared/i18n.ts';
import { Icon } from '../../shared/icons.tsx';

/** Milliseconds from which a press counts as held, so that its end ends the speech. A shorter one starts it. */
const HELD = 400;

interface TalkButtonProps {
  /** True during an utterance, or about to be. */
  isOn: boolean;
  /** True if a press would end the speech now. */
  isListening(): boolean;
  /** The space bar works wherever the focus is, unless the focused element handles it. */
  isEverywhere?: boolean;
  onPress(): void;
  /** The end of a held press. */
  onRelease(): void;
}

/** Hold to talk, or tap to begin and tap to end: by finger, mouse, or the space bar. */
export function TalkButton({ isOn, isListening, isEverywhere = false, onPress, onRelease }: TalkButtonProps) {
  const t = useT();
  const pressedAt = useRef(0);

  function press(timeStamp: number): void {
    // The press that ends the speech does not count as held.
    pressedAt.current = isListening() ? 0 : timeStamp;
    onPress();
  }

  function release(timeStamp: number): void {
    const isHeld = pressedAt.current !== 0 && timeStamp - pressedAt.current > HELD;
    pressedAt.current = 0;
    if (isHeld && isListening()) onRelease();
  }

  const keys = useRef({ press, release });
  keys.current = { press, release };
  useEffect(() => {
    if (!isEverywhere) return undefined;
    const listening = new AbortController();
    const { signal } = listening;
    const onKey = (event: KeyboardEvent): boolean => event.key === ' ' && !takesSpace(event.target);
    document.addEventListener(
      'keydown',
      (event) => {
        if (!onKey(event)) return;
        // Otherwise it would also scroll.
        event.preventDefault();
        if (!event.repeat) keys.current.press(event.timeStamp);
      },
      { signal },
    );
    document.addEventListener('keyup', (event) => onKey(event) && keys.current.release(event.timeStamp), { signal });
    // The release of a key in another window is not reported here.
    addEventListener('blur', ({ timeStamp }) => keys.current.release(timeStamp), { signal });
    return () => listening.abort();
  }, [isEverywhere]);

  return (
    <button
      type="button"
      class={`talk-button ${isOn ? 'on' : ''}`}
      aria-pressed={isOn}
      aria-label={t('Talk')}
      onPointerDown={(event) => {
        if (event.button !== 0) return;
        // A finger that slides off the button still holds it.
        event.currentTarget.setPointerCapture(event.pointerId);
        press(event.timeStamp);
      }}
      onPointerUp={({ timeStamp }) => release(timeStamp)}
      onPointerCancel={({ timeStamp }) => release(timeStamp)}
      onContextMenu={(event) => event.preventDefault()}
      onKeyDown={(event) => {
        if (event.key === ' ' && !event.repeat) press(event.timeStamp);
      }}
      onKeyUp={(event) => {
        if (event.key !== ' ') return;
        // Otherwise it would also click.
        event.preventDefault();
        release(event.timeStamp);
      }}
      onClick={(event) => {
        // A click by the enter key or a screen reader; pointers and the space bar were handled before.
        if (event.detail === 0) onPress();
      }}
    >
      <Icon name="voice" />
    </button>
  );
}

/** True if the focused element itself handles the space bar. */
const takesSpace = (target: EventTarget | null): boolean =>
  target instanceof Element && target.closest('a, button, input, select, textarea, summary, dialog') !== null;

import { useSignal } from '@preact/signals';
import { useLayoutEffect, useRef } from 'preact/hooks';
import { Button, inPage } from '../../shared/components.tsx';
import { useT } from '../../shared/i18n.ts';

interface SearchBarProps {
  /** Selects the next match of a text. Returns false if nothing matches. */
  find(text: string, direction: 'up' | 'down'): boolean;
  onClose(): void;
}

/** Searches the screen and the lines above it in the page, upwards. In tmux, older lines are at home. */
export function SearchBar({ find, onClose }: SearchBarProps) {
  const t = useT();
  const field = useRef<HTMLInputElement>(null);
  const isFound = useSignal(true);
  useLayoutEffect(() => field.current?.focus(), []);

  function search(direction: 'up' | 'down'): void {
    const text = field.current?.value ?? '';
    isFound.value = text === '' || find(text, direction);
  }

  return (
    <search>
      <form
        class="search-bar"
        onSubmit={inPage(() => search('up'))}
        onKeyDown={(event) => {
          if (event.key === 'Escape') onClose();
        }}
      >
        <input
          ref={field}
          class="input"
          type="search"
          aria-label={t('Search in the shell')}
          aria-invalid={isFound.value ? undefined : 'true'}
          enterkeyhint="search"
          autocapitalize="off"
          onInput={() => search('up')}
        />
        <span class="small bad" role="status">
          {isFound.value ? '' : t('Not on the screen. Scroll up for older lines.')}
        </span>
        <Button kind="plain" aria-label={t('Previous')} onClick={() => search('up')}>
          ↑
        </Button>
        <Button kind="plain" aria-label={t('Next')} onClick={() => search('down')}>
          ↓
        </Button>
        <Button kind="plain" icon="close" label={t('Close')} onClick={onClose} />
      </form>
    </search>
  );
}

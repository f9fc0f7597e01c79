import { useSignal } from '@preact/signals';
import { Dialog } from './components.tsx';
import { useT } from './i18n.ts';

/** A place to go to. */
export interface Destination {
  title: string;
  /** Short description, such as the screen of the place. */
  hint?: string;
  /** Fragment of the address. */
  href: string;
}

const MAX_SHOWN = 12;

/** Goes to any place in the page by some letters of its name: Enter selects the first match, the arrows move through all. */
export default function Palette({ destinations, onClose }: { destinations: readonly Destination[]; onClose(): void }) {
  const t = useT();
  const query = useSignal('');
  const words = query.value.trim().toLocaleLowerCase().split(/\s+/);
  const rank = ({ title }: Destination) => Number(!title.toLocaleLowerCase().startsWith(words[0] ?? ''));
  const found = destinations
    .filter(({ title, hint = '' }) => {
      const text = `${title} ${hint}`.toLocaleLowerCase();
      return words.every((word) => text.includes(word));
    })
    .sort((a, b) => rank(a) - rank(b))
    .slice(0, MAX_SHOWN);

  function move(event: KeyboardEvent): void {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const form = (event.currentTarget as HTMLElement).closest('form');
    if (step === undefined || !form) return;
    event.preventDefault();
    const stops = [...form.querySelectorAll<HTMLElement>('input, a')];
    stops[stops.indexOf(event.target as HTMLElement) + step]?.focus();
  }

  return (
    <Dialog
      title={t('Go to')}
      onClose={onClose}
      onSubmit={() => {
        const [first] = found;
        if (!first) return;
        onClose();
        location.hash = first.href;
      }}
    >
      <input
        class="input"
        aria-label={t('Screen, thread or profile')}
        placeholder={t('Screen, thread or profile')}
        autocomplete="off"
        value={query.value}
        onInput={({ currentTarget }) => {
          query.value = currentTarget.value;
        }}
        onKeyDown={move}
      />
      <ul class="list palette">
        {found.map(({ title, hint, href }) => (
          <li key={href}>
            <a class="item" href={href} onClick={onClose} onKeyDown={move}>
              <span class="text">{title}</span>
              {hint !== undefined && <span class="small soft">{hint}</span>}
            </a>
          </li>
        ))}
      </ul>
    </Dialog>
  );
}

import { useSignal } from '@preact/signals';
import { Dialog } from './components.tsx';
import { useT } from './i18n.ts';

/** Where one may go. */
export interface Destination {
  title: string;
  /** Short description, such as the screen that it is on. */
  about?: string;
  /** In the fragment of the address. */
  href: string;
}

const MAX_SHOWN = 12;

/** Goes anywhere in the page by some letters of its name: Enter takes the first, the arrows move through all. */
export default function Palette({ places, onClose }: { places: readonly Destination[]; onClose(): void }) {
  const t = useT();
  const query = useSignal('');
  const words = query.value.trim().toLocaleLowerCase().split(/\s+/);
  const rank = ({ title }: Destination) => Number(!title.toLocaleLowerCase().startsWith(words[0] ?? ''));
  const found = places
    .filter(({ title, about = '' }) => {
      const text = `${title} ${about}`.toLocaleLowerCase();
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
        {found.map(({ title, about, href }) => (
          <li key={href}>
            <a class="item" href={href} onClick={onClose} onKeyDown={move}>
              <span class="text">{title}</span>
              {about !== undefined && <span class="small soft">{about}</span>}
            </a>
          </li>
        ))}
      </ul>
    </Dialog>
  );
}

import { type ReadonlySignal, useSignal } from '@preact/signals';
import type { ComponentChildren, ComponentType } from 'preact';
import { useEffect, useLayoutEffect, useRef } from 'preact/hooks';
import { Empty, Loading, Retry, ToastList } from './components.tsx';
import { keepFocus } from './focus.ts';
import { useT } from './i18n.ts';
import { Icon, type IconName } from './icons.tsx';
import type { Destination, default as PaletteComponent } from './palette.tsx';
import { hrefOf, useRouter } from './router.ts';

/** A row of the screen table of a page. A screen is one file and one row. */
export interface Screen {
  /** Name in the fragment of the address. */
  path: string;
  /** English; translated where it is shown. */
  title: string;
  icon: IconName;
  load(): Promise<{ default: ComponentType }>;
  /** Grant that the screen requires. */
  grant?: string;
  /**
   * Placement: `bar` at the bottom of a phone and in the rail of a wide screen, `rail` in the rail and on the screen `more`,
   * `hidden` by links only.
   */
  place: 'bar' | 'rail' | 'hidden';
}

export interface ShellProps {
  screens: readonly Screen[];
  /** The first line of every screen, for important messages. */
  banner?: ComponentChildren;
  /** At the right of the title: the state of the connection. */
  status: ComponentChildren;
  /** Above the screen: messages about the whole page. */
  notices?: ComponentChildren;
  /** Numbers beside a screen's name, such as unread messages. */
  badges?: Readonly<Record<string, ReadonlySignal<number>>>;
  /** Places besides the screens that Ctrl-K offers. */
  destinations?(): readonly Destination[];
}

/** The frame of a page: title, state, navigation, and the screen that the address names. */
export function Shell({ screens, banner, status, notices, badges = {}, destinations }: ShellProps) {
  const t = useT();
  const router = useRouter();
  const { screen: name, argument } = router.place.value;
  const current = screens.find(({ path }) => path === name) ?? screens[0];
  const shell = useRef<HTMLDivElement>(null);
  const heading = useRef<HTMLHeadingElement>(null);
  /** The previous place. */
  const left = useRef<Record<'path' | 'argument', string>>(undefined);
  const title = current ? t(current.title) : '';
  const path = current?.path ?? '';
  const shown = router.title.value;

  useEffect(() => {
    document.title = [shown, title, 'svc'].filter((part) => part !== '').join(' · ');
  }, [shown, title]);

  // Keyboards and screen readers continue at the start of the new screen, and after going back, at the row that led away.
  useLayoutEffect(() => {
    if (left.current && left.current.path !== path) heading.current?.focus();
    return () => {
      left.current = { path, argument };
    };
  }, [path, argument]);
  useEffect(() => {
    const root = shell.current;
    if (!root) return undefined;
    return keepFocus(root, () => {
      // Not the link back to the list: Enter, meant for a field that was replaced, would leave the screen.
      const row = left.current && `main a[href="${hrefOf(left.current.path, left.current.argument)}"]:not(.icon-only)`;
      return (row !== undefined && root.querySelector<HTMLElement>(row)) || heading.current;
    });
  }, []);

  return (
    <div class="shell" ref={shell}>
      <header>
        {banner}
        <h1 ref={heading} tabIndex={-1}>
          {title}
        </h1>
        {status}
        <ToastList />
      </header>
      <nav aria-label={t('Screens')}>
        {screens
          .filter(({ place }) => place !== 'hidden')
          .map(({ path, title, icon, place }) => {
            const count = badges[path]?.value ?? 0;
            return (
              <a
                key={path}
                href={hrefOf(path)}
                class={place === 'rail' ? 'rail-only' : path === 'more' ? 'bar-only' : ''}
                aria-current={path === current?.path ? 'page' : undefined}
              >
                <Icon name={icon} />
                <span>{t(title)}</span>
                {count > 0 && <b class="badge">{count > 99 ? '99+' : count}</b>}
              </a>
            );
          })}
      </nav>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by keyboard */}
      <main tabIndex={0}>
        {notices}
        {current && <Lazy key={current.path} load={current.load} />}
      </main>
      <GoAnywhere screens={screens} destinations={destinations} />
    </div>
  );
}

/** Ctrl-K, or Cmd-K, opens a field that goes anywhere. In a terminal, the key is the shell's. */
function GoAnywhere({ screens, destinations }: Pick<ShellProps, 'screens' | 'destinations'>) {
  const t = useT();
  const loaded = useSignal<{ Palette: typeof PaletteComponent } | null>(null);
  const isOpen = useSignal(false);
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (event.key.toLowerCase() !== 'k' || event.ctrlKey === event.metaKey || event.altKey || event.shiftKey) return;
      if (document.querySelector('dialog[open]') || (event.target as Element).closest?.('.xterm')) return;
      event.preventDefault();
      isOpen.value = true;
      import('./palette.tsx').then(
        ({ default: Palette }) => {
          loaded.value = { Palette };
        },
        () => {
          isOpen.value = false;
        },
      );
    };
    addEventListener('keydown', onKey);
    return () => removeEventListener('keydown', onKey);
  }, []);
  if (!isOpen.value || !loaded.value) return null;
  const { Palette } = loaded.value;
  const own = screens.map(({ path, title }) => ({ title: t(title), href: hrefOf(path) }));
  return (
    <Palette
      destinations={[...own, ...(destinations?.() ?? [])]}
      onClose={() => {
        isOpen.value = false;
      }}
    />
  );
}

interface LazyProps<Props> {
  load(): Promise<{ default: ComponentType<Props> }>;
  /** True if nothing is shown until it is loaded, or if it cannot be. */
  isQuiet?: boolean;
}

/** A screen or a part of one, loaded when it is first shown. Further properties are its own. */
export function Lazy<Props extends object>({ load, isQuiet = false, ...props }: LazyProps<Props> & Props) {
  const t = useT();
  const loaded = useSignal<{ Part?: ComponentType<Props>; failed?: boolean }>({});

  function start(): void {
    loaded.value = {};
    load().then(
      ({ default: Part }) => {
        loaded.value = { Part };
      },
      () => {
        loaded.value = { failed: true };
      },
    );
  }
  useEffect(start, [load]);

  const { Part, failed } = loaded.value;
  if (Part) return <Part {...(props as unknown as Props)} />;
  if (isQuiet) return null;
  if (!failed) return <Loading />;
  return (
    <Empty icon="offline" action={<Retry onClick={start} />}>
      {t('This screen could not be loaded: the relay does not answer.')}
    </Empty>
  );
}

/** The screens that do not fit into the bar of a phone. */
export function MoreList({ screens }: { screens: readonly Screen[] }) {
  const t = useT();
  return (
    <div class="screen">
      <ul class="list">
        {screens
          .filter(({ place }) => place === 'rail')
          .map(({ path, title, icon }) => (
            <li key={path}>
              <a class="item" href={hrefOf(path)}>
                <Icon name={icon} />
                <span class="text">{t(title)}</span>
                <Icon name="next" />
              </a>
            </li>
          ))}
      </ul>
    </div>
  );
}

import { useSignal, useSignalEffect } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { useEffect, useRef } from 'preact/hooks';
import { Button, Dialog, SwitchRow, useCopy } from '../../shared/components.tsx';
import { useT } from '../../shared/i18n.ts';
import { useLoad } from '../../shared/load.tsx';
import { useRouter } from '../../shared/router.ts';
import { useApp } from '../context.ts';
import { useAppearance } from '../terminal/appearance.ts';
import { readClipboard } from '../terminal/clipboard.ts';
import { KeyRow } from '../terminal/key-row.tsx';
import { NO_MODIFIERS } from '../terminal/keys.ts';
import { type Pane, shellName, TerminalPane } from '../terminal/pane.tsx';
import { SearchBar } from '../terminal/search-bar.tsx';
import { MAX_FONT, MIN_FONT } from '../terminal/view.ts';
import { useVisibleHeight } from '../terminal/viewport.ts';

/** As many as the relay allows for one socket (contract 02 §3.2). */
const TABS = [1, 2, 3, 4] as const;
type Tab = (typeof TABS)[number];

/** The shell of a tab. */
interface TabShell {
  name: string;
  isWatch: boolean;
}

/** Sheets and bars that open above the shells. */
type Part = 'menu' | 'kill' | 'paste' | 'search' | 'shells' | 'keys';

/** Argument of the screen's address for the list of shells. */
const SHELLS = 'shells';

/** Shells at home, in four tabs. */
export default function TerminalScreen() {
  const t = useT();
  const copyText = useCopy();
  const { session, settings, shares } = useApp();
  const appearance = useAppearance();
  const router = useRouter();
  const isChoosing = router.place.value.argument === SHELLS;
  const active = useSignal<Tab>(1);
  const started = useSignal<ReadonlySet<Tab>>(new Set(isChoosing ? [] : [1]));
  const ownShells = TABS.map((tab) => ({ name: shellName(session.deviceId, tab), isWatch: false }));
  const shells = useSignal<readonly TabShell[]>(ownShells);
  const modifiers = useSignal(NO_MODIFIERS);
  const selection = useSignal('');
  const shared = useSignal(shares.forTerminal.peek());
  const open = useSignal<Part | undefined>(shared.value === '' ? undefined : 'paste');
  // Loaded separately, so that a shell is shown sooner.
  const { data: dialogs } = useLoad(() => import('../terminal/dialogs.tsx')).state.value;
  const panes = useRef(new Map<Tab, Pane>());
  const tabButtons = useRef(new Map<Tab, HTMLButtonElement>());
  useVisibleHeight();

  useEffect(() => {
    shares.forTerminal.value = '';
  }, [shares]);

  useSignalEffect(() => {
    if (router.place.value.argument === SHELLS) show('shells');
  });

  function show(part: Part | undefined): void {
    open.value = part;
  }

  const current = (): Pane | undefined => panes.current.get(active.value);
  const shellOf = (tab: Tab): TabShell => shells.value[tab - 1] as TabShell;
  const isOnline = () => session.isOnline.value;

  useEffect(() => {
    const port = session.port('terminal');
    const all = () => [...panes.current.values()];
    const stopMessages = port.onMessage((message) => {
      for (const { shell } of all()) shell.receive(message);
    });
    const stopOnline = port.onOnline(() => {
      // The visible shell is restored first.
      const shown = current();
      for (const { shell } of all().sort((a, b) => Number(b === shown) - Number(a === shown))) {
        if (shell.state.value.name === 'waiting') shell.attach();
      }
      return () => {
        for (const { shell } of all()) shell.lost();
      };
    });
    return () => {
      stopMessages();
      stopOnline();
    };
  }, []);

  function select(tab: Tab): void {
    started.value = new Set(started.value).add(tab);
    active.value = tab;
    selection.value = panes.current.get(tab)?.view.selection ?? '';
  }

  /** Shows a shell of the host in the tab that has it, else in one without a shell, else in the visible one. */
  function choose(name: string, isWatch: boolean): void {
    const free = TABS.find((tab) => !started.value.has(tab));
    const tab = TABS.find((tab) => started.value.has(tab) && shellOf(tab).name === name) ?? free ?? active.value;
    shells.value = shells.value.with(tab - 1, { name, isWatch });
    select(tab);
    close();
  }

  /** Arrow keys move between tabs, as usual for a list of tabs. */
  function onTabKey(event: KeyboardEvent): void {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    tabButtons.current.get(TABS[(active.value - 1 + step + TABS.length) % TABS.length] as Tab)?.focus();
  }

  async function copy(): Promise<void> {
    if (await copyText(selection.value)) current()?.view.clearSelection();
    current()?.view.focus();
  }

  async function paste(): Promise<void> {
    const text = await readClipboard();
    // A browser that does not expose the clipboard to the page can still paste into a field.
    if (text === null) show('paste');
    else {
      close();
      current()?.view.input.paste(text);
    }
  }

  function close(): void {
    show(undefined);
    shared.value = '';
    if (router.place.value.argument !== '') router.go('terminal', '', { replace: true });
    if (started.value.size === 0) select(1);
    current()?.view.focus();
  }

  function setFontSize(size: number): void {
    settings.set('terminal_font_size', Math.min(MAX_FONT, Math.max(MIN_FONT, size)));
  }

  return (
    <div class="screen full terminal-screen">
      <div class="terminal-bar">
        <div class="tabs" role="tablist" aria-label={t('Shells')} onKeyDown={onTabKey}>
          {TABS.map((tab) => (
            <button
              key={tab}
              ref={(element) => {
                if (element) tabButtons.current.set(tab, element);
              }}
              type="button"
              id={`tab-${tab}`}
              class={`tab ${started.value.has(tab) ? 'started' : ''}`}
              role="tab"
              aria-selected={active.value === tab}
              aria-controls={started.value.has(tab) ? `shell-${tab}` : undefined}
              aria-label={t('Shell {n}', { n: tab })}
              tabIndex={active.value === tab ? 0 : -1}
              onClick={() => select(tab)}
            >
              {tab}
            </button>
          ))}
        </div>
        <Button
          kind="plain"
          icon="queue"
          label={t('Shells at home')}
          aria-haspopup="dialog"
          onClick={() => show('shells')}
        />
        <Button
          kind="plain"
          icon="search"
          label={t('Search')}
          aria-expanded={open.value === 'search'}
          onClick={() => show(open.value === 'search' ? undefined : 'search')}
        />
        <Button kind="plain" icon="more" label={t('More')} aria-haspopup="dialog" onClick={() => show('menu')} />
      </div>
      {open.value === 'search' && (
        <SearchBar find={(text, direction) => current()?.view.find(text, direction) ?? false} onClose={close} />
      )}
      {started.value.has(active.value) && shellOf(active.value).isWatch && (
        <div class="watch-bar">
          <span class="text small">
            {t('You watch {name}. Nothing you type reaches it.', { name: shellOf(active.value).name })}
          </span>
          <Button onClick={() => choose(shellOf(active.value).name, false)}>{t('Attach')}</Button>
        </div>
      )}
      <div class="shells">
        {TABS.filter((tab) => started.value.has(tab)).map((tab) => (
          <TerminalPane
            key={tab}
            tab={tab}
            {...shellOf(tab)}
            isActive={active.value === tab}
            appearance={appearance}
            modifiers={modifiers}
            onPane={(pane) => {
              if (pane) panes.current.set(tab, pane);
              else panes.current.delete(tab);
              if (pane && isOnline()) pane.shell.attach();
            }}
            onSelection={(text) => {
              if (tab === active.value) selection.value = text;
            }}
            onFontSize={setFontSize}
            onLeave={() => tabButtons.current.get(active.value)?.focus()}
          />
        ))}
        {selection.value !== '' && (
          <div class="selection-bar">
            <Button icon="copy" onClick={() => void copy()}>
              {t('Copy')}
            </Button>
            <Button kind="plain" onClick={() => current()?.view.clearSelection()}>
              {t('Clear the selection')}
            </Button>
          </div>
        )}
      </div>
      <KeyRow
        modifiers={modifiers}
        own={settings.values.terminal_keys.value}
        onStrike={(stroke) => current()?.view.input.strike(stroke)}
        onPaste={() => void paste()}
        onEdit={() => show('keys')}
      />
      {open.value === 'shells' && dialogs && (
        <dialogs.ShellsDialog
          nameOf={(name) => {
            const at = ownShells.findIndex((own) => own.name === name);
            return at < 0 ? undefined : t('Shell {n} of this browser', { n: at + 1 });
          }}
          onAttach={(name) => choose(name, false)}
          onWatch={(name) => choose(name, true)}
          onNew={
            started.value.size === TABS.length
              ? undefined
              : () => {
                  const tab = TABS.find((tab) => !started.value.has(tab)) ?? active.value;
                  choose(shellName(session.deviceId, tab), false);
                }
          }
          onClose={close}
        />
      )}
      {open.value === 'keys' && dialogs && (
        <dialogs.KeysDialog
          keys={settings.values.terminal_keys.value}
          onClose={close}
          onSave={(keys) => {
            settings.set('terminal_keys', keys);
            close();
          }}
        />
      )}
      {open.value === 'menu' && (
        <Dialog title={t('Shell {n}', { n: active.value })} cancelText={t('Close')} onClose={close}>
          <ul class="list">
            <MenuItem onClick={() => void paste()}>{t('Paste')}</MenuItem>
            <MenuItem
              onClick={() => {
                close();
                current()?.view.selectScreen();
              }}
            >
              {t('Select the screen')}
            </MenuItem>
            <li class="item text-size">
              <span class="text">{t('Text size: {n}', { n: settings.values.terminal_font_size.value })}</span>
              <Button onClick={() => setFontSize(appearance.value.fontSize - 1)}>{t('Smaller')}</Button>
              <Button onClick={() => setFontSize(appearance.value.fontSize + 1)}>{t('Larger')}</Button>
            </li>
            <li>
              <SwitchRow
                label={t('Screen reader')}
                hint={t('Reads out the output of the shell. Slower.')}
                checked={settings.values.terminal_screen_reader.value}
                onChange={(value) => settings.set('terminal_screen_reader', value)}
              />
            </li>
            <MenuItem
              onClick={() => {
                close();
                current()?.shell.detach();
              }}
            >
              {t('Detach: the shell keeps running at home')}
            </MenuItem>
            <MenuItem isBad onClick={() => show('kill')}>
              {t('End the shell')}
            </MenuItem>
          </ul>
        </Dialog>
      )}
      {open.value === 'kill' && (
        <Dialog
          title={t('End shell {n}?', { n: active.value })}
          onClose={close}
          onSubmit={() => {
            current()?.shell.kill();
            close();
          }}
          submit={t('End the shell')}
          kind="danger"
        >
          <p>{t('Everything that runs in it ends, too, also where another device shows it.')}</p>
        </Dialog>
      )}
      {open.value === 'paste' && dialogs && (
        <dialogs.PasteDialog
          shared={shared.value}
          onClose={close}
          onPaste={(text) => {
            close();
            current()?.view.input.paste(text);
          }}
        />
      )}
    </div>
  );
}

interface MenuItemProps {
  isBad?: boolean;
  onClick(): void;
  children: ComponentChildren;
}

const MenuItem = ({ isBad = false, onClick, children }: MenuItemProps) => (
  <li>
    <button type="button" class={isBad ? 'item bad' : 'item'} onClick={onClick}>
      {children}
    </button>
  </li>
);

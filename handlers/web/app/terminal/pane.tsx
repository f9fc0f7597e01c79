import type { ReadonlySignal, Signal } from '@preact/signals';
import { useSignal, useSignalEffect } from '@preact/signals';
import { useEffect, useLayoutEffect, useRef } from 'preact/hooks';
import { Button, Notice, Retry, useToast } from '../../shared/components.tsx';
import { useT } from '../../shared/i18n.ts';
import { useApp } from '../context.ts';
import type { Modifiers } from './keys.ts';
import { createShell, type Shell } from './shell.ts';
import { type Appearance, createView, type View } from './view.ts';

/** A started tab with its shell and screen. */
export interface Pane {
  shell: Shell;
  view: View;
}

interface TerminalPaneProps {
  /** From 1. */
  tab: number;
  /** Name of its shell. */
  name: string;
  isWatch: boolean;
  isActive: boolean;
  appearance: ReadonlySignal<Appearance>;
  modifiers: Signal<Modifiers>;
  /** Called with the pane once it is usable, and with undefined when it is gone. */
  onPane(pane: Pane | undefined): void;
  onSelection(text: string): void;
  onFontSize(size: number): void;
  onLeave(): void;
}

/** Name of the shell for a tab of this browser. */
export const shellName = (deviceId: string, tab: number): string => `web-${deviceId.slice(0, 8)}-tab${tab}`;

/** One tab of the terminal. When the tab closes, the shell keeps running at home. */
export function TerminalPane({
  tab,
  name,
  isWatch,
  isActive,
  appearance,
  modifiers,
  onPane,
  ...events
}: TerminalPaneProps) {
  const t = useT();
  const toast = useToast();
  const { session } = useApp();
  const host = useRef<HTMLDivElement>(null);
  const pane = useSignal<Pane | undefined>(undefined);
  const latest = useRef(events);
  latest.current = events;

  useEffect(() => {
    const view = createView({
      host: host.current as HTMLDivElement,
      appearance: appearance.value,
      modifiers,
      label: t('Shell {n}. Press Ctrl+F6 to leave it.', { n: tab }),
      onInput: (data) => shell.type(data),
      onResize: (size) => shell.resize(size),
      onFontSize: (size) => latest.current.onFontSize(size),
      onSelection: (text) => latest.current.onSelection(text),
      onLeave: () => latest.current.onLeave(),
    });
    const shell = createShell({ port: session.port('terminal'), name, isWatch, view, onProblem: toast });
    view.fill();
    pane.value = { view, shell };
    onPane(pane.value);
    if (isActive) view.focus();
    return () => {
      onPane(undefined);
      if (shell.state.value.name === 'attached') shell.detach();
      view.dispose();
    };
  }, [name, isWatch]);

  useSignalEffect(() => pane.value?.view.setAppearance(appearance.value));
  // Before the tab is painted: later, it would take the focus from where the user has moved it.
  useLayoutEffect(() => {
    if (isActive) pane.value?.view.focus();
  }, [isActive]);

  return (
    <div
      id={`shell-${tab}`}
      class="pane"
      role="tabpanel"
      aria-labelledby={`tab-${tab}`}
      hidden={!isActive}
      tabIndex={-1}
    >
      <div ref={host} class="terminal-view" />
      {pane.value && <PaneNotice {...pane.value} />}
    </div>
  );
}

/** A notice above a screen that does not follow its shell: the reason, and the next step. */
function PaneNotice({ shell, view }: Pane) {
  const t = useT();
  const { session } = useApp();
  const state = shell.state.value;

  function again(): void {
    shell.attach();
    view.focus();
  }

  switch (state.name) {
    case 'attached':
      return null;
    case 'waiting':
      if (session.isOnline.value) return null;
      return (
        <Notice tone="warn">
          {t('The connection is lost. Your shell keeps running, and reappears automatically.')}
        </Notice>
      );
    case 'failed':
      return (
        <Notice tone="bad" action={<Retry onClick={again} />}>
          {state.message}
        </Notice>
      );
    case 'ended': {
      const isLeft = state.reason === 'client detach';
      return (
        <Notice
          action={
            (isLeft || !shell.isWatch) && (
              <Button icon={isLeft ? 'link' : 'plus'} onClick={again}>
                {isLeft ? t('Attach again') : t('New shell')}
              </Button>
            )
          }
        >
          {isLeft ? t('Detached. The shell keeps running at home.') : endOf(state.reason, t)}
        </Notice>
      );
    }
  }
}

/** Describes why a shell has ended. */
function endOf(reason: string, t: ReturnType<typeof useT>): string {
  switch (reason) {
    case 'eof':
    case 'client kill':
      return t('The shell has ended.');
    case 'grant expired':
      return t('This device may no longer use the terminal. Pair it again to allow it.');
    case 'server shutdown':
      return t('The relay was stopped.');
    default:
      return t('The shell has ended: {reason}', { reason });
  }
}

import { useSignal, useSignalEffect } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { Button, Dialog, Empty, inPage, Notice, Retry } from '../../shared/components.tsx';
import { useT } from '../../shared/i18n.ts';
import { LoadedView, messageOf, useLoad } from '../../shared/load.tsx';
import { useApp } from '../context.ts';
import { useFlag } from '../flag.ts';
import { isSendKey } from '../keyboard.ts';
import { useAppearance } from '../terminal/appearance.ts';
import { type AgentSession, createGateway, type Gateway } from '../terminal/gateway.ts';
import { NO_MODIFIERS } from '../terminal/keys.ts';
import { createView, type View } from '../terminal/view.ts';
import { useVisibleHeight } from '../terminal/viewport.ts';

/** There is no input in the terminal itself. */
const HIDE_CURSOR = '\x1b[?25l';

/** The agent's TUI: its output in a terminal, and a line for input. */
export default function TuiScreen() {
  const t = useT();
  const { session, settings } = useApp();
  const appearance = useAppearance();
  const host = useRef<HTMLDivElement>(null);
  const field = useRef<HTMLTextAreaElement>(null);
  const parts = useSignal<{ view: View; gateway: Gateway } | undefined>(undefined);
  const choosing = useFlag();
  useVisibleHeight();

  useEffect(() => {
    const port = session.port('tui');
    const modifiers = { value: NO_MODIFIERS };
    const view = createView({
      host: host.current as HTMLDivElement,
      appearance: appearance.value,
      modifiers,
      label: t('What the agent prints. Press Ctrl+F6 to leave it.'),
      // Input goes to the field below.
      onInput: () => field.current?.focus(),
      onResize: (size) => gateway.resize(size),
      onFontSize: (size) => settings.set('terminal_font_size', size),
      onSelection: () => {},
      onLeave: () => field.current?.focus(),
    });
    const gateway = createGateway({ port, print: (text) => view.write(text) });
    view.fill();
    view.write(HIDE_CURSOR);
    parts.value = { view, gateway };
    const stops = [
      port.onMessage(gateway.receive),
      session.port('system').onMessage((message) => {
        // This screen has a text of its own for it.
        if (gateway.receiveError(message)) session.dismissNotice();
      }),
      port.onOnline(() => {
        gateway.attach(view.size);
        return gateway.lost;
      }),
    ];
    return () => {
      for (const stop of stops) stop();
      gateway.detach();
      view.dispose();
    };
  }, []);
  useSignalEffect(() => parts.value?.view.setAppearance(appearance.value));

  const gateway = parts.value?.gateway;
  const state = gateway?.state.value;

  function submit(): void {
    const text = field.current?.value.trim() ?? '';
    if (text === '' || state?.name !== 'ready' || !field.current) return;
    field.current.value = '';
    void gateway?.submit(text);
  }

  return (
    <div class="screen full terminal-screen">
      <div class="terminal-bar apart">
        <Button
          kind="plain"
          icon="plus"
          disabled={state?.name !== 'ready'}
          onClick={() => {
            gateway?.startAnew();
            field.current?.focus();
          }}
        >
          {t('New')}
        </Button>
        <Button kind="plain" disabled={state?.name !== 'ready'} onClick={choosing.on}>
          {t('Conversations')}
        </Button>
        {gateway?.isBusy.value && (
          <Button icon="stop" onClick={gateway.interrupt}>
            {t('Stop')}
          </Button>
        )}
      </div>
      <div class="shells">
        <div class="pane">
          <div ref={host} class="terminal-view" />
          {state?.name === 'waiting' && !session.isOnline.value && (
            <Notice tone="warn">{t('The connection is lost. The conversation continues with the next one.')}</Notice>
          )}
          {state?.name === 'unavailable' && (
            <Notice tone="warn">{t('The agent on this host has no TUI. Use the chat instead.')}</Notice>
          )}
          {state?.name === 'ended' && (
            <Notice tone="bad" action={<Retry onClick={() => parts.value && gateway?.attach(parts.value.view.size)} />}>
              {state.message}
            </Notice>
          )}
        </div>
      </div>
      <form class="ask-bar" onSubmit={inPage(submit)}>
        <textarea
          ref={field}
          class="input"
          rows={1}
          aria-label={t('Ask the agent')}
          placeholder={t('Ask the agent')}
          enterkeyhint="send"
          onKeyDown={(event) => {
            if (!isSendKey(event)) return;
            event.preventDefault();
            submit();
          }}
        />
        <Button type="submit" kind="primary" icon="send" label={t('Send')} disabled={state?.name !== 'ready'} />
      </form>
      {choosing.isOn && gateway && <SessionDialog gateway={gateway} onClose={choosing.off} />}
    </div>
  );
}

/** The conversations of the agent, to continue one. */
function SessionDialog({ gateway, onClose }: { gateway: Gateway; onClose(): void }) {
  const t = useT();
  const { state, reload } = useLoad(() => gateway.sessions());
  const failure = useSignal('');

  async function choose({ id }: AgentSession): Promise<void> {
    try {
      await gateway.resume(id);
      onClose();
    } catch (error) {
      failure.value = messageOf(error);
    }
  }

  return (
    <Dialog title={t('Conversations')} cancelText={t('Close')} onClose={onClose}>
      {failure.value !== '' && <Notice tone="bad">{failure.value}</Notice>}
      <LoadedView state={state} reload={reload}>
        {(sessions) =>
          sessions.length === 0 ? (
            <Empty icon="chat">{t('The agent has no conversations yet. Ask it something.')}</Empty>
          ) : (
            <ul class="list">
              {sessions.map((row) => (
                <li key={row.id}>
                  <button type="button" class="item" onClick={() => void choose(row)}>
                    {row.title}
                  </button>
                </li>
              ))}
            </ul>
          )
        }
      </LoadedView>
    </Dialog>
  );
}

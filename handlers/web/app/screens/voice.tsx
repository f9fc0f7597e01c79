import { useEffect, useRef } from 'preact/hooks';
import { Button, Empty, Notice, SwitchRow } from '../../shared/components.tsx';
import { useT } from '../../shared/i18n.ts';
import { Icon } from '../../shared/icons.tsx';
import { LoadedView, useLoad } from '../../shared/load.tsx';
import { Prose } from '../../shared/prose.tsx';
import { useApp } from '../context.ts';
import { createTalk, type Talk, type TalkState } from '../voice/talk.ts';

/** Speech features of the relay (contract 05 §5). */
interface VoiceConfig {
  stt: { provider: string | null; available: boolean };
  tts: { provider: string | null; available: boolean };
}

/** A press that lasts this many milliseconds is held: its end ends the recording. A shorter one starts it. */
const HELD = 400;

/** Talk to the agent, and hear its answer. */
export default function Voice() {
  const t = useT();
  const { api, kept } = useApp();
  const { state, reload } = useLoad((signal) => api.call<VoiceConfig>('voice/config', { signal }));
  if (!isSecureContext || !navigator.mediaDevices) {
    return (
      <div class="screen">
        <Empty icon="voice">
          {t(
            'Browsers give the microphone to encrypted pages only, and this one came over plain http. Open the relay by its https address, with Tailscale Serve or a certificate (RELAY_SSL_CERT).',
          )}
        </Empty>
      </div>
    );
  }
  return (
    <div class="screen voice">
      <LoadedView state={state} reload={reload}>
        {({ stt, tts }) =>
          stt.available ? (
            <Conversation talk={kept(createTalk)} canSpeak={tts.available} />
          ) : (
            <Empty icon="voice">
              {t(
                'The relay has no provider that understands speech. Name one under stt in the configuration of the agent.',
              )}
            </Empty>
          )
        }
      </LoadedView>
    </div>
  );
}

function Conversation({ talk, canSpeak }: { talk: Talk; canSpeak: boolean }) {
  const t = useT();
  const turns = talk.turns.value;
  const end = useRef<HTMLDivElement>(null);
  const length = turns.length + (turns.at(-1)?.text.length ?? 0);
  useEffect(() => {
    end.current?.scrollIntoView({ block: 'end' });
  }, [length]);
  // Nobody should be recorded by a screen that is not shown.
  useEffect(() => talk.leave, [talk]);
  return (
    <>
      {canSpeak ? (
        <div class="list">
          <SwitchRow
            label={t('Speak the answers')}
            checked={talk.isSpeaking.value}
            onChange={(checked) => {
              talk.isSpeaking.value = checked;
            }}
          />
        </div>
      ) : (
        <p class="soft small">{t('Answers are shown, not spoken: the relay has no provider of speech.')}</p>
      )}
      <div class="said" aria-live="polite">
        {turns.map(({ request, from, text, state, error }) => (
          <article
            key={`${request} ${from}`}
            class={`turn ${from}`}
            aria-label={from === 'person' ? t('You') : t('Agent')}
          >
            {from === 'person' ? <p class="written">{text}</p> : <Prose text={text} />}
            {state === 'stopped' && <p class="small soft">{t('Stopped.')}</p>}
            {state === 'broken' && <Notice tone="bad">{t(error ?? '')}</Notice>}
          </article>
        ))}
        <div ref={end} />
      </div>
      {talk.error.value !== '' && <Notice tone="warn">{t(talk.error.value)}</Notice>}
      <Controls talk={talk} />
    </>
  );
}

const STATES: Readonly<Record<TalkState, string>> = {
  idle: 'Hold to talk, or tap',
  opening: 'Asking for the microphone',
  listening: 'Listening: let go or tap to send',
  transcribing: 'Understanding',
  thinking: 'The agent is at work',
  speaking: 'Speaking: tap to interrupt',
};

function Controls({ talk }: { talk: Talk }) {
  const t = useT();
  const pressedAt = useRef(0);
  const state = talk.state.value;
  const isListening = state === 'listening' || state === 'opening';

  function press(): void {
    if (talk.state.value === 'listening') void talk.finish();
    else void talk.listen();
  }

  return (
    <div class="talk-controls">
      <p role="status">{t(STATES[state])}</p>
      <progress class={isListening ? '' : 'hidden'} max={1} value={talk.level.value} aria-label={t('Loudness')} />
      <div class="row">
        <button
          type="button"
          class={`talk-button ${isListening ? 'on' : ''}`}
          aria-pressed={isListening}
          aria-label={t('Talk')}
          onPointerDown={(event) => {
            if (event.button !== 0) return;
            pressedAt.current = talk.state.value === 'listening' ? 0 : event.timeStamp;
            press();
          }}
          onPointerUp={(event) => {
            const isHeld = pressedAt.current !== 0 && event.timeStamp - pressedAt.current > HELD;
            if (isHeld && talk.state.value === 'listening') void talk.finish();
          }}
          onContextMenu={(event) => event.preventDefault()}
          onClick={(event) => {
            // Of a keyboard or a screen reader; a pointer was heard before.
            if (event.detail === 0) press();
          }}
        >
          <Icon name="voice" />
        </button>
        <Button icon="stop" disabled={state === 'idle'} onClick={talk.interrupt}>
          {t('Stop')}
        </Button>
      </div>
    </div>
  );
}

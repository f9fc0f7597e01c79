import { useEffect, useRef } from 'preact/hooks';
import { Button, Empty, Notice, SwitchRow } from '../../shared/components.tsx';
import { useT } from '../../shared/i18n.ts';
import { LoadedView, useLoad } from '../../shared/load.tsx';
import { Prose } from '../../shared/prose.tsx';
import { useFollowOnScreen } from '../chat/follow.ts';
import { useApp } from '../context.ts';
import { useFlag } from '../flag.ts';
import { createLive } from '../voice/live.ts';
import { LiveConversation } from '../voice/live-view.tsx';
import { loadOffer, type VoiceOffer } from '../voice/offer.ts';
import { createTalk, type Talk, type TalkState } from '../voice/talk.ts';
import { TalkButton } from '../voice/talk-button.tsx';
import { VoiceSettings } from '../voice/voice-settings.tsx';

/** Talk to the agent, and hear its answer. */
export default function Voice() {
  const t = useT();
  const app = useApp();
  const { state, reload } = useLoad((signal) => loadOffer(app, signal));
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
        {(offer) => <Offered offer={offer} />}
      </LoadedView>
    </div>
  );
}

/** One of the two ways to talk, and the choice between them. */
function Offered({ offer: { stt, tts, live } }: { offer: VoiceOffer }) {
  const t = useT();
  const { retained, settings } = useApp();
  const isLive = settings.values.voice_live.value && live.why === undefined;
  const choosing = useFlag();
  return (
    <>
      <div class="list">
        <SwitchRow
          label={t('Live conversation')}
          hint={live.why === undefined ? t('The microphone stays open, and you can interrupt the agent.') : t(live.why)}
          checked={isLive}
          disabled={live.why !== undefined}
          onChange={(checked) => settings.set('voice_live', checked)}
        />
        {isLive && (
          <SwitchRow
            label={t('Hands-free')}
            hint={t('The agent hears when you speak. Off: hold the button or the space bar to talk.')}
            checked={settings.values.voice_hands_free.value}
            onChange={retained(createLive).setHandsFree}
          />
        )}
      </div>
      {(isLive || tts.available) && (
        <div class="row">
          <Button icon="settings" onClick={choosing.on}>
            {t('Voice settings')}
          </Button>
        </div>
      )}
      {choosing.isOn && <VoiceSettings use={isLive ? 'live' : 'spoken'} onClose={choosing.off} />}
      {isLive ? (
        <LiveConversation live={retained(createLive)} voice={live} />
      ) : stt.available ? (
        <Conversation talk={retained(createTalk)} canSpeak={tts.available} />
      ) : (
        <Empty icon="voice">
          {t(
            'The relay has no provider that understands speech. Name one under stt in the configuration of the agent.',
          )}
        </Empty>
      )}
    </>
  );
}

function Conversation({ talk, canSpeak }: { talk: Talk; canSpeak: boolean }) {
  const t = useT();
  const turns = talk.turns.value;
  const content = useRef<HTMLDivElement>(null);
  useFollowOnScreen(content);
  // A hidden screen must not record anybody.
  useEffect(() => talk.leave, [talk]);
  const isSpoken = canSpeak && talk.isSpeaking.value;
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
      {/* A screen reader would talk over the spoken answer, and read a streaming one in parts. */}
      <div
        ref={content}
        class="said"
        aria-live={isSpoken ? 'off' : 'polite'}
        aria-busy={turns.at(-1)?.state === 'streaming'}
      >
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
  const state = talk.state.value;
  const isOn = state === 'listening' || state === 'opening';
  const isListening = () => talk.state.value === 'listening';
  return (
    <div class="talk-controls">
      <p role="status">{t(STATES[state])}</p>
      <progress class={isOn ? '' : 'hidden'} max={1} value={talk.level.value} aria-label={t('Loudness')} />
      <div class="row">
        <TalkButton
          isOn={isOn}
          isListening={isListening}
          onPress={() => void (isListening() ? talk.finish() : talk.listen())}
          onRelease={() => void talk.finish()}
        />
        <Button icon="stop" disabled={state === 'idle'} onClick={talk.interrupt}>
          {t('Stop')}
        </Button>
      </div>
    </div>
  );
}

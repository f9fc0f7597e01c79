import { useEffect, useRef } from 'preact/hooks';
import { Button, Chip, Notice } from '../../shared/components.tsx';
import { useT } from '../../shared/i18n.ts';
import { Prose } from '../../shared/prose.tsx';
import { useFollowOnScreen } from '../chat/follow.ts';
import { useApp } from '../context.ts';
import type { Live, LiveState } from './live.ts';
import type { LiveQuestion, LiveView } from './live-turns.ts';
import type { LiveVoice } from './offer.ts';
import { TalkButton } from './talk-button.tsx';

/** A live conversation. */
export function LiveConversation({ live, voice }: { live: Live; voice: LiveVoice }) {
  const t = useT();
  const areCaptionsOn = useApp().settings.values.voice_captions.value;
  const view = live.view.value;
  const content = useRef<HTMLDivElement>(null);
  useFollowOnScreen(content);
  // A hidden screen must not listen to anybody.
  useEffect(() => live.stop, [live]);
  return (
    <>
      <div ref={content} class="said">
        {areCaptionsOn && <Captions view={view} />}
        <Task view={view} />
        {/* Text that the agent does not speak is always shown. */}
        {!areCaptionsOn && <div role="status">{view.unspoken !== '' && <Prose text={view.unspoken} />}</div>}
        <Cost view={view} />
      </div>
      {live.hint.value !== '' && <Notice tone="warn">{t(live.hint.value)}</Notice>}
      {view.failure !== '' && (
        <Notice tone="bad">{t('A task in the background has failed: {reason}', { reason: view.failure })}</Notice>
      )}
      {live.error.value !== '' && <Notice tone="bad">{t(live.error.value)}</Notice>}
      <Controls live={live} voice={voice} question={view.question} />
    </>
  );
}

/** Captions of the conversation. A screen reader reads a sentence once it is complete. */
function Captions({ view }: { view: LiveView }) {
  const t = useT();
  return (
    <div class="said" role="log" aria-live="polite" aria-label={t('Captions')}>
      {view.turns.map(({ key, from, text, state }) => (
        <article
          key={key}
          class={`turn ${from}`}
          aria-label={from === 'person' ? t('You') : t('Agent')}
          aria-busy={state === 'open'}
        >
          {from === 'person' ? <p class="written">{text}</p> : <Prose text={text} />}
          {state === 'stopped' && <p class="small soft">{t('Stopped.')}</p>}
          {state === 'cut' && <p class="small soft">{t('The answer was cut off.')}</p>}
        </article>
      ))}
    </div>
  );
}

/** The agent's current activity. */
function Task({ view: { tools, progress, isInBackground, queued } }: { view: LiveView }) {
  const t = useT();
  if (progress === '' && tools.length === 0 && !isInBackground && queued === 0) return null;
  return (
    <div class="live-task">
      {progress !== '' && <p class="small soft">{t(progress)}</p>}
      {tools.length > 0 && (
        <ul class="row" aria-label={t('Tools')}>
          {tools.map(({ id, name, state }) => (
            <li key={id}>
              <Chip tone={state === 'failed' ? 'bad' : state === 'done' ? 'good' : undefined}>
                {name} {t(state)}
              </Chip>
            </li>
          ))}
        </ul>
      )}
      {isInBackground && (
        <p class="small">{t('The agent continues in the background, and tells you when it is done.')}</p>
      )}
      {queued > 0 && <p class="small">{t('Tasks that wait: {count}', { count: queued })}</p>}
    </div>
  );
}

/** Usage of the conversation: audio is what providers charge most for. */
function Cost({ view: { cost } }: { view: LiveView }) {
  const t = useT();
  if (!cost) return null;
  const { minutes, audioTokens } = cost;
  const count = audioTokens >= 10_000 ? `${Math.round(audioTokens / 1000)}k` : audioTokens;
  return <p class="small soft">{t('{minutes} min, about {count} audio tokens', { minutes, count })}</p>;
}

const STATES: Readonly<Record<LiveState, string>> = {
  off: 'Tap to start a live conversation',
  opening: 'Connecting',
  listening: 'Speak whenever you like',
  hearing: 'Listening',
  thinking: 'The agent is at work',
  speaking: 'Speaking: talk or tap to interrupt',
  reconnecting: 'The connection is gone: connecting again',
  redialling: 'The provider of the voice is gone: connecting again',
};

/** Differing texts while the agent only listens when the button is pressed. */
const BUTTON_STATES: Readonly<Partial<Record<LiveState, string>>> = {
  listening: 'Hold to talk, or tap',
  hearing: 'Listening: let go or tap to send',
  speaking: 'Speaking: tap to interrupt',
};

/** Questions of the agent are above the buttons, which would otherwise cover them on a small screen. */
function Controls({ live, voice, question }: { live: Live; voice: LiveVoice; question: LiveQuestion | null }) {
  const t = useT();
  const state = live.state.value;
  const isOn = state !== 'off' && state !== 'opening';
  const isMuted = live.isMuted.value;
  const isHandsFree = live.isHandsFree.value;
  const usual = (isHandsFree ? undefined : BUTTON_STATES[state]) ?? STATES[state];
  const sentence = isMuted && state === 'listening' ? 'Muted: hold to talk, or tap' : usual;
  return (
    <div class="talk-controls">
      {question && <Permission live={live} question={question} />}
      <p role="status">{t(sentence)}</p>
      <progress class={isOn ? '' : 'hidden'} max={1} value={live.level.value} aria-label={t('Loudness')} />
      <TalkButton
        isOn={state === 'hearing'}
        isListening={live.isHearing}
        isEverywhere={isOn && !isHandsFree}
        onPress={() => (state === 'off' ? void live.start(voice) : live.press())}
        onRelease={live.finish}
      />
      {state !== 'off' && (
        <div class="row">
          {isOn && (
            <>
              <Button icon="stop" disabled={state === 'listening'} onClick={live.interrupt}>
                {t('Stop')}
              </Button>
              {isHandsFree && (
                <Button aria-pressed={isMuted} onClick={() => live.mute(!isMuted)}>
                  {t('Mute')}
                </Button>
              )}
            </>
          )}
          <Button onClick={live.stop}>{t('End')}</Button>
        </div>
      )}
    </div>
  );
}

/** The agent's question to the person, and the two answers. */
function Permission({ live, question: { id, text } }: { live: Live; question: LiveQuestion }) {
  const t = useT();
  return (
    <Notice
      tone="warn"
      action={
        <div class="row">
          <Button kind="primary" onClick={() => live.answer(id, 'allow_once')}>
            {t('Allow once')}
          </Button>
          <Button onClick={() => live.answer(id, 'deny')}>{t('Deny')}</Button>
        </div>
      }
    >
      {text === '' ? t('The agent asks for your permission.') : text}
    </Notice>
  );
}

import { useEffect, useRef } from 'preact/hooks';
import { Button, Chip, Notice } from '../../shared/components.tsx';
import { useT } from '../../shared/i18n.ts';
import { Prose } from '../../shared/prose.tsx';
import type { Live, LiveState } from './live.ts';
import type { LiveQuestion, LiveTool, LiveView } from './live-turns.ts';
import { TalkButton } from './talk-button.tsx';

/** A live conversation. `rate`: hertz of the agent's voice. */
export function LiveConversation({ live, rate }: { live: Live; rate: number }) {
  const t = useT();
  const view = live.view.value;
  const end = useRef<HTMLDivElement>(null);
  const length = view.turns.length + (view.turns.at(-1)?.text.length ?? 0);
  useEffect(() => {
    end.current?.scrollIntoView({ block: 'end' });
  }, [length]);
  // Nobody should be heard by a screen that is not shown.
  useEffect(() => live.stop, [live]);
  return (
    <>
      <div class="said">
        {view.turns.map(({ key, from, text, state }) => (
          <article key={key} class={`turn ${from}`} aria-label={from === 'person' ? t('You') : t('Agent')}>
            {from === 'person' ? <p class="written">{text}</p> : <Prose text={text} />}
            {state === 'stopped' && <p class="small soft">{t('Stopped.')}</p>}
          </article>
        ))}
        <Task view={view} />
        <div ref={end} />
      </div>
      {/* A screen reader would talk over what the agent says, so it reads only what the agent does not. */}
      <p class="off-screen" role="status">
        {view.unspoken}
      </p>
      {live.hint.value !== '' && <Notice tone="warn">{t(live.hint.value)}</Notice>}
      {view.failure !== '' && (
        <Notice tone="bad">{t('A task in the background has failed: {reason}', { reason: view.failure })}</Notice>
      )}
      {live.error.value !== '' && <Notice tone="bad">{t(live.error.value)}</Notice>}
      <Controls live={live} rate={rate} question={view.question} />
    </>
  );
}

const TOOL_STATES: Readonly<Record<LiveTool['state'], string>> = {
  running: 'running',
  done: 'done',
  failed: 'failed',
};

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
                {name} {t(TOOL_STATES[state])}
              </Chip>
            </li>
          ))}
        </ul>
      )}
      {isInBackground && (
        <p class="small">{t('The agent goes on in the background, and tells you when it is done.')}</p>
      )}
      {queued > 0 && <p class="small">{t('Tasks that wait: {count}', { count: queued })}</p>}
    </div>
  );
}

const STATES: Readonly<Record<LiveState, string>> = {
  off: 'Tap to start a live conversation',
  opening: 'Connecting',
  listening: 'Speak whenever you like',
  hearing: 'Listening',
  thinking: 'The agent is at work',
  speaking: 'Speaking: talk or tap to interrupt',
  reconnecting: 'The connection is gone: connecting again',
};

/** Questions of the agent lie above the buttons, which would otherwise cover them on a small screen. */
function Controls({ live, rate, question }: { live: Live; rate: number; question: LiveQuestion | null }) {
  const t = useT();
  const state = live.state.value;
  const isOn = state !== 'off' && state !== 'opening';
  const isMuted = live.isMuted.value;
  const sentence = isMuted && state === 'listening' ? 'Muted: hold to talk, or tap' : STATES[state];
  return (
    <div class="talk-controls">
      {question && <Permission live={live} question={question} />}
      <p role="status">{t(sentence)}</p>
      <progress class={isOn ? '' : 'hidden'} max={1} value={live.level.value} aria-label={t('Loudness')} />
      <TalkButton
        isOn={state === 'hearing'}
        isListening={live.isHearing}
        onPress={() => (state === 'off' ? void live.start(rate) : live.press())}
        onRelease={live.finish}
      />
      {state !== 'off' && (
        <div class="row">
          {isOn && (
            <>
              <Button icon="stop" disabled={state === 'listening'} onClick={live.interrupt}>
                {t('Stop')}
              </Button>
              <Button aria-pressed={isMuted} onClick={() => live.mute(!isMuted)}>
                {t('Mute')}
              </Button>
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

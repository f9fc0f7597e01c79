import { useSignalEffect } from '@preact/signals';
import { useRef } from 'preact/hooks';
import { timeText } from '../../shared/ages.ts';
import { Empty, Notice } from '../../shared/components.tsx';
import { useI18n } from '../../shared/i18n.ts';
import { Icon } from '../../shared/icons.tsx';
import { LoadedView, useLoad } from '../../shared/load.tsx';
import { hrefOf, useRouter } from '../../shared/router.ts';
import { tokensText } from '../analytics-view.tsx';
import { type Conversation, createChats } from '../chat/chats.ts';
import { Composer } from '../chat/composer.tsx';
import { useFollow } from '../chat/follow.ts';
import type { ToolCall, Turn } from '../chat/turns.ts';
import { useApp } from '../context.ts';
import { MarkdownText } from '../markdown/view.tsx';
import { TextWithMedia } from '../media/text.tsx';

const NEW = 'new';

/** The agent's conversations: the list, or one of them. */
export default function Chat() {
  const { argument } = useRouter().place.value;
  return argument === '' ? <Sessions /> : <Talk id={argument === NEW ? null : argument} />;
}

function Sessions() {
  const { t, language } = useI18n();
  const app = useApp();
  const chats = app.kept(createChats);
  const isOnline = app.session.isOnline.value;
  const sessions = useLoad((signal) => chats.list(signal), [isOnline]);
  const last = app.settings.values.last_session.value;
  return (
    <div class="screen">
      <a class="button primary" href={hrefOf('chat', NEW)}>
        <Icon name="plus" />
        {t('New conversation')}
      </a>
      {last !== '' && (
        <a class="button" href={hrefOf('chat', last)}>
          {t('Continue the last conversation')}
        </a>
      )}
      <LoadedView {...sessions}>
        {(list) =>
          list.length === 0 ? (
            <Empty icon="chat">{t('There is no conversation yet. Begin one above.')}</Empty>
          ) : (
            <ul class="list">
              {list.map(({ id, title, model, updatedAt }) => (
                <li key={id}>
                  <a class="item" href={hrefOf('chat', id)}>
                    <span class="text">
                      <span>{title}</span>
                      <span class="small soft">
                        {[model, updatedAt !== null && timeText(updatedAt, language)].filter(Boolean).join(' · ')}
                      </span>
                    </span>
                    <Icon name="next" />
                  </a>
                </li>
              ))}
            </ul>
          )
        }
      </LoadedView>
    </div>
  );
}

/** One conversation, with the field for the next words. */
function Talk({ id }: { id: string | null }) {
  const { t } = useI18n();
  const app = useApp();
  const router = useRouter();
  const chats = app.kept(createChats);
  const opened = useRef<{ id: string | null; conversation: Conversation }>(undefined);
  const isOpened = opened.current && (opened.current.id === id || opened.current.conversation.id.value === id);
  // A conversation that the agent has just made stays the same one, with the focus of its field.
  if (!isOpened) opened.current = { id, conversation: id === null ? chats.begin() : chats.open(id) };
  const { conversation } = opened.current as { conversation: Conversation };
  const turns = conversation.turns.value;
  const isStreaming = turns.some(({ state }) => state === 'streaming');

  // The agent has made the session: a reload must find it again.
  useSignalEffect(() => {
    const { value } = conversation.id;
    if (value !== null && app.settings.values.last_session.peek() !== value) app.settings.set('last_session', value);
    if (id === null && value !== null) router.go('chat', value, { replace: true });
  });

  return (
    <div class="screen full talk">
      <div class="row bar">
        <a class="button plain icon-only" href={hrefOf('chat')} aria-label={t('All conversations')}>
          <Icon name="back" />
        </a>
        <h2 class="grow">{conversation.title.value || (id === null ? t('New conversation') : t('Conversation'))}</h2>
      </div>
      <Log turns={turns} isKnown={id !== null} />
      <Composer conversation={conversation} isStreaming={isStreaming} />
    </div>
  );
}

/** The messages of a conversation. */
function Log({ turns, isKnown }: { turns: readonly Turn[]; isKnown: boolean }) {
  const { t } = useI18n();
  const scroller = useRef<HTMLDivElement>(null);
  const content = useRef<HTMLDivElement>(null);
  useFollow(scroller, content);
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by keyboard
    <div ref={scroller} class="log" role="log" aria-label={t('Conversation')} tabIndex={0}>
      <div ref={content} class="turns">
        {turns.length === 0 && (
          <Empty icon="chat">
            {isKnown
              ? t('This browser has not seen what was said before. The agent knows it: go on below.')
              : t('Ask the agent something.')}
          </Empty>
        )}
        {turns.map((turn) => (
          <TurnView key={`${turn.request} ${turn.from}`} turn={turn} />
        ))}
      </div>
    </div>
  );
}

function TurnView({ turn }: { turn: Turn }) {
  const { t, language } = useI18n();
  const { show_reasoning, show_token_usage, tool_display } = useApp().settings.values;
  const { from, text, reasoning, tools, state, error, usage } = turn;
  return (
    <article class={`turn ${from}`} aria-label={from === 'person' ? t('You') : t('Agent')}>
      {show_reasoning.value && reasoning !== '' && (
        <details>
          <summary>{t('Reasoning')}</summary>
          <p class="small soft written">{reasoning}</p>
        </details>
      )}
      {tool_display.value !== 'off' &&
        tools.map((tool, index) => <ToolView key={index} tool={tool} isDetailed={tool_display.value === 'detailed'} />)}
      {from === 'person' ? (
        <TextWithMedia text={text}>{(part) => <p class="written">{part.trim()}</p>}</TextWithMedia>
      ) : (
        <MarkdownText text={text} isWhole={state !== 'streaming'} />
      )}
      {state === 'streaming' && (
        <p class="row small soft">
          <span class="spinner small" /> {t('The agent is at work')}
        </p>
      )}
      {show_token_usage.value && usage && <p class="small soft">{tokensText(usage, t, language)}</p>}
      {state === 'stopped' && <p class="small soft">{t('Stopped.')}</p>}
      {state === 'broken' && <Notice tone="bad">{t(error ?? '')}</Notice>}
    </article>
  );
}

const TOOL_STATES = { running: 'running', done: 'done', failed: 'failed' } as const;

function ToolView({ tool, isDetailed }: { tool: ToolCall; isDetailed: boolean }) {
  const { t } = useI18n();
  const head = (
    <>
      <Icon name={tool.state === 'failed' ? 'warning' : tool.state === 'done' ? 'check' : 'play'} />
      <code>{tool.name}</code> <span class="soft">{t(TOOL_STATES[tool.state])}</span>
    </>
  );
  if (!isDetailed) return <p class="row small">{head}</p>;
  const args = tool.args === null ? '' : typeof tool.args === 'string' ? tool.args : JSON.stringify(tool.args, null, 2);
  return (
    <details class="small">
      <summary>{head}</summary>
      {args !== '' && args !== '{}' && (
        <pre>
          <code>{args}</code>
        </pre>
      )}
      {tool.result !== '' && (
        <pre>
          <code>{tool.result}</code>
        </pre>
      )}
    </details>
  );
}

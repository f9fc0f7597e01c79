import { useSignalEffect } from '@preact/signals';
import type { RefObject } from 'preact';
import { useCallback, useEffect, useLayoutEffect, useMemo, useRef } from 'preact/hooks';
import { Button, Empty, Notice, useCopy } from '../../shared/components.tsx';
import { useI18n } from '../../shared/i18n.ts';
import { Icon } from '../../shared/icons.tsx';
import { Panes, useWide } from '../../shared/panes.tsx';
import { hrefOf, useRouter, useTitle } from '../../shared/router.ts';
import { tokensText } from '../analytics-view.tsx';
import { type Conversation, createChats } from '../chat/chats.ts';
import { Composer } from '../chat/composer.tsx';
import { useFollow } from '../chat/follow.ts';
import { ConversationList, MarkDialog, NEW } from '../chat/list.tsx';
import { createChatMarks } from '../chat/marks.ts';
import type { ToolCall, Turn } from '../chat/turns.ts';
import { useApp } from '../context.ts';
import { useFlag } from '../flag.ts';
import { isTouch } from '../keyboard.ts';
import { MarkdownText, useWarmMarkdown } from '../markdown/view.tsx';
import { TextWithMedia } from '../media/text.tsx';

/** Pixels before the first message at which earlier ones are requested. */
const EARLIER = 300;

const focusComposer = () => document.querySelector<HTMLElement>('.composer textarea')?.focus();

/** The agent's conversations: the list, one of them, or both if they fit. */
export default function Chat() {
  const { t } = useI18n();
  const { argument } = useRouter().place.value;
  const isWide = useWide();
  const empty = <Empty icon="chat">{t('Choose a conversation.')}</Empty>;
  return (
    <Panes isWide={isWide} list={<ConversationList open={argument} />} empty={empty}>
      {argument !== '' && <Talk argument={argument} isAlone={!isWide} />}
    </Panes>
  );
}

/** One conversation, with the field for the next message. `isAlone`: no list beside it. */
function Talk({ argument, isAlone }: { argument: string; isAlone: boolean }) {
  const { t } = useI18n();
  const app = useApp();
  const router = useRouter();
  const chats = app.retained(createChats);
  const scroller = useRef<HTMLDivElement>(null);
  const content = useRef<HTMLDivElement>(null);
  const opened = useRef<Conversation>(undefined);
  const shown = useRef('');
  // A conversation that has just started stays the same under its new name, with the focus in its field.
  if (!opened.current || (shown.current !== argument && chats.find(argument) !== opened.current)) {
    opened.current = argument === NEW ? chats.begin() : chats.open(argument);
  }
  shown.current = argument;
  const conversation = opened.current;
  const { isAtEnd, goToEnd } = useFollow(scroller, content);
  const turns = conversation.all.value;
  const isStreaming = conversation.turns.value.some(({ state }) => state === 'streaming');
  const id = conversation.id.value;
  const ownName = chats.nameOf(conversation) || (argument === NEW ? t('New conversation') : t('Conversation'));
  const { marks } = app.retained(createChatMarks);
  const name = (id !== null && marks.value[id]?.name) || ownName;
  const marking = useFlag();
  const heading = useRef<HTMLHeadingElement>(null);
  const isKeeping = chats.isKeeping.value;
  useTitle(name);
  useWarmMarkdown();
  useEffect(() => {
    if (id !== null && isKeeping) void chats.readPast(conversation, false);
  }, [chats, conversation, id, isKeeping]);

  // After opening a conversation by touch to read it, the keyboard must not cover it.
  useLayoutEffect(() => {
    if (isTouch()) heading.current?.focus();
    else focusComposer();
  }, [conversation]);

  // A reload must find it again, even while the agent creates its session.
  useSignalEffect(() => {
    const { value: key } = conversation.key;
    if (key === '') return;
    if (app.settings.values.last_session.peek() !== key) app.settings.set('last_session', key);
    const { screen, argument: place } = router.place.peek();
    if (screen === 'chat' && place !== key && opened.current === conversation)
      router.go('chat', key, { replace: true });
  });

  const ask = useCallback(
    (text: string) => {
      if (chats.send(conversation, text)) goToEnd();
    },
    [chats, conversation, goToEnd],
  );
  const edit = useCallback(
    (text: string) => {
      chats.type(conversation, text);
      focusComposer();
    },
    [chats, conversation],
  );
  const questions = new Map(turns.filter(({ from }) => from === 'person').map(({ request, text }) => [request, text]));
  return (
    <div class="screen full talk">
      <div class="row bar">
        {isAlone && (
          <a class="button plain icon-only" href={hrefOf('chat')} aria-label={t('All conversations')}>
            <Icon name="back" />
          </a>
        )}
        <h2 ref={heading} class="grow cut" tabIndex={-1}>
          {name}
        </h2>
        {id !== null && <Button kind="plain" icon="edit" label={t('Rename or hide')} onClick={marking.on} />}
        {isAlone && (
          <a class="button plain icon-only" href={hrefOf('chat', NEW)} aria-label={t('New conversation')}>
            <Icon name="plus" />
          </a>
        )}
      </div>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by keyboard */}
      <div ref={scroller} class="log" role="log" aria-label={t('Conversation')} tabIndex={0}>
        <div ref={content} class="turns">
          <Earlier conversation={conversation} scroller={scroller} />
          {turns.length === 0 && (
            <Empty icon="chat">
              {argument === NEW
                ? t('Ask the agent something.')
                : t('This browser does not have the earlier messages, but the agent does: continue below.')}
            </Empty>
          )}
          {turns.map((turn) => (
            <TurnView
              key={`${turn.request} ${turn.from}`}
              turn={turn}
              question={questions.get(turn.request)}
              {...{ ask, edit, isStreaming }}
            />
          ))}
        </div>
        {!isAtEnd.value && (
          <div class="to-end">
            <Button
              icon="down"
              label={t('To the end')}
              onClick={() => {
                // The button disappears, and the focus must not move up the page.
                scroller.current?.focus({ preventScroll: true });
                goToEnd();
              }}
            />
          </div>
        )}
      </div>
      <Composer
        conversation={conversation}
        isStreaming={isStreaming}
        onSent={() => {
          // Another conversation may be shown by now.
          if (opened.current === conversation) goToEnd();
        }}
      />
      {marking.isOn && id !== null && <MarkDialog id={id} name={ownName} onClose={marking.off} />}
    </div>
  );
}

/** Requests earlier messages when their place becomes visible, and keeps the visible text in place. */
function Earlier({ conversation, scroller }: { conversation: Conversation; scroller: RefObject<HTMLElement | null> }) {
  const { t } = useI18n();
  const chats = useApp().retained(createChats);
  const mark = useRef<HTMLDivElement>(null);
  const height = useRef(0);
  const { hasMore, isLoading, items } = conversation.past.value;
  const first = items[0]?.id;
  useLayoutEffect(() => {
    const { current: view } = scroller;
    // New content above must not move the visible text. Some browsers ensure that, but not at the very top.
    if (view && height.current > 0 && view.scrollTop < EARLIER) view.scrollTop += view.scrollHeight - height.current;
    height.current = 0;
  }, [first, scroller]);
  useEffect(() => {
    const { current } = mark;
    if (!current || !hasMore || isLoading) return undefined;
    const observer = new IntersectionObserver(
      ([entry]) => {
        if (!entry?.isIntersecting) return;
        height.current = scroller.current?.scrollHeight ?? 0;
        void chats.readPast(conversation, true);
      },
      { root: scroller.current, rootMargin: `${EARLIER}px 0px 0px 0px` },
    );
    observer.observe(current);
    return () => observer.disconnect();
  }, [hasMore, isLoading, first, chats, conversation, scroller]);
  if (!hasMore) return null;
  return (
    <div ref={mark} class="row small soft">
      <span class="spinner small" /> {t('Earlier messages')}
    </div>
  );
}

interface TurnProps {
  turn: Turn;
  /** The message that it answers. */
  question: string | undefined;
  isStreaming: boolean;
  ask(text: string): void;
  edit(text: string): void;
}

/** One message. Rendered again only when it has changed itself. */
function TurnView({ turn, question, isStreaming, ask, edit }: TurnProps) {
  return useMemo(
    () => <TurnBody {...{ turn, question, isStreaming, ask, edit }} />,
    [turn, question, isStreaming, ask, edit],
  );
}

function TurnBody({ turn, question, isStreaming, ask, edit }: TurnProps) {
  const { t, language } = useI18n();
  const { show_reasoning, show_token_usage, tool_display } = useApp().settings.values;
  const { from, text, reasoning, tools, state, error, usage } = turn;
  const copy = useCopy();
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
      {state !== 'streaming' && (
        <div class="row acts">
          {text !== '' && <Button kind="plain" icon="copy" label={t('Copy')} onClick={() => void copy(text)} />}
          {from === 'agent' && question !== undefined && (
            <Button
              kind="plain"
              icon="refresh"
              label={t('Ask again')}
              disabled={isStreaming}
              onClick={() => ask(question)}
            />
          )}
          {from === 'person' && (
            <Button kind="plain" icon="edit" label={t('Edit and ask again')} onClick={() => edit(text)} />
          )}
        </div>
      )}
    </article>
  );
}

function ToolView({ tool, isDetailed }: { tool: ToolCall; isDetailed: boolean }) {
  const { t } = useI18n();
  const head = (
    <>
      <Icon name={tool.state === 'failed' ? 'warning' : tool.state === 'done' ? 'check' : 'play'} />
      <code>{tool.name}</code> <span class="soft">{t(tool.state)}</span>
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

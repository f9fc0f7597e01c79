import { useSignal } from '@preact/signals';
import { useEffect, useLayoutEffect, useMemo, useRef } from 'preact/hooks';
import { timeText } from '../../shared/ages.ts';
import { Button, Empty, inPage, useToast } from '../../shared/components.tsx';
import { useI18n } from '../../shared/i18n.ts';
import { Icon } from '../../shared/icons.tsx';
import { messageOf } from '../../shared/load.tsx';
import { hrefOf, useRouter, useTitle } from '../../shared/router.ts';
import { useApp } from '../context.ts';
import { isSendKey, isTouch } from '../keyboard.ts';
import { TextWithMedia } from '../media/text.tsx';
import { HOME_THREAD, type Item, isUnread, type LateReason } from './items.ts';
import { useThreadName } from './names.ts';
import { answeredBy } from './open-questions.ts';
import type { WaitingReply } from './outbox.ts';

/** Visible fraction of a message for it to count as shown. */
const IN_SIGHT = 0.5;
/** A message taller than the screen counts if it covers this fraction of the screen. */
const TALL = 0.6;

/** One thread: its messages, the replies, and the field for the next one. `isAlone`: no list beside it. */
export function ThreadView({ thread, isAlone }: { thread: string; isAlone: boolean }) {
  const { t } = useI18n();
  const { inbox } = useApp();
  const nameOf = useThreadName();
  const row = inbox.threads.value.find(({ id }) => id === thread);
  const items = inbox.items.value.filter((item) => item.thread === thread);
  const present = new Set(items.map(({ id }) => id));
  const waiting = inbox.waiting.value.filter(
    (reply) => threadOfReply(reply) === thread && !present.has(reply.message_id),
  );
  const answered = useMemo(
    () => answeredBy(inbox.items.value, inbox.waiting.value),
    [inbox.items.value, inbox.waiting.value],
  );
  const chatId = items.findLast((item) => item.chatId !== null)?.chatId ?? (thread === HOME_THREAD ? null : thread);
  const list = useRef<HTMLOListElement>(null);
  const name = nameOf(row ?? { id: thread, title: null });
  useTitle(name);
  useSight(list, items);
  useScroll(list, items.length + waiting.length, isAlone);
  return (
    <div class="screen thread">
      <div class="row nowrap">
        <a class="button plain icon-only" href={hrefOf('inbox')} aria-label={t('All threads')}>
          <Icon name="back" />
        </a>
        <h2 class="cut">{name}</h2>
      </div>
      {items.length + waiting.length === 0 && <Empty icon="chat">{t('Nothing was said here yet.')}</Empty>}
      <ol class="bubbles" ref={list} aria-label={t('Messages')} aria-live="polite" aria-relevant="additions">
        {items.map((item, at) => (
          <Bubble
            key={`${item.kind} ${item.id}`}
            item={item}
            title={item.title === row?.title ? null : item.title}
            original={quoted(items, at)}
            isOpen={!answered.has(item.id) && isAnswerable(item)}
          />
        ))}
        {waiting.map((reply) => (
          <li key={`reply ${reply.message_id}`} class="bubble own">
            <p>{reply.text}</p>
            <span class="small soft">{t('Waits for the relay')}</span>
          </li>
        ))}
      </ol>
      <Composer
        thread={thread}
        chatId={chatId}
        replyTo={items.findLast(({ kind }) => kind === 'message')?.id ?? null}
      />
    </div>
  );
}

/** The message that a reply answers, unless it is right above. */
function quoted(items: readonly Item[], at: number): Item | undefined {
  const { kind, replyTo } = items[at] as Item;
  if (kind !== 'reply' || replyTo === null || items[at - 1]?.id === replyTo) return undefined;
  return items.find(({ id }) => id === replyTo);
}

const threadOfReply = ({ chat_id }: WaitingReply): string => chat_id ?? HOME_THREAD;

const isAnswerable = ({ state }: Item): boolean => ['queued', 'sent', 'shown'].includes(state);

/** Displayed state of an item. */
const STATES: Readonly<Record<Item['state'], string>> = {
  queued: 'Waits for the phone',
  sent: 'Sent to the phone',
  shown: 'Seen',
  answered: 'Answered',
  expired: 'Came too late: no phone connected in a day',
  cancelled: 'Cancelled',
  dropped: 'Came too late: too many messages waited',
  waiting: 'Sent, not read yet',
  taken: 'Read by the agent',
};

/** Displayed reason why an answer does not count. */
const TOO_LATE: Readonly<Record<LateReason, string>> = {
  answered: 'Too late: there was an answer already',
  withdrawn: 'Too late: the question was withdrawn',
  expired: 'Too late: the question has expired',
};

interface BubbleProps {
  item: Item;
  /** Null if it is that of the thread. */
  title: string | null;
  /** The message that a reply answers. */
  original?: Item;
  /** True if an answer still counts. */
  isOpen: boolean;
}

function Bubble({ item, title, original, isOpen }: BubbleProps) {
  const { t, language } = useI18n();
  const { inbox } = useApp();
  const toast = useToast();
  const { place } = useRouter();
  const isFound = place.value.query.get('at') === item.id;
  const isAnswering = useSignal(false);

  async function answer(text: string, index: number): Promise<void> {
    // The buttons stay until the reply is stored.
    if (isAnswering.value) return;
    isAnswering.value = true;
    try {
      await inbox.reply({ text, chat_id: item.chatId, reply_to: item.id, answer_index: index });
    } catch (error) {
      toast(t(messageOf(error)));
    } finally {
      isAnswering.value = false;
    }
  }

  return (
    <li
      class={`bubble ${item.kind === 'reply' ? 'own' : ''} ${isFound ? 'found' : ''}`}
      data-id={item.id}
      data-unread={isUnread(item) ? '' : undefined}
    >
      <span class="off-screen">{item.kind === 'reply' ? t('You') : t('Your agent')}</span>
      {title && <b>{title}</b>}
      {original && <span class="quote small soft cut">{original.text.slice(0, 120)}</span>}
      <TextWithMedia text={item.seal === 'unopened' ? t(item.text) : item.text}>
        {(part) => (
          <p>
            <Linked text={part} />
          </p>
        )}
      </TextWithMedia>
      {isOpen && item.answers.length > 0 && (
        <fieldset class="row" aria-label={t('Answers')}>
          {item.answers.map((text, at) => (
            <Button key={text} kind={at === 0 ? 'primary' : undefined} onClick={() => void answer(text, at)}>
              <span dir="auto">{text}</span>
            </Button>
          ))}
        </fieldset>
      )}
      <span class="small soft">
        <time dateTime={new Date(item.ts).toISOString()} dir="auto">
          {timeText(item.ts, language)}
        </time>{' '}
        · {t(item.late ? TOO_LATE[item.late] : STATES[item.state])}
      </span>
      {item.seal === 'none' && (
        <span class="small soft">
          {t('It came through the edge without a seal: anybody there may have written it.')}
        </span>
      )}
    </li>
  );
}

/** A text whose addresses are links. */
const Linked = ({ text }: { text: string }) => (
  <>
    {text.split(/(https?:\/\/[^\s<>"]*[^\s<>".,;:!?)\]}'])/).map((part, at) =>
      at % 2 === 0 ? (
        part
      ) : (
        <a key={at} href={part} target="_blank" rel="noopener noreferrer">
          {part}
        </a>
      ),
    )}
  </>
);

function Composer({ thread, chatId, replyTo }: { thread: string; chatId: string | null; replyTo: string | null }) {
  const { t } = useI18n();
  const { inbox, session } = useApp();
  const toast = useToast();
  const text = inbox.drafts.value[thread] ?? '';
  const isSending = useSignal(false);

  async function send(): Promise<void> {
    if (text.trim() === '' || isSending.value) return;
    isSending.value = true;
    try {
      await inbox.reply({ text, chat_id: chatId, reply_to: replyTo });
      // The person may have typed on meanwhile.
      if (inbox.drafts.value[thread] === text) inbox.draft(thread, '');
    } catch (error) {
      toast(t(messageOf(error)));
    } finally {
      isSending.value = false;
    }
  }

  return (
    <form class="composer" onSubmit={inPage(() => void send())}>
      <textarea
        class="input"
        rows={Math.min(6, text.split('\n').length)}
        aria-label={t('Reply')}
        placeholder={session.isOnline.value ? t('Reply') : t('Reply: sent once there is a connection')}
        value={text}
        onInput={({ currentTarget }) => inbox.draft(thread, currentTarget.value)}
        onKeyDown={(event) => {
          // With a keyboard, Enter sends; phones have a button for it.
          if (!isSendKey(event) || isTouch()) return;
          event.preventDefault();
          void send();
        }}
      />
      <Button type="submit" kind="primary" icon="send" label={t('Send')} disabled={text.trim() === ''} />
    </form>
  );
}

/** Reports messages as shown while a person can really see them: visible, in a page that is visible and focused. */
function useSight(list: { current: HTMLElement | null }, items: readonly Item[]): void {
  const { inbox } = useApp();
  const unread = items.filter(isUnread).map(({ id }) => id);
  useEffect(() => {
    const elements = [...(list.current?.querySelectorAll<HTMLElement>('[data-unread]') ?? [])];
    if (elements.length === 0) return undefined;
    const inSight = new Set<string>();
    const report = () => {
      if (document.visibilityState === 'visible' && document.hasFocus()) inbox.show([...inSight]);
    };
    const observer = new IntersectionObserver(
      (entries) => {
        for (const { target, intersectionRatio: ratio, intersectionRect, rootBounds } of entries) {
          const id = (target as HTMLElement).dataset.id as string;
          const isTall = rootBounds !== null && intersectionRect.height >= rootBounds.height * TALL;
          if (ratio >= IN_SIGHT || isTall) inSight.add(id);
          else inSight.delete(id);
        }
        report();
      },
      { threshold: [0, 0.1, 0.25, IN_SIGHT, 1] },
    );
    for (const element of elements) observer.observe(element);
    addEventListener('focus', report);
    document.addEventListener('visibilitychange', report);
    const stopOnline = inbox.onOnline(report);
    return () => {
      observer.disconnect();
      removeEventListener('focus', report);
      document.removeEventListener('visibilitychange', report);
      stopOnline();
    };
  }, [unread.join('\n'), inbox]);
}

/** Scrolls to the end, or to the message of a search, when something is added or another element scrolls (`isAlone`). */
function useScroll(list: { current: HTMLElement | null }, length: number, isAlone: boolean): void {
  const { place } = useRouter();
  const at = place.value.query.get('at');
  useLayoutEffect(() => {
    const found = at === null ? null : list.current?.querySelector(`[data-id="${CSS.escape(at)}"]`);
    if (found) found.scrollIntoView({ block: 'center' });
    else list.current?.lastElementChild?.scrollIntoView({ block: 'end' });
  }, [length, at, isAlone]);
}

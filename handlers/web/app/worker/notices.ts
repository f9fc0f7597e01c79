import { isObject } from '../../../../lib/kit/json.ts';
import { answersOf } from '../../../../lib/phone/question.ts';
import type { AnswerPayload, EndsPayload, PushPayload } from '../../../../lib/push/payload.ts';
import type { InboxNews } from '../inbox/inbox.ts';
import { type Item, threadOf } from '../inbox/items.ts';
import { createOutbox, inboxChannel } from '../inbox/outbox.ts';
import { openPageStore } from '../page-store.ts';
import { hashOf } from '../sealing.ts';
import type { Caller } from './caller.ts';
import { deliver } from './deliver.ts';
import type { FullNotificationOptions, WorkerScope } from './scope.ts';
import { ENGLISH, NOTICE_WORDS, type NoticeWords } from './words.ts';

/** A screen of the app, and its argument. */
export interface Place {
  screen: 'inbox' | 'chat' | 'home';
  argument: string;
}

type Payload = PushPayload | AnswerPayload | EndsPayload;

/** Stored with a notification. */
export interface NoticeData extends Place {
  messageId: string;
  chatId: string | null;
  /** As shown on the buttons (contract 09 §10). */
  answers: readonly string[];
  /** As shown by the notification. */
  title: string | null;
  text: string;
}

/** Name of the button for an answer. */
const ACTION = /^answer-([0-3])$/;

/** Reads a push. An invalid one still shows a notification for the inbox, since browsers punish a push without one. */
function readNotice(data: { json(): unknown } | null): Payload {
  const fallback: PushPayload = {
    type: 'message',
    message_id: '',
    chat_id: null,
    question: false,
    sent_at: Date.now(),
  };
  try {
    const notice = data?.json();
    if (!isObject(notice) || typeof notice.message_id !== 'string') return fallback;
    const isKnown =
      notice.type === 'read' ||
      ((notice.type === 'message' || notice.type === 'answer') && typeof notice.sent_at === 'number') ||
      (notice.type === 'ends' && typeof notice.ends_at === 'number');
    return isKnown ? (notice as unknown as Payload) : fallback;
  } catch {
    return fallback;
  }
}

/** Asks a page to show a screen. */
export type OpenPlace = { name: 'open'; place: Place };

/** For background sync, if the browser supports it. */
const SYNC = 'outbox';

/** Maximum buttons of a notification here; browsers that do not report it omit the others themselves. */
const maxActions = (): number | undefined => (Notification as { maxActions?: number }).maxActions;

const actionsOf = (answers: readonly string[]) =>
  answers.slice(0, maxActions()).map((title, at) => ({ action: `answer-${at}`, title }));

/** Shows the relay's push notices as notifications, and sends answers from them. `app` is the address of the page. */
export function serveNotices(scope: WorkerScope, app: string, caller: Caller): void {
  const base = new URL('../', app).href;
  const pageStore = openPageStore(base);
  const outbox = createOutbox(pageStore, hashOf);

  async function words(): Promise<NoticeWords> {
    // Texts of an older version may lack a sentence.
    return { ...ENGLISH, ...(await pageStore.read<NoticeWords>(NOTICE_WORDS)) };
  }

  async function received(notice: Payload): Promise<void> {
    if (notice.type === 'read') return close((data) => data.messageId === notice.message_id);
    if (notice.type !== 'message') return notify(notice);
    const { title, message, question } = await words();
    const thread = threadOf(notice.chat_id);
    const data: NoticeData = {
      messageId: notice.message_id,
      chatId: notice.chat_id,
      screen: 'inbox',
      argument: thread,
      answers: answersOf(notice),
      title: notice.title ?? null,
      text: notice.text ?? '',
    };
    const body = notice.text ?? (notice.question ? question : message);
    // One per thread: the newest message replaces the others.
    await show(notice.title || title, { body, tag: thread, timestamp: notice.sent_at, data });
  }

  /** Shows a notification with the answers in its data. It alerts again if it replaces another one. */
  const show = (title: string, options: FullNotificationOptions & { data: NoticeData }): Promise<void> =>
    scope.registration.showNotification(title, {
      renotify: true,
      actions: actionsOf(options.data.answers),
      ...options,
    } as FullNotificationOptions);

  /** The end of a chat turn, or a session that ends soon. */
  async function notify(notice: AnswerPayload | EndsPayload): Promise<void> {
    const { title, answered, ends } = await words();
    const isAnswer = notice.type === 'answer';
    const place: Place = isAnswer
      ? { screen: 'chat', argument: notice.session_id ?? '' }
      : { screen: 'home', argument: '' };
    await show((isAnswer && notice.title) || title, {
      body: isAnswer ? (notice.text ?? answered) : ends,
      tag: isAnswer ? `${place.screen} ${place.argument}` : 'ends',
      timestamp: isAnswer ? notice.sent_at : Date.now(),
      data: { messageId: notice.message_id, chatId: null, ...place, answers: [], title: null, text: '' },
    });
  }

  async function close(which: (data: NoticeData) => boolean): Promise<void> {
    for (const notification of await scope.registration.getNotifications()) {
      if (which(notification.data as NoticeData)) notification.close();
    }
  }

  /**
   * Sends an answer: an open page does it; without one, the worker, with the key of the session. A failed one waits for the
   * page, unless too many do.
   */
  async function answer(index: number, data: NoticeData): Promise<void> {
    const { messageId, chatId } = data;
    const text = data.answers[index];
    if (text === undefined) return open(data);
    const items = (await pageStore.read<{ items: Item[] }>('items'))?.items ?? [];
    const plain = items.some(({ kind, id, seal }) => kind === 'message' && id === messageId && seal === 'none');
    const asked = { title: data.title, text: data.text, answers: data.answers };
    const reply = { text, chat_id: chatId, reply_to: messageId, answer_index: index, plain, asked };
    const added = await outbox.add(reply).catch(() => undefined);
    const { isEmpty, lateIds } = await empty();
    const { title, ...other } = await words();
    if (!added) {
      // The tap has closed the question, and too many replies wait for this answer to be kept: it is asked again.
      return show(data.title || title, { body: data.text || other.question, tag: data.argument, data });
    }
    const isLate = lateIds.has(added.message_id);
    if (isEmpty && !isLate) return;
    await show(title, {
      body: isLate ? other.tooLate : other.waits,
      tag: data.argument,
      renotify: false,
      data: { ...data, answers: [] },
    });
    const { sync } = scope.registration as { sync?: { register(tag: string): Promise<void> } };
    if (!isEmpty) await sync?.register(SYNC).catch(() => {});
  }

  /** Sends the replies in the outbox. Resolves with whether none is left, and those that came too late. */
  async function empty(): Promise<{ isEmpty: boolean; lateIds: ReadonlySet<string> }> {
    const channel = inboxChannel(base);
    channel.postMessage({ name: 'outbox' } satisfies InboxNews);
    const waiting = await outbox.list();
    const stored = await caller.stored();
    let lateIds: ReadonlySet<string> = new Set();
    if (stored) {
      const sent = await deliver(stored, waiting, caller);
      lateIds = sent.lateIds;
      if (sent.acknowledged.size > 0) await outbox.remove(sent.acknowledged);
      channel.postMessage({ name: 'outbox' } satisfies InboxNews);
    }
    channel.close();
    return { isEmpty: (await outbox.list()).length === 0, lateIds };
  }

  /** Shows the screen in an open page, or in a new one. */
  async function open({ screen, argument }: Place): Promise<void> {
    const pages = await scope.clients.matchAll({ type: 'window', includeUncontrolled: true });
    const page = pages.find(({ url }) => url.split(/[?#]/)[0] === app);
    if (!page) return void (await scope.clients.openWindow(`${app}#/${screen}/${encodeURIComponent(argument)}`));
    page.postMessage({ name: 'open', place: { screen, argument } } satisfies OpenPlace);
    // Only allowed after a tap, which is missing in tests.
    await page.focus().catch(() => {});
  }

  /** Sequentially, so that of two messages in a thread, the newer one stays. */
  let last: Promise<void> = Promise.resolve();
  scope.addEventListener('push', (event) => {
    const notice = readNotice(event.data);
    last = last.catch(() => {}).then(() => received(notice));
    event.waitUntil(last);
  });
  scope.addEventListener('notificationclick', (event) => {
    const { action, notification } = event;
    const data = notification.data as NoticeData;
    notification.close();
    const [, index] = ACTION.exec(action) ?? [];
    event.waitUntil(index === undefined ? open(data) : answer(Number(index), data));
  });
  scope.addEventListener('sync', (event) => {
    if (event.tag === SYNC) event.waitUntil(empty());
  });
  scope.addEventListener('pushsubscriptionchange', (event) => {
    event.waitUntil(renew(event.oldSubscription));
  });

  /** The push service has dropped a subscription: makes an equivalent one. */
  async function renew(old: PushSubscription | null | undefined): Promise<void> {
    const stored = await caller.stored();
    if (!old || !stored?.pairing) return;
    const content = (await pageStore.read<boolean>('knock-content')) === true;
    const next = await scope.registration.pushManager.subscribe(old.options as PushSubscriptionOptionsInit);
    await caller.fetch('push/subscribe', {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ ...next.toJSON(), content }),
    });
  }
}

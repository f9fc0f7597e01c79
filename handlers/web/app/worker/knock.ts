import { isObject } from '../../../../lib/kit/json.ts';
import { answersOf } from '../../../../lib/phone/question.ts';
import type { AnswerPayload, EndsPayload, PushPayload } from '../../../../lib/push/payload.ts';
import type { InboxNews } from '../inbox/inbox.ts';
import { type Item, threadOf } from '../inbox/items.ts';
import { createOutbox, inboxChannel } from '../inbox/outbox.ts';
import { openKeep } from '../keep.ts';
import { hashOf } from '../sealing.ts';
import type { Caller } from './caller.ts';
import { deliver } from './deliver.ts';
import type { FullNotificationOptions, WorkerScope } from './scope.ts';
import { ENGLISH, KNOCK_WORDS, type KnockWords } from './words.ts';

/** A screen of the app, and its argument. */
export interface Place {
  screen: 'inbox' | 'chat' | 'home';
  argument: string;
}

type Payload = PushPayload | AnswerPayload | EndsPayload;

/** Stored with a notification. */
export interface KnockData extends Place {
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
function readKnock(data: { json(): unknown } | null): Payload {
  const fallback: PushPayload = {
    type: 'message',
    message_id: '',
    chat_id: null,
    question: false,
    sent_at: Date.now(),
  };
  try {
    const knock = data?.json();
    if (!isObject(knock) || typeof knock.message_id !== 'string') return fallback;
    const isKnown =
      knock.type === 'read' ||
      ((knock.type === 'message' || knock.type === 'answer') && typeof knock.sent_at === 'number') ||
      (knock.type === 'ends' && typeof knock.ends_at === 'number');
    return isKnown ? (knock as unknown as Payload) : fallback;
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

/** Shows the relay's push notices as notifications, and sends answers from them. `app` is the address of the page. */
export function serveKnocks(scope: WorkerScope, app: string, caller: Caller): void {
  const base = new URL('../', app).href;
  const keep = openKeep(base);
  const outbox = createOutbox(keep, hashOf);

  async function words(): Promise<KnockWords> {
    // Texts of an older version may lack a sentence.
    return { ...ENGLISH, ...(await keep.read<KnockWords>(KNOCK_WORDS)) };
  }

  async function knocked(knock: Payload): Promise<void> {
    if (knock.type === 'read') return close((data) => data.messageId === knock.message_id);
    if (knock.type !== 'message') return notify(knock);
    const { title, message, question } = await words();
    const answers = answersOf(knock);
    const thread = threadOf(knock.chat_id);
    const options: FullNotificationOptions = {
      body: knock.text ?? (knock.question ? question : message),
      // One per thread: the newest message replaces the others, and alerts again.
      tag: thread,
      renotify: true,
      timestamp: knock.sent_at,
      data: {
        messageId: knock.message_id,
        chatId: knock.chat_id,
        screen: 'inbox',
        argument: thread,
        answers,
        title: knock.title ?? null,
        text: knock.text ?? '',
      } satisfies KnockData,
      actions: answers.slice(0, maxActions()).map((title, at) => ({ action: `answer-${at}`, title })),
    };
    await scope.registration.showNotification(knock.title || title, options);
  }

  /** The end of a chat turn, or a session that ends soon. */
  async function notify(knock: AnswerPayload | EndsPayload): Promise<void> {
    const { title, answered, ends } = await words();
    const isAnswer = knock.type === 'answer';
    const place: Place = isAnswer
      ? { screen: 'chat', argument: knock.session_id ?? '' }
      : { screen: 'home', argument: '' };
    await scope.registration.showNotification((isAnswer && knock.title) || title, {
      body: isAnswer ? (knock.text ?? answered) : ends,
      tag: isAnswer ? `${place.screen} ${place.argument}` : 'ends',
      renotify: true,
      timestamp: isAnswer ? knock.sent_at : Date.now(),
      data: {
        messageId: knock.message_id,
        chatId: null,
        ...place,
        answers: [],
        title: null,
        text: '',
      } satisfies KnockData,
    } as FullNotificationOptions);
  }

  async function close(which: (data: KnockData) => boolean): Promise<void> {
    for (const notification of await scope.registration.getNotifications()) {
      if (which(notification.data as KnockData)) notification.close();
    }
  }

  /**
   * Sends an answer: an open page does it; without one, the worker, with the key of the session. A failed one waits for the
   * page.
   */
  async function answer(index: number, data: KnockData): Promise<void> {
    const { messageId, chatId } = data;
    const text = data.answers[index];
    if (text === undefined) return open(data);
    const items = (await keep.read<{ items: Item[] }>('items'))?.items ?? [];
    const plain = items.some(({ kind, id, seal }) => kind === 'message' && id === messageId && seal === 'none');
    const asked = { title: data.title, text: data.text, answers: data.answers };
    const added = await outbox.add({ text, chat_id: chatId, reply_to: messageId, answer_index: index, plain, asked });
    const { isEmpty, late } = await empty();
    const { title, ...other } = await words();
    const isLate = late.has(added.message_id);
    if (isEmpty && !isLate) return;
    await scope.registration.showNotification(title, {
      body: isLate ? other.late : other.waits,
      tag: data.argument,
      data: { ...data, answers: [] } satisfies KnockData,
    });
    const { sync } = scope.registration as { sync?: { register(tag: string): Promise<void> } };
    if (!isEmpty) await sync?.register(SYNC).catch(() => {});
  }

  /** Sends the replies in the outbox. Resolves with whether none is left, and those that came too late. */
  async function empty(): Promise<{ isEmpty: boolean; late: ReadonlySet<string> }> {
    const channel = inboxChannel(base);
    channel.postMessage({ name: 'outbox' } satisfies InboxNews);
    const waiting = await outbox.list();
    const stored = await caller.stored();
    let late: ReadonlySet<string> = new Set();
    if (stored) {
      const sent = await deliver(stored, waiting, caller);
      late = sent.late;
      if (sent.acknowledged.size > 0) await outbox.remove(sent.acknowledged);
      channel.postMessage({ name: 'outbox' } satisfies InboxNews);
    }
    channel.close();
    return { isEmpty: (await outbox.list()).length === 0, late };
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
    const knock = readKnock(event.data);
    last = last.catch(() => {}).then(() => knocked(knock));
    event.waitUntil(last);
  });
  scope.addEventListener('notificationclick', (event) => {
    const { action, notification } = event;
    const data = notification.data as KnockData;
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
    const content = (await keep.read<boolean>('knock-content')) === true;
    const next = await scope.registration.pushManager.subscribe(old.options as PushSubscriptionOptionsInit);
    await caller.fetch('push/subscribe', {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ ...next.toJSON(), content }),
    });
  }
}

import type { PhoneMessage, PushNoticeRecord, PushSubscriptionRecord, Store } from '../../storage/schema.ts';
import type { EndedTurn } from '../chat/chat-turns.ts';
import type { Config } from '../config.ts';
import { describeError, notStored, RelayError } from '../errors.ts';
import type { Upstream } from '../host/upstream.ts';
import { isSuccess } from '../host/upstream.ts';
import { createApplied } from '../kit/applied.ts';
import { utf8ToBytes } from '../kit/bytes.ts';
import { type Clock, seconds } from '../kit/clock.ts';
import { withDeadline } from '../kit/timeouts.ts';
import type { Log } from '../log.ts';
import { RETENTION } from '../phone/delivery.ts';
import { isQuestion } from '../phone/question.ts';
import { lineOf, noticeOf, shownOf } from '../phone/shown.ts';
import type { Session } from '../sessions/session.ts';
import type { Sessions } from '../sessions/sessions.ts';
import { encryptMessage } from './encrypt.ts';
import { acceptsSilence, createEndpointPolicy } from './endpoint.ts';
import { type NewPushNotice, type Outcome, openPushNotices } from './notices.ts';
import type { AnswerPayload, EndsPayload, PushPayload } from './payload.ts';
import { openServices } from './services.ts';
import { openSubscriptions, receiverKeys } from './subscriptions.ts';
import { createVapid } from './vapid.ts';

/** Milliseconds in which connected devices may show a message (contract 09 §6). */
const SHOW_TIMEOUT = 10_000;
/** Milliseconds in which a push service must answer. */
const ANSWER_TIMEOUT = 15_000;
/** Push services require a contact; this one belongs to nobody. */
const NO_CONTACT = 'mailto:nobody@example.com';

export interface PushDeps {
  store: Store<'push'>;
  config: Pick<Config, 'pushHosts' | 'pushContact' | 'publicUrl'>;
  sessions: Pick<Sessions, 'byFamily' | 'onEnd'>;
  upstream: Upstream;
  clock: Clock;
  log: Log;
  /** The grant that a device needs to be notified of messages. */
  grant: string;
}

/** The other relay of the mirror (contract 12 §2). Called in the turn of a change, whose transaction it joins. */
export interface OtherPush {
  /** Lets the other relay notify devices. False if this relay has to. */
  call(notice: NewPushNotice): boolean;
  /** No device needs a notice any more; the device of the subscriptions `by` has read it. */
  settled(messageId: string, by: readonly string[]): void;
  /** True at home if the edge may read texts, and so may devices that only the edge has vouched for. */
  mayRead(): boolean;
  /** A device has subscribed at this relay, or (null) no longer is. */
  subscribed(key: string, record: PushSubscriptionRecord | null): void;
}

export type Push = Awaited<ReturnType<typeof openPush>>;

/**
 * Web push: notifies devices of messages that nobody is looking at (contract 09 §6). The same for browsers and UnifiedPush.
 */
export async function openPush({ store, config, sessions, upstream, clock, log, grant }: PushDeps) {
  const policy = createEndpointPolicy(config.pushHosts);
  const contact = config.pushContact ?? (config.publicUrl?.startsWith('https:') ? config.publicUrl : null);
  const identity = { store, clock, contact: contact ?? NO_CONTACT };
  const vapid = createVapid({ ...identity, record: 'vapid' });
  const homeVapid = createVapid({ ...identity, record: 'vapid:home' });
  let other: OtherPush | undefined;
  const services = await openServices({ store, log });
  const subscriptions = await openSubscriptions({
    store,
    sessions,
    policy,
    grant,
    now: () => seconds(clock),
    log,
    changed: (key, record) => other?.subscribed(key, record),
  });
  const ends = createApplied({ clock, log, what: 'the subscription is over', save: subscriptions.removeLeft });
  const acceptsRead = ({ endpoint }: PushSubscriptionRecord) => acceptsSilence(new URL(endpoint));
  const notices = await openPushNotices({
    store,
    clock,
    log,
    subscriptions,
    send,
    acceptsRead,
    forward: (notice) => other?.call(notice) ?? false,
    settledThere: (messageId, by) => other?.settled(messageId, by),
  });

  async function send(notice: PushNoticeRecord, to: PushSubscriptionRecord, signal: AbortSignal): Promise<Outcome> {
    const url = new URL(to.endpoint);
    const note = (result: Outcome['result'], status: number | null, error: string | null = null) =>
      services.note({ host: url.host, at: clock.now(), result, status, error });
    try {
      const { status, outcome } = await call(notice, to, url, signal);
      note(outcome.result, status);
      if (outcome.result !== 'sent') log.warn(`the push service ${url.host} answered ${status}`);
      return outcome;
    } catch (error) {
      if (!signal.aborted) note('later', null, describeError(error));
      throw error;
    }
  }

  async function call(notice: PushNoticeRecord, to: PushSubscriptionRecord, url: URL, signal: AbortSignal) {
    const hasContent = to.content && (!to.edge || other?.mayRead() === true);
    const plaintext = utf8ToBytes(JSON.stringify(payloadOf(notice, hasContent)));
    const [body, authorization] = await Promise.all([
      encryptMessage(plaintext, receiverKeys(to)),
      (to.home ? homeVapid : vapid).authorization(url),
    ]);
    return withDeadline({ clock, timeout: ANSWER_TIMEOUT, signal }, async (signal) => {
      const { status, headers } = await upstream({
        method: 'POST',
        url: url.href,
        headers: {
          authorization,
          'content-type': 'application/octet-stream',
          'content-encoding': 'aes128gcm',
          ttl: String(Math.max(1, Math.ceil((notice.until - clock.now()) / 1000))),
          urgency: notice.question && notice.kind === 'message' ? 'high' : 'normal',
        },
        body,
        mayConnect: policy.mayConnect,
        signal,
      });
      return { status, outcome: outcomeOf(status, headers['retry-after'], clock.now()) };
    });
  }

  const start = () => notices.start();

  return {
    /** Starts sending, on a host once it listens. */
    start,

    /** Starts sending, at the edge whenever the object wakes. */
    restored: start,

    /** The key with which a device subscribes, base64url: home's for a device of home, else created by the first call. */
    publicKey: (session?: Session): Promise<string> => (session?.mirrored ? homeVapid : vapid).publicKey(),

    /** Notices as seen by the mirror (contract 12 §2). Changes are written in the turn of the call. */
    shared: {
      join(push: OtherPush): void {
        other = push;
      },
      keyPair: vapid.pair,
      adoptKeyPair: homeVapid.adopt,
      subscriptions: subscriptions.entries,
      adopt: subscriptions.adopt,
      leave: subscriptions.leave,
      /** Home has a notice for devices. */
      add: (notice: NewPushNotice): void => notices.add({ ...notice, due: clock.now() }),
      settled: notices.settled,
      again: notices.again,
    },

    /**
     * Subscribes a device, or renews its subscription.
     * @throws RelayError like `add` of the subscriptions, and `unavailable` if it cannot be stored.
     */
    subscribe: (session: Session, body: Readonly<Record<string, unknown>>): Promise<void> =>
      subscriptions.add(session, body).catch((error) => {
        throw error instanceof RelayError ? error : notStored(error);
      }),

    /**
     * Ends a subscription of a device. Resolves with whether it existed.
     * @throws RelayError `unavailable` if it is over, but that could not be stored (contract 01 §6.7).
     */
    unsubscribe: (session: Session, endpoint: unknown): Promise<boolean> =>
      subscriptions.end(session, endpoint).catch(async (error) => {
        if (error instanceof RelayError) throw error;
        await ends.store();
        return true;
      }),

    /** Number of subscribed devices. */
    count: (): number => subscriptions.keys().length,

    /**
     * Status of notifications: the operator's contact given to push services (null if none), and the last call to each
     * service of a subscription.
     */
    status() {
      const endpoints = subscriptions.keys().flatMap((key) => subscriptions.find(key)?.endpoint ?? []);
      const hosts = new Set(endpoints.map((endpoint) => new URL(endpoint).host));
      return { subscriptions: endpoints.length, contact, services: services.of(hosts) };
    },

    /**
     * A message was sent to devices (`isDelivered`), or waits for one. Devices are notified at once, or if none shows it in
     * time, since a connected device may not be looked at. A silent message notifies nobody (contract 04 §5.3).
     */
    accepted(message: PhoneMessage, isDelivered: boolean): void {
      if (message.surfacing === 'inbox' || subscriptions.keys().length === 0) return;
      const { message_id, chat_id, sent_at, metadata } = message;
      const { title, text, answers } = noticeOf(shownOf(message));
      notices.add({
        message_id,
        chat_id,
        title,
        text,
        question: isQuestion(metadata),
        ...(answers.length > 0 && { answers: [...answers] }),
        due: clock.now() + (isDelivered ? SHOW_TIMEOUT : 0),
        until: sent_at + RETENTION,
      });
    },

    /** Chat turns whose end no client gets in time (contract 10 §1): notifies the devices of the family. */
    turns: {
      ended({ turnId, family, sessionId, state, question, text }: EndedTurn): void {
        if (state === 'running' || subscriptions.of({ family }).length === 0) return;
        const now = clock.now();
        notices.add({
          message_id: turnId,
          chat_id: null,
          title: lineOf(question),
          text: lineOf(text),
          question: false,
          answer: { family, session_id: sessionId, state },
          due: now + SHOW_TIMEOUT,
          until: now + RETENTION,
        });
      },

      seen: (turnId: string): void => notices.settled(turnId, []),

      isWaiting: notices.isWaiting,
    },

    /** Notifies the devices of a session that ends soon, once for each end (contract 11 §2). */
    endsSoon({ family, prefix, expiresAt }: Session): void {
      if (expiresAt === null || subscriptions.of({ family }).length === 0) return;
      const now = clock.now();
      notices.add({
        message_id: `ends-${prefix}-${Math.round(expiresAt)}`,
        chat_id: null,
        title: null,
        text: '',
        question: false,
        ends: { family, ends_at: expiresAt },
        due: now,
        until: now + RETENTION,
      });
    },

    /** A message was shown (by the device of this session), answered or cancelled, so that it needs no notice any more. */
    settled(messageId: string, session?: Pick<Session, 'family'>): void {
      notices.settled(messageId, session ? subscriptions.of(session) : []);
    },

    stop(): void {
      notices.stop();
      ends.stop();
    },
  };
}

function payloadOf(notice: PushNoticeRecord, hasContent: boolean): PushPayload | AnswerPayload | EndsPayload {
  const { kind, message_id, chat_id, question, title, text, answers, answer, ends, until } = notice;
  if (kind === 'read') return { type: 'read', message_id };
  if (ends) return { type: 'ends', message_id, ends_at: ends.ends_at };
  const sent_at = until - RETENTION;
  const content = hasContent && text !== '' && { title, text };
  if (answer) {
    const { session_id, state } = answer;
    return { type: 'answer', message_id, turn_id: message_id, session_id, state, sent_at, ...content };
  }
  const choices = content && answers && { answers };
  return { type: 'message', message_id, chat_id, question, sent_at, ...content, ...choices };
}

/** Interprets a push service's status (RFC 8030 §5, §7.3). Redirects are not followed and count as a refusal. */
function outcomeOf(status: number, retryAfter: string | undefined, now: number): Outcome {
  if (isSuccess(status)) return { result: 'sent' };
  if (status === 404 || status === 410) return { result: 'gone' };
  if (status === 429 || status >= 500) return { result: 'later', wait: waitOf(retryAfter, now) };
  return { result: 'refused' };
}

/** Milliseconds of `Retry-After`, seconds or a date. */
function waitOf(value: string | undefined, now: number): number {
  if (value === undefined) return 0;
  if (/^\d{1,9}$/.test(value.trim())) return Number(value) * 1000;
  const date = Date.parse(value);
  return Number.isNaN(date) ? 0 : Math.max(0, date - now);
}

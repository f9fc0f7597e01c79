import type { BrowserContext, Page } from 'playwright-core';
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest';
import { connected, PLAIN, webCode } from '../support/app.ts';
import { describeInBrowser, expectAccessible, smallTargets } from '../support/browser.ts';
import { startFlakyProxy } from '../support/flaky-proxy.ts';
import { tapNotification } from '../support/notification-tap.ts';
import { type PushNotice, type PushService, type Subscription, startPushService } from '../support/push-service.ts';
import { pair, post, randomCode, registerCode, startNodeTarget, type Target } from '../support/relay.ts';

const asTool = { 'x-svc-operator': '1' };

/** The part of the worker's global scope that the cases use. */
interface Scope {
  registration: ServiceWorkerRegistration;
  /** The last call about notifications. */
  turn?: Promise<unknown>;
}

/**
 * Runs in the worker: the notifications that are shown. The browser forgets one that it is asked for before it has finished
 * showing it, so these calls wait for each other.
 */
async function listShown() {
  const scope = globalThis as unknown as Scope;
  const { registration } = scope;
  function inTurn<Result>(call: () => Promise<Result>): Promise<Result> {
    const result = (scope.turn ?? Promise.resolve()).then(call);
    scope.turn = result.catch(() => {});
    return result;
  }
  if (!scope.turn) {
    const show = registration.showNotification.bind(registration);
    registration.showNotification = (...notification) => inTurn(() => show(...notification));
  }
  const notifications = await inTurn(() => registration.getNotifications());
  return notifications.map((notification) => ({
    title: notification.title,
    body: notification.body,
    tag: notification.tag,
    id: notification.data.messageId,
    actions: (notification as { actions?: readonly { title: string }[] }).actions?.map(({ title }) => title),
  }));
}

describeInBrowser('notifications in a browser (contract 09 §6)', ({ open }) => {
  let relay: Target;
  let service: PushService;
  const closings: (() => unknown)[] = [];
  beforeAll(async () => {
    service = await startPushService((work) => closings.push(work));
    relay = await startNodeTarget({ env: { RELAY_PUSH_HOSTS: service.host } });
  });
  afterAll(async () => {
    await relay?.stop();
    for (const close of closings) await close();
  });

  /** The browser's own push service is out of reach here, so that `subscribe` never ends: the fake one takes its place. */
  async function withPushService(context: BrowserContext): Promise<Subscription> {
    const subscription = service.subscription();
    await context.grantPermissions(['notifications']);
    await context.addInitScript((made) => {
      let current: object | null = null;
      PushManager.prototype.getSubscription = async () => current as PushSubscription | null;
      PushManager.prototype.subscribe = async (options) => {
        const { applicationServerKey, userVisibleOnly } = options as {
          applicationServerKey: Uint8Array;
          userVisibleOnly: boolean;
        };
        if (!userVisibleOnly) throw new Error('refused by browsers');
        current = {
          ...made,
          options: { applicationServerKey: applicationServerKey.slice().buffer },
          toJSON: () => ({ ...made, expirationTime: null }),
          unsubscribe: async () => {
            current = null;
            return true;
          },
        };
        return current as PushSubscription;
      };
    }, subscription);
    return subscription;
  }

  const originOf = (port: number) => `http://localhost:${port}`;
  const relayPort = () => Number(new URL(relay.url).port);

  /** A paired browser whose notifications were switched on in the settings, and that has no page of the app any more. */
  async function subscribed(port = relayPort()) {
    const opened = await open();
    const { page, allow } = opened;
    // The page without the app has no icon of its own.
    allow(/404/);
    const context = page.context();
    const subscription = await withPushService(context);
    const code = await webCode(relay);
    await page.goto(`${originOf(port)}/app/#code=${code}`);
    await connected(page);
    await page.goto(`${originOf(port)}/app/#/settings`);
    const call = page.getByRole('switch', { name: 'Call this device' });
    // Those of other cases are still there.
    const before = relay.relay?.push.count() ?? 0;
    await call.click();
    await expect.poll(() => call.isChecked()).toBe(true);
    await expect.poll(() => relay.relay?.push.count()).toBe(before + 1);
    const worker = context.serviceWorkers()[0] ?? (await context.waitForEvent('serviceworker'));
    /** A page of the same origin without the app, from which the browser is told to deliver. */
    const leave = async () => {
      const state = () => worker.evaluate(() => (globalThis as unknown as Scope).registration.active?.state);
      await expect.poll(state).toBe('activated');
      await shown();
      await page.goto(`${originOf(port)}/app/icon.svg`);
      const devtools = await context.newCDPSession(page);
      const registered = new Promise<string>((resolve) => {
        devtools.on('ServiceWorker.workerRegistrationUpdated', ({ registrations }) => {
          if (registrations[0]) resolve(registrations[0].registrationId);
        });
      });
      await devtools.send('ServiceWorker.enable');
      const registrationId = await registered;
      /** Whether a message is shown, or was read and no longer is, soon. */
      const hasArrived = (id: unknown, isRead: boolean) =>
        expect
          .poll(async () => (await shown()).some((notification) => notification.id === id), { timeout: 5_000 })
          .toBe(!isRead)
          .then(
            () => true,
            () => false,
          );
      return async ({ payload }: PushNotice) => {
        const { type, message_id: id } = payload as { type?: unknown; message_id?: unknown };
        // On a busy machine, the browser now and then loses what it is told to deliver while it starts the worker.
        for (let attempt = 0; attempt < 3; attempt++) {
          await devtools.send('ServiceWorker.deliverPushMessage', {
            origin: originOf(port),
            registrationId,
            data: JSON.stringify(payload),
          });
          if (await hasArrived(id, type === 'read')) return;
        }
      };
    };
    const shown = () => worker.evaluate(listShown);
    const tap = (action: string) => tapNotification(page, action);
    return { ...opened, subscription, worker, leave, shown, tap };
  }

  /** Switches it on, and awaits that the relay knows: until then it sends none. */
  async function showWords(page: Page): Promise<void> {
    const stored = page.waitForResponse((response) => response.url().endsWith('/push/subscribe'));
    await page.getByRole('switch', { name: 'Show the words' }).click();
    expect((await stored).status()).toBe(200);
  }

  const say = async (body: Record<string, unknown>) => {
    const response = await relay.operator('/phone/message', { ...post(body), headers: asTool });
    expect(response.status).toBe(200);
  };
  const repliesTo = async (chatId: string) =>
    (await (await relay.operator(`/phone/replies?chat_id=${chatId}&timeout=20`)).json()).replies;

  it('§6, §10: calls to a question; with its words, it is answered from the notification without a page', async () => {
    const { page, subscription, leave, shown, tap } = await subscribed();
    await showWords(page);
    const deliver = await leave();
    const answers = ['Deploy', 'Wait', 'Never'];
    await say({ text: 'Shall I?', chat_id: 'k1', title: 'Deploy', message_id: 'k1-m1', answers });
    const [notice] = await service.noticesOf(subscription, 1);
    await deliver(notice as PushNotice);
    await expect
      .poll(shown)
      .toEqual([{ title: 'Deploy', body: 'Shall I?', tag: 'k1', id: 'k1-m1', actions: ['Deploy', 'Wait'] }]);
    await tap('answer-1');
    expect(await repliesTo('k1')).toMatchObject([{ text: 'Wait', reply_to: 'k1-m1', chat_id: 'k1', answer_index: 1 }]);
    await expect.poll(shown).toEqual([]);

    // Devices are told that the first one was answered.
    await service.noticesOf(subscription, 2);

    // A question that is withdrawn before the tap: the owner is told that the answer does not count.
    await say({ text: 'Again?', chat_id: 'k1', title: 'Deploy', message_id: 'k1-m2' });
    const notices = await service.noticesOf(subscription, 3);
    await deliver(notices[2] as PushNotice);
    await expect.poll(shown).toMatchObject([{ id: 'k1-m2', actions: ['Yes', 'No'] }]);
    await relay.operator('/phone/outbound?message_id=k1-m2', { method: 'DELETE', headers: asTool });
    await tap('answer-0');
    await expect.poll(shown).toMatchObject([{ body: 'Your answer came too late: it does not count.', actions: [] }]);
    expect(service.faults).toEqual([]);
  });

  it('§6, §10: without its words a question has no buttons', async () => {
    const { subscription, leave, shown } = await subscribed();
    const deliver = await leave();
    await say({ text: 'Shall I deploy?', chat_id: 'k5', title: 'Deploy', message_id: 'k5-m1' });
    const [notice] = await service.noticesOf(subscription, 1);
    await deliver(notice as PushNotice);
    await expect
      .poll(shown)
      .toEqual([{ title: 'Your agent', body: 'There is a question for you.', tag: 'k5', id: 'k5-m1', actions: [] }]);
  });

  it('§6: a notification of a thread gives way to its next message, and goes when that was read elsewhere', async () => {
    const { page, subscription, leave, shown } = await subscribed();
    await showWords(page);
    await expectAccessible(page);
    expect(await smallTargets(page)).toEqual([]);
    const deliver = await leave();
    await say({ text: 'One', chat_id: 'k2', title: 'Counting', message_id: 'k2-m1' });
    await say({ text: 'Two', chat_id: 'k2', title: 'Counting', message_id: 'k2-m2' });
    for (const notice of await service.noticesOf(subscription, 2)) await deliver(notice);
    await expect.poll(shown).toEqual([{ title: 'Counting', body: 'Two', tag: 'k2', id: 'k2-m2', actions: [] }]);
    const phone = await pair(relay);
    phone.client.send('proactive', 'proactive.subscribe');
    await phone.client.next({ type: 'proactive.backlog.complete' });
    phone.client.send('proactive', 'proactive.shown', { message_id: 'k2-m2' });
    const notices = await service.noticesOf(subscription, 3);
    await deliver(notices[2] as PushNotice);
    await expect.poll(shown).toEqual([]);
    phone.client.terminate();
  });

  it('10 §1, 11 §2: an answer that nobody got leads to its conversation, and the end of the session to home', async () => {
    const { page, leave, shown, tap } = await subscribed();
    const deliver = await leave();
    const sent = { path: '', headers: {} } as unknown as PushNotice;
    const answer = { type: 'answer', message_id: 't1', turn_id: 't1', session_id: 's9', state: 'done', sent_at: 1 };
    await deliver({ ...sent, payload: answer });
    const notice = { title: 'Your agent', body: 'Your agent has answered.', tag: 'chat s9', id: 't1', actions: [] };
    await expect.poll(shown).toEqual([notice]);
    await deliver({ ...sent, payload: { ...answer, message_id: 't2', title: 'What is it?', text: 'It is 42.' } });
    await expect.poll(shown).toEqual([{ ...notice, id: 't2', title: 'What is it?', body: 'It is 42.' }]);
    await deliver({ ...sent, payload: { type: 'ends', message_id: 'ends-1', ends_at: 1 } });
    await expect
      .poll(async () => (await shown()).filter(({ tag }) => tag === 'ends'))
      .toMatchObject([{ tag: 'ends', body: expect.stringContaining('signed out soon') }]);
    await page.goto(`${originOf(relayPort())}/app/`);
    await connected(page);
    await tap('');
    await page.waitForURL('**/app/#/chat/s9');
  });

  it('§6: a tap opens the very thread, and reading it there takes the notification away', async () => {
    const { page, tab, subscription, leave, shown, tap } = await subscribed();
    const deliver = await leave();
    await say({ text: 'Look at this', chat_id: 'k3', message_id: 'k3-m1' });
    const [notice] = await service.noticesOf(subscription, 1);
    await deliver(notice as PushNotice);
    await expect.poll(shown).toMatchObject([{ id: 'k3-m1' }]);
    const other: Page = await tab();
    await other.goto(`${originOf(relayPort())}/app/`);
    await connected(other);
    await other.getByRole('link', { name: /unread message/ }).waitFor();
    await tap('');
    await other.getByText('Look at this').waitFor();
    await expect.poll(() => other.url()).toContain('#/inbox/k3');
    await other.getByText('Seen').waitFor();
    await expect.poll(shown).toEqual([]);
    await page.close();
  });

  it('§6: an answer from the notification waits when the relay is out of reach, and is sent once', async () => {
    const proxy = await startFlakyProxy({ port: relayPort(), seed: 3, faults: ['none'] });
    closings.unshift(proxy.close);
    const { page, subscription, leave, shown, tap, allow } = await subscribed(proxy.port);
    allow(/WebSocket|ERR_/);
    await showWords(page);
    const deliver = await leave();
    await say({ text: 'Ready?', chat_id: 'k4', message_id: 'k4-m1' });
    const [notice] = await service.noticesOf(subscription, 1);
    await deliver(notice as PushNotice);
    await expect.poll(shown).toMatchObject([{ id: 'k4-m1' }]);
    proxy.block('reset');
    await tap('answer-1');
    await expect.poll(shown).toMatchObject([{ body: expect.stringContaining('waits for the network'), actions: [] }]);
    proxy.plan(['none']);
    await page.goto(`${originOf(proxy.port)}/app/#/inbox/k4`);
    expect(await repliesTo('k4')).toMatchObject([{ text: 'No', reply_to: 'k4-m1', answer_index: 1 }]);
    await page.getByText('Answered').waitFor();
    await expect.poll(shown).toEqual([]);
  });

  it('§6: an answer from the notification is asked for again when too many wait', async () => {
    const proxy = await startFlakyProxy({ port: relayPort(), seed: 3, faults: ['none'] });
    closings.unshift(proxy.close);
    const { page, worker, subscription, leave, shown, tap, allow } = await subscribed(proxy.port);
    allow(/WebSocket|ERR_/);
    await showWords(page);
    const deliver = await leave();
    await say({ text: 'Ready?', chat_id: 'k6', message_id: 'k6-m1' });
    const [notice] = await service.noticesOf(subscription, 1);
    await deliver(notice as PushNotice);
    await expect.poll(shown).toMatchObject([{ id: 'k6-m1' }]);
    proxy.block('reset');
    await worker.evaluate(fillOutbox, 100);
    await tap('answer-1');
    await expect.poll(shown).toMatchObject([{ id: 'k6-m1', body: 'Ready?', actions: ['Yes', 'No'] }]);
    await worker.evaluate(fillOutbox, 0);
    proxy.plan(['none']);
    await tap('answer-1');
    expect(await repliesTo('k6')).toMatchObject([{ text: 'No', reply_to: 'k6-m1', answer_index: 1 }]);
  });

  it('§6: switched off, the relay forgets this browser; a page over plain http says what it needs', async () => {
    const { page, subscription } = await subscribed();
    const before = relay.relay?.push.count() ?? 0;
    const call = page.getByRole('switch', { name: 'Call this device' });
    await call.click();
    await expect.poll(() => call.isChecked()).toBe(false);
    await expect.poll(() => relay.relay?.push.count()).toBe(before - 1);
    await page.reload();
    await connected(page);
    expect(await call.isChecked()).toBe(false);
    expect(relay.relay?.push.count()).toBe(before - 1);
    expect(await service.noticesOf(subscription, 0)).toEqual([]);
  });
});

describeInBrowser(
  'notifications in an insecure page (contract 09 §5)',
  ({ open }) => {
    it('§5: the settings name the one step to notifications', async () => {
      const relay = await startNodeTarget({ env: PLAIN });
      onTestFinished(() => relay.stop());
      const { page } = await open();
      const code = randomCode();
      await registerCode(relay, code);
      await page.goto(`http://relay.test:${new URL(relay.url).port}/app/#code=${code}`);
      await page.getByLabel('I am testing on this machine').check();
      await page.getByRole('button', { name: 'Continue without encryption' }).click();
      await connected(page);
      await page.goto(`http://relay.test:${new URL(relay.url).port}/app/#/settings`);
      await page.getByText('Notifications need a secure page.').waitFor();
      expect(await page.getByRole('switch', { name: 'Call this device' }).count()).toBe(0);
      await expectAccessible(page);
    });
  },
  ['--host-resolver-rules=MAP relay.test 127.0.0.1'],
);

/** Has this many replies wait. Runs in the worker. */
function fillOutbox(length: number): Promise<void> {
  return new Promise((resolve, reject) => {
    const opening = indexedDB.open('svc kept');
    opening.onerror = () => reject(opening.error);
    opening.onsuccess = () => {
      const change = opening.result.transaction('keep', 'readwrite');
      const reply = (_: unknown, at: number) => ({
        message_id: `w${at}`,
        text: 'x',
        chat_id: 'k7',
        reply_to: null,
        ts: 1,
      });
      change.objectStore('keep').put(Array.from({ length }, reply), 'outbox /');
      change.oncomplete = () => {
        opening.result.close();
        resolve();
      };
    };
  });
}

import { randomUUID } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import type { Page } from 'playwright-core';
import { expect } from 'vitest';
import type { NoticeData } from '../../handlers/web/app/worker/notices.ts';

interface Tap {
  id: string;
  action: string;
  notice?: Notice;
}

interface Notice {
  title: string;
  data: NoticeData;
}

/** The part of the service worker's global scope that a tap uses. */
interface Scope {
  registration: ServiceWorkerRegistration;
  NotificationEvent: new (type: string, of: object) => Event;
  onmessage: (event: MessageEvent<Partial<Tap>> & { waitUntil(work: Promise<unknown>): void }) => void;
  dispatchEvent(event: Event): void;
  taps?: Map<string, Promise<void>>;
}

/**
 * Taps a notification of the app, or one of its buttons: the first, or `notice`, which it shows before. The browser may end a
 * service worker that has no event to handle, and what a test dispatches is none to it. So the tap happens within a message of
 * the page, which holds the worker for as long as a person's tap may.
 */
export async function tapNotification(page: Page, action: string, notice?: Notice): Promise<void> {
  const context = page.context();
  const tap: Tap = { id: randomUUID(), action, ...(notice && { notice }) };
  /** Starts the worker. Resolves with whether it has answered that the notification is tapped. */
  const send = (data: Partial<Tap>) =>
    page.evaluate(
      (data) =>
        new Promise<boolean>((resolve) => {
          const { port1, port2 } = new MessageChannel();
          port1.onmessage = () => resolve(true);
          setTimeout(resolve, 1000, false);
          navigator.serviceWorker.controller?.postMessage(data, [port2]);
        }),
      data,
    );
  await expect
    .poll(async () => {
      if (await send(tap)) return true;
      const worker = context.serviceWorkers()[0] ?? (await context.waitForEvent('serviceworker'));
      // A worker that the browser is ending rejects, or does not answer until it is started again.
      await Promise.race([worker.evaluate(listen).catch(() => {}), pause(2000)]);
      return send(tap);
    })
    .toBe(true);
}

/** Runs in the worker. Called again, it changes nothing. */
function listen(): void {
  const HELD = 20_000;
  const scope = globalThis as unknown as Scope;
  scope.taps ??= new Map();
  const { taps, registration } = scope;
  async function handle({ action, notice }: Partial<Tap>): Promise<void> {
    const find = async () =>
      (await registration.getNotifications()).find(
        ({ title, data }) => !notice || (title === notice.title && data.text === notice.data.text),
      );
    if (notice) await registration.showNotification(notice.title, { data: notice.data });
    let notification = await find();
    while (!notification) notification = await find();
    scope.dispatchEvent(new scope.NotificationEvent('notificationclick', { notification, action }));
  }
  // The app listens by `addEventListener`.
  scope.onmessage = (event) => {
    const { data, ports } = event;
    if (data.id === undefined) return;
    const handled = taps.get(data.id) ?? handle(data);
    taps.set(data.id, handled);
    const hold = () => new Promise((resolve) => setTimeout(resolve, HELD));
    event.waitUntil(handled.then(() => ports[0]?.postMessage('tapped')).then(hold));
  };
}

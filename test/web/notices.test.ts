import { expect, it, onTestFinished, vi } from 'vitest';
import { createNotices, type NoticesDeps } from '../../handlers/web/app/notices/notices.ts';

interface Found {
  isOn: boolean;
  hasSubscription: boolean;
}

/** Notifications of a browser whose relay does not answer. */
function start(found: Found, worker: Promise<unknown> = new Promise(() => {})) {
  const { isOn } = found;
  const getSubscription = async () => (found.hasSubscription ? {} : null);
  const registration = { pushManager: { getSubscription } };
  const ready = Promise.resolve(registration);
  const container = { addEventListener: () => {}, getRegistration: async () => registration, ready };
  vi.stubGlobal('isSecureContext', true);
  vi.stubGlobal('window', { PushManager: {}, Notification: {} });
  vi.stubGlobal('Notification', { permission: 'granted' });
  vi.stubGlobal('navigator', { serviceWorker: container });
  onTestFinished(() => void vi.unstubAllGlobals());
  const kept: Record<string, unknown> = { knock: isOn, 'knock-content': true };
  return createNotices({
    pageStore: { read: async (name: string) => kept[name] },
    api: { call: () => Promise.reject(new Error('the relay does not answer')) },
    worker,
  } as unknown as NoticesDeps);
}

it('09 §6: shows notifications as on from the start, before the relay answers', async () => {
  const notices = start({ isOn: true, hasSubscription: true });
  await vi.waitFor(() => expect([notices.state.value, notices.hasContent.value]).toEqual(['on', true]));
});

it.each([
  { isOn: false, hasSubscription: true },
  { isOn: true, hasSubscription: false },
])('09 §6: shows notifications as off with %j', async (found) => {
  const notices = start(found);
  await vi.waitFor(() => expect(notices.hasContent.value).toBe(true));
  // More turns than the start takes.
  await new Promise((resolve) => setTimeout(resolve));
  expect(notices.state.value).toBe('off');
});

it('09 §6: shows notifications as off once the renewal has failed and left no subscription', async () => {
  const found = { isOn: true, hasSubscription: true };
  const notices = start(found, Promise.resolve({}));
  await vi.waitFor(() => expect(notices.state.value).toBe('on'));
  await notices.renew();
  expect(notices.state.value).toBe('on');
  found.hasSubscription = false;
  await notices.renew();
  expect(notices.state.value).toBe('off');
});

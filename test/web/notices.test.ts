import { expect, it, onTestFinished, vi } from 'vitest';
import { createNotices, type NoticesDeps } from '../../handlers/web/app/notices/notices.ts';

/** Notifications of a browser whose relay does not answer. */
function start({ isOn, hasSubscription }: { isOn: boolean; hasSubscription: boolean }) {
  const subscription = hasSubscription ? {} : null;
  const registration = { pushManager: { getSubscription: async () => subscription } };
  const container = { addEventListener: () => {}, getRegistration: async () => registration };
  vi.stubGlobal('isSecureContext', true);
  vi.stubGlobal('window', { PushManager: {}, Notification: {} });
  vi.stubGlobal('Notification', { permission: 'granted' });
  vi.stubGlobal('navigator', { serviceWorker: container });
  onTestFinished(() => void vi.unstubAllGlobals());
  const kept: Record<string, unknown> = { knock: isOn, 'knock-content': true };
  return createNotices({
    pageStore: { read: async (name: string) => kept[name] },
    worker: new Promise(() => {}),
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

import { expect, it, vi } from 'vitest';
import { cleanups, startBuiltTarget } from '../support/built-relay.ts';
import { freePort, isPortFree } from '../support/process.ts';
import { startNodeTarget } from '../support/relay.ts';

const pending = cleanups();

it.each([
  ['throws', () => expect.fail('a failing part')],
  ['rejects', () => Promise.reject(new Error('a failing part'))],
])('stops everything else and saves the sessions when a part %s', async (_how, stop) => {
  const target = await startBuiltTarget();
  pending.push(target.stop);
  const { relay } = target;
  const stopDesktop = vi.spyOn(relay.desktop, 'stop');
  const flush = vi.spyOn(relay.sessions, 'flush');
  vi.spyOn(relay.terminals as { stop(): unknown }, 'stop').mockImplementationOnce(stop);
  await relay.stop();
  expect(stopDesktop).toHaveBeenCalledOnce();
  expect(flush).toHaveBeenCalledOnce();
  expect(target.log.join('\n')).toMatch(/\[ERROR\].*stopping failed: .*a failing part/);
});

it('contract 08 §9: closes the listener of Secure Link once that has failed', async () => {
  const port = await freePort();
  const target = await startNodeTarget({
    env: {
      RELAY_SECURE_LINK_ENABLED: '1',
      RELAY_SECURE_LINK_HOST: '127.0.0.1',
      RELAY_SECURE_LINK_PORT: String(port),
    },
  });
  pending.push(target.stop);
  expect(await isPortFree(port)).toBe(false);
  target.relay?.secureLink?.failed('the certificate has expired');
  await expect.poll(() => isPortFree(port)).toBe(true);
  const { secure_link: link, secure_proxy: proxy } = await (await target.fetch('/health')).json();
  expect([link.status, link.reason, proxy]).toEqual(['unavailable', 'the certificate has expired', undefined]);
});

import { get, type IncomingMessage } from 'node:http';
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

it('refuses sockets with 503 while it stops, for clients stay away for five minutes after a 429 (issue 23 §2.4)', async () => {
  const target = await startBuiltTarget();
  pending.push(target.stop);
  target.relay.sockets.stop();
  const key = 'AAAAAAAAAAAAAAAAAAAAAA==';
  const handshake = {
    upgrade: 'websocket',
    connection: 'upgrade',
    'sec-websocket-key': key,
    'sec-websocket-version': '13',
  };
  for (const headers of [handshake, { connection: 'close' }]) {
    const { statusCode, headers: answered } = await new Promise<IncomingMessage>((resolve, reject) =>
      get({ port: target.port, host: '127.0.0.1', path: '/ws', headers }, (response) => resolve(response.resume())).on(
        'error',
        reject,
      ),
    );
    expect([statusCode, answered['retry-after']]).toEqual([503, '1']);
  }
});

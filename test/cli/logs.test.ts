import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, it, onTestFinished } from 'vitest';
import { begin } from '../support/companion-cli.ts';
import { startNodeTarget } from '../support/relay.ts';

it('09 §4: svc logs -f prints every line once, also many of the same millisecond', async () => {
  const relay = await startNodeTarget();
  onTestFinished(() => relay.stop());
  const env = { RELAY_PORT: new URL(relay.url).port };
  const log = relay.relay?.log.named('burst');
  log?.info('first');
  const following = begin(['logs', '-f', '-n', '5'], { home: relay.agentHome, env });
  await following.prints(/burst: first/);
  for (let at = 0; at < 100; at++) log?.info(`line ${at}.`);
  await following.prints(/burst: line 99\./);
  following.stop();
  const { stdout } = await following.ended;
  const lines = [...stdout.matchAll(/burst: (.*)$/gm)].map(([, text]) => text);
  expect(lines).toEqual(['first', ...Array.from({ length: 100 }, (_, at) => `line ${at}.`)]);
});

it('09 §4: svc logs -f survives an event that is too large, and tries again', async () => {
  const server = createServer((request, response) => {
    if (request.url?.startsWith('/relay/log')) return void response.end('{"lines":[]}');
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.write(`data: ${'x'.repeat(4 * 1024 * 1024)}`);
    response.write('x'.repeat(1024 * 1024));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  const env = { RELAY_PORT: String((server.address() as AddressInfo).port) };
  const following = begin(['logs', '-f'], { env });
  await following.prints(/trying again/);
  following.stop();
  expect((await following.ended).code).toBe(0);
});

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

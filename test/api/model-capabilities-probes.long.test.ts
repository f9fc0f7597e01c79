import { createServer, type Socket } from 'node:net';
import { describe, expect, it, onTestFinished } from 'vitest';
import { createNodeUpstream } from '../../lib/host/node/upstream.ts';
import { systemClock } from '../../lib/kit/clock.ts';
import { fetchUpstream } from '../../lib/web/upstream.ts';
import { whenAbandoned } from '../support/fake-api-server.ts';
import { TIMED } from '../support/limits.ts';
import { setUp } from '../support/probes.ts';

describe.each([
  ['node', createNodeUpstream()],
  ['fetch', fetchUpstream()],
])('misbehaving providers (contract 07 §3, upstream of %s)', (_name, upstream) => {
  it('slow providers delay an answer by 1.25 s at most, also when bytes trickle', TIMED, async () => {
    const { api, ask } = await setUp(
      { '.env': 'LM_BASE_URL=<api>/v1\nOLLAMA_BASE_URL=<api>/v1\n' },
      { upstream, clock: systemClock },
    );
    const trickles: NodeJS.Timeout[] = [];
    onTestFinished(() => trickles.forEach(clearInterval));
    api.onAny((exchange) => {
      if (exchange.path === '/api/show') return;
      exchange.open();
      trickles.push(setInterval(() => void exchange.write(' '), 50));
    });
    const began = performance.now();
    expect(await ask('lmstudio/a', 'ollama/b', 'zai/glm-5.2')).toEqual(['?', '?', 'provider-adapter none,high,max']);
    const took = performance.now() - began;
    expect(took).toBeGreaterThan(1200);
    expect(took).toBeLessThan(4000);
    for (const request of api.requests) await whenAbandoned(request);
  });
});

it('contract 07 §3: an unreachable or silent provider yields an unknown row', async () => {
  const sockets: Socket[] = [];
  const deaf = createServer((socket) => sockets.push(socket.resume()));
  await new Promise<void>((resolve) => deaf.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    deaf.close();
  });
  const { port } = deaf.address() as { port: number };
  const env = `LM_BASE_URL=https://127.0.0.1:${port}/v1\nOLLAMA_BASE_URL=http://127.0.0.1:1/v1\n`;
  const { ask } = await setUp({ '.env': env }, { clock: systemClock });
  expect(await ask('lmstudio/a', 'ollama/b')).toEqual(['?', '?']);
  await expect.poll(() => sockets.every((socket) => socket.destroyed)).toBe(true);
});

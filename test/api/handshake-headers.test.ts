import { expect, it } from 'vitest';
import { cleanups, startBuiltTarget } from '../support/built-relay.ts';
import { connectRaw, exchange, request } from '../support/raw-socket.ts';
import { bearer, pair } from '../support/relay.ts';

const pending = cleanups();

async function start() {
  const target = await startBuiltTarget();
  pending.push(target.stop);
  return target;
}

it('a plain GET on a socket path that asks to close is answered so, with 426', async () => {
  const { port } = await start();
  for (const headers of [{ connection: 'close' }, { connection: 'keep-alive, Close' }]) {
    const answer = await exchange(port, request('GET', '/ws', headers), 'GET');
    expect({ status: answer.status, connection: answer.headers.connection }).toEqual({
      status: 426,
      connection: 'Upgrade, close',
    });
  }
  const connection = await connectRaw(port);
  pending.push(connection.destroy);
  connection.write(request('GET', '/ws', {}));
  expect((await connection.head()).headers.connection).toBe('Upgrade');
});

it('a token among the subprotocols counts for sockets only (contract 05 §2)', async () => {
  const target = await start();
  const { token, client } = await pair(target);
  pending.push(() => client.terminate());
  const offered = { 'sec-websocket-protocol': `svc.voice, svc.bearer.${token}`, connection: 'close' };
  const statusOf = async (headers: Record<string, string>) =>
    (await exchange(target.port, request('GET', '/voice/config', headers), 'GET')).status;
  expect(await statusOf({ ...offered, ...bearer(token) })).toBe(200);
  expect(await statusOf({ ...offered, upgrade: 'websocket' })).toBe(401);
  expect(await statusOf({ ...offered, upgrade: 'h2c' })).toBe(401);
  expect(await statusOf(offered)).toBe(401);
});

it('a request to pair stays in the log through 520 anonymous calls (contract 01 §9.1a)', async () => {
  const target = await start();
  const asked = await target.fetch('/pairing', {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'x-forwarded-for': '203.0.113.9' },
    body: JSON.stringify({ device_name: 'Pixel 9' }),
  });
  expect(asked.status).toBe(202);
  const lines = async () =>
    (await (await target.operator('/relay/log')).json()).lines as { name: string; text: string }[];
  const before = (await lines()).filter(({ name }) => name === 'pairing');
  expect(before.length).toBeGreaterThan(0);
  for (let at = 0; at < 520; at++) {
    await (await target.fetch('/relay/log', { headers: { 'x-forwarded-for': '203.0.113.9' } })).arrayBuffer();
  }
  const after = await lines();
  expect(after).toEqual(expect.arrayContaining(before));
  expect(after.filter(({ text }) => text.includes('refused an operator call'))).toHaveLength(1);
});

import { once } from 'node:events';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { createServer } from 'node:https';
import { type AddressInfo, connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished, type TestContext, vi } from 'vitest';
import { labelOf } from '../../lib/reach/broker/label.ts';
import { newId, newToken } from '../../lib/reach/ids.ts';
import { startBrokerRuntime } from '../support/broker-edge.ts';
import { privateAuthority } from '../support/certificate.ts';
import { TIMEOUT } from '../support/limits.ts';
import { databasesBelow, untilPutAway } from '../support/miniflare.ts';
import { closing, temporaryHome } from '../support/process.ts';
import { authenticateThrough, openStream, openTunnel, withCredential } from '../support/reach-client.ts';
import { startReachRelay } from '../support/reach-stack.ts';

/** The broker at the edge for one host, behind TLS that asks it by the name of that host. */
async function startEdgeBroker(context: TestContext, host: { id: string; token: string }) {
  const persist = await mkdtemp(join(tmpdir(), 'svc-relay-reach-edge-'));
  const log: string[] = [];
  const { miniflare, port } = await startBrokerRuntime({ hosts: [host], persist, log });
  const { ca, cert, key } = await privateAuthority(context, await temporaryHome());
  const front = createServer({ cert: await readFile(cert), key: await readFile(key) });
  front.on('upgrade', ({ url, rawHeaders }, socket, head) => {
    const lines = [`GET ${url} HTTP/1.1`];
    for (let at = 0; at < rawHeaders.length; at += 2) {
      const [name = '', value] = rawHeaders.slice(at, at + 2);
      lines.push(`${name}: ${name.toLowerCase() === 'host' ? `${labelOf(host.id)}.localhost` : value}`);
    }
    const inner = connect(port, '127.0.0.1', () => inner.write(`${lines.join('\r\n')}\r\n\r\n`));
    inner.write(head);
    inner.pipe(socket).pipe(inner);
    for (const each of [inner, socket]) each.on('error', () => {});
    inner.once('close', () => socket.destroy());
    socket.once('close', () => inner.destroy());
  });
  await new Promise<void>((resolve) => front.listen(0, '127.0.0.1', resolve));
  onTestFinished(async () => {
    front.close();
    await miniflare.dispose();
    await rm(persist, { recursive: true, force: true });
  });
  const wakes = () => log.filter((line) => line.includes('awake with')).length;
  return {
    url: `wss://localhost:${(front.address() as AddressInfo).port}`,
    ca,
    log,
    wakes,
    asleep: async () => untilPutAway(await databasesBelow(persist)),
  };
}

it('01 §3.7, 08 §6.4: a phone that is revoked gets 4401 on every stream through a broker that has slept', {
  timeout: 300_000,
}, async (context) => {
  const host = { id: newId(), token: newToken() };
  const broker = await startEdgeBroker(context, host);
  const stack = await startReachRelay({ brokerUrl: broker.url, host, ca: broker.ca });
  await stack.until('connected');
  const { code, route } = await stack.mint();
  // By the credential of the code, by the lasting one, and one that has carried no request yet.
  const first = await authenticateThrough(route, { pairing_code: code, device_id: 'phone' });
  expect(first.frame.type).toBe('auth.ok');
  const { session_token: token, route_credential: credential } = first.frame.payload as {
    session_token: string;
    route_credential: Record<string, unknown>;
  };
  const back = withCredential(route, credential);
  const second = await authenticateThrough(back, { session_token: token });
  const third = await authenticateThrough(back, { session_token: token, typed_stream: true });
  const unused = await openTunnel(back);
  const ended = once(unused.resume(), 'end');

  await broker.asleep();
  const slept = broker.wakes();
  const sockets = [first, second, third].map(({ socket }) => socket);
  const closed = Promise.all(sockets.map((socket) => closing(socket)));
  const { status } = await stack.relay.ask(`/sessions/${token.slice(0, 8)}`, {
    method: 'DELETE',
    headers: { authorization: `Bearer ${token}` },
  });
  expect(status).toBe(200);
  const end = { code: 4401, reason: 'session revoked' };
  expect(await closed).toEqual([end, end, end]);
  await ended;
  await expect.poll(broker.wakes, { message: 'the object has slept' }).toBeGreaterThan(slept);
  await vi.waitFor(() => expect(openStream(back)).rejects.toMatchObject({ code: 'unauthorized' }), TIMEOUT);

  // It sleeps again, and has not forgotten it.
  await broker.asleep();
  await expect(openStream(back)).rejects.toMatchObject({ code: 'unauthorized' });
});

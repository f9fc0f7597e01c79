import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type MiniflareOptions, Response as MiniflareResponse } from 'miniflare';
import { expect, it, onTestFinished } from 'vitest';
import { digestOf } from '../../lib/kit/sha256.ts';
import { labelOf } from '../../lib/reach/broker/label.ts';
import { decodeFrame, windowFrame } from '../../lib/reach/frames.ts';
import { newId, newToken } from '../../lib/reach/ids.ts';
import { type BrokerTarget, broker, type KnownHost } from '../support/broker.ts';
import { startBrokerRuntime, startEdgeBrokerTarget } from '../support/broker-edge.ts';

async function start(isShared = false) {
  const target = await startEdgeBrokerTarget(isShared);
  const actions = broker(target);
  onTestFinished(actions.close);
  return { ...actions, target };
}

/** A runtime of the case's own, with these options. By `isShared`, its hosts are reached by the name that all hosts have. */
async function startOwn(hosts: readonly KnownHost[], options: Partial<MiniflareOptions>, isShared = false) {
  const persist = await mkdtemp(join(tmpdir(), 'svc-relay-broker-own-'));
  const { miniflare, port } = await startBrokerRuntime({ hosts, persist, log: [], options });
  onTestFinished(async () => {
    await miniflare.dispose();
    await rm(persist, { recursive: true, force: true });
  });
  const nameOf = (hostId: string) => (isShared ? '127.0.0.1' : `${labelOf(hostId)}.localhost`);
  const actions = broker({
    hosts,
    connectUrl: (hostId) => `ws://${nameOf(hostId)}:${port}/v1/connect`,
  } as BrokerTarget);
  onTestFinished(actions.close);
  return { ...actions, miniflare, port };
}

const newHost = (): KnownHost => ({ id: newId(), token: newToken() });

it('08 §8: sockets, streams and credit outlive a sleep of the object', async () => {
  const { host: register, match, publish, client: dial, target } = await start();
  const host = await register(0, 262_144);
  const token = await publish(host);
  const { client, id } = await match(host, token);
  client.send(new Uint8Array(100_000));
  await host.next();
  host.data(id, new Uint8Array(60_000));
  await client.next();
  const wakes = () => target.log.filter((line) => line.includes('awake')).length;
  await expect.poll(wakes).toBeGreaterThan(0);
  await target.asleep?.();
  const before = wakes();
  host.data(id, 'after the sleep');
  expect(await client.next()).toEqual(Buffer.from('after the sleep'));
  client.send(new Uint8Array(200_000));
  expect(decodeFrame(await host.next(), true)).toMatchObject({ type: 'data', payload: { length: 162_144 } });
  await expect.poll(wakes).toBeGreaterThan(before);
  const again = await dial(token);
  expect(await again.next()).toMatchObject({ type: 'matched' });
});

it('08 §8: one name for all hosts leads to each host, and refuses others', async () => {
  const { host: register, match, publish, register: send, target } = await start(true);
  const host = await register();
  const other = await register(1);
  const { client, id } = await match(host, await publish(host));
  const second = await match(other, await publish(other), 1);
  host.data(id, 'one');
  other.data(second.id, 'two');
  expect([await client.next(), await second.client.next()]).toEqual([Buffer.from('one'), Buffer.from('two')]);
  client.socket.close();
  expect(decodeFrame(await host.next(), false)).toEqual({ type: 'close', streamId: id });
  const refused = { type: 'error', protocol_version: 1, code: 'unauthorized' };
  const stranger = await send({ host_id: newId(), token: newToken() });
  expect(await stranger.next()).toEqual(refused);
  expect(await stranger.closed()).toBe(1008);
  const wrong = await send({ host_id: target.hosts[0].id, token: newToken() });
  expect([await wrong.next(), await wrong.closed()]).toEqual([refused, 1008]);
});

it('08 §8: a client that closes at once on the name for all hosts leaves nothing behind', async () => {
  const { host: register, publish, client: dial, register: send, target } = await start(true);
  const host = await register();
  const client = await dial(await publish(host));
  client.socket.close();
  expect(await client.closed()).toBe(1000);
  const { id, token } = target.hosts[1];
  const registration = { role: 'host', credential_kind: 'host', host_id: id, token } as const;
  const gone = await send(registration);
  gone.socket.close();
  await gone.closed();
  expect(await (await send(registration)).next()).toMatchObject({ type: 'registered' });
});

it('08 §8: a request body of 16 MiB waits for a slow host', async () => {
  const { host: register, match } = await start();
  const host = await register(0, 262_144);
  const { client, id } = await match(host);
  const [size, count] = [1024 * 1024, 17];
  for (let sent = 0; sent < count; sent++) client.send(new Uint8Array(size).fill(sent));
  // An answer means that the broker has got all of it.
  client.socket.ping();
  await once(client.socket, 'pong');
  for (let received = 0; received < size * count; ) {
    const frame = decodeFrame(await host.next(), true);
    if (frame.type !== 'data') throw new Error(`a frame of type ${frame.type}`);
    expect(frame.payload[0]).toBe(Math.floor(received / size));
    received += frame.payload.length;
    host.send(windowFrame(id, frame.payload.length));
  }
  expect(client.closeCode).toBeUndefined();
});

it('08 §8: a client that sends more than the queue holds ends its own stream only', async () => {
  const { host: register, match } = await start();
  const host = await register(0, 262_144);
  const [{ client }, other] = [await match(host), await match(host)];
  for (let sent = 0; sent < 24; sent++) client.send(new Uint8Array(1024 * 1024));
  expect(await client.next()).toEqual({ type: 'error', protocol_version: 1, code: 'quota_exceeded' });
  expect(await client.closed()).toBe(1008);
  host.data(other.id, 'undisturbed');
  expect(await other.client.next()).toEqual(Buffer.from('undisturbed'));
});

it('08 §8: the name for all hosts closes a socket when its host cannot be looked up', async () => {
  // In place of a namespace: every call of it fails.
  const options = { serviceBindings: { HOSTS: () => new MiniflareResponse('', { status: 500 }) } };
  const { register: send } = await startOwn([newHost(), newHost()], options, true);
  const unknown = await send({ host_id: newId(), token: newToken() });
  expect(await unknown.closed()).toBe(1011);
});

it('12 §6: health is answered from a cache, and limited', { timeout: 300_000 }, async () => {
  const options = { ratelimits: { ATTEMPTS: { simple: { limit: 30, period: 60 } } } };
  const { port, host: register } = await startOwn([newHost(), newHost()], options);
  const health = async (path = '/health') => {
    const response = await fetch(`http://127.0.0.1:${port}${path}`);
    return { status: response.status, cache: response.headers.get('cache-control'), body: await response.json() };
  };
  const counts = (online: number) => ({
    ok: true,
    service: 'svc_reach',
    protocol_version: 1,
    hosts_online: online,
    active_streams: 0,
  });
  const asked = Date.now();
  expect(await health()).toEqual({ status: 200, cache: 'no-store', body: counts(0) });
  await Promise.all([register(0), register(1)]);
  // Their reports are there long before the cache ends, but nobody asks the counter.
  const early: unknown[] = [];
  await expect
    .poll(
      async () => {
        const { body } = await health();
        if (Date.now() - asked < 14_000) early.push(body);
        return body.hosts_online;
      },
      { timeout: 45_000, interval: 3_000 },
    )
    .toBe(2);
  expect(early).toEqual(early.map(() => counts(0)));
  expect(early.length).toBeGreaterThan(0);
  // More than two minutes of the limit allow, as one may end meanwhile.
  const statuses = await Promise.all(
    Array.from({ length: 61 }, async (_, each) => (await health(`/health?${each}`)).status),
  );
  expect(statuses).toContain(429);
});

it('08 §8: a token that was replaced in KV ends its host once another socket comes, and opens nothing', async () => {
  const [id, old, next] = [newId(), newToken(), newToken()];
  const { miniflare, register } = await startOwn([], { kvNamespaces: ['HOSTS'] });
  const dial = (token: string) => register({ role: 'host', credential_kind: 'host', host_id: id, token });
  const names = await miniflare.getKVNamespace('HOSTS');
  await names.put(`host:${id}`, digestOf(old));
  const former = await dial(old);
  expect(await former.next()).toMatchObject({ type: 'registered' });
  await names.put(`host:${id}`, digestOf(next));
  expect(await (await dial(old)).next()).toMatchObject({ type: 'error', code: 'unauthorized' });
  expect(await former.next()).toMatchObject({ type: 'error', code: 'unauthorized' });
  expect(await former.closed()).toBe(1008);
  expect(await (await dial(next)).next()).toMatchObject({ type: 'registered' });
});

it('08 §8: a stream passes 10 MiB/s while its client answers, and 2 MiB/s beyond 8 MiB without an answer', async () => {
  const { host: register, match } = await start();
  const host = await register(0, 262_144);
  const { client, id } = await match(host);
  const MiB = 1024 * 1024;
  let credit = 262_144;
  /** Sends as the credit allows, and resolves with MiB/s once the client has all of it. */
  async function send(size: number): Promise<number> {
    const began = performance.now();
    let [sent, received] = [0, 0];
    while (received < size) {
      while (sent < size && credit > 0) {
        const length = Math.min(65_536, credit, size - sent);
        host.data(id, new Uint8Array(length));
        [sent, credit] = [sent + length, credit - length];
      }
      if (client.messages.length > 0) received += (await client.next()).length;
      else if (host.messages.length > 0) {
        const frame = decodeFrame(await host.next(), true);
        if (frame.type !== 'window') throw new Error(`a frame of type ${frame.type}`);
        credit += frame.credit;
      } else await new Promise((resolve) => setImmediate(resolve));
    }
    return size / MiB / ((performance.now() - began) / 1000);
  }
  const answer = async () => {
    client.send(new Uint8Array(1));
    for (;;) {
      const frame = decodeFrame(await host.next(), true);
      if (frame.type === 'data') return;
      if (frame.type === 'window') credit += frame.credit;
    }
  };
  /** The best of some tries: others may have the processor meanwhile, but credit that is paced never comes faster than 2 MiB/s. */
  const expectFast = async () => {
    let best = 0;
    for (let tries = 0; best <= 10 && tries < 8; tries++) {
      await answer();
      best = Math.max(best, await send(7 * MiB));
    }
    expect(best).toBeGreaterThan(10);
  };
  await send(MiB);
  await expectFast();
  const slow = await send(4 * MiB);
  expect(slow).toBeLessThan(4);
  expect(slow).toBeGreaterThan(1);
  await expectFast();
});

import { describe, expect, it } from 'vitest';
import type { Upstream } from '../../lib/host/upstream.ts';
import { type DeviceRow, deviceRoutes } from '../../lib/operations/device.ts';
import { createBody } from '../support/agent-body.ts';
import { type EvictedRelay, type LocalClient, startEvictedRelay } from '../support/evicted-relay.ts';

const routeOf = (method: string, path: string): DeviceRow =>
  deviceRoutes(path).find((route) => route.method === method) as DeviceRow;

/** Starts a bridge command whose caller does not outlive the eviction. */
function command(object: EvictedRelay, path = '/ping'): void {
  object.relay.bridge.command({ route: routeOf('GET', path), query: {}, actor: { kind: 'operator' } }).catch(() => {});
}

async function phoneOf(object: EvictedRelay, id = 'phone-1'): Promise<LocalClient> {
  const phone = await object.connect({ device_id: id, device_name: id, client_surface: 'android' });
  phone.send('bridge', 'bridge.status', { battery: 7 });
  return phone;
}

const requestId = (client: LocalClient, type: string): unknown => client.received(type).at(-1)?.request_id;

describe('contract 00: a bridge command under way when the object is evicted', () => {
  it('is answered afterwards, on its own socket only', async () => {
    const object = await startEvictedRelay();
    const phone = await phoneOf(object);
    const other = await phoneOf(object, 'phone-2');
    object.relay.bridge.select('phone-1');
    command(object, '/clipboard');
    expect(object.relay.bridge.activity(1)).toMatchObject([{ decision: 'pending', path: '/clipboard' }]);

    await object.evict();

    expect(object.relay.bridge.activity(9)).toMatchObject([{ decision: 'pending', path: '/clipboard' }]);
    expect(object.relay.bridge.pendingCount()).toBe(1);
    const response = { request_id: requestId(phone, 'bridge.command'), status: 200, result: { text: 'secret' } };
    other.send('bridge', 'bridge.response', response);
    expect(object.relay.bridge.pendingCount()).toBe(1);
    phone.send('bridge', 'bridge.response', response);
    expect(object.relay.bridge.pendingCount()).toBe(0);
    const [row] = object.relay.bridge.activity(9);
    expect(row).toMatchObject({ decision: 'executed', response_status: 200, device_id: 'phone-1' });
    expect(row?.result_summary, 'what the clipboard holds is private').not.toContain('secret');

    await object.evict();
    expect(object.relay.bridge.activity(9)).toEqual([row]);
    expect(object.relay.bridge.pendingCount()).toBe(0);
  });

  it.each(['before', 'after'])('ends with a freeze that comes right %s it (contract 09 §3)', async (when) => {
    const object = await startEvictedRelay();
    const phone = await phoneOf(object);
    command(object, '/clipboard');
    const reason = { frozen: true, since: 1, by: 'operator', reason: null } as const;
    // Stored by a process that ended before it had stored the record of the command.
    if (when === 'before') await object.stores.open('freeze').setItem('freeze', reason);
    await object.evict();
    if (when === 'after') await object.relay.gate.freeze('operator', '');
    const request_id = requestId(phone, 'bridge.command');
    expect(phone.received('bridge.cancel')).toEqual([{ request_id, reason: 'frozen' }]);
    phone.send('bridge', 'bridge.response', { request_id, status: 200, result: {} });
    expect(object.relay.bridge.pendingCount()).toBe(0);
    const ended = [{ decision: 'frozen', error: 'frozen by operator', response_status: null }];
    expect(object.relay.bridge.activity(9)).toMatchObject(ended);
    await object.evict();
    expect(object.relay.bridge.activity(9)).toMatchObject(ended);
  });

  it('times out at its time', async () => {
    const object = await startEvictedRelay();
    await phoneOf(object);
    command(object);
    await object.evict();
    await object.clock.advanceAsync(28_999);
    expect(object.relay.bridge.activity(1)).toMatchObject([{ decision: 'pending' }]);
    await object.clock.advanceAsync(1);
    expect(object.relay.bridge.activity(1)).toMatchObject([{ decision: 'timeout' }]);
  });

  it('fails when its socket closes, then or meanwhile', async () => {
    const object = await startEvictedRelay();
    const phone = await phoneOf(object);
    const lost = await phoneOf(object, 'phone-2');
    object.relay.bridge.select('phone-2');
    command(object);
    object.relay.bridge.select('phone-1');
    command(object);
    lost.lose();
    await object.evict();
    const decisions = () => object.relay.bridge.activity(9).map(({ decision, error }) => [decision, error]);
    expect(decisions()).toEqual([
      ['pending', null],
      ['error', 'Phone disconnected'],
    ]);
    phone.close();
    expect(decisions()[0]).toEqual(['error', 'Phone disconnected']);
    await object.evict();
    expect(decisions()).toEqual(Array(2).fill(['error', 'Phone disconnected']));
  });
});

describe('contract 00: a desktop command under way when the object is evicted', () => {
  async function desktopOf(object: EvictedRelay): Promise<LocalClient> {
    const desktop = await object.connect({ device_id: 'pc', device_name: 'PC', client_surface: 'desktop' });
    desktop.send('desktop', 'desktop.status', { advertised_tools: ['desktop_adb_shell'], host: 'box' });
    return desktop;
  }

  function call(object: EvictedRelay, { token }: LocalClient): void {
    const session = object.relay.sessions.authenticate(token);
    if (!session) throw new Error('no session');
    const args = { text: '{"a":1}', value: { a: 1 } };
    object.relay.desktop
      .call({ tool: 'desktop_adb_shell', args, query: {}, session, run: {}, actor: { kind: 'operator' } })
      .catch(() => {});
  }

  const rows = (object: EvictedRelay) => object.relay.desktop.health().recent_commands;

  it('is answered afterwards', async () => {
    const object = await startEvictedRelay();
    const desktop = await desktopOf(object);
    call(object, desktop);
    await object.evict();
    expect(rows(object)).toMatchObject([{ decision: 'pending', tool: 'desktop_adb_shell', args: { a: 1 } }]);
    expect(object.relay.desktop.health()).toMatchObject({ pending_commands: 1, host: 'box' });
    const id = requestId(desktop, 'desktop.command');
    desktop.send('desktop', 'desktop.response', { request_id: id, ok: true, result: { n: 5 } });
    expect(rows(object)).toMatchObject([{ decision: 'executed', response_status: 200, result_summary: '{"n":5}' }]);
    expect(object.relay.desktop.health()).toMatchObject({ pending_commands: 0 });
  });

  it('times out at its time, and fails with its socket', async () => {
    const object = await startEvictedRelay();
    const desktop = await desktopOf(object);
    call(object, desktop);
    await object.evict();
    await object.clock.advanceAsync(299_000);
    expect(rows(object)).toMatchObject([{ decision: 'timeout' }]);
    call(object, desktop);
    desktop.lose();
    await object.evict();
    expect(rows(object)).toMatchObject([{ decision: 'error', error: 'pc disconnected' }, { decision: 'timeout' }]);
    expect(object.relay.desktop.health()).toMatchObject({ connected: false, pending_commands: 0 });
  });
});

describe('contract 00: phones that are not connected when the object is evicted', () => {
  it('are still shown, and usable before their next report when they reconnect', async () => {
    const object = await startEvictedRelay();
    const phone = await phoneOf(object);
    phone.close();
    await object.evict();
    const status = {
      battery: 7,
      connected: false,
      device_id: 'phone-1',
      session_token_prefix: phone.token.slice(0, 8),
    };
    expect(object.relay.bridge.status({})).toMatchObject(status);
    const back = await object.connect({ device_id: 'phone-1', client_surface: 'android' }, phone.token);
    expect(object.relay.bridge.status({})).toMatchObject({ battery: 7, connected: true, active: true });
    command(object);
    expect(back.received('bridge.command')).toHaveLength(1);
    await object.evict();
    expect(object.relay.bridge.devices()).toMatchObject({ count: 1, active_device_id: 'phone-1' });
  });

  it('count as disconnected when their socket did not outlive the eviction', async () => {
    const object = await startEvictedRelay();
    const phone = await phoneOf(object);
    phone.lose();
    await object.evict();
    expect(object.relay.bridge.status({})).toMatchObject({ battery: 7, connected: false, device_id: 'phone-1' });
    await object.evict();
    expect(object.relay.bridge.status({})).toMatchObject({ battery: 7, connected: false, device_id: 'phone-1' });
  });
});

it('records of sockets that did not outlive an eviction are removed', async () => {
  const object = await startEvictedRelay();
  const phone = await phoneOf(object);
  phone.send('proactive', 'proactive.subscribe');
  phone.send('desktop', 'workspace', { cwd: '/' });
  const closed = await phoneOf(object, 'phone-2');
  closed.send('desktop', 'desktop.status', {});
  const keys = async () => {
    const names = ['sockets', 'bridge', 'desktop'] as const;
    const all = await Promise.all(names.map((name) => object.stores.open(name).getKeys()));
    return all.flat().filter((key) => !/^(?:departed|selection|newest)/.test(key));
  };
  await object.clock.advanceAsync(1_000);
  expect(await keys()).toHaveLength(6);
  closed.close();
  phone.lose();
  await object.evict();
  await object.clock.advanceAsync(1_000);
  expect(await keys()).toEqual([]);
});

describe('contract 04 §5.4a: a message that was written when the object is evicted', () => {
  const send = (object: EvictedRelay, id: string) => object.relay.phone.push({ text: id, message_id: id });
  const stateOf = (object: EvictedRelay, id: string) =>
    object.relay.phone.history({ since: 0, limit: 9 }).items.find((item) => item.message_id === id)?.state;
  /** A phone that gets messages. */
  async function listener(object: EvictedRelay, token?: string): Promise<LocalClient> {
    const phone = await object.connect({}, token);
    phone.send('proactive', 'proactive.subscribe');
    return phone;
  }
  const answer = (phone: LocalClient) => phone.send('system', 'pong', phone.received('ping').at(-1));

  it('is known to have arrived once its phone answers a system ping', async () => {
    const object = await startEvictedRelay();
    const phone = await listener(object);
    await send(object, 'm1');
    expect(phone.received('ping')).toEqual([{ ts: expect.any(Number) }]);
    answer(phone);
    await object.evict();
    phone.lose();
    await object.evict();
    expect(stateOf(object, 'm1')).toBe('sent');
    expect(object.relay.phone.queued()).toEqual([]);
  });

  it('is asked about again after the eviction, and its silent socket dropped', async () => {
    const object = await startEvictedRelay();
    const phone = await listener(object);
    await send(object, 'm1');
    await object.evict();
    expect(phone.received('ping')).toHaveLength(2);
    await object.clock.advanceAsync(9_999);
    expect([phone.isOpen, stateOf(object, 'm1')]).toEqual([true, 'sent']);
    await object.clock.advanceAsync(1);
    expect([phone.isOpen, stateOf(object, 'm1')]).toEqual([false, 'queued']);
    const again = await listener(object, phone.token);
    expect(again.received('phone.message')).toMatchObject([{ message_id: 'm1', queued_delivery: true }]);
    // An answer to an older ping proves nothing about what was sent later.
    answer(again);
    await send(object, 'm2');
    again.send('system', 'pong', again.received('ping')[0]);
    again.lose();
    await object.evict();
    expect(object.relay.phone.queued()).toMatchObject([{ message_id: 'm2' }]);
  });

  it('is queued when its socket ended meanwhile, and stays in its place', async () => {
    const object = await startEvictedRelay();
    const phone = await listener(object);
    await send(object, 'm1');
    phone.lose();
    await object.evict();
    await send(object, 'm2');
    expect(stateOf(object, 'm1')).toBe('queued');
    expect(object.relay.phone.queued()).toMatchObject([{ message_id: 'm1' }, { message_id: 'm2' }]);
  });
});

describe('issue 23 3.4: a command whose phone asks its owner when the object is evicted', () => {
  it('keeps its longer time', async () => {
    const object = await startEvictedRelay();
    const phone = await phoneOf(object);
    command(object);
    phone.send('bridge', 'command.waiting', { request_id: requestId(phone, 'bridge.command'), for: 'owner' });
    expect(phone.received('command.waiting')).toMatchObject([{ timeout_ms: 150_000 }]);
    await object.evict();
    await object.clock.advanceAsync(148_999);
    expect(object.relay.bridge.activity(1)).toMatchObject([{ decision: 'pending' }]);
    await object.clock.advanceAsync(1);
    expect(object.relay.bridge.activity(1)).toMatchObject([{ decision: 'timeout' }]);
  });
});

describe('contract 10 §1: a chat turn under way when the object is evicted', () => {
  it('is interrupted with what was said, and those who follow hear of the next one', async () => {
    const bodies: ReturnType<typeof createBody>[] = [];
    const upstream: Upstream = async ({ signal }) => {
      const body = createBody(signal);
      bodies.push(body);
      return { status: 200, headers: {}, body: body.chunks };
    };
    const object = await startEvictedRelay({ env: { RELAY_WEBAPI_URL: 'http://api.test' }, upstream });
    const client = await object.connect({ supports: { typed_stream_events: true } });
    const turn = (message: string) => client.send('chat', 'chat.send', { message, session_id: 's1', keep: true });
    client.send('chat', 'chat.follow');
    turn('long');
    await expect.poll(() => bodies.length).toBe(1);
    bodies[0]?.event({ type: 'assistant.delta', delta: 'so far' });
    await object.clock.advanceAsync(1_000);

    await object.evict();

    client.send('chat', 'chat.follow');
    const [{ turn_id } = {}] = (client.received('chat.turns').at(-1)?.turns ?? []) as Record<string, unknown>[];
    client.send('chat', 'chat.resume', { turn_id });
    await expect.poll(() => client.received('chat.snapshot')).toMatchObject([{ state: 'interrupted', text: 'so far' }]);
    await object.evict();
    turn('next');
    await expect.poll(() => bodies.length).toBe(2);
    await expect.poll(() => client.received('chat.turn').at(-1)).toMatchObject({ state: 'running' });
  });
});

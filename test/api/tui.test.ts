import { fileURLToPath } from 'node:url';
import { describe, expect, it, vi } from 'vitest';
import { type BuiltOptions, type BuiltTarget, cleanups, startBuiltTarget } from '../support/built-relay.ts';
import type { Client, Frame } from '../support/client.ts';
import { createTestClock } from '../support/clock.ts';
import { authenticate, bearer, describeMatrix, pair, post } from '../support/relay.ts';
import { isRunning, runningWith, untilGone } from '../support/running.ts';

const FAKE = fileURLToPath(new URL('../support/fake-gateway.mjs', import.meta.url));
const MiB = 1024 * 1024;
const pending = cleanups();
type Cleanups = typeof pending;

/** A relay with the fake gateway in the given modes; `after` receives what stops it. */
async function start(modes: string[] = [], options: BuiltOptions = {}, after: Cleanups = pending) {
  const RELAY_TUI_COMMAND = JSON.stringify([process.execPath, FAKE, ...modes]);
  const target = await startBuiltTarget({ ...options, env: { RELAY_TUI_COMMAND, ...options.env } });
  after.push(target.stop);
  return target;
}

async function device(target: BuiltTarget, options: Parameters<typeof pair>[1] = {}, after: Cleanups = pending) {
  const paired = await pair(target, options);
  after.push(() => paired.client.terminate());
  return paired;
}

const isEvent = (type: string) => (frame: Frame) =>
  (frame.payload.params as { type?: string } | undefined)?.type === type;
const eventPayload = ({ payload }: Frame) => (payload.params as { payload: Record<string, unknown> }).payload;

interface Ready {
  pid: number;
  grandchild: number;
  args: string[];
  env: Record<string, string>;
}

/** Attaches and waits for the gateway. */
async function attach(client: Client, payload: Record<string, unknown> = {}): Promise<Ready> {
  client.send('tui', 'tui.attach', payload);
  const attached = await client.next({ type: 'tui.attached' });
  const ready = await client.next({ type: 'tui.rpc.event' });
  expect(isEvent('gateway.ready')(ready)).toBe(true);
  const payloadOfReady = eventPayload(ready) as unknown as Ready;
  expect(attached.payload.pid).toBe(payloadOfReady.pid);
  return payloadOfReady;
}

async function attached(modes: string[] = [], options: BuiltOptions = {}, after: Cleanups = pending) {
  const target = await start(modes, options, after);
  const paired = await device(target, {}, after);
  return { target, ...paired, ready: await attach(paired.client) };
}

const ask = (client: Client, method: string, params: unknown = {}, id = crypto.randomUUID() as string) =>
  client.send('tui', 'tui.rpc.request', { jsonrpc: '2.0', id, method, params }, id);

const detach = ({ client }: { client: Client }) => client.send('tui', 'tui.detach');

/** A request that the gateway answers after everything before it. */
async function echo(client: Client): Promise<Frame> {
  ask(client, 'echo');
  return client.next({ type: 'tui.rpc.response' });
}

const ofType = (client: Client, type: string) => client.frames.filter((frame) => frame.type === type);

describe('contract 02 §4.3: attach', () => {
  it('answers with pid and version under the request id, before any output of the gateway', async () => {
    const target = await start();
    const { client } = await device(target);
    client.send('tui', 'tui.attach', { cols: 100, rows: 30, profile: 'work', resume_session_id: 's1' }, 'a1');
    await vi.waitFor(() => expect(client.frames).toHaveLength(2));
    const [first, second] = client.frames as [Frame, Frame];
    expect(first).toEqual({
      channel: 'tui',
      type: 'tui.attached',
      id: 'a1',
      payload: { pid: expect.any(Number), server_version: '1.0.0' },
    });
    expect(second.type).toBe('tui.rpc.event');
    expect(eventPayload(second).env).toMatchObject({
      COLUMNS: '100',
      LINES: '30',
      SVC_PROFILE: 'work',
      SVC_TUI_RESUME: 's1',
    });
  });

  it('a second attach ends the first gateway silently and starts another', async () => {
    const { client, ready } = await attached();
    ask(client, 'burst', { count: 2000 });
    client.send('tui', 'tui.attach', {}, 'a2');
    await client.next({ type: 'tui.attached', id: 'a2' });
    const at = client.frames.length;
    expect(await isRunning(ready.pid)).toBe(false);
    const echoed = await echo(client);
    expect(client.frames.slice(at).filter(isEvent('n'))).toEqual([]);
    expect(echoed.payload.id).toBeDefined();
    expect(ofType(client, 'tui.error')).toEqual([]);
  });

  it('several attaches in one tick leave one gateway', async () => {
    const target = await start();
    const { client } = await device(target);
    for (const id of ['a1', 'a2', 'a3']) client.send('tui', 'tui.attach', {}, id);
    const pids: number[] = [];
    for (const id of ['a1', 'a2', 'a3']) {
      pids.push((await client.next({ type: 'tui.attached', id })).payload.pid as number);
    }
    await echo(client);
    expect(await Promise.all(pids.map(isRunning))).toEqual([false, false, true]);
  });

  it.each([
    ['/nowhere/at-all', /^failed to spawn tui_gateway: [^/]*$/],
    ['["sh"', /^failed to spawn tui_gateway: RELAY_TUI_COMMAND is malformed$/],
  ])('the command %s yields an error without paths, and the socket stays', async (RELAY_TUI_COMMAND, message) => {
    const target = await start([], { env: { RELAY_TUI_COMMAND } });
    const { client } = await device(target);
    client.send('tui', 'tui.attach', {}, 'a1');
    expect((await client.next({ type: 'tui.error', id: 'a1' })).payload.message).toMatch(message);
    client.send('tui', 'tui.rpc.request', {}, 'r1');
    const { payload } = await client.next({ type: 'tui.error', id: 'r1' });
    expect(payload.message).toBe('no active tui session - send tui.attach first');
  });

  it('refuses a malformed request', async () => {
    const { client } = await attached();
    client.send('tui', 'tui.attach', { profile: 'a/b' }, 'a2');
    const { payload } = await client.next({ type: 'tui.error', id: 'a2' });
    expect(payload).toEqual({ message: expect.stringContaining('profile'), error: 'invalid_request' });
    await echo(client);
  });

  it('answers with system/error, never tui.error, when the host has no gateway', async () => {
    const target = await start([], { env: { RELAY_TUI_COMMAND: '' } });
    const { client } = await device(target);
    client.send('tui', 'tui.attach', {}, 'a1');
    expect(await client.next()).toEqual({
      channel: 'system',
      type: 'error',
      id: 'a1',
      payload: { message: 'TUI gateway is not available on this host', error: 'tui_unavailable', channel: 'tui' },
    });
    client.send('system', 'ping');
    expect((await client.next()).type).toBe('pong');
  });

  it('a relay runs 16 gateways; a 17th is refused until one has ended', async () => {
    const target = await start(['mute']);
    const clients = await Promise.all(Array.from({ length: 17 }, () => device(target)));
    for (const { client } of clients) client.send('tui', 'tui.attach');
    const isIn = (type: string) => clients.filter(({ client }) => ofType(client, type).length > 0);
    await vi.waitFor(() => expect([isIn('tui.attached').length, isIn('tui.error').length]).toEqual([16, 1]));
    const refused = isIn('tui.error')[0]?.client as Client;
    expect((await refused.next({ type: 'tui.error' })).payload).toEqual({
      message: expect.stringContaining('16'),
      error: 'session_limit',
    });
    // The client need not wait for the exit, only until the relay has seen it, which another socket shows.
    const leaving = isIn('tui.attached')[0]?.client as Client;
    detach({ client: leaving });
    ask(leaving, 'echo', {}, 'behind');
    await leaving.next({ type: 'tui.error', id: 'behind' });
    refused.send('tui', 'tui.attach');
    await refused.next({ type: 'tui.attached' });
  });
});

describe('contract 02 §4.4: requests', () => {
  it('are one compact line each, in order, with every member', async () => {
    const { client } = await attached();
    const sent = Array.from({ length: 200 }, (_, n) => ({ method: 'x', id: `r${n}`, unknown: { deep: ['é', null] } }));
    for (const request of sent) client.send('tui', 'tui.rpc.request', request);
    await vi.waitFor(() => expect(ofType(client, 'tui.rpc.response')).toHaveLength(200));
    expect(ofType(client, 'tui.rpc.response').map(({ payload }) => payload.result)).toEqual(
      sent.map((request) => JSON.stringify(request)),
    );
  });

  it('pass unchanged on one line: numbers, duplicate keys, escapes', async () => {
    const { client } = await attached();
    const text = '{"id":"r1","method":"x","params":{"a":1e400,"a":-0.0,"n":12345678901234567890,"u":"\\ud800 \\n"}}';
    const spread = text.replaceAll(',', ' ,\r\n\t').replaceAll(':', ' : ');
    client.raw(`{"channel":"tui","type":"tui.rpc.request", "payload" :\n${spread}\n, "id":"q"}`);
    expect((await client.next({ type: 'tui.rpc.response' })).payload).toEqual({
      jsonrpc: '2.0',
      id: 'r1',
      result: text,
    });
    client.raw('{"channel":"tui","type":"tui.rpc.request","id":"q"}');
    // Without an id the fake's answer is not a response.
    expect((await client.next({ type: 'tui.rpc.event' })).payload.result).toBe('{}');
  });

  it('can be sent in the tick of the attach', async () => {
    const target = await start();
    const { client } = await device(target);
    client.send('tui', 'tui.attach');
    await echo(client);
    expect(client.frames.map(({ type }) => type)).toEqual(['tui.attached', 'tui.rpc.event']);
  });

  it('may be 25 MiB long', async () => {
    const { client } = await attached();
    ask(client, 'measure', { data: 'x'.repeat(25 * MiB) });
    expect((await client.next({ type: 'tui.rpc.response' })).payload.result).toBe(25 * MiB);
  });

  it('are refused beyond 64 MiB that the gateway does not read, and nothing else suffers', async () => {
    const { client } = await attached();
    ask(client, 'stall');
    expect((await client.next({ type: 'tui.rpc.response' })).payload.result).toBe('stalled');
    const data = 'x'.repeat(30 * MiB);
    for (const id of ['r1', 'r2', 'r3']) ask(client, 'measure', { data }, id);
    const { payload } = await client.next({ type: 'tui.error', id: 'r3' });
    expect(payload.message).toMatch(/dropped/);
    client.send('tui', 'tui.detach');
    await attach(client);
  });

  it('to a gateway that closed its input yield tui.error with the request id', async () => {
    const { client, ready } = await attached();
    ask(client, 'deaf');
    await client.next({ type: 'tui.rpc.response' });
    ask(client, 'echo', {}, 'r1');
    expect((await client.next({ type: 'tui.error', id: 'r1' })).payload.message).toMatch(/does not read/);
    expect(await isRunning(ready.pid)).toBe(true);
  });

  it('tui.resize becomes a request of the relay and is ignored without a gateway or a size', async () => {
    const target = await start();
    const { client } = await device(target);
    client.send('tui', 'tui.resize', { cols: 100, rows: 30 });
    await attach(client);
    for (const size of [{}, { cols: 80 }, { cols: '80', rows: 24 }]) client.send('tui', 'tui.resize', size);
    client.send('tui', 'tui.resize', { cols: 132.7, rows: 100_000 });
    const { payload } = await client.next({ type: 'tui.rpc.response' });
    expect(payload.id).toMatch(/^resize-[0-9a-f-]{36}$/);
    expect(payload.result).toBe(
      `{"jsonrpc":"2.0","id":"${payload.id}","method":"terminal.resize","params":{"cols":132,"rows":1000}}`,
    );
    await echo(client);
    expect(client.frames).toEqual([]);
  });

  it('§1.4: unknown types and payloads that are not objects are refused', async () => {
    const { client } = await attached();
    client.send('tui', 'tui.nope', {}, 'u1');
    expect((await client.next({ type: 'tui.error', id: 'u1' })).payload.message).toBe(
      'unknown tui message type: tui.nope',
    );
    client.send('tui', 'tui.rpc.request', [1], 'u2');
    expect((await client.next({ type: 'tui.error', id: 'u2' })).payload.message).toBe('payload must be a JSON object');
    await echo(client);
  });
});

describe('contract 02 §4.5: output', () => {
  it('§10.7: lines that are not JSON are dropped, the event after them arrives', async () => {
    const { client, target } = await attached();
    ask(client, 'raw', { text: 'not json, secret\n{"method":"event","params":{"type":"x"}}\n' });
    expect(isEvent('x')(await client.next())).toBe(true);
    expect(target.log.filter((line) => line.includes('WARNING') && line.includes('16 bytes'))).toHaveLength(1);
    expect(target.log.join()).not.toContain('secret');
  });

  it('objects pass unchanged: numbers, duplicate keys, spaces', async () => {
    const { client } = await attached();
    const texts: string[] = [];
    client.socket.on('message', (data) => texts.push(String(data)));
    const object = '{"id": 12345678901234567890, "result": {"a":1e400, "a":-0.0, "__proto__":{}, "u":"\\ud800\u2028"}}';
    ask(client, 'raw', { text: `${object}\r\n` });
    await client.next({ type: 'tui.rpc.response' });
    expect(texts).toHaveLength(1);
    expect(texts[0]).toMatch(/^\{"channel":"tui","type":"tui\.rpc\.response","id":"[0-9a-f-]{36}","payload":/);
    expect(texts[0]?.endsWith(`"payload":${object}}`)).toBe(true);
  });

  it('10,000 lines keep their order', async () => {
    const { client } = await attached();
    ask(client, 'burst', { count: 10_000 });
    await vi.waitFor(() => expect(client.frames).toHaveLength(10_000));
    expect(client.frames.map((frame) => eventPayload(frame).n)).toEqual(Array.from({ length: 10_000 }, (_, n) => n));
  });

  it('a line of 20 MiB passes; one over 32 MiB and invalid UTF-8 are dropped, and output goes on', async () => {
    const { client, target } = await attached();
    ask(client, 'huge', { bytes: 20 * MiB });
    const { payload } = await client.next();
    expect(JSON.stringify(payload)).toHaveLength(20 * MiB);
    ask(client, 'huge', { bytes: 33 * MiB });
    ask(client, 'raw', {
      base64: Buffer.from([0x7b, 0x22, 0xc3, 0x28, 0x22, 0x3a, 0x31, 0x7d, 0x0a]).toString('base64'),
    });
    await echo(client);
    expect(client.frames).toEqual([]);
    expect(target.log.filter((line) => line.includes('WARNING'))).toHaveLength(2);
  });

  it('stderr is drained and only logged', async () => {
    const { client, target } = await attached();
    ask(client, 'noise', { text: `${'n'.repeat(1000)}\n`.repeat(1000) });
    await echo(client);
    await vi.waitFor(() => expect(target.log.filter((line) => line.includes('nnnn'))).toHaveLength(1000));
    expect(client.frames).toEqual([]);
  });

  it('§1.7: a client that does not read pauses its gateway; nothing is lost and others go on', async () => {
    const { client, target } = await attached();
    const other = await device(target);
    await attach(other.client);
    const count = 1536;
    client.socket.pause();
    // 96 MiB: more than the 64 MiB at which the socket would be closed.
    ask(client, 'burst', { count, size: 64 * 1024 });
    const written = () => Math.max(0, ...target.log.map((line) => Number(/: written (\d+)$/.exec(line)?.[1] ?? 0)));
    let last = -1;
    await vi.waitFor(
      async () => {
        for (let n = 0; n < 50; n++) await echo(other.client);
        const before = last;
        last = written();
        expect(last).toBeGreaterThan(0);
        expect(last).toBe(before);
      },
      { interval: 100 },
    );
    // 4 MiB in the relay; the kernel holds the rest in the buffers of the connection and the pipe.
    expect(last * 64 * 1024).toBeLessThan(40 * MiB);
    client.socket.resume();
    await echo(client);
    expect(client.frames.map((frame) => eventPayload(frame).n)).toEqual(Array.from({ length: count }, (_, n) => n));
  });
});

describe('contract 02 §4.6: end', () => {
  it('§10.8: exit code 3 is reported after the last line; then there is no session, and a new attach works', async () => {
    const { client } = await attached();
    ask(client, 'exit', { code: 3, tail: '{"method":"event","params":{"type":"bye"}}' });
    expect(isEvent('bye')(await client.next())).toBe(true);
    expect((await client.next()).payload).toEqual({ message: 'tui_gateway exited (code=3)' });
    ask(client, 'echo', {}, 'r9');
    expect((await client.next({ type: 'tui.error', id: 'r9' })).payload.message).toMatch(/^no active tui session/);
    await attach(client);
    expect(client.frames).toEqual([]);
  });

  it.each([0, 1])('exit code %i is reported once, with requests in flight', async (code) => {
    const { client } = await attached();
    ask(client, 'exit', { code });
    await client.next({ type: 'tui.error' }).then(({ payload }) => expect(payload.message).toContain(`code=${code}`));
    await attach(client);
    await echo(client);
    expect(client.frames).toEqual([]);
  });

  it('death by a signal is reported', async () => {
    const { client } = await attached();
    ask(client, 'die', { signal: 'SIGKILL' });
    expect((await client.next({ type: 'tui.error' })).payload.message).toBe('tui_gateway exited (signal=SIGKILL)');
  });

  it('all output precedes the exit', async () => {
    const { client } = await attached();
    ask(client, 'burst', { count: 5000 });
    ask(client, 'exit', { code: 4 });
    await vi.waitFor(() => expect(client.frames.at(-1)?.type).toBe('tui.error'));
    expect(client.frames.at(-1)?.payload.message).toContain('code=4');
    expect(client.frames.filter(isEvent('n'))).toHaveLength(5000);
  });

  it('detach does nothing without a gateway and is not answered', async () => {
    const { client } = await attached();
    detach({ client });
    detach({ client });
    ask(client, 'echo', {}, 'r1');
    expect((await client.next()).payload.message).toMatch(/^no active tui session/);
  });

  it('a socket that drops while its gateway starts leaves nothing behind', async () => {
    const mark = crypto.randomUUID();
    const target = await start([mark]);
    const { token, client } = await device(target);
    await attach(client);
    expect(await runningWith(mark)).toHaveLength(1);
    for (let n = 0; n < 20; n++) {
      const { client } = await authenticate(target, { session_token: token });
      client.send('tui', 'tui.attach');
      client.close();
    }
    await target.relay.stop();
    expect(await runningWith(mark)).toEqual([]);
  });

  it('two sockets of one device have their own gateways', async () => {
    const { target, token, client, ready } = await attached();
    const second = (await authenticate(target, { session_token: token })).client;
    pending.push(() => second.terminate());
    const other = await attach(second);
    expect(other.pid).not.toBe(ready.pid);
    second.terminate();
    await untilGone(other.pid);
    await echo(client);
    expect(await isRunning(ready.pid)).toBe(true);
  });
});

// Concurrent, because each waits two seconds for processes that stay or that nobody reaps.
describe.concurrent('contract 02 §4.6: end of the process group', () => {
  async function alone(modes: string[], onTestFinished: (cleanup: () => Promise<void>) => void) {
    const after: Cleanups = [];
    onTestFinished(async () => {
      for (const cleanup of after.reverse()) await cleanup();
    });
    return attached(modes, {}, after);
  }

  it('a gateway that dies takes its children with it', async ({ onTestFinished }) => {
    const { client, ready } = await alone(['grandchild', 'ignore-term'], onTestFinished);
    ask(client, 'die', { signal: 'SIGKILL' });
    await client.next({ type: 'tui.error' });
    await untilGone(ready.grandchild);
  });

  const causes: [string, (made: Awaited<ReturnType<typeof attached>>) => unknown][] = [
    ['detach', detach],
    ['a cut socket', ({ client }) => client.terminate()],
    ['a closed socket', ({ client }) => client.close()],
    ['a re-attach', ({ client }) => client.send('tui', 'tui.attach')],
    [
      'a revoked session',
      ({ target, prefix, token }) => target.fetch(`/sessions/${prefix}`, { method: 'DELETE', headers: bearer(token) }),
    ],
    ['shutdown', ({ target }) => target.relay.stop()],
  ];
  it.for(causes)('%s ends the whole process group silently', async ([_cause, act], { onTestFinished }) => {
    const made = await alone(['grandchild'], onTestFinished);
    const { pid, grandchild } = made.ready;
    await act(made);
    await untilGone(pid);
    await untilGone(grandchild);
    expect(ofType(made.client, 'tui.error')).toEqual([]);
  });

  it('a gateway that ignores SIGTERM gets SIGKILL after 2 s', async ({ onTestFinished }) => {
    const { client, ready } = await alone(['ignore-term', 'grandchild'], onTestFinished);
    const began = performance.now();
    detach({ client });
    await untilGone(ready.pid);
    await untilGone(ready.grandchild);
    expect(performance.now() - began).toBeGreaterThan(1500);
  });

  it('shutdown ends stubborn gateways within 5 s, and resolves only then', async ({ onTestFinished }) => {
    const { target, ready } = await alone(['ignore-term', 'grandchild'], onTestFinished);
    const began = performance.now();
    await target.relay.stop();
    expect(await isRunning(ready.pid)).toBe(false);
    // Killed with its group: the system may take a moment for a process that is not the relay's own child.
    await untilGone(ready.grandchild);
    expect(performance.now() - began).toBeLessThan(5000);
  });
});

describe('contract 02 §1.5: the grant', () => {
  const text = 'TUI grant expired for this device';

  it('without it only system/error is sent', async () => {
    const clock = createTestClock();
    const target = await start([], { clock });
    const { client } = await device(target, { policy: { grants: { tui: 60 } } });
    clock.advance(61_000);
    for (const type of ['tui.attach', 'tui.rpc.request', 'tui.resize', 'tui.detach', 'tui.nope']) {
      client.send('tui', type, {}, type);
      expect(await client.next()).toEqual({
        channel: 'system',
        type: 'error',
        id: type,
        payload: { message: text, error: 'permission_denied', channel: 'tui' },
      });
    }
    client.send('system', 'ping');
    expect((await client.next()).type).toBe('pong');
  });

  it('its expiry ends the gateway with one system/error and no tui.error', async () => {
    const clock = createTestClock();
    const target = await start(['grandchild'], { clock });
    const { client } = await device(target, { policy: { grants: { tui: 60 } } });
    const idle = await device(target, { policy: { grants: { tui: 60 } } });
    const { pid, grandchild } = await attach(client);
    clock.advance(60_000);
    expect((await client.next()).payload).toEqual({ message: text, error: 'permission_denied', channel: 'tui' });
    await untilGone(pid);
    await untilGone(grandchild);
    for (const { frames, send } of [client, idle.client]) {
      send('system', 'ping');
      await vi.waitFor(() => expect(frames.map(({ type }) => type)).toEqual(['pong']));
    }
  });

  it('so does its loss', async () => {
    const { target, prefix, client, ready, token } = await attached();
    const body = { ...post({ grants: { tui: 1 } }), method: 'PATCH' };
    const headers = { ...bearer(token), 'content-type': 'application/json' };
    expect((await target.fetch(`/sessions/${prefix}`, { ...body, headers })).status).toBe(200);
    expect((await client.next()).payload.message).toBe(text);
    await untilGone(ready.pid);
    expect(client.frames).toEqual([]);
  });
});

describeMatrix(
  'tui without a host',
  (start) => {
    it('contract 02 §4.2: requests get system/error, never tui.error', async () => {
      const { client } = await pair(await start());
      for (const type of ['tui.attach', 'tui.rpc.request']) {
        client.send('tui', type, {}, type);
        expect(await client.next()).toEqual({
          channel: 'system',
          type: 'error',
          id: type,
          payload: {
            message: 'TUI gateway is not available: this relay has no host',
            error: 'tui_unavailable',
            channel: 'tui',
          },
        });
      }
      client.send('tui', 'tui.resize', { cols: 80, rows: 24 });
      client.send('tui', 'tui.detach');
      client.send('tui', 'tui.nope', {}, 'u1');
      expect((await client.next()).type).toBe('tui.error');
      client.send('system', 'ping');
      expect((await client.next()).type).toBe('pong');
      client.close();
    });
  },
  ['edge'],
);

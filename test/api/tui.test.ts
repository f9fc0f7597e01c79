import { expect, it, onTestFinished, vi } from 'vitest';
import type { Frame } from '../support/client.ts';
import { createTestClock } from '../support/clock.ts';
import { authenticate, bearer, describeMatrix, describeOnNode, pair, post } from '../support/relay.ts';
import { isRunning, runningWith, untilGone } from '../support/running.ts';
import { ask, attach, attached, detach, device, echo, eventPayload, isEvent, ofType, start } from '../support/tui.ts';

describeOnNode('contract 02 §4.3: attach', () => {
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
});

describeOnNode('contract 02 §4.4: requests', () => {
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

describeOnNode('contract 02 §4.5: output', () => {
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

  it('stderr is drained and only logged', async () => {
    const { client, target } = await attached();
    ask(client, 'noise', { text: `${'n'.repeat(1000)}\n`.repeat(1000) });
    await echo(client);
    await vi.waitFor(() => expect(target.log.filter((line) => line.includes('nnnn'))).toHaveLength(1000));
    expect(client.frames).toEqual([]);
  });
});

describeOnNode('contract 02 §4.6: end', () => {
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
    onTestFinished(() => second.terminate());
    const other = await attach(second);
    expect(other.pid).not.toBe(ready.pid);
    second.terminate();
    await untilGone(other.pid);
    await echo(client);
    expect(await isRunning(ready.pid)).toBe(true);
  });
});

// Concurrent, because each waits two seconds for processes that stay or that nobody reaps.
describeOnNode('contract 02 §1.5: the grant', () => {
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

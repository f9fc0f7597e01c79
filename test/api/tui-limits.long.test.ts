import { describe, expect, it, vi } from 'vitest';
import type { Client } from '../support/client.ts';
import { startWatch } from '../support/cpu.ts';
import { bearer } from '../support/relay.ts';
import { isRunning, untilGone } from '../support/running.ts';
import { ask, attach, attached, detach, device, echo, eventPayload, MiB, ofType, start } from '../support/tui.ts';

describe('contract 02 §4: limits of the TUI', () => {
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

  it('a request may be 25 MiB long', async () => {
    const { client } = await attached();
    ask(client, 'measure', { data: 'x'.repeat(25 * MiB) });
    expect((await client.next({ type: 'tui.rpc.response' })).payload.result).toBe(25 * MiB);
  });

  it('requests are refused beyond 64 MiB that the gateway does not read, and nothing else suffers', async () => {
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

describe.concurrent('contract 02 §4.6: end of the process group', () => {
  it('a gateway that dies takes its children with it', async ({ onTestFinished }) => {
    const { client, ready } = await attached(['grandchild', 'ignore-term'], {}, onTestFinished);
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
    const made = await attached(['grandchild'], {}, onTestFinished);
    const { pid, grandchild } = made.ready;
    await act(made);
    await untilGone(pid);
    await untilGone(grandchild);
    expect(ofType(made.client, 'tui.error')).toEqual([]);
  });

  it('a gateway that ignores SIGTERM gets SIGKILL after 2 s', async ({ onTestFinished }) => {
    const { client, ready } = await attached(['ignore-term', 'grandchild'], {}, onTestFinished);
    const began = performance.now();
    detach({ client });
    await untilGone(ready.pid);
    await untilGone(ready.grandchild);
    expect(performance.now() - began).toBeGreaterThan(1500);
  });

  it('shutdown ends stubborn gateways within 5 s, and resolves only then', async ({ onTestFinished }) => {
    const { target, ready } = await attached(['ignore-term', 'grandchild'], {}, onTestFinished);
    const passed = startWatch();
    await target.relay.stop();
    expect(await isRunning(ready.pid)).toBe(false);
    // Killed with its group: the system may take a moment for a process that is not the relay's own child.
    await untilGone(ready.grandchild);
    expect(passed()).toBeLessThan(5000);
  });
});

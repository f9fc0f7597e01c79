import { expect, it, onTestFinished, vi } from 'vitest';
import type { Channel, Connection } from '../../lib/socket/channel.ts';
import { KiB, MiB, start } from '../support/backpressure.ts';
import { openAuthenticated, textFrame } from '../support/raw-socket.ts';
import { pair } from '../support/relay.ts';

/** A channel that exposes the connections that called it. */
function catcher() {
  const connections: Connection[] = [];
  const probe: Channel = { message: (connection) => void connections.push(connection) };
  const caught = async (count = 1) => {
    await vi.waitFor(() => expect(connections).toHaveLength(count));
    return connections[count - 1] as Connection;
  };
  return { probe, caught };
}

it('contract 02 §1.7: a producer is paused above the high-water mark and resumed below the low one', async () => {
  const { probe, caught } = catcher();
  const { join } = await start(probe);
  const client = await join();
  client.send('probe', 'follow');
  const connection = await caught();
  const events: { kind: string; unsent: number }[] = [];
  const note = (kind: string) => () => void events.push({ kind, unsent: connection.unsent });
  connection.follow({ high: MiB, low: 256 * KiB, pause: note('pause'), resume: note('resume') });
  client.socket.pause();
  const data = 'x'.repeat(64 * KiB);
  let sent = 0;
  // A producer that stops when told to.
  while (events.length === 0) {
    connection.send('probe', 'data', { data });
    sent++;
  }
  expect(events).toEqual([{ kind: 'pause', unsent: expect.any(Number) }]);
  expect(events[0]?.unsent).toBeGreaterThan(MiB);
  expect(events[0]?.unsent).toBeLessThan(MiB + 128 * KiB);
  client.socket.resume();
  await vi.waitFor(() => expect(events).toHaveLength(2));
  expect(events[1]?.kind).toBe('resume');
  expect(events[1]?.unsent).toBeLessThan(256 * KiB);
  await vi.waitFor(() => expect(client.frames.filter(({ type }) => type === 'data')).toHaveLength(sent));
});

it('contract 02 §1.7: producers on one socket have independent marks', async () => {
  const { probe, caught } = catcher();
  const { join } = await start(probe);
  const client = await join();
  client.send('probe', 'follow');
  const connection = await caught();
  const events: string[] = [];
  const follow = (name: string, high: number, low: number) =>
    connection.follow({
      high,
      low,
      pause: () => void events.push(`${name} paused`),
      resume: () => void events.push(`${name} resumed`),
    });
  follow('small', MiB, 256 * KiB);
  follow('large', 4 * MiB, MiB);
  const forget = follow('gone', MiB, 256 * KiB);
  forget();
  client.socket.pause();
  while (!events.includes('large paused')) connection.send('probe', 'data', { data: 'x'.repeat(64 * KiB) });
  // A producer that subscribes to a full socket is paused at once.
  follow('late', MiB, 256 * KiB);
  expect(events).toEqual(['small paused', 'large paused', 'late paused']);
  client.socket.resume();
  await vi.waitFor(() => expect(events).toHaveLength(6));
  expect(events.slice(3).sort()).toEqual(['large resumed', 'late resumed', 'small resumed']);
});

it('contract 02 §1.7: producers are not called after the end of the socket', async () => {
  const { probe, caught } = catcher();
  const { target, join } = await start(probe);
  const client = await join();
  client.send('probe', 'follow');
  const connection = await caught();
  const events: string[] = [];
  client.socket.pause();
  connection.follow({
    high: MiB,
    low: 256 * KiB,
    pause: () => void events.push('pause'),
    resume: () => void events.push('resume'),
  });
  while (events.length === 0) connection.send('probe', 'data', { data: 'x'.repeat(64 * KiB) });
  client.terminate();
  await vi.waitFor(() => expect(target.relay.sockets.count()).toBe(0));
  expect(connection.isOpen).toBe(false);
  connection.send('probe', 'data', {});
  expect(events).toEqual(['pause']);
});

it('contract 02 §1.8: a client that half-closes without a close frame still gets what is queued, then the end', async () => {
  const { probe, caught } = catcher();
  const { target } = await start(probe);
  const { client: honest, token } = await pair(target);
  onTestFinished(() => honest.terminate());
  const raw = await openAuthenticated(target.port, { session_token: token });
  onTestFinished(raw.destroy);
  raw.write(textFrame('probe', 'follow'));
  const connection = await caught();
  raw.socket.pause();
  const frames = 256;
  for (let sent = 0; sent < frames; sent++) connection.send('probe', 'data', { sent, data: 'x'.repeat(64 * KiB) });
  expect(connection.unsent).toBeGreaterThan(MiB);
  raw.socket.end();
  await vi.waitFor(() => expect(connection.isWritable).toBe(false));
  // The socket is closing: later frames go nowhere and break nothing.
  connection.send('probe', 'late', {});
  raw.socket.resume();
  for (let sent = 0; sent < frames; sent++) expect((await raw.envelope()).payload.sent).toBe(sent);
  await raw.ended();
  expect(raw.unread()).toBe(0);
  await vi.waitFor(() => expect(target.relay.sockets.count()).toBe(1));
  honest.send('system', 'ping', {}, 'honest');
  expect((await honest.next({ id: 'honest' })).type).toBe('pong');
});

it('contract 02 §1.6: a slow message delays only its own channel on its own socket', async () => {
  const held: (() => void)[] = [];
  const seen: string[] = [];
  const slow: Channel = {
    async message(_connection, { id }) {
      seen.push(id);
      if (id === 'hold') await new Promise<void>((resolve) => held.push(resolve));
    },
  };
  const { target, join } = await start(slow);
  const [one, two] = [await join(), await join()];
  one.send('probe', 'x', {}, 'hold');
  one.send('probe', 'x', {}, 'behind');
  one.send('system', 'ping', {}, 'other channel');
  await one.next({ id: 'other channel' });
  two.send('probe', 'x', {}, 'other socket');
  await vi.waitFor(() => expect(seen).toEqual(['hold', 'other socket']));
  held[0]?.();
  await vi.waitFor(() => expect(seen).toEqual(['hold', 'other socket', 'behind']));
  expect(target.relay.sockets.count()).toBe(2);
});

it('contract 01 §3.7: a handler that throws or rejects yields an error without the reason', async () => {
  const probe: Channel = {
    message(_connection, { type }) {
      if (type === 'throw') throw new Error('secret /home/path');
      return Promise.reject(new Error('secret /home/path'));
    },
    closed() {
      throw new Error('cleanup failed too');
    },
  };
  const { target, join } = await start(probe);
  const client = await join();
  for (const type of ['throw', 'reject', 'throw']) {
    client.send('probe', type, {}, type);
    const answer = await client.next({ id: type });
    expect(answer).toMatchObject({ channel: 'system', type: 'error', payload: { message: 'internal error' } });
    expect(JSON.stringify(answer)).not.toContain('secret');
  }
  client.close();
  expect((await client.closed()).code).toBe(1005);
  await vi.waitFor(() => expect(target.relay.sockets.count()).toBe(0));
});

it('contract 02 §1.8: messages queued when the socket ends are dropped, and cleanup runs once', async () => {
  const seen: string[] = [];
  const held: (() => void)[] = [];
  let cleaned = 0;
  const probe: Channel = {
    async message(_connection, { id }) {
      seen.push(id);
      await new Promise<void>((resolve) => held.push(resolve));
    },
    closed: () => void cleaned++,
  };
  const { target, join } = await start(probe);
  const client = await join();
  for (const id of ['a', 'b', 'c']) client.send('probe', 'x', {}, id);
  await vi.waitFor(() => expect(held).toHaveLength(1));
  client.terminate();
  await vi.waitFor(() => expect(target.relay.sockets.count()).toBe(0));
  held[0]?.();
  const other = await join();
  other.send('system', 'ping', {}, 'later');
  await other.next({ id: 'later' });
  expect(seen).toEqual(['a']);
  expect(cleaned).toBe(1);
});

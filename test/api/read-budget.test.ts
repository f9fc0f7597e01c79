import { expect, it, vi } from 'vitest';
import { type BuiltOptions, cleanups, startBuiltTarget } from '../support/built-relay.ts';
import { createTestClock } from '../support/clock.ts';
import { frame, OPCODE, openAuthenticated, type RawConnection } from '../support/raw-socket.ts';
import { bearer, pair } from '../support/relay.ts';

const KiB = 1024;
const MiB = 1024 * KiB;
const pending = cleanups();

/** Of two such messages, a budget of 1 MiB holds one. */
const TEXT = `{"channel":"tui","type":"tui.rpc.request","id":"long","payload":{"a":"${'x'.repeat(800 * KiB)}"}}`;
const LONG = frame({ payload: TEXT });
/** Enough of it to be counted. */
const MOST = 400 * KiB;

/** A relay with a budget of 1 MiB, and a device with raw sockets. */
async function start(options: BuiltOptions = {}) {
  const target = await startBuiltTarget({ ...options, env: { RELAY_READ_BUDGET_MB: '1' } });
  pending.push(target.stop);
  const { client, token } = await pair(target);
  pending.push(() => client.terminate());
  const { reading, parsing } = target.relay.budgets;
  /** Waits until so many bytes are reserved, and so many messages wait. */
  const state = (used: number, waiting: number) =>
    vi.waitFor(() => expect([reading.used, reading.waiting]).toEqual([used, waiting]));
  return {
    target,
    token,
    client,
    reading,
    async open() {
      const raw = await openAuthenticated(target.port, { session_token: token });
      pending.push(raw.destroy);
      return raw;
    },
    state,
    /** Sends the beginning of a long message, which reserves its memory. */
    async hold(raw: RawConnection): Promise<void> {
      raw.write(LONG.subarray(0, MOST));
      await state(TEXT.length, 0);
    },
    /** Sends a long message, which waits for memory as the `nth`. */
    async queue(raw: RawConnection, nth: number): Promise<void> {
      raw.write(LONG);
      await state(TEXT.length, nth);
    },
    /** Everything has been given back. */
    idle: () =>
      vi.waitFor(() => expect([reading.used, reading.waiting, parsing.used, parsing.waiting]).toEqual([0, 0, 0, 0])),
  };
}

const ANSWER = { channel: 'tui', type: 'tui.error', id: 'long' };

it('a message for which there is no memory is read when there is, in turn; short ones are not held up', async () => {
  const { open, hold, queue, idle, client } = await start();
  const [first, second, third] = [await open(), await open(), await open()];
  await hold(first);
  await queue(second, 1);
  await queue(third, 2);
  client.send('system', 'ping', {}, 'short');
  expect((await client.next({ id: 'short' })).type).toBe('pong');
  expect([second.unread(), third.unread()]).toEqual([0, 0]);
  first.write(LONG.subarray(MOST));
  for (const raw of [first, second, third]) expect(await raw.envelope()).toMatchObject(ANSWER);
  await idle();
});

it('a client that goes, and one that is dropped, leave nothing reserved', async () => {
  const { open, hold, queue, idle, target, token } = await start();
  const [first, second, third] = [await open(), await open(), await open()];
  await hold(first);
  await queue(second, 1);
  await queue(third, 2);
  second.destroy();
  first.destroy();
  expect(await third.envelope()).toMatchObject(ANSWER);
  await idle();
  const [holder, waiter] = [await open(), await open()];
  await hold(holder);
  await queue(waiter, 1);
  await target.fetch(`/sessions/${token.slice(0, 8)}`, { method: 'DELETE', headers: bearer(token) });
  expect(await waiter.closing()).toMatchObject({ code: 4401 });
  await idle();
  expect(target.relay.sockets.count()).toBe(0);
});

it('a message in several frames counts as the longest that is allowed, once it is long', async () => {
  const { open, state, idle } = await start();
  const raw = await open();
  const part = 200 * KiB;
  raw.write(frame({ fin: false, payload: TEXT.slice(0, part) }));
  raw.write(frame({ fin: false, opcode: OPCODE.continuation, payload: TEXT.slice(part, 2 * part) }));
  await state(40 * MiB, 0);
  raw.write(frame({ opcode: OPCODE.continuation, payload: TEXT.slice(2 * part) }));
  expect(await raw.envelope()).toMatchObject(ANSWER);
  await idle();
});

it('a message that does not come while others wait is given up after 30 s, and who waits is not taken for dead', async () => {
  const clock = createTestClock();
  const { open, hold, queue, idle } = await start({ clock });
  const [holder, waiter] = [await open(), await open()];
  await clock.advanceAsync(16_000);
  await hold(holder);
  await queue(waiter, 1);
  await clock.advanceAsync(30_000);
  expect(await holder.closing()).toEqual({ code: 1013, reason: 'too slow while others wait' });
  // By now the keep-alive has asked twice.
  await clock.advanceAsync(15_000);
  expect(await waiter.envelope()).toMatchObject(ANSWER);
  await idle();
});

it('JSON bodies wait for the same memory, with a length and without', async () => {
  const { open, hold, state, idle, target, token } = await start();
  for (const body of [TEXT, new Blob([TEXT]).stream()]) {
    const holder = await open();
    await hold(holder);
    let isAnswered = false;
    const init = { method: 'POST', body, headers: bearer(token), duplex: 'half' } as RequestInit;
    const answer = target.fetch('/desktop/desktop_terminal', init).finally(() => {
      isAnswered = true;
    });
    await state(TEXT.length, 1);
    expect(isAnswered).toBe(false);
    expect((await target.fetch('/health')).status).toBe(200);
    holder.write(LONG.subarray(MOST));
    expect(await holder.envelope()).toMatchObject(ANSWER);
    await (await answer).text();
    await idle();
  }
});

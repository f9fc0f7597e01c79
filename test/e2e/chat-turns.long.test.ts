import { readFile } from 'node:fs/promises';
import { expect, it, onTestFinished, vi } from 'vitest';
import { TYPED } from '../support/chat.ts';
import { follow, keep, resume } from '../support/chat-turns.ts';
import { type Client, connect, type Frame } from '../support/client.ts';
import { startFakeApi } from '../support/fake-api-server.ts';
import { POLL, TIMEOUT } from '../support/limits.ts';
import { type RelayProcess, startRelayProcess } from '../support/process.ts';
import { randomCode } from '../support/relay.ts';

const MiB = 1024 * 1024;
const DELTAS = 2_000;
/** Milliseconds between two kills. */
const STEP = 100;
/** Of the deltas, which come in groups. */
const GROUP = { size: 10, every: 12 };
/** Milliseconds of text that a crash may lose, and what a busy machine may add to a timer and a sync. */
const LOSS = 1_000 + 500;

const pause = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms));

async function setUp() {
  const api = await startFakeApi();
  const relay = await startRelayProcess({ env: { RELAY_WEBAPI_URL: api.url } });
  return { api, relay };
}

/** Pairs a device, or connects it again. */
async function enter(relay: RelayProcess, token?: string): Promise<{ client: Client; token: string }> {
  const code = randomCode();
  if (!token) await relay.ask('/pairing/register', { method: 'POST', body: { code } });
  const client = await connect(relay.wsUrl);
  const credential = token ? { session_token: token } : { pairing_code: code };
  client.send('system', 'auth', { ...TYPED, ...credential, device_id: 'phone-1', device_name: 'Phone' });
  const { payload } = await client.next({ type: 'auth.ok' });
  return { client, token: payload.session_token as string };
}

it('kill -9 at any moment of a stream loses a second of text, no turn, and asks the agent once', {
  timeout: 10 * 60_000,
}, async () => {
  const { api, relay } = await setUp();
  api.onStream(async (exchange) => {
    exchange.open();
    for (let at = 0; at < DELTAS && !exchange.abandoned; ) {
      const until = at + GROUP.size;
      for (; at < until; at++) void exchange.event({ type: 'assistant.delta', delta: `${at} ` });
      await pause(GROUP.every);
    }
    exchange.end();
  });
  const whole = Array.from({ length: DELTAS }, (_, at) => `${at} `).join('');
  const { client: first, token } = await enter(relay);
  first.close();
  const lost: number[] = [];
  let isWhole = false;
  for (let round = 0; !isWhole; round++) {
    const { client } = await enter(relay, token);
    /** When the client had each delta: the relay had it before. */
    const received: number[] = [];
    client.socket.on('message', (data) => {
      if (String(data).includes('"assistant.delta"')) received.push(performance.now());
    });
    const id = `turn-${round}`;
    keep(client, 'c1', { client_turn_id: id });
    await api.request(round);
    await pause(round * STEP);
    const killedAt = performance.now();
    await relay.restart();

    const back = await enter(relay, token);
    const turns = await follow(back.client);
    expect(turns.map(({ client_turn_id }) => client_turn_id)).toEqual(
      Array.from({ length: round + 1 }, (_, at) => `turn-${at}`),
    );
    const turn = turns.at(-1) ?? {};
    const { payload } = await resume(back.client, { turn_id: turn.turn_id });
    const text = String(payload.text);
    expect(whole.startsWith(text)).toBe(true);
    expect(payload.question).toBe('hi');
    const count = text === '' ? 0 : text.trim().split(' ').length;
    const old = received.filter((at) => at < killedAt - LOSS).length;
    expect(
      count,
      `round ${round}: the client had ${received.length}, ${old} of them long before`,
    ).toBeGreaterThanOrEqual(old);
    // A client that has seen more than was stored does not take the stored `seq` for what it has.
    expect(Number(payload.seq)).toBeGreaterThan(received.length);
    keep(back.client, 'again', { client_turn_id: id });
    expect((await back.client.next({ id: 'again' })).payload).toMatchObject({
      turn_id: turn.turn_id,
      state: turn.state,
    });
    isWhole = turn.state === 'done';
    if (isWhole) expect(text).toBe(whole);
    else {
      expect(turn.state).toBe('interrupted');
      lost.push(received.length - count);
    }
    back.client.close();
    expect(api.requests).toHaveLength(round + 1);
  }
  process.stderr.write(`${lost.length} kills, deltas that clients had and the store did not: ${lost.join(' ')}\n`);
  expect(lost.length).toBeGreaterThanOrEqual(20);
});

const residentOf = async (pid: number): Promise<number> => {
  const [, kB = '0'] = /VmRSS:\s+(\d+)/.exec(await readFile(`/proc/${pid}/status`, 'utf8')) ?? [];
  return Number(kB) * 1024;
};

it('32 turns of 16 MiB with clients that hardly read take bounded memory, and the agent waits for none', {
  timeout: 5 * 60_000,
}, async () => {
  const { api, relay } = await setUp();
  const chunk = `data: ${JSON.stringify({ type: 'tool.progress', delta: 'x'.repeat(64 * 1024) })}\n\n`;
  let sent = 0;
  api.onStream(async (exchange) => {
    exchange.open();
    for (let at = 0; at < 15; at++) await exchange.event({ type: 'assistant.delta', delta: 'y'.repeat(64 * 1024) });
    for (let at = 0; at < 240 && !exchange.abandoned; at++) await exchange.write(chunk);
    exchange.end();
    sent++;
  });
  const before = await residentOf(relay.child.pid);
  const clients: Client[] = [];
  for (let family = 0; family < 4; family++) {
    const code = randomCode();
    await relay.ask('/pairing/register', { method: 'POST', body: { code } });
    const client = await connect(relay.wsUrl);
    client.send('system', 'auth', { ...TYPED, pairing_code: code, device_id: crypto.randomUUID(), device_name: 'P' });
    await client.next({ type: 'auth.ok' });
    client.socket.pause();
    for (let at = 0; at < 8; at++) keep(client, `c${at}`);
    clients.push(client);
  }
  // Enough to answer pings: one that reads nothing for 45 s is dropped.
  const reading = setInterval(() => {
    for (const { socket } of clients) socket.resume();
    setTimeout(() => {
      if (sent < 32) for (const { socket } of clients) socket.pause();
    }, 50);
  }, 3_000);
  onTestFinished(() => clearInterval(reading));
  let peak = 0;
  await vi.waitFor(
    async () => {
      peak = Math.max(peak, await residentOf(relay.child.pid));
      expect(sent).toBe(32);
    },
    { timeout: 4 * TIMEOUT, interval: POLL },
  );
  process.stderr.write(`resident: ${Math.round(before / MiB)} MiB before, ${Math.round(peak / MiB)} MiB at most\n`);
  // 32 answers of 1 MiB, four sockets, buffers of 32 upstream connections, and room for the collector; 512 MiB pass.
  expect(peak - before).toBeLessThan(300 * MiB);
  for (const client of clients) {
    client.socket.resume();
    const isEnd = ({ payload }: Frame) => payload.state === 'done' || payload.event === 'done';
    const ended = () => new Set(client.frames.filter(isEnd).map(({ id }) => id)).size;
    await vi.waitFor(() => expect(ended()).toBe(8), { timeout: TIMEOUT, interval: POLL });
    const turns = await follow(client);
    expect(turns).toHaveLength(8);
    for (const { turn_id } of turns) {
      const { payload } = await resume(client, { turn_id });
      expect(String(payload.text)).toHaveLength(15 * 64 * 1024);
    }
  }
});

import Database from 'libsql';
import { expect, it, onTestFinished } from 'vitest';
import { connect } from '../support/client.ts';
import { startWatch } from '../support/cpu.ts';
import { relayHost, startEdgeRuntime } from '../support/edge-runtime.ts';
import { median, TIMED } from '../support/limits.ts';
import { randomCode } from '../support/relay.ts';

/** Milliseconds after which an object has usually been put away, and how often each is woken. */
const ASLEEP = 13_000;
const ROUNDS = 5;
const COUNTS = [0, 4_096, 20_000];

/** Adds sessions to a relay's database, each with a refresh credential and routes, as one that is in use has them. */
function seed(path: string, count: number): void {
  const database = new Database(path);
  try {
    const { value } = database.prepare("SELECT value FROM items WHERE store = 'sessions'").get() as { value: string };
    const put = database.prepare("INSERT INTO items (store, key, value) VALUES ('sessions', ?, ?)");
    database.transaction(() => {
      for (let n = 0; n < count; n++) {
        const id = n.toString(16).padStart(8, '0');
        const hash = id.repeat(8);
        const record = JSON.parse(value);
        put.run(
          id.repeat(4),
          JSON.stringify({
            ...record,
            family: id.repeat(4),
            token_sha256: hash,
            token_prefix: id,
            device_id: `device-${n}`,
            refresh: { ...record.refresh, sha256: hash },
          }),
        );
      }
    })();
  } finally {
    database.close();
  }
}

it('12 §6: an object wakes with 20,000 sessions as fast as with none, and forgets none', {
  timeout: 480_000,
  ...TIMED,
}, async () => {
  const runtime = await startEdgeRuntime({ RELAY_MAX_SESSIONS: '20000' });
  onTestFinished(() => runtime.stop());
  const relays = COUNTS.map((count, at) => ({ count, name: relayHost(at), token: '', times: [] as number[] }));
  for (const relay of relays) {
    const headers = { authorization: `Bearer ${await runtime.operatorToken(relay.name)}`, connection: 'close' };
    const code = randomCode();
    const body = JSON.stringify({ code });
    await fetch(`${runtime.origin(relay.name)}/pairing/register`, { method: 'POST', headers, body });
    const client = await connect(`${runtime.origin(relay.name).replace('http', 'ws')}/ws`);
    client.send('system', 'auth', { pairing_code: code, device_id: 'own', device_name: 'Own' });
    relay.token = (await client.next({ type: 'auth.ok' })).payload.session_token as string;
    client.close();
    await client.closed();
  }
  const paths = await Promise.all(relays.map(({ name }) => runtime.fileOf(name)));
  await runtime.restart(async () => {
    for (const [at, path] of paths.entries()) seed(path, COUNTS[at] as number);
  });
  const ask = async ({ name, token }: { name: string; token: string }, path: string, operator = false) => {
    const bearer = operator ? await runtime.operatorToken(name) : token;
    const headers = { authorization: `Bearer ${bearer}`, connection: 'close' };
    const passed = startWatch();
    const response = await fetch(`${runtime.origin(name)}${path}`, { headers });
    expect(response.status).toBe(200);
    return { took: passed(), json: await response.json() };
  };
  // The runtime itself has started, and has compiled what a wake needs.
  for (const relay of relays) await ask(relay, '/phone/history');
  while (relays.some(({ times }) => times.length < ROUNDS)) {
    await new Promise((resolve) => setTimeout(resolve, ASLEEP));
    for (const relay of relays) {
      const { took } = await ask(relay, '/phone/history');
      const { took: awake } = await ask(relay, '/phone/history');
      const { json } = await ask(relay, '/relay/info', true);
      // An object that was still in memory did not wake.
      if (json.uptime_seconds < ASLEEP / 1000) relay.times.push(took - awake);
    }
  }
  const wakes = relays.map(({ times }) => median(times));
  const [none = 0, ...many] = wakes;
  for (const wake of many) expect(wake, `wakes took ${wakes.join(', ')} ms`).toBeLessThan(2 * none + 10);
  for (const relay of relays) {
    const { json } = await ask(relay, '/health');
    expect(json.sessions).toBe(relay.count + 1);
    const { json: all } = await ask(relay, '/sessions', true);
    expect(all.sessions).toHaveLength(relay.count + 1);
  }
});

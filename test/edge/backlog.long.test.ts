import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import Database from 'libsql';
import { expect, it, onTestFinished } from 'vitest';
import { MAX_WAITING } from '../../lib/mirror/outbox.ts';
import { run } from '../support/cli.ts';
import { startEdgeRuntime } from '../support/edge-runtime.ts';
import { startFlakyProxy } from '../support/flaky-proxy.ts';
import { freePort, startRelayProcess, temporaryHome } from '../support/process.ts';
import { authenticate, bearer, post, randomCode, type Target } from '../support/relay.ts';

/** Changes that the edge has from before: to make all of them there takes minutes. */
const BEFORE = MAX_WAITING - 300;
/** Replies that are under way at once. */
const WINDOW = 100;
/** Items of a page of the history. */
const PAGE = 200;
const LATE = { timeout: 400_000 };

interface Item {
  seq: number;
  message_id: string;
}

const replyId = (n: number) => `r${n}`;

/** Adds replies of a device to what waits at an edge that does not run, as it stores them. */
async function seed(persist: string, count: number): Promise<void> {
  const names = await readdir(persist, { recursive: true });
  const [name = ''] = names.filter((path) => /(?:^|\/)[0-9a-f]{64}\.sqlite$/.test(path));
  const database = new Database(join(persist, name));
  try {
    const rows = database.prepare("SELECT key, value FROM items WHERE store = 'mirror'").all() as {
      key: string;
      value: string;
    }[];
    const numbers = rows.flatMap(({ key, value }) =>
      /^(?:op:|acked)/.test(key) ? Number(JSON.parse(value).oseq) : [],
    );
    const last = Math.max(0, ...numbers);
    const put = database.prepare("INSERT INTO items (store, key, value) VALUES ('mirror', ?, ?)");
    database.transaction(() => {
      for (let n = 0; n < count; n++) {
        const reply = { message_id: replyId(n), text: 'yes', chat_id: null, reply_to: null, metadata: {}, ts: 1 + n };
        const op = { epoch: 'before', oseq: last + 1 + n, kind: 'reply', body: { reply, device: 'phone' } };
        put.run(`op:reply:${replyId(n)}`, JSON.stringify(op));
      }
    })();
  } finally {
    database.close();
  }
}

it('12 §2: 10,000 changes wait at the edge, one more is refused aloud, and home applies each once, in order', {
  timeout: 900_000,
}, async () => {
  const agentHome = await temporaryHome();
  const env: Record<string, string> = { SVC_HOME: agentHome, HOME: agentHome };
  const json = async (...words: string[]) => JSON.parse((await run([...words, '--json'], { env })).stdout);
  const { stdout: key } = await run(['relay', 'operator-token', '--public-key'], { env });
  const runtime = await startEdgeRuntime({ RELAY_OPERATOR_PUBLIC_KEY: key.trim(), RELAY_HOSTS: '' });
  onTestFinished(() => runtime.stop());
  const throughProxy = async (listen: number) => {
    const port = Number(new URL(runtime.origin('127.0.0.1')).port);
    const proxy = await startFlakyProxy({ port, seed: 1, faults: ['none'], listen });
    onTestFinished(() => proxy.close());
    return proxy;
  };
  const proxy = await throughProxy(await freePort());
  const edge = `http://127.0.0.1:${proxy.port}`;
  const home = await startRelayProcess({ home: agentHome });
  env.RELAY_PORT = String(home.port);
  expect((await run(['relay', 'mirror', 'enable', '--relay', edge], { env })).code).toBe(0);
  const mirror = async () => (await home.ask('/relay/mirror', { headers: { 'x-svc-operator': '1' } })).json;
  const inStep = () =>
    expect
      .poll(async () => {
        const { link, waiting } = await mirror();
        return [link, waiting];
      }, LATE)
      .toEqual(['up', { out: 0, in: 0 }]);
  await inStep();

  await home.kill();
  await proxy.close();
  await runtime.restart(() => seed(runtime.persist, BEFORE));
  const there = runtime.origin('127.0.0.1');
  const operator = bearer((await json('relay', 'operator-token', '--relay', there)).token);
  const code = randomCode();
  expect((await fetch(`${there}/pairing/register`, { ...post({ code }), headers: operator })).status).toBe(200);
  const { client } = await authenticate({ wsUrl: `${there.replace('http', 'ws')}/ws` } as Target, {
    pairing_code: code,
    device_id: 'phone',
    device_name: 'phone',
  });
  const accepted = Array.from({ length: BEFORE }, (_, n) => replyId(n));
  for (let last = WINDOW; last === WINDOW; ) {
    for (let n = 0; n < WINDOW; n++) {
      const id = replyId(accepted.length + n);
      client.send('proactive', 'proactive.reply', { text: 'yes', message_id: id }, id);
    }
    // The channel answers in order: after this, each reply is acknowledged or refused.
    client.send('proactive', 'proactive.subscribe', {}, 'behind');
    await client.next({ type: 'proactive.subscribed', id: 'behind' });
    const acknowledged = client.frames.splice(0).flatMap(({ type, id }) => (type === 'proactive.reply.ack' ? id : []));
    last = acknowledged.length;
    accepted.push(...acknowledged);
  }
  expect(accepted).toEqual(accepted.map((_, n) => replyId(n)));
  // The others say when a device was here.
  expect(accepted.length).toBeGreaterThan(MAX_WAITING - 10);
  const refused = await fetch(`${there}/phone/message`, { ...post({ text: 'one more' }), headers: operator });
  expect([refused.status, (await refused.json()).error_code]).toEqual([503, 'mirror_backlog']);
  client.terminate();

  await throughProxy(proxy.port);
  const began = performance.now();
  await home.restart();
  const newest = `/phone/history?since=${accepted.length - PAGE}&limit=${PAGE}`;
  const wanted = accepted.map((id, n) => [n + 1, id]).slice(-PAGE);
  // One number too many would be a reply that was applied twice.
  await expect
    .poll(async () => {
      const { items } = (await home.ask(newest, { headers: { 'x-svc-operator': '1' } })).json;
      return items.map(({ seq, message_id }: Item) => [seq, message_id]);
    }, LATE)
    .toEqual(wanted);
  await inStep();
  const seconds = (performance.now() - began) / 1000;
  const memory = /^VmHWM:\s+(\d+) kB/m.exec(await readFile(`/proc/${home.child.pid}/status`, 'utf8'));
  process.stdout.write(
    `${accepted.length} changes in ${seconds.toFixed(1)} s, peak of home ${Math.round(Number(memory?.[1]) / 1024)} MiB\n`,
  );

  // There is room again.
  const again = await fetch(`${there}/phone/message`, { ...post({ text: 'again' }), headers: operator });
  expect(again.status).toBe(200);
});

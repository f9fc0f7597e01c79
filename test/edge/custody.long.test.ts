import { describe, expect, it, onTestFinished } from 'vitest';
import { run } from '../support/cli.ts';
import type { Client } from '../support/client.ts';
import { type EdgeRuntime, startEdgeRuntime } from '../support/edge-runtime.ts';
import { type FlakyProxy, startFlakyProxy } from '../support/flaky-proxy.ts';
import { freePort, type RelayProcess, startRelayProcess, temporaryHome } from '../support/process.ts';
import { authenticate, bearer, post, randomCode, type Target } from '../support/relay.ts';

type Side = 'home' | 'edge';

/** A phone with a session at each side, which shows a message once and repeats a reply until it is acknowledged. */
class Phone {
  readonly shown = new Set<string>();
  client: Client | undefined;
  readonly #tokens: Record<Side, string>;
  readonly #wsUrl: (side: Side) => string;

  constructor(tokens: Record<Side, string>, wsUrl: (side: Side) => string) {
    this.#tokens = tokens;
    this.#wsUrl = wsUrl;
  }

  /** False when the side cannot be reached. */
  async connect(side: Side): Promise<boolean> {
    this.leave();
    try {
      const target = { wsUrl: this.#wsUrl(side) } as Target;
      const { client, frame } = await authenticate(target, { session_token: this.#tokens[side] });
      expect(frame.type).toBe('auth.ok');
      this.client = client;
      client.socket.on('message', (data) => this.#receive(JSON.parse(String(data))));
      client.send('proactive', 'proactive.subscribe');
      for (const frame of client.frames) this.#receive(frame);
      return true;
    } catch {
      return false;
    }
  }

  #receive({ type, payload }: { type: string; payload: Record<string, unknown> }): void {
    if (type === 'phone.message') this.shown.add(String(payload.message_id));
  }

  leave(): void {
    this.client?.terminate();
    this.client = undefined;
  }

  /** Whether the relay has acknowledged it before its socket ended. */
  async reply(id: string): Promise<boolean> {
    const { client } = this;
    if (!client) return false;
    client.send('proactive', 'proactive.reply', { text: id, message_id: id }, id);
    const ended = client.closed().then(
      () => false,
      () => false,
    );
    return Promise.race([client.next({ type: 'proactive.reply.ack', id }).then(() => true), ended]).catch(() => false);
  }
}

/** Home in a process of its own, the edge in its runtime, and a network between them that fails. */
describe('messages and replies between home and the edge (contract 12 §2, §5)', () => {
  let runtime: EdgeRuntime;
  let home: RelayProcess;
  let proxy: FlakyProxy;
  let edge: string;
  let env: Record<string, string>;
  let phone: Phone;
  let operator: Record<string, string>;

  const svc = async (...words: string[]) => run(words, { env });
  const json = async (...words: string[]) => JSON.parse((await svc(...words, '--json')).stdout);
  const throughProxy = async (listen: number) => {
    const port = Number(new URL(runtime.origin('127.0.0.1')).port);
    proxy = await startFlakyProxy({ port, seed: 1, faults: ['none'], listen });
    onTestFinished(() => proxy.close());
  };

  async function start(): Promise<void> {
    const agentHome = await temporaryHome();
    env = { SVC_HOME: agentHome, HOME: agentHome };
    const { stdout: key } = await run(['relay', 'operator-token', '--public-key'], { env });
    runtime = await startEdgeRuntime({ RELAY_OPERATOR_PUBLIC_KEY: key.trim(), RELAY_HOSTS: '' });
    onTestFinished(() => runtime.stop());
    await throughProxy(await freePort());
    edge = `http://127.0.0.1:${proxy.port}`;
    home = await startRelayProcess({ home: agentHome });
    env.RELAY_PORT = String(home.port);
    const atHome = (await svc('pair', '--token', '--name', 'phone')).stdout.trim();
    operator = bearer((await json('relay', 'operator-token', '--relay', edge)).token);
    const code = randomCode();
    const registered = await fetch(`${edge}/pairing/register`, { ...post({ code }), headers: operator });
    expect(registered.status).toBe(200);
    const wsUrl = (side: Side) => (side === 'home' ? home.wsUrl : `${edge.replace('http', 'ws')}/ws`);
    const { client, frame } = await authenticate({ wsUrl: wsUrl('edge') } as Target, {
      pairing_code: code,
      device_id: 'phone',
      device_name: 'phone',
    });
    client.terminate();
    phone = new Phone({ home: atHome, edge: String(frame.payload.session_token) }, wsUrl);
    onTestFinished(() => phone.leave());
    expect((await svc('relay', 'mirror', 'enable', '--relay', edge)).code).toBe(0);
    await inStep();
  }

  const status = async () => {
    const { link, waiting } = await json('relay', 'mirror', 'status');
    return [link, waiting];
  };
  const inStep = () => expect.poll(status).toEqual(['up', { out: 0, in: 0 }]);
  const asTool = { headers: { 'x-svc-operator': '1' } };
  const stateOf = async (id: string): Promise<string> => {
    const { items } = await (await fetch(`${home.url}/phone/history?limit=200`, asTool)).json();
    return items.find((item: { message_id: string }) => item.message_id === id)?.state;
  };
  const say = async (id: string) => {
    const response = await fetch(`${home.url}/phone/message`, post({ text: id, message_id: id }));
    expect(response.status).toBe(200);
    return response.json();
  };
  /** Reads as the agent at home does, with leases. */
  async function read(seconds: number): Promise<string[]> {
    const response = await fetch(`${home.url}/phone/replies?timeout=${seconds}&lease=30`);
    const { replies, lease_id } = await response.json();
    if (lease_id) await fetch(`${home.url}/phone/replies/ack`, post({ lease_id }));
    return replies.map(({ message_id }: { message_id: string }) => message_id);
  }
  async function restartEdge(): Promise<void> {
    await runtime.restart();
    await proxy.close();
    await throughProxy(Number(new URL(edge).port));
  }

  it('a phone at the edge gets what home says at once, and its reply ends the poll that waits at home', async () => {
    await start();
    expect(await phone.connect('edge')).toBe(true);
    expect(await say('m1')).toMatchObject({ delivered: false, queued: true });
    await expect.poll(() => [...phone.shown]).toEqual(['m1']);
    await expect.poll(() => stateOf('m1')).toBe('sent');
    phone.client?.send('proactive', 'proactive.shown', { message_id: 'm1' });
    await expect.poll(() => stateOf('m1')).toBe('shown');
    expect(await say('m1')).toEqual({ delivered: true, duplicate: true, message_id: 'm1' });
    const began = Date.now();
    const polled = read(25);
    expect(await phone.reply('r1')).toBe(true);
    expect(await polled).toEqual(['r1']);
    expect(Date.now() - began).toBeLessThan(15_000);
    await inStep();
    const left = await (await fetch(`${edge}/phone/replies?timeout=0`, { headers: operator })).json();
    expect(left).toEqual({ replies: [] });
  }, 300_000);

  it('home is killed: the phone gets what waits at the edge and answers, and home has it when it is back', async () => {
    await start();
    for (const id of ['m1', 'm2']) await say(id);
    await inStep();
    await home.kill();
    expect(await phone.connect('edge')).toBe(true);
    await expect.poll(() => [...phone.shown]).toEqual(['m1', 'm2']);
    expect(await phone.reply('r1')).toBe(true);
    await expect
      .poll(async () => (await svc('status', '--relay', edge)).stdout)
      .toMatch(/Mirror +home off since \d\d:\d\d · \d waits? at the edge/);
    await home.restart();
    expect(await read(25)).toEqual(['r1']);
    await inStep();
    await expect.poll(async () => [await stateOf('m1'), await stateOf('m2')]).toEqual(['sent', 'sent']);
    expect(await read(0)).toEqual([]);
  }, 300_000);

  it('a day of cuts and kills of both sides: every message is shown, every reply read once by its id', async () => {
    await start();
    const accepted: string[] = [];
    const replied: string[] = [];
    const got: string[] = [];
    const faults = ['reset', 'cut', 'half-open'] as const;
    for (let round = 0; round < 9; round++) {
      await phone.connect(round % 3 === 0 ? 'home' : 'edge');
      await say(`m${round}`);
      accepted.push(`m${round}`);
      proxy.strike(faults[round % faults.length] ?? 'cut', round % 2 === 0 ? 'up' : 'down');
      if (round % 3 === 1) await home.restart();
      if (round % 3 === 2) await restartEdge();
      await say(`n${round}`);
      accepted.push(`n${round}`);
      await phone.connect(round % 2 === 0 ? 'edge' : 'home');
      // As phones do: again under the same id, at whichever side answers.
      for (let tries = 0; tries < 20; tries++) {
        if (await phone.reply(`r${round}`)) {
          replied.push(`r${round}`);
          break;
        }
        await phone.connect(tries % 2 === 0 ? 'home' : 'edge');
      }
      got.push(...(await read(0)));
    }
    await phone.connect('home');
    await inStep();
    await expect.poll(() => [...phone.shown].sort()).toEqual(accepted.sort());
    for (let rest = await read(1); rest.length > 0; rest = await read(1)) got.push(...rest);
    expect(replied.length).toBe(9);
    expect([...new Set(got)].sort()).toEqual(replied.sort());
    // A reply that the phone sent to both sides, when the first did not answer, may be read twice under its id.
    for (const id of replied) expect(got.filter((other) => other === id).length).toBeLessThanOrEqual(2);
    await expect
      .poll(async () => (await (await fetch(`${edge}/phone/outbound`, { headers: operator })).json()).messages)
      .toEqual([]);
  }, 480_000);
});

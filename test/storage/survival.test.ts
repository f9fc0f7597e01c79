import { readFile } from 'node:fs/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { signPayload } from '../../lib/pairing/signature.ts';
import { PLACES } from '../../storage/index.ts';
import type { Client } from '../support/client.ts';
import { startEdgeTarget } from '../support/edge.ts';
import { authenticate, bearer, pair, post, startNodeTarget, type Target } from '../support/relay.ts';

type Outcome = 'kept' | 'forgotten';

interface State {
  /** Its row in the table of `storage/README.md`, which also says what is to come of it. */
  name: string;
  /** Puts it into a relay of its own. Returns the look for it afterwards: whether it is there as it was. */
  put(target: Target): Promise<() => Promise<boolean>>;
}

const statusOf = async (target: Target, token: string) =>
  (await target.fetch('/sessions', { headers: bearer(token) })).status;

const admits = async (target: Target, credentials: Record<string, unknown>) => {
  const { frame, client } = await authenticate(target, credentials);
  client.terminate();
  return frame.type === 'auth.ok';
};

const answers = (client: Client): Promise<boolean> => {
  client.send('system', 'ping', { ts: 1 }, 'awake');
  return Promise.race([client.next({ id: 'awake' }).then(() => true), client.closed().then(() => false)]);
};

/** THE table of cases: one entry per row of the table in `storage/README.md`. */
const STATES: State[] = [
  {
    name: 'session',
    async put(target) {
      const { token, client } = await pair(target);
      client.terminate();
      return async () => (await statusOf(target, token)) === 200;
    },
  },
  {
    name: 'end of a session',
    async put(target) {
      const [gone, other] = [await pair(target), await pair(target)];
      for (const { client } of [gone, other]) client.terminate();
      await target.fetch(`/sessions/${gone.prefix}`, { method: 'DELETE', headers: bearer(other.token) });
      return async () => (await statusOf(target, gone.token)) === 401 && (await statusOf(target, other.token)) === 200;
    },
  },
  {
    name: 'grants, reduced',
    async put(target) {
      const { token, prefix, client } = await pair(target);
      client.terminate();
      const body = '{"grants":{"terminal":100}}';
      const reduced = await target.fetch(`/sessions/${prefix}`, { method: 'PATCH', body, headers: bearer(token) });
      const { grants } = await reduced.json();
      return async () => {
        const { sessions } = await (await target.fetch('/sessions', { headers: bearer(token) })).json();
        return JSON.stringify(sessions[0]?.grants) === JSON.stringify(grants);
      };
    },
  },
  {
    name: 'refresh credential',
    async put(target) {
      const { refreshToken, client } = await pair(target, { device: { device_id: 'me' } });
      client.terminate();
      return () => admits(target, { refresh_token: refreshToken, device_id: 'me' });
    },
  },
  {
    name: 'open socket',
    async put(target) {
      const { client } = await pair(target);
      return () => answers(client);
    },
  },
  {
    name: 'QR secret',
    async put(target) {
      const mint = async () => JSON.parse((await (await target.operator('/pairing/mint', post({}))).json()).qr_payload);
      const isSigned = async () => {
        const [payload, secret] = [await mint(), await secretOf(target)];
        return payload.sig === signPayload(payload, secret);
      };
      if (!(await isSigned())) throw new Error('a payload is not signed with the secret that is stored');
      const before = await secretOf(target);
      return async () => (await isSigned()) && before.equals(await secretOf(target));
    },
  },
  {
    name: 'undelivered phone message',
    async put(target) {
      await target.operator('/phone/message', post({ text: 'later', message_id: 'm1' }));
      return async () => {
        const { client } = await pair(target);
        client.send('proactive', 'proactive.subscribe');
        const frames = [await client.next({ channel: 'proactive' }), await client.next({ channel: 'proactive' })];
        return frames.some(({ type, payload }) => type === 'phone.message' && payload.text === 'later');
      };
    },
  },
  {
    name: 'unread phone reply',
    async put(target) {
      const { client } = await pair(target);
      client.send('proactive', 'proactive.reply', { text: 'mine' }, 'r1');
      await client.next({ id: 'r1' });
      client.terminate();
      return async () => {
        const { replies } = await (await target.operator('/phone/replies?timeout=0')).json();
        return replies.some(({ text }: { text: string }) => text === 'mine');
      };
    },
  },
];

const secretOf = async (target: Target): Promise<Buffer> =>
  target.stored
    ? Buffer.from(JSON.parse((await target.stored('pairing', 'qr-secret')) ?? '{"secret":""}').secret, 'base64')
    : readFile(`${target.agentHome}/svc-relay-qr-secret`);

const README = new URL('../../storage/README.md', import.meta.url);

/** The cells of the table in the README, by state. */
async function readTable(): Promise<Map<string, Record<'node' | 'edge', string>>> {
  const readme = await readFile(README, 'utf8');
  const [, table = ''] = /^\| State .*\n\|[-| ]+\|\n((?:\|.*\n)+)/m.exec(readme) ?? [];
  const rows = table.trimEnd().split('\n');
  return new Map(
    rows.map((row) => {
      const [name = '', node = '', edge = ''] = row
        .split('|')
        .map((cell) => cell.trim())
        .slice(1);
      return [name, { node, edge }];
    }),
  );
}

/** The edge runtime puts an object away after ten seconds without events. */
const SLEEP = 13_000;

const runtimes = {
  node: {
    event: 'a restart',
    start: startNodeTarget,
    interrupt: (targets: Target[]) => Promise.all(targets.map((target) => target.restart())),
  },
  edge: {
    event: 'a sleep',
    start: startEdgeTarget,
    async interrupt(targets: Target[]) {
      await new Promise((resolve) => setTimeout(resolve, SLEEP));
      for (const target of targets) {
        const { uptime_seconds: uptime } = await (await target.operator('/relay/info')).json();
        if (uptime > 5) throw new Error(`an object has not slept: it has been up for ${uptime} s`);
      }
    },
  },
};

const expected = await readTable();

it('contract 00: every row of the table in storage/README.md has a case, and every case a row', () => {
  expect(STATES.map(({ name }) => name).sort()).toEqual([...expected.keys()].sort());
});

it('design 4: every store has its keys in storage/README.md', async () => {
  const readme = await readFile(README, 'utf8');
  const [, keys = ''] = readme.split('## Every key');
  const stores = new Set([...keys.matchAll(/^\| `([\w-]+)`/gm)].map(([, store]) => store));
  expect([...stores].sort()).toEqual(Object.keys(PLACES).sort());
});

describe.each(['node', 'edge'] as const)('contract 00, what survives [%s]:', (runtime) => {
  const { event, start, interrupt } = runtimes[runtime];
  const looks = new Map<string, () => Promise<boolean>>();
  const targets: Target[] = [];

  beforeAll(async () => {
    // A relay for each: no case depends on another. All sleep at the same time.
    await Promise.all(
      STATES.map(async ({ name, put }) => {
        const target = await start();
        targets.push(target);
        looks.set(name, await put(target));
      }),
    );
    await interrupt(targets);
  });
  afterAll(() => Promise.all(targets.map((target) => target.stop())));

  it.each(STATES)(`${event}, $name`, async ({ name }) => {
    const outcome: Outcome = (await looks.get(name)?.()) ? 'kept' : 'forgotten';
    expect(outcome).toBe(expected.get(name)?.[runtime]);
  });
});

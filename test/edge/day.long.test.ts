import { createHash } from 'node:crypto';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { isSealedToken } from '../../lib/media/sealed.ts';
import { SEALED_TEXT } from '../../lib/phone/sealed.ts';
import { run } from '../support/cli.ts';
import { startEdgeRuntime } from '../support/edge-runtime.ts';
import { type FlakyOptions, seeded, startFlakyProxy } from '../support/flaky-proxy.ts';
import { POLL } from '../support/limits.ts';
import { type MailboxDevice, pairMailboxDevice } from '../support/mailbox-device.ts';
import { ask, filesBelow, type HttpRequest, startRelayProcess, temporaryHome } from '../support/process.ts';

const MiB = 1024 * 1024;
const SEED = Number(process.env.DAY_SEED ?? 1);
/** A case that loses something waits this long for it. */
const LATE = { timeout: 120_000 };
const OPTIONS = ['Yes', 'No'];

type Side = 'home' | 'edge';
type Child = Awaited<ReturnType<typeof startRelayProcess>>['child'];
type Picture = { digest: string; since: Child; until: Child };
type Scene = Awaited<ReturnType<typeof start>>;

/** The cuts of the day. Each one runs once the traffic of its round has made some progress, and ends with all healed. */
const CUTS: Record<string, { times: number; cut(scene: Scene): Promise<void> }> = {
  'the link is reset': {
    times: 2,
    async cut({ edgeProxy }) {
      edgeProxy.strike('reset');
    },
  },
  'the link is cut': {
    times: 1,
    async cut({ edgeProxy }) {
      edgeProxy.strike('cut');
    },
  },
  'home is out of reach of its devices': {
    times: 2,
    async cut(scene) {
      await scene.away();
      await scene.talk();
      scene.back();
    },
  },
  'home is killed and starts at once': {
    times: 3,
    cut: ({ home }) => home.restart(),
  },
  'home is off for a while': {
    times: 2,
    async cut({ home, talk, atMailbox, readOnce }) {
      await home.kill();
      await atMailbox();
      await talk();
      // The agent itself goes to the edge meanwhile.
      await readOnce('edge');
      await talk();
      await home.restart();
    },
  },
  'home is killed between its offer and the acknowledgement': {
    times: 3,
    async cut(scene) {
      const { home, edgeProxy, away, back, say, untilShown } = scene;
      await away();
      edgeProxy.strike('half-open', 'down');
      await untilShown(await say('home'));
      await home.kill();
      edgeProxy.dropClients();
      back();
      await home.restart();
    },
  },
  'home is killed between a reply and its acknowledgement': {
    times: 2,
    async cut(scene) {
      const { home, edgeProxy, away, back, devices, untilRead } = scene;
      await away();
      edgeProxy.strike('half-open', 'up');
      await untilRead(scene.reply(devices[0] as MailboxDevice));
      await home.kill();
      edgeProxy.dropClients();
      back();
      await home.restart();
    },
  },
  'home is killed while it pulls an upload': {
    times: 3,
    async cut(scene) {
      const { home, atMailbox, devices, send, begun } = scene;
      await home.kill();
      await atMailbox();
      await send(devices[1] as MailboxDevice, 2 * MiB);
      const before = await begun();
      home.begin();
      // Its file has begun, or is whole already.
      await expect.poll(begun, { ...LATE, interval: 1 }).toBeGreaterThan(before);
      await home.restart();
    },
  },
  'the edge is killed': {
    times: 1,
    cut: ({ restartEdge }) => restartEdge(),
  },
  'both are killed': {
    times: 1,
    async cut({ home, restartEdge }) {
      await Promise.all([home.kill(), restartEdge()]);
      await home.restart();
    },
  },
};

interface Item {
  seq: number;
  kind: 'message' | 'reply';
  message_id: string;
  state: string;
  origin?: 'edge';
}

/** What the sides of a mirror say of an item in the same way: the edge has no other text of what is sealed. */
const storyOf = ({ seq, kind, message_id, state, origin }: Item): string =>
  [seq, kind, message_id, state, origin].join(' ');

const sha256 = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex');

/** Calls again until it succeeds, as devices and agents do. */
async function persist<T>(attempt: () => Promise<T>): Promise<T> {
  for (const end = Date.now() + LATE.timeout; ; ) {
    try {
      return await attempt();
    } catch (error) {
      if (Date.now() > end) throw error;
      await new Promise((resolve) => setTimeout(resolve, 5 * POLL));
    }
  }
}

/** Home in a process of its own, the edge in its runtime, networks before both that fail, two devices and an agent. */
async function start() {
  const random = seeded(SEED);
  const agentHome = await temporaryHome();
  const uploads = join(agentHome, 'svc-relay-uploads');
  const env: Record<string, string> = { SVC_HOME: agentHome, HOME: agentHome };
  const { stdout: key } = await run(['relay', 'operator-token', '--public-key'], { env });
  const runtime = await startEdgeRuntime({ RELAY_OPERATOR_PUBLIC_KEY: key.trim(), RELAY_HOSTS: '' });
  onTestFinished(() => runtime.stop());
  const home = await startRelayProcess({ home: agentHome });
  env.RELAY_PORT = String(home.port);
  const portOfEdge = () => Number(new URL(runtime.origin('127.0.0.1')).port);
  const toEdge: FlakyOptions = { port: portOfEdge(), seed: SEED, faults: ['none'] };
  const [edgeProxy, homeProxy] = [
    await startFlakyProxy(toEdge),
    await startFlakyProxy({ port: home.port, seed: SEED, faults: ['none'], after: [0, 0] }),
  ];
  onTestFinished(async () => void (await Promise.all([edgeProxy.close(), homeProxy.close()])));
  const edge = `http://127.0.0.1:${edgeProxy.port}`;
  const json = async (...words: string[]) => JSON.parse((await run([...words, '--json'], { env })).stdout);
  expect((await run(['relay', 'mirror', 'enable', '--relay', edge], { env })).code).toBe(0);
  const { token } = await json('relay', 'operator-token', '--relay', edge);
  const call = async (side: Side, path: string, { headers, ...more }: HttpRequest = {}) => {
    const [url, own] =
      side === 'home' ? [home.url, { 'x-svc-operator': '1' }] : [edge, { authorization: `Bearer ${token}` }];
    const answer = await ask(url + path, { ...more, headers: { ...headers, ...own } });
    if (answer.status !== 200) throw new Error(`${path} of ${side} answered ${answer.status}: ${answer.text}`);
    return answer.json;
  };

  /** Ids of messages that a relay has accepted, and of the questions among them. */
  const [accepted, questions] = [new Set<string>(), new Set<string>()];
  /** Text by id of the replies that the devices were given, each to be acknowledged. */
  const replied = new Map<string, string>();
  /** Ids of the questions that a device has answered. */
  const answered = new Set<string>();
  /** By token, the pictures that devices have uploaded, and the processes of home meanwhile. */
  const pictures = new Map<string, Picture>();
  /** Text by id of the replies that the agent has read at home, and those that it got after it had acknowledged them. */
  const read = new Map<string, string>();
  const done: Record<Side, Set<string>> = { home: new Set(), edge: new Set() };
  const again: string[] = [];
  const traffic = new Set<Promise<void>>();
  let progress = 0;
  let numbers = 0;

  const mirrorStatus = () => call('home', '/relay/mirror');
  const devices: MailboxDevice[] = [];
  for (const name of ['phone', 'tablet']) {
    const device: MailboxDevice = await pairMailboxDevice({
      name,
      isKeyed: true,
      home,
      wsUrl: `ws://127.0.0.1:${homeProxy.port}/ws`,
      mirrorStatus,
      onShown({ messageId, answers }) {
        if (answers.length === 0) return;
        const { message_id: id, text } = device.messages.reply({ answerIndex: 0, replyTo: messageId });
        replied.set(id, text);
        answered.add(messageId);
      },
    });
    devices.push(device);
  }
  const links = devices.map((device) => device.connect());

  const shown = (): string[] => devices.flatMap((device) => device.shown.map(({ messageId }) => messageId));

  /** Says something as the agent does: under the same id at the other side when one does not answer. */
  async function say(first: Side = random() < 0.5 ? 'home' : 'edge', isQuestion = false): Promise<string> {
    const id = `message-${++numbers}`;
    const body = { message_id: id, text: `Text of ${id}`, ...(isQuestion && { answers: OPTIONS }) };
    let side = first;
    await persist(() => {
      const at = side;
      side = side === 'home' ? 'edge' : 'home';
      return call(at, '/phone/message', { method: 'POST', body });
    });
    accepted.add(id);
    if (isQuestion) questions.add(id);
    return id;
  }

  function reply({ messages }: MailboxDevice, text = `Reply ${++numbers}`): string {
    const { message_id: id } = messages.reply({ text, chatId: null });
    replied.set(id, text);
    return id;
  }

  /** Uploads a picture, and names it in a reply. */
  async function send(device: MailboxDevice, size = Math.ceil(random() * 300 * 1024)): Promise<void> {
    const name = `picture-${++numbers}.png`;
    const bytes = Buffer.alloc(size, `${name} of ${SEED} `);
    let since = home.child;
    const token = await persist(() => {
      since = home.child;
      return device.upload({ name, type: 'image/png', bytes });
    });
    pictures.set(token, { digest: sha256(bytes), since, until: home.child });
    reply(device, `MEDIA:svc-relay://${token}`);
  }

  const isAcknowledged = (id: string): boolean => devices.some(({ acknowledged }) => acknowledged.includes(id));
  const settled = (id: string) => expect.poll(() => isAcknowledged(id), LATE).toBe(true);

  /** The traffic of a round, of which each part counts when it is over. */
  function begin(): void {
    const [first, second] = random() < 0.5 ? devices : [...devices].reverse();
    const parts: Promise<unknown>[] = [
      say(),
      say(undefined, true),
      send(first as MailboxDevice),
      settled(reply(first as MailboxDevice)),
      settled(reply(second as MailboxDevice)),
    ];
    for (const part of parts) {
      const own: Promise<void> = part.then(() => void progress++).finally(() => traffic.delete(own));
      own.catch(() => {});
      traffic.add(own);
    }
  }

  async function talk(): Promise<void> {
    begin();
    await Promise.all(traffic);
  }

  /** Reads once as an agent does, with a lease. */
  async function readOnce(side: Side, timeout = 0): Promise<void> {
    const { replies, lease_id } = await call(side, `/phone/replies?timeout=${timeout}&lease=2`);
    for (const { message_id: id, text } of replies) {
      if (done[side].has(id)) again.push(`${id} at ${side}: ${text}, after ${read.get(id)}`);
      // A reply to what somebody asked at the edge is there in plain, too.
      if (text !== SEALED_TEXT) read.set(id, text);
    }
    if (lease_id === undefined) return;
    await call(side, '/phone/replies/ack', { method: 'POST', body: { lease_id } });
    for (const { message_id: id } of replies) done[side].add(id);
  }
  let isOver = false;
  const reading = (async () => {
    while (!isOver) {
      await readOnce('home', 1).catch(() => new Promise((resolve) => setTimeout(resolve, POLL)));
    }
  })();
  onTestFinished(async () => {
    isOver = true;
    await reading;
  });

  const atMailbox = () =>
    expect
      .poll(() => links.map(({ state }) => state.name === 'online' && state.endpoint.role), LATE)
      .toEqual(['mailbox', 'mailbox']);

  return {
    random,
    home,
    edgeProxy,
    devices,
    mirrorStatus,
    call,
    accepted,
    questions,
    replied,
    answered,
    pictures,
    read,
    again,
    shown,
    isAcknowledged,
    say,
    reply,
    send,
    begin,
    talk,
    readOnce,
    atMailbox,
    /** Resolves once the traffic that has begun is over. */
    quiet: () => Promise.all(traffic),
    /** Resolves once `count` more parts of the traffic are over. */
    progressed(count: number): Promise<void> {
      const wanted = progress + Math.min(count, traffic.size);
      return expect.poll(() => progress, LATE).toBeGreaterThanOrEqual(wanted) as unknown as Promise<void>;
    },
    untilShown: (id: string) => expect.poll(shown, LATE).toContain(id),
    untilRead: (id: string) => expect.poll(() => read.has(id), LATE).toBe(true),
    /** Takes the route to home away from the devices, which then are at the mailbox. */
    async away(): Promise<void> {
      homeProxy.plan(['reset']);
      homeProxy.strike('reset');
      await atMailbox();
    },
    back: () => homeProxy.plan(['none']),
    async restartEdge(): Promise<void> {
      await runtime.restart();
      toEdge.port = portOfEdge();
    },
    /** Directory of the files that home has of uploads, whole or not. */
    uploads,
    /** Number of those files: there is no such directory before the first. */
    begun: async (): Promise<number> => (await readdir(uploads).catch(() => [])).length,
  };
}

it(`a day with 20 cuts loses and doubles nothing (contract 12 §2, §5; DAY_SEED=${SEED})`, async () => {
  const scene = await start();
  const { random, call, devices, shown } = scene;
  const day = Object.entries(CUTS).flatMap(([name, { times }]) => Array<string>(times).fill(name));
  expect(day.length).toBe(20);
  const order = day
    .map((name) => ({ name, at: random() }))
    .sort((a, b) => a.at - b.at)
    .map(({ name }) => name);
  for (const name of order) {
    scene.begin();
    await scene.progressed(Math.floor(random() * 6));
    await CUTS[name]?.cut(scene);
    await scene.quiet();
  }

  // Every message is shown, and none twice on a device.
  await expect.poll(() => [...new Set(shown())].sort(), LATE).toEqual([...scene.accepted].sort());
  for (const device of devices) {
    const ids = device.shown.map(({ messageId }) => messageId);
    expect(ids.length).toBe(new Set(ids).size);
  }
  // Every reply is acknowledged to its device, and comes to an agent once. What one at the edge got as a placeholder comes to
  // that of home; only replies to what somebody asked at the edge can be read there.
  await expect.poll(() => [...scene.replied.keys()].filter((id) => !scene.isAcknowledged(id)), LATE).toEqual([]);
  await expect.poll(() => [...scene.read.keys()].sort(), LATE).toEqual([...scene.replied.keys()].sort());
  const isOther = ([id, text]: [string, string]) => !text.endsWith(String(scene.replied.get(id)));
  expect([...scene.read].filter(isOther)).toEqual([]);
  expect([...scene.answered].sort()).toEqual([...scene.questions].sort());
  // Nothing waits any more on either side. Bytes of an upload that a kill of the edge has cut off may stay there for an hour.
  await expect
    .poll(async () => {
      const { link, waiting, uploads } = await scene.mirrorStatus();
      return [link, waiting, uploads.count];
    }, LATE)
    .toEqual(['up', { out: 0, in: 0 }, 0]);
  for (const side of ['home', 'edge'] as const)
    await expect.poll(async () => (await call(side, '/phone/outbound')).messages, LATE).toEqual([]);

  // Every picture that a device gave to the edge is at home once, whole. One that home itself had answered ends with the process of
  // home that did ("After a restart every old token is 404", contract 04 §3.1), and no earlier.
  const { media } = await call('home', '/media/inspect');
  const inspected: string[] = media.map(({ token }: { token: string }) => token);
  const digests = (await filesBelow(scene.uploads)).map(({ bytes }) => sha256(bytes));
  const now = scene.home.child;
  for (const [token, { digest, since, until }] of scene.pictures) {
    const count = inspected.filter((one) => one === token).length;
    if (isSealedToken(token)) expect([token, count, digests.includes(digest)]).toEqual([token, 1, true]);
    else if (since === now) expect([token, count]).toEqual([token, 1]);
    else if (until !== now) expect([token, count]).toEqual([token, 0]);
  }

  // Home owns the history: it has every message and reply once. The edge has what came to it, which is a part of that, for what
  // devices took from home or gave to it never did. Of each of its items the edge says what home says, under home's `seq` and in
  // home's order: no `origin` is left.
  const history = async (side: Side): Promise<Item[]> => (await call(side, '/phone/history?limit=200')).items;
  const ids = async () => (await history('home')).map(({ message_id }) => message_id).sort();
  await expect.poll(ids, LATE).toEqual([...scene.accepted, ...scene.replied.keys()].sort());
  const differing = async () => {
    const edge = await history('edge');
    const seqs = new Set(edge.map(({ seq }) => seq));
    const home = (await history('home')).filter(({ seq }) => seqs.has(seq)).map(storyOf);
    return edge.flatMap((item, index) => (storyOf(item) === home[index] ? [] : [[storyOf(item), home[index]]]));
  };
  await expect.poll(differing, LATE).toEqual([]);
  // Nor does any reply come again.
  const open = async () => (await history('home')).filter(({ kind, state }) => kind === 'reply' && state !== 'taken');
  await expect.poll(open, LATE).toEqual([]);
  expect(scene.again).toEqual([]);
}, 600_000);

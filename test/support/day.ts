import { createHash } from 'node:crypto';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, onTestFinished } from 'vitest';
import { isSealedToken } from '../../lib/media/sealed.ts';
import { SEALED_TEXT } from '../../lib/phone/sealed.ts';
import { run } from './cli.ts';
import { startEdgeRuntime } from './edge-runtime.ts';
import { type FlakyOptions, seeded, startFlakyProxy } from './flaky-proxy.ts';
import { POLL } from './limits.ts';
import type { MailboxDeviceOptions } from './mailbox-device.ts';
import { ask, filesBelow, type HttpRequest, type RelayProcess, startRelayProcess, temporaryHome } from './process.ts';

const MiB = 1024 * 1024;
/** Items of a history that are asked for at once. */
const PAGE = 200;
/** Name of the relay at the edge, as nothing names another one. */
const RELAY = 'svc-relay';
/** A case that loses something waits this long for it. */
const LATE = { timeout: 120_000, interval: 5 * POLL };
/** The chat of the questions; all else is said in none. */
export const QUESTIONS = 'questions';

type Side = 'home' | 'edge';
type Child = RelayProcess['child'];
type Picture = Uploaded & { digest: string; since: Child; until: Child };
type Scene = Awaited<ReturnType<typeof start>>;

export interface Uploaded {
  token: string;
  /** The side that took it, where the device knows. */
  side?: Side;
}

/** One kind of device that lives through a day. */
export interface DayDevice {
  /** Has every message in the end, also those that another device was given. */
  hasAll: boolean;
  /** Ids of the messages that it has shown. One that was shown twice is there twice. */
  shown(): string[] | Promise<string[]>;
  /** The same of a device that keeps them apart from its screen. */
  onScreen?(): Promise<string[]>;
  /** Writes a reply, whether there is a connection or not. */
  reply(text: string): void | Promise<void>;
  /** True once a relay has acknowledged the reply with this text. */
  isAcknowledged(text: string): boolean | Promise<boolean>;
  /** Uploads a picture once. Rejects when it did not arrive. */
  upload(name: string, bytes: Buffer): Promise<Uploaded>;
  isAtMailbox(): boolean | Promise<boolean>;
  /** Ends its program and starts it again. */
  reopen?(): Promise<void>;
}

/** Where the devices of a day pair, at home through a proxy. */
export interface DayWorld {
  home: RelayProcess;
  homePort: number;
  edge: string;
  mirrorStatus: MailboxDeviceOptions['mirrorStatus'];
  /** True if it is this device that answers a question, with its first answer; once for each question. */
  claims(device: DayDevice, messageId: string): boolean;
}

export interface DayOptions {
  seed: number;
  /** How often each of the cuts comes. */
  times: Partial<Record<keyof typeof CUTS, number>>;
  devices: ((world: DayWorld) => Promise<DayDevice>)[];
}

/** The cuts. Each one runs once the traffic of its round has made some progress, and ends with all healed. */
const CUTS = {
  async 'the link is reset'({ edgeProxy }: Scene) {
    edgeProxy.strike('reset');
  },
  async 'the link is cut'({ edgeProxy }: Scene) {
    edgeProxy.strike('cut');
  },
  async 'home is out of reach of its devices'(scene: Scene) {
    await scene.away();
    await scene.talk();
    scene.back();
  },
  'home is killed and starts at once': ({ home }: Scene) => home.restart(),
  async 'home is off for a while'({ home, devices, talk, atMailbox, readOnce }: Scene) {
    await home.kill();
    await atMailbox();
    await talk();
    // The agent itself goes to the edge meanwhile.
    await readOnce('edge');
    for (const device of devices) await device.reopen?.();
    await talk();
    await home.restart();
  },
  async 'home is killed between its offer and the acknowledgement'(scene: Scene) {
    const { home, edgeProxy, away, back, say, untilShown } = scene;
    await away();
    edgeProxy.strike('half-open', 'down');
    await untilShown(await say('home'));
    await home.kill();
    edgeProxy.dropClients();
    back();
    await home.restart();
  },
  async 'home is killed between a reply and its acknowledgement'(scene: Scene) {
    const { home, edgeProxy, away, back, devices, untilRead } = scene;
    await away();
    edgeProxy.strike('half-open', 'up');
    await untilRead(await scene.reply(devices[0] as DayDevice));
    await home.kill();
    edgeProxy.dropClients();
    back();
    await home.restart();
  },
  async 'home is killed while it pulls an upload'(scene: Scene) {
    const { home, atMailbox, devices, send, begun } = scene;
    await home.kill();
    await atMailbox();
    await send(devices[1] as DayDevice, 2 * MiB);
    const before = await begun();
    home.begin();
    // Its file has begun, or is whole already.
    await expect.poll(begun, { ...LATE, interval: 1 }).toBeGreaterThan(before);
    await home.restart();
  },
  'the edge is killed': ({ restartEdge }: Scene) => restartEdge(),
  async 'both are killed'({ home, restartEdge }: Scene) {
    await Promise.all([home.kill(), restartEdge()]);
    await home.restart();
  },
  /** Its sockets stay: that of home, and those of devices at the mailbox. */
  async 'the object of the edge is evicted'({ quiet, evicted, talk }: Scene) {
    await quiet();
    await evicted();
    await talk();
  },
  async 'the object of the edge is evicted while home is off'({ home, atMailbox, quiet, evicted, talk }: Scene) {
    await home.kill();
    await atMailbox();
    await quiet();
    await evicted();
    await talk();
    await home.restart();
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

/** Home in a process of its own, the edge in its runtime, networks before both that fail, devices and an agent. */
async function start({ seed, devices: kinds }: DayOptions) {
  const random = seeded(seed);
  const agentHome = await temporaryHome();
  const uploads = join(agentHome, 'svc-relay-uploads');
  const env: Record<string, string> = { SVC_HOME: agentHome, HOME: agentHome };
  const { stdout: key } = await run(['relay', 'operator-token', '--public-key'], { env });
  const runtime = await startEdgeRuntime({ RELAY_OPERATOR_PUBLIC_KEY: key.trim(), RELAY_HOSTS: '' });
  onTestFinished(() => runtime.stop());
  const home = await startRelayProcess({ home: agentHome });
  env.RELAY_PORT = String(home.port);
  const portOfEdge = () => Number(new URL(runtime.origin('127.0.0.1')).port);
  const toEdge: FlakyOptions = { port: portOfEdge(), seed, faults: ['none'] };
  const [edgeProxy, homeProxy] = [
    await startFlakyProxy(toEdge),
    await startFlakyProxy({ port: home.port, seed, faults: ['none'] }),
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

  /** Ids of messages that a relay has accepted. */
  const accepted = new Set<string>();
  /** By id, the questions: the device that is to answer, if it may not be any, and whether one has. */
  const questions = new Map<string, { owner?: DayDevice; isAnswered: boolean }>();
  /** Texts of the replies that the devices were given or have chosen, no two of which are the same. */
  const replied = new Set<string>();
  /** The pictures that devices have uploaded, and the processes of home meanwhile. */
  const pictures: Picture[] = [];
  /** Text by id of the replies that the agent has read at home, and those that it got after it had acknowledged them. */
  const read = new Map<string, string>();
  const done: Record<Side, Set<string>> = { home: new Set(), edge: new Set() };
  const again: string[] = [];
  const traffic = new Set<Promise<void>>();
  let progress = 0;
  let numbers = 0;

  const mirrorStatus = () => call('home', '/relay/mirror');
  const answerTo = (id: string) => `Yes to ${id}`;
  function claims(device: DayDevice, id: string): boolean {
    const question = questions.get(id);
    if (!question || question.isAnswered || (question.owner && question.owner !== device)) return false;
    question.isAnswered = true;
    replied.add(answerTo(id));
    return true;
  }
  const devices: DayDevice[] = [];
  const world: DayWorld = { home, homePort: homeProxy.port, edge, mirrorStatus, claims };
  for (const pair of kinds) devices.push(await pair(world));

  const shown = async (): Promise<string[]> => (await Promise.all(devices.map((device) => device.shown()))).flat();

  /** Says something as the agent does: under the same id at the other side when one does not answer. */
  async function say(first: Side = random() < 0.5 ? 'home' : 'edge', isQuestion = false): Promise<string> {
    const id = `message-${++numbers}`;
    const choices = { chat_id: QUESTIONS, answers: [answerTo(id), `No to ${id}`] };
    const body = { message_id: id, text: `Text of ${id}`, ...(isQuestion && choices) };
    const owner = devices[numbers % devices.length];
    if (isQuestion) questions.set(id, { owner: owner?.hasAll ? owner : undefined, isAnswered: false });
    let side = first;
    await persist(() => {
      const at = side;
      side = side === 'home' ? 'edge' : 'home';
      return call(at, '/phone/message', { method: 'POST', body });
    });
    accepted.add(id);
    return id;
  }

  async function reply(device: DayDevice, text = `Reply ${++numbers}`): Promise<string> {
    replied.add(text);
    await device.reply(text);
    return text;
  }

  /** Uploads a picture, and names it in a reply. */
  async function send(device: DayDevice, size = Math.ceil(random() * 300 * 1024)): Promise<void> {
    const name = `picture-${++numbers}.png`;
    const bytes = Buffer.alloc(size, `${name} of ${seed} `);
    let since = home.child;
    const uploaded = await persist(() => {
      since = home.child;
      return device.upload(name, bytes);
    });
    pictures.push({ ...uploaded, digest: sha256(bytes), since, until: home.child });
    await reply(device, `MEDIA:svc-relay://${uploaded.token}`);
  }

  const isAcknowledged = async (text: string): Promise<boolean> =>
    (await Promise.all(devices.map((device) => device.isAcknowledged(text)))).includes(true);
  const settled = async (reply: Promise<string>) => {
    const text = await reply;
    await expect.poll(() => isAcknowledged(text), LATE).toBe(true);
  };

  /** The traffic of a round, of which each part counts when it is over. */
  function begin(): void {
    const [first, second] = (random() < 0.5 ? devices : [...devices].reverse()) as [DayDevice, DayDevice];
    const parts: Promise<unknown>[] = [
      say(),
      say(undefined, true),
      send(first),
      settled(reply(first)),
      settled(reply(second)),
    ];
    for (const part of parts) {
      const own: Promise<void> = part.then(() => void progress++).finally(() => traffic.delete(own));
      own.catch(() => {});
      traffic.add(own);
    }
  }
  const quiet = async () => void (await Promise.all(traffic));

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
      .poll(() => Promise.all(devices.map((device) => device.isAtMailbox())), LATE)
      .toEqual(devices.map(() => true));

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
    pictures,
    read,
    again,
    shown,
    isAcknowledged,
    say,
    reply,
    send,
    begin,
    quiet,
    readOnce,
    atMailbox: async () => void (await atMailbox()),
    async talk(): Promise<void> {
      begin();
      await quiet();
    },
    /** Resolves once `count` more parts of the traffic are over. */
    progressed(count: number): Promise<void> {
      const wanted = progress + Math.min(count, traffic.size);
      return expect.poll(() => progress, LATE).toBeGreaterThanOrEqual(wanted) as unknown as Promise<void>;
    },
    untilShown: (id: string) => expect.poll(shown, LATE).toContain(id),
    untilRead: (text: string) => expect.poll(() => [...read.values()], LATE).toContain(text),
    /** Takes the route to home away from the devices, which then are at the mailbox. */
    async away(): Promise<void> {
      homeProxy.block('reset');
      await atMailbox();
    },
    back: () => homeProxy.plan(['none']),
    async restartEdge(): Promise<void> {
      await runtime.restart();
      toEdge.port = portOfEdge();
    },
    /** Resolves once the local runtime has put the object away, which it does some ten seconds after the last event. */
    evicted: () => runtime.asleep(RELAY),
    /** Directory of the files that home has of uploads, whole or not. */
    uploads,
    /** Number of those files: there is no such directory before the first. */
    begun: async (): Promise<number> => (await readdir(uploads).catch(() => [])).length,
  };
}

/** Plays a day of 20 cuts in the order of the seed, and expects that it has lost and doubled nothing. */
export async function playDay(options: DayOptions): Promise<void> {
  const day = Object.entries(options.times).flatMap(([name, times]) =>
    Array<keyof typeof CUTS>(times).fill(name as keyof typeof CUTS),
  );
  expect(day.length).toBe(20);
  const scene = await start(options);
  const { random } = scene;
  const order = day
    .map((name) => ({ name, at: random() }))
    .sort((a, b) => a.at - b.at)
    .map(({ name }) => name);
  for (const name of order) {
    scene.begin();
    await scene.progressed(Math.floor(random() * 6));
    await CUTS[name](scene);
    await scene.quiet();
  }
  await expectWholeDay(scene);
}

async function expectWholeDay(scene: Scene): Promise<void> {
  const { call, devices, read, replied } = scene;
  // Every message is shown, and none twice on a device.
  const accepted = [...scene.accepted].sort();
  await expect.poll(async () => [...new Set(await scene.shown())].sort(), LATE).toEqual(accepted);
  for (const device of devices) {
    if (device.hasAll) await expect.poll(async () => [...(await device.shown())].sort(), LATE).toEqual(accepted);
    const ids = await (device.onScreen ?? device.shown)();
    if (device.hasAll) expect([...ids].sort()).toEqual(accepted);
    expect(ids.length).toBe(new Set(ids).size);
  }
  // Every question is answered, every reply is acknowledged to its device, and comes to an agent once. What one at the edge got as
  // a placeholder comes to that of home; only replies to what somebody asked at the edge can be read there.
  await expect.poll(() => [...scene.questions].filter(([, { isAnswered }]) => !isAnswered), LATE).toEqual([]);
  const unsettled = async () => {
    const known = await Promise.all([...replied].map(scene.isAcknowledged));
    return [...replied].filter((_, at) => !known[at]);
  };
  await expect.poll(unsettled, LATE).toEqual([]);
  await expect.poll(() => [...read.values()].sort(), LATE).toEqual([...replied].sort());
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
  for (const { token, side, digest, since, until } of scene.pictures) {
    const count = inspected.filter((one) => one === token).length;
    if (side === 'edge' || isSealedToken(token))
      expect([token, count, digests.includes(digest)]).toEqual([token, 1, true]);
    else if (since === now) expect([token, count]).toEqual([token, 1]);
    else if (until !== now) expect([token, count]).toEqual([token, 0]);
  }

  // Home owns the history: it has every message and reply once. The edge has what came to it, which is a part of that, for what
  // devices took from home or gave to it never did. Of each of its items the edge says what home says, under home's `seq` and in
  // home's order: no `origin` is left.
  async function history(side: Side): Promise<Item[]> {
    const items: Item[] = [];
    for (;;) {
      const next: Item[] = (await call(side, `/phone/history?since=${items.at(-1)?.seq ?? 0}&limit=${PAGE}`)).items;
      items.push(...next);
      if (next.length < PAGE) return items;
    }
  }
  const ids = async () => (await history('home')).map(({ message_id }) => message_id).sort();
  await expect.poll(ids, LATE).toEqual([...scene.accepted, ...read.keys()].sort());
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
}

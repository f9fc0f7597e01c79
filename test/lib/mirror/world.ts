import type { Config } from '../../../lib/config.ts';
import type { UpstreamSocketEvents } from '../../../lib/host/upstream-socket.ts';
import { UpstreamSocketError } from '../../../lib/host/upstream-socket.ts';
import type { Clock } from '../../../lib/kit/clock.ts';
import type { JsonObject } from '../../../lib/kit/json.ts';
import { openSharedMedia } from '../../../lib/media/media.ts';
import { type EdgeMirror, type HomeMessage, openEdgeMirror } from '../../../lib/mirror/edge.ts';
import { type HomeMirror, openHomeMirror } from '../../../lib/mirror/home.ts';
import { type Notifications, openNotifications } from '../../../lib/notifications/notifications.ts';
import { type Gate, openGate } from '../../../lib/operations/gate.ts';
import type { Candidate } from '../../../lib/pairing/candidates.ts';
import { openPairingCodes, type PairingCodes } from '../../../lib/pairing/codes.ts';
import { openPhoneMessaging, type PhoneMessaging } from '../../../lib/phone/phone.ts';
import { openPush, type Push } from '../../../lib/push/push.ts';
import type { Policy } from '../../../lib/sessions/grants.ts';
import type { Session } from '../../../lib/sessions/session.ts';
import { openSessions, type Sessions } from '../../../lib/sessions/sessions.ts';
import type { SocketEvents, Transport } from '../../../lib/socket/transport.ts';
import { createStores } from '../../../storage/index.ts';
import type { Store, Stores } from '../../../storage/schema.ts';
import { createTestClock } from '../../support/clock.ts';
import type { HeldState } from '../../support/held-state.ts';
import { createTestLog } from '../../support/log.ts';
import { MemoryBytes } from '../../support/memory-bytes.ts';
import { memoryStores } from '../../support/states.ts';

const BACKED_UP = [
  'sessions',
  'ended-sessions',
  'push',
  'freeze',
  'mirror',
  'phone',
  'phone-replies',
  'phone-history',
  'phone-delivered',
] as const;
const EDGE = 'https://edge.example';
const MAX_UPLOAD = 1024 * 1024;
const turn = () => new Promise<void>((resolve) => setTimeout(resolve, 0));

type Message = string | { code: number; reason: string };

type WorldMedia = Awaited<ReturnType<typeof openSharedMedia>>;

interface Wire {
  id: string;
  toHome: Message[];
  toEdge: Message[];
  home: UpstreamSocketEvents;
  edge?: SocketEvents;
}

/** Home and the edge with the real code of both, their state in memory, and a wire between them that the test moves. */
export class World {
  readonly clock = createTestClock(1_790_000_000_123);
  readonly log = createTestLog();
  readonly stores = { home: memoryStores(), edge: memoryStores() };
  /** Bytes of media of both sides, which outlive their processes. */
  readonly bytes = { home: new MemoryBytes(), edge: new MemoryBytes() };
  home!: {
    codes: PairingCodes;
    media: WorldMedia;
    sessions: Sessions;
    push: Push;
    phone: PhoneMessaging;
    notifications: Notifications;
    gate: Gate;
    mirror: HomeMirror;
  };
  edge!: {
    codes: PairingCodes;
    media: WorldMedia;
    sessions: Sessions;
    push: Push;
    phone: PhoneMessaging;
    notifications: Notifications;
    gate: Gate;
    mirror: EdgeMirror;
  };
  wire: Wire | undefined;
  /** Seconds for which the edge honours home's sessions without a word. */
  lease = 7 * 86_400;
  /** Calls to push services: which side made them, under which key, and the bytes of the encrypted notice. */
  readonly called: { side: 'home' | 'edge'; url: string; key: string; size: number }[] = [];
  /** Where home is, as a pairing code would name it. */
  routes: Candidate[] = [{ role: 'lan', priority: 0, relay: { url: 'ws://192.168.1.2:8767/ws' } }];
  isCut = false;
  /** Frames of the wire that was cut last: a network may deliver them to nobody. */
  lost = 0;
  maxSessions: number | undefined;
  /** What devices at the edge were told of home. */
  readonly announced: HomeMessage[] = [];
  /** Families whose devices may get their credentials for the mailbox. */
  readonly ready: string[] = [];
  /** Families of the devices that are connected to the edge, and the routes that these were given. */
  readonly here = new Set<string>();
  readonly given: { family: string; payload: JsonObject }[] = [];
  #wires = 0;
  readonly #lives = { home: 0, edge: 0 };

  /** Where both sides store, if the test holds that: each process of theirs opens it anew. */
  disks: { home: HeldState; edge: HeldState } | undefined;

  static async open({
    lease,
    maxSessions,
    disks,
  }: {
    lease?: number;
    maxSessions?: number;
    disks?: World['disks'];
  } = {}): Promise<World> {
    const world = new World();
    world.maxSessions = maxSessions;
    world.disks = disks;
    if (lease !== undefined) world.lease = lease;
    await world.startEdge();
    await world.startHome();
    const { key } = await world.home.mirror.status();
    await world.edge.mirror.pin(key);
    await world.home.mirror.enable(EDGE);
    return world;
  }

  async startHome(): Promise<void> {
    const { clock, log } = this;
    if (this.disks) this.stores.home = createStores('node', this.disks.home.open());
    const sessions = await this.#sessions('home');
    const push = await this.#push('home', sessions);
    const phone = await this.#phone('home', push);
    const notifications = await openNotifications({ store: this.stores.home.open('notifications'), log });
    const gate = await openGate({ store: this.stores.home.open('freeze'), clock, log });
    // At home the index does not outlive the process.
    const media = await this.#media('home', memoryStores().open('media'));
    const mirror = await openHomeMirror({
      store: this.stores.home.open('mirror'),
      sessions,
      phone,
      notifications,
      gate,
      push,
      media,
      maxUpload: MAX_UPLOAD,
      dial: async (_request, events) => this.#dial(events),
      clock,
      log,
      routes: async () => ({ endpoints: this.routes, urls: ['ws://192.168.1.2:8767/ws'] }),
      random: () => 0,
    });
    const codes = await openPairingCodes({ store: this.stores.home.open('pairing-codes'), clock, log });
    mirror.onMailbox(({ family }) => this.ready.push(family));
    this.home = { codes, media, sessions, push, phone, notifications, gate, mirror };
    mirror.start();
    await turn();
  }

  async startEdge(): Promise<void> {
    const { clock, log, lease } = this;
    if (this.disks) this.stores.edge = createStores('edge', this.disks.edge.open());
    const sessions = await this.#sessions('edge');
    const push = await this.#push('edge', sessions);
    const phone = await this.#phone('edge', push);
    const notifications = await openNotifications({ store: this.stores.edge.open('notifications'), log });
    const gate = await openGate({ store: this.stores.edge.open('freeze'), clock, log });
    const store = this.stores.edge.open('mirror');
    const announce = (message: HomeMessage) => void this.announced.push(message);
    const codes = await openPairingCodes({ store: this.stores.edge.open('pairing-codes'), clock, log });
    const isConnected = ({ family }: Session) => this.here.has(family);
    const sendRoutes = ({ family }: Session, payload: JsonObject) => void this.given.push({ family, payload });
    const media = await this.#media('edge', this.stores.edge.open('media'));
    const own = {
      store,
      sessions,
      codes,
      phone,
      notifications,
      push,
      gate,
      clock,
      log,
      lease,
      announce,
      isConnected,
      sendRoutes,
    };
    const parts = { ...own, media, maxUploads: 20 };
    this.edge = { codes, media, sessions, push, phone, notifications, gate, mirror: await openEdgeMirror(parts) };
  }

  #media(side: 'home' | 'edge', store: Store<'media'>): Promise<WorldMedia> {
    const { clock, log } = this;
    const config = { mediaTtlSeconds: 86_400, mediaLruCap: 20, mediaMaxSizeMb: 1 } as Config;
    return openSharedMedia({ bytes: this.bytes[side].life(), store, config, clock, log });
  }

  async #sessions(side: 'home' | 'edge'): Promise<Sessions> {
    const { clock, log, maxSessions } = this;
    const stores = this.stores[side];
    const ended = stores.open('ended-sessions');
    return openSessions({ store: stores.open('sessions'), ended, clock, log, maxSessions });
  }

  async #push(side: 'home' | 'edge', sessions: Sessions): Promise<Push> {
    this.#lives[side]++;
    const push = await openPush({
      store: this.stores[side].open('push'),
      config: { pushHosts: ['push.example'], publicUrl: undefined, pushContact: undefined },
      sessions,
      upstream: async ({ url, headers, body }) => {
        const size = body instanceof Uint8Array ? body.length : 0;
        this.called.push({ side, url, key: headers.authorization?.split('k=')[1] ?? '', size });
        return { status: 201, headers: {}, body: new Response('').body as never };
      },
      clock: this.#clockOf(side),
      log: this.log,
      grant: 'phone',
    });
    push.start();
    return push;
  }

  /** Nothing happens any more in a process that was killed. */
  #clockOf(side: 'home' | 'edge'): Clock {
    const { clock } = this;
    const life = this.#lives[side];
    return { ...clock, after: (ms, act) => clock.after(ms, () => life === this.#lives[side] && act()) };
  }

  #phone(side: 'home' | 'edge', push: Push): Promise<PhoneMessaging> {
    const { log } = this;
    const stores = this.stores[side];
    return openPhoneMessaging({
      sessions: { isAlive: () => true },
      clock: this.#clockOf(side),
      log,
      accepted: push.accepted,
      settled: push.settled,
      queue: stores.open('phone'),
      replies: stores.open('phone-replies'),
      history: stores.open('phone-history'),
      delivered: stores.open('phone-delivered'),
      subscribers: side === 'edge' ? stores.open('phone-subscribers') : undefined,
    });
  }

  #dial(events: UpstreamSocketEvents) {
    if (this.isCut) throw new UpstreamSocketError('refused', { isRefused: true });
    const wire: Wire = { id: `wire-${++this.#wires}`, toHome: [], toEdge: [], home: events };
    this.wire = wire;
    wire.edge = this.edge.mirror.open(this.#transport(wire), { host: new URL(EDGE).host, address: 'home' });
    return {
      send: (text: string) => void wire.toEdge.push(text),
      unsent: () => 0,
      pause: () => {},
      resume: () => {},
      close: (code = 1000, reason = '') => void wire.toEdge.push({ code, reason }),
      terminate: () => this.#break(wire, 'home'),
    };
  }

  #transport(wire: Wire): Transport {
    return {
      id: wire.id,
      send: (data) => void wire.toHome.push(String(data)),
      close: (code, reason) => void wire.toHome.push({ code, reason }),
      terminate: () => this.#break(wire),
      unsent: () => 0,
      pause: () => false,
      resume: () => {},
    };
  }

  /** Ends a connection: what is under way is lost. `by` already knows. */
  #break(wire: Wire, by?: 'home'): void {
    if (this.wire !== wire) return;
    this.wire = undefined;
    this.lost += wire.toHome.length + wire.toEdge.length;
    wire.edge?.closed({ code: 1006, reason: '' });
    if (by !== 'home') wire.home.closed({ code: 1006, reason: '' });
  }

  /** Delivers one message in one direction. */
  async deliver(side: 'toHome' | 'toEdge'): Promise<void> {
    const wire = this.wire;
    const message = wire?.[side].shift();
    if (!wire || message === undefined) return;
    if (typeof message !== 'string') {
      this.wire = undefined;
      wire.edge?.closed(message);
      wire.home.closed(message);
    } else if (side === 'toHome') wire.home.message(message);
    else wire.edge?.message(message);
    await turn();
  }

  /** Delivers everything that waits in both directions, in one turn. */
  async deliverAll(): Promise<void> {
    const wire = this.wire;
    for (const message of wire?.toEdge.splice(0) ?? []) if (typeof message === 'string') wire?.edge?.message(message);
    for (const message of wire?.toHome.splice(0) ?? []) if (typeof message === 'string') wire?.home.message(message);
    await turn();
  }

  async cut(): Promise<void> {
    this.isCut = true;
    if (this.wire) this.#break(this.wire);
    await turn();
  }

  async heal(): Promise<void> {
    this.isCut = false;
    for (let waited = 0; !this.wire && waited < 62; waited++) await this.clock.advanceAsync(1_000);
  }

  /** Home's process is killed, and starts on what was stored. */
  async crashHome(): Promise<void> {
    this.home.mirror.stop();
    this.bytes.home.life();
    const wire = this.wire;
    if (wire) this.#break(wire);
    await this.startHome();
  }

  /** A copy of home's state, as in a backup. */
  async backupHome(): Promise<Stores> {
    const copy = memoryStores();
    for (const name of BACKED_UP) {
      const [from, to] = [this.stores.home.open(name), copy.open(name)];
      for (const key of await from.getKeys()) await to.setItem(key, (await from.getItem(key)) as never);
    }
    return copy;
  }

  /** Home begins anew on a copy of its state. */
  async restoreHome(copy: Stores): Promise<void> {
    this.stores.home = copy;
    await this.crashHome();
  }

  /** The edge's object is lost with its sockets. */
  async crashEdge(): Promise<void> {
    this.bytes.edge.life();
    const wire = this.wire;
    this.wire = undefined;
    await this.startEdge();
    wire?.home.closed({ code: 1006, reason: '' });
    await turn();
  }

  /** The edge's object sleeps and wakes: its sockets outlive that. */
  async sleepEdge(): Promise<void> {
    await this.startEdge();
    const wire = this.wire;
    if (!wire) return;
    wire.edge = this.edge.mirror.restore(this.#transport(wire));
  }

  /** Lets everything arrive until both sides have nothing to tell. */
  async settle(): Promise<void> {
    if (this.isCut || !this.wire) await this.heal();
    for (let quiet = 0, tries = 0; quiet < 3; tries++) {
      if (tries > 3_000) throw new Error(`the mirror does not settle:\n${this.log.lines.slice(-20).join('\n')}`);
      await turn();
      await this.deliver('toEdge');
      await this.deliver('toHome');
      if (!this.wire) await this.heal();
      const [home, edge] = [await this.home.mirror.status(), this.edge.mirror.status()];
      const isIdle =
        home.link === 'up' &&
        edge.link === 'up' &&
        home.waiting.out + home.waiting.in + edge.waiting.out + edge.waiting.in === 0 &&
        this.wire?.toHome.length === 0 &&
        this.wire.toEdge.length === 0;
      quiet = isIdle ? quiet + 1 : 0;
    }
  }

  async pair(id: string, policy: Policy = {}): Promise<{ family: string; token: string }> {
    const device = { name: id, id, model: '', platform: '', surface: 'android', formFactor: 'phone' } as const;
    const { session, token } = await this.home.sessions.create({ device, policy, transportHint: 'ws' });
    return { family: session.family, token };
  }
}

/** What both sides say of all sessions, by family. */
export const policies = (sessions: Sessions): Record<string, unknown> =>
  Object.fromEntries(
    sessions
      .list()
      .map(({ family, expiresAt, grants, device }): [string, unknown] => [family, { expiresAt, grants, device }])
      .sort(([a], [b]) => a.localeCompare(b)),
  );

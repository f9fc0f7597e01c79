import type { StoreName, Stores } from '../storage/schema.ts';
import { openLimiter } from './access/limiter.ts';
import { openLocalOperator } from './access/local-operator.ts';
import { createOperatorTokens } from './access/operator-token.ts';
import { createOwnHosts } from './access/own-hosts.ts';
import { createProofs } from './access/proofs.ts';
import { createRefusals } from './access/refusals.ts';
import { createSessionBearers } from './access/session-bearers.ts';
import { openBridge } from './bridge/bridge.ts';
import { createAgentHistory } from './chat/agent-history.ts';
import { createChat } from './chat/chat.ts';
import { openChatTurns } from './chat/chat-turns.ts';
import { createChatHistory } from './chat/history.ts';
import { createReachability } from './chat/reachable.ts';
import { createClipboardInbox } from './clipboard/inbox.ts';
import type { Config } from './config.ts';
import { createInjectedContext } from './context/injected.ts';
import { createIngressMarker, type IngressMarker, openIngressMarker } from './dashboard/marker.ts';
import { readPinnedUrl } from './dashboard/public-url.ts';
import { openDesktop } from './desktop/desktop.ts';
import { describeError } from './errors.ts';
import type { DialBroker } from './host/broker-socket.ts';
import type { Host } from './host/index.ts';
import type { Upstream } from './host/upstream.ts';
import type { DialUpstream } from './host/upstream-socket.ts';
import { createReadBudgets } from './kit/byte-budget.ts';
import { type Clock, every } from './kit/clock.ts';
import { MiB } from './kit/units.ts';
import type { Log } from './log.ts';
import { openMcp } from './mcp/mcp.ts';
import { openHostMedia } from './media/host-media.ts';
import type { Media, MediaChange } from './media/media.ts';
import { openObjectMedia } from './media/object-media.ts';
import type { ObjectStore } from './media/objects.ts';
import { type EdgeMirror, openEdgeMirror } from './mirror/edge.ts';
import { type HomeMirror, openHomeMirror } from './mirror/home.ts';
import { createModelCapabilities } from './models/capabilities.ts';
import { openNotifications } from './notifications/notifications.ts';
import { openGate } from './operations/gate.ts';
import { createOperations } from './operations/table.ts';
import type { Diagnosis } from './operator/doctor/doctor.ts';
import { createDoctor } from './operator/doctor/report.ts';
import { createEvents } from './operator/events.ts';
import { createRelayInfo } from './operator/info.ts';
import { openSecurity } from './operator/security.ts';
import { createSnapshots } from './operator/snapshots.ts';
import { createUpdateCheck } from './operator/update-check.ts';
import { type Addresses, createAddresses } from './pairing/addresses.ts';
import { type Candidate, orderCandidates } from './pairing/candidates.ts';
import { openPairingCodes } from './pairing/codes.ts';
import { routesOf } from './pairing/known-routes.ts';
import { createMint, type Listener, urlsOf } from './pairing/mint.ts';
import { createRedemption } from './pairing/redemption.ts';
import { createQrSecret } from './pairing/secret.ts';
import { openPhoneMessaging, PHONE_GRANT } from './phone/phone.ts';
import { openReplyReaders } from './phone/reply-readers.ts';
import { openPhoneThreads } from './phone/threads.ts';
import { createProfileFiles } from './profiles/profile-files.ts';
import { createProfiles } from './profiles/profiles.ts';
import { openPush } from './push/push.ts';
import { openReach, type Reach } from './reach/reach.ts';
import { brokerCandidate, linkCandidate } from './secure-link/candidate.ts';
import { createSecureLink, type SecureLink } from './secure-link/secure-link.ts';
import { createEndNotices } from './sessions/end-notices.ts';
import type { Session } from './sessions/session.ts';
import { openSessions } from './sessions/sessions.ts';
import type { Channels } from './socket/channel.ts';
import { createSockets } from './socket/sockets.ts';
import { type ClockProblem, openSteadyClock, type SteadyClock, trustedClock } from './steady-clock.ts';
import { createTerminals } from './terminal/terminals.ts';
import { createTui } from './tui/tui.ts';
import type { ProviderBases } from './usage/provider.ts';
import { createUsage } from './usage/usage.ts';
import { createVoice } from './voice/voice.ts';
import { createPages, type LoadPages } from './web/pages.ts';
import { fetchUpstream } from './web/upstream.ts';
import { dialByFetch } from './web/upstream-socket.ts';

const SWEEP_PERIOD = 30_000;
/** Seconds for which the edge honours sessions of home without a word of it, at most (contract 12 §2). */
const MAX_LEASE = 7 * 86_400;

/** Parts that the runtime provides. */
export interface DomainParts {
  version: string;
  config: Config;
  stores: Stores;
  clock: Clock;
  log: Log;
  /** Absent at the edge. */
  host?: Host;
  /** Calls servers behind the relay; the platform's `fetch` by default (edge). */
  upstream?: Upstream;
  /** Opens WebSockets to servers behind the relay; an upgrade of the platform's `fetch` by default (edge). */
  dialUpstream?: DialUpstream;
  /** Opens the WebSocket to the broker of Reach. Without it, and at the edge, there is no Reach. */
  dialBroker?: DialBroker;
  /** The deployment's variables, which replace the default profile's `.env` where there is no host (edge). */
  env?: Readonly<Record<string, string | undefined>>;
  /** The command that brings this installation to a version (contract 01 §8.3); none at the edge. */
  updateCommand?(latest: string): string | null;
  /** Overrides where providers are asked for their usage. */
  usageBases?: Partial<ProviderBases>;
  /** Object store for uploads without a host, and the prefix of this relay's keys in it (edge). */
  objects?: { store: ObjectStore; prefix: string };
  /** Examines the host, the agent and this relay. Absent at the edge. */
  diagnose?(): Promise<Diagnosis>;
  /** Loads the pages for browsers. At the edge, the Worker answers for them before it wakes the relay. */
  pages?: LoadPages;
  /** True if sockets may outlive this process's memory (edge). */
  socketsOutliveMemory?: boolean;
}

export interface RelayParts extends DomainParts {
  /** Builds the channel table. Called once, after every domain has been created. */
  channels(relay: Relay): Channels;
}

/** Parts of the relay that domains call but that exist only after them. */
interface Late {
  channels(): Channels;
  listener(): Listener;
}

export type Readiness = 'starting' | 'ready' | 'stopping';

/**
 * Creates every domain. A new one is a line here: `Relay` gets its type from the result, and its lifecycle follows
 * from its methods. `start()` is called in this order once a process that stays is listening, `stop()` in the reverse
 * order; in one that sleeps (edge), `restored()` once the sockets that outlived the sleep are back, and `sweep()` when an
 * alarm fires. All four are optional.
 */
async function createDomains(parts: DomainParts & { clock: SteadyClock }, late: Late) {
  const { version, config, clock, log, host, stores, env } = parts;
  const upstream = parts.upstream ?? fetchUpstream();
  const dialUpstream = parts.dialUpstream ?? dialByFetch;
  const events = createEvents(clock);
  log.tail?.onLine((line) => events.publish('log', () => line));
  const gate = await openGate({ store: stores.open('freeze'), clock, log: log.named('gate') });
  const sessions = await openSessions({
    store: stores.open('sessions'),
    ended: stores.open('ended-sessions'),
    clock,
    jump: clock.jump(),
    log: log.named('sessions'),
    maxSessions: config.maxSessions,
    savesSeenAtOnce: parts.socketsOutliveMemory,
  });
  const proofs = createProofs(clock);
  const sessionBearers = createSessionBearers({ sessions, proofs });
  const deviceChanged = ({ prefix, device }: Session, change: string): void =>
    events.publish('device', () => ({ token_prefix: prefix, device_name: device.name, change }));
  sessions.onEnd((session, reason) => deviceChanged(session, reason));
  sessions.onChange(deviceChanged);
  const qrSecret = createQrSecret({ host, store: stores.open('pairing'), log: log.named('pairing') });
  const codes = await openPairingCodes({
    isCurrentKey: qrSecret.isCurrent,
    store: stores.open('pairing-codes'),
    clock,
    log: log.named('pairing'),
    changed: (change, masked) => events.publish('pairing', () => ({ change, masked })),
  });
  const limiter = await openLimiter({ store: stores.open('limiter'), clock, log: log.named('access') });
  const profiles = createProfiles({
    host,
    config,
    clock,
    log: log.named('profiles'),
    onChange: (rows) =>
      sockets.broadcast('profiles', 'pairing', 'profiles.updated', { profiles: rows }, { profiles: rows }),
  });
  const secureLink = host && createSecureLink({ config, host, upstream, clock, log: log.named('secure-link') });
  const reach =
    host && secureLink && parts.dialBroker
      ? await openReach({
          config,
          host,
          store: stores.open('reach'),
          sessions,
          secureLink,
          dialBroker: parts.dialBroker,
          clock,
          log: log.named('reach'),
        })
      : undefined;
  const ownHosts = createOwnHosts({
    config,
    host,
    urls: async () => [host && (await readPinnedUrl(host)).url],
    secureLink: () => secureLink?.advertised?.url,
    clock,
    log: log.named('access'),
  });
  const budgets = createReadBudgets(config.readBudgetMb * 1024 * 1024, clock);
  const sockets = createSockets({
    budgets,
    channels: late.channels,
    sessions,
    codes,
    limiter,
    proofs,
    clock,
    log: log.named('socket'),
    changed: deviceChanged,
    version,
    profiles: profiles.rows,
    loading: profiles.loading,
    routeCredential: reach && ((session) => reach.routeCredential(session)),
    greetings: (session) => {
      const [frozen, home] = [gate.state(), edgeMirror?.greeting(session)];
      return [...(frozen ? [{ type: 'frozen', payload: { ...frozen } }] : []), ...(home ? [home] : [])];
    },
    routes: (session) => addresses?.greeting(session),
    mailbox: (session) => homeMirror?.mailbox(session),
    edgePage: () => homeMirror?.edgePage(),
    isEdgeOfHome: () => edgeMirror?.isExpected() === true,
    homeBox: (session, boxKey) => homeMirror?.box(session, boxKey),
    routesBy: host && ((url) => routesOf([], [url], host.network.addresses())),
    store: parts.socketsOutliveMemory ? stores.open('sockets') : undefined,
  });
  gate.onChange((freeze) => {
    const state = freeze ? { ...freeze } : { frozen: false };
    sockets.broadcast(null, 'system', 'frozen', state);
    events.publish('freeze', () => state);
  });
  const threads = await openPhoneThreads({
    host,
    store: stores.open('phone-threads'),
    log: log.named('phone'),
  });
  const media = await openMedia(parts, (change) => events.publish('media', () => ({ change, count: media?.count() })));
  const security = await openSecurity({
    store: stores.open('switches'),
    config,
    log: log.named('operator'),
    changed: (allow) => events.publish('security', () => ({ allow_insecure_api_bearer: allow })),
  });
  const localOperator = await openLocalOperator({
    host,
    config,
    clock,
    log: log.named('access'),
    isBehindProxy: ownHosts.isBehindProxy,
  });
  /** Absent at the edge, as everything below that is made only with a host. */
  const profileFiles =
    host &&
    createProfileFiles({ host, config, clock, log: log.named('profiles'), onWritten: () => void profiles.rescan() });
  const push = await openPush({
    store: stores.open('push'),
    config,
    sessions,
    upstream,
    clock,
    log: log.named('push'),
    grant: PHONE_GRANT,
  });
  const phone = await openPhoneMessaging({
    sessions,
    clock,
    jump: clock.jump(),
    log: log.named('phone'),
    seen: threads.seen,
    accepted: push.accepted,
    settled: push.settled,
    changed: (queued, latest) => events.publish('queue', () => ({ queued, latest })),
    queue: stores.open('phone'),
    replies: stores.open('phone-replies'),
    history: stores.open('phone-history'),
    delivered: stores.open('phone-delivered'),
    subscribers: parts.socketsOutliveMemory ? stores.open('phone-subscribers') : undefined,
  });

  const bridge = await openBridge({
    sessions,
    clock,
    log: log.named('bridge'),
    activity: stores.open('bridge-activity'),
    gate,
    changed: (record) => events.publish('bridge', () => record),
    devicesChanged: () => mcp.devicesChanged(),
    registry: parts.socketsOutliveMemory ? stores.open('bridge') : undefined,
  });
  const desktop = await openDesktop({
    sessions,
    clock,
    log: log.named('desktop'),
    activity: stores.open('desktop-activity'),
    gate,
    changed: (record) => events.publish('desktop', () => record),
    devicesChanged: () => mcp.devicesChanged(),
    registry: parts.socketsOutliveMemory ? stores.open('desktop') : undefined,
  });
  const agentHistory = createAgentHistory({ host, config });
  const chatTurns = await openChatTurns({
    recover: agentHistory.answerTo,
    config,
    upstream,
    store: stores.open('chat-turns'),
    sessions,
    clock,
    log: log.named('chat'),
    calls: push.turns,
    sleeps: parts.socketsOutliveMemory === true,
  });
  const operations = createOperations({ phone, bridge, desktop, sessions, sockets, gate, clock });
  const mcp = await openMcp({
    version,
    operations,
    sessions,
    gate,
    media,
    store: stores.open('mcp-sessions'),
    sleeps: parts.socketsOutliveMemory === true,
    clock,
    log: log.named('mcp'),
  });

  const endNotices = createEndNotices({
    sessions,
    clock,
    publish: ({ prefix, device, expiresAt }) =>
      events.publish('device', () => ({
        token_prefix: prefix,
        device_name: device.name,
        change: 'ends_soon',
        expires_at: expiresAt,
      })),
    push: push.endsSoon,
  });

  const redemption = createRedemption({ codes, home: () => homeMirror, edge: () => edgeMirror });
  const mint = createMint({
    config,
    host,
    codes,
    redemption,
    secret: qrSecret,
    routes: async (expiresAt) => [...(await ownRoutes(expiresAt, secureLink, reach)), ...mailboxRoutes(homeMirror)],
    publicUrl: host && (async () => (await readPinnedUrl(host)).url),
    advertised: ownHosts.advertise,
    log: log.named('pairing'),
  });
  const addresses: Addresses | undefined =
    host &&
    createAddresses({
      network: host.network,
      candidates: async () => {
        const built: Candidate[] = await mint.candidates(late.listener());
        const link = secureLink?.advertised;
        const own = [...(link ? [linkCandidate(link)] : []), ...mailboxRoutes(homeMirror)];
        return own.length > 0 ? orderCandidates([...built, ...own]) : built;
      },
      port: () => late.listener().port,
      linkUrl: () => secureLink?.advertised?.url,
      mailboxUrl: () => homeMirror?.mailboxUrl(),
      mailbox: (session) => homeMirror?.mailbox(session),
      changed: () => homeMirror?.routesChanged(),
      sessions,
      isConnected: sockets.isConnected,
      send: (session, { type, payload, taken }) => sockets.send(session, 'pairing', type, payload, taken),
      clock,
      log: log.named('pairing'),
    });
  const terminals = createTerminals({ host, config, sessions, gate, clock, log: log.named('terminal') });
  const notifications = await openNotifications({
    store: stores.open('notifications'),
    log: log.named('notifications'),
  });
  const mirrored = {
    store: stores.open('mirror'),
    sessions,
    phone,
    notifications,
    gate,
    push,
    clock,
    log: log.named('mirror'),
  };
  /** Absent at the edge. */
  const homeMirror: HomeMirror | undefined =
    host &&
    media &&
    (await openHomeMirror({
      ...mirrored,
      media,
      maxUpload: config.mediaMaxSizeMb * MiB,
      dial: dialUpstream,
      ended: (session) => void terminals.endShells(session),
      reduced: (session) => void terminals.afterReduction(session),
      routes: async () => {
        const endpoints = (await addresses?.endpoints()) ?? [];
        return { endpoints, urls: [...new Set([...urlsOf(endpoints), await mint.url(late.listener())])] };
      },
      mailboxReady: (session) => void addresses?.giveMailbox(session),
      sign: (bytes) => secureLink?.sign(bytes) ?? null,
    }));
  /** Absent on a host. */
  const edgeMirror: EdgeMirror | undefined = host
    ? undefined
    : await openEdgeMirror({
        ...mirrored,
        codes,
        media,
        maxUploads: config.mediaLruCap,
        lease: Math.min(config.mirrorLease, MAX_LEASE),
        isConnected: sockets.isConnected,
        sendRoutes: ({ family }, payload) =>
          sockets.broadcast((session) => session.family === family, 'pairing', 'routes.updated', payload),
        announce: ({ type, payload }) =>
          sockets.broadcast((session) => session.mirrored === true, 'system', type, payload),
      });

  return {
    /** Budgets of the memory that clients take with their messages. */
    budgets,
    events,
    gate,
    refusals: createRefusals({ clock, log }),
    sessions,
    endNotices,
    proofs,
    sessionBearers,
    codes,
    redemption,
    limiter,
    sockets,
    profiles,
    profileFiles,
    bridge,
    desktop,
    operations,
    /** Agents of others. */
    mcp,
    chat: createChat({ config, upstream, clock, log: log.named('chat') }),
    chatTurns,
    history: createChatHistory({ agent: agentHistory, keptTurns: chatTurns.conversation }),
    models: createModelCapabilities({ host, config, upstream, clock, log: log.named('models'), version, env }),
    notifications,
    threads,
    push,
    phone,
    replyReaders: await openReplyReaders({
      replies: phone.replies,
      sessions,
      grant: PHONE_GRANT,
      clock,
      log: log.named('phone'),
      store: parts.socketsOutliveMemory ? stores.open('phone-subscribers') : undefined,
    }),
    context: createInjectedContext({ host, config, log: log.named('context') }),
    usage: host && createUsage({ host, config, clock, log: log.named('usage'), upstream, bases: parts.usageBases }),
    tui: createTui({ host, config, clock, log: log.named('tui') }),
    mint,
    /** Absent at the edge, whose address stays. */
    addresses,
    terminals,
    homeMirror,
    edgeMirror,
    info: createRelayInfo({
      host,
      config,
      clock,
      log: log.named('operator'),
      capabilities: capabilities({ hasHost: host !== undefined, without: media ? [] : ['media'] }),
      canChat: host ? undefined : canChat(parts, upstream),
    }),
    updates: createUpdateCheck({ config, clock, version, updateCommand: parts.updateCommand }),
    /** Absent at the edge. */
    doctor: parts.diagnose && createDoctor(parts.diagnose),
    snapshots:
      host &&
      createSnapshots({ files: host.files, stateFile: config.stateFile, stores, clock, log: log.named('operator') }),
    secureLink,
    /** After Secure Link, so that it stops first. Absent without a way to reach a broker. */
    reach,
    clipboard: host && createClipboardInbox({ host, clock, log: log.named('clipboard') }),
    /** Absent without a host and without an object store. */
    media,
    security,
    localOperator,
    ownHosts,
    /** Decides who sent a request, before any guard. */
    ingressMarker: await openMarker(parts),
    voice: await createVoice({
      ...parts,
      log: log.named('voice'),
      gate,
      upstream,
      dialUpstream,
      sessions,
      sessionBearers,
      security,
      localOperator,
      profileFiles,
      pushMessage: phone.push,
    }),
    pages: createPages(parts.pages ?? (async () => [])),
    operatorTokens: createOperatorTokens(config.operatorPublicKey, clock, log.named('access')),
  };
}

/** Tells what the dashboard's ingress forwards from calls of this host. */
function openMarker({ config, host, stores, log: all }: DomainParts): Promise<IngressMarker> | IngressMarker {
  const log = all.named('dashboard');
  const source = {
    configured: config.dashboardProxySecret,
    signingSecret: createQrSecret({ host, store: stores.open('pairing'), log }).read,
  };
  if (!host) return createIngressMarker(source);
  const { files, agentHome, users } = host;
  return openIngressMarker(source, { files, agentHome, users, operatorUids: config.operatorUids, log });
}

/** The routes through Secure Link for a pairing code: directly, and through the broker while that takes its credential. */
async function ownRoutes(expiresAt: number, secureLink?: SecureLink, reach?: Reach) {
  const link = secureLink?.advertised;
  if (!link) return [];
  const broker = await reach?.bootstrap(expiresAt);
  return broker ? [linkCandidate(link), brokerCandidate(link, broker)] : [linkCandidate(link)];
}

/**
 * The mailbox at the edge, which a client tries when nothing else answers, with credentials of its own (contract 12 §3).
 * Without `relay`: clients that do not know the role would show it what is home's.
 */
function mailboxRoutes(mirror?: HomeMirror): Candidate[] {
  const url = mirror?.mailboxUrl();
  return url === undefined ? [] : [{ role: 'mailbox', priority: 0, recommended: false, mailbox: { url } }];
}

/** Without a host, there is no API server unless the deployment names one, and it may be out of reach. */
function canChat({ config, clock, env }: DomainParts, upstream: Upstream): () => Promise<boolean> {
  if (!env?.RELAY_WEBAPI_URL?.trim()) return async () => false;
  return createReachability({ config, upstream, clock });
}

/** Features that `/relay/info` may announce, and whether each needs a host. One line per area. */
const NEEDS_HOST: Readonly<Record<string, boolean>> = {
  bridge: false,
  chat: false,
  clipboard: true,
  desktop: false,
  media: false,
  model_reasoning_capabilities_v1: false,
  notifications: false,
  pairing: false,
  proactive: false,
  profiles: true,
  push: false,
  relay_voice: false,
  sessions: false,
  terminal: true,
};

/** Features that work on this relay, sorted (contract 07 §3.1). Clients offer only what is named here. */
export function capabilities({ hasHost, without = [] }: { hasHost: boolean; without?: readonly string[] }): string[] {
  return Object.keys(NEEDS_HOST)
    .filter((name) => (hasHost || !NEEDS_HOST[name]) && !without.includes(name))
    .sort();
}

type Domains = Readonly<Awaited<ReturnType<typeof createDomains>>>;

export interface Relay extends Domains {
  readonly version: string;
  readonly config: Config;
  readonly clock: Clock;
  readonly log: Log;
  /** Absent at the edge. */
  readonly host?: Host;
  /** Durability of the state: `ok`, `memory`, or `degraded` while any durable store fails. */
  storeState(): 'ok' | 'memory' | 'degraded';
  /** Durable stores that hold less than they should, each with the reason (contract 01 §6.7). */
  failingStores(): { store: StoreName; error: string }[];
  /**
   * The problem with the clock (contract 11 §5), and the number of sessions set aside for it. A clock ahead is a
   * problem only with such sessions: a machine that was off for days has the same.
   */
  clockProblem(): (ClockProblem & { kept_aside: number }) | undefined;
  /** Set by a runtime on a host once it listens. At the edge, each request has its own address. */
  listener: Listener;
  state: Readiness;
  /** Begins the periodic work of a process that stays. */
  start(): void;
  /** Removes what has expired, in every domain. Called by the alarm of a process that sleeps (edge). */
  sweep(): Promise<void>;
  /** The runtime has restored every socket that outlived a sleep of the process (edge). */
  restored(): Promise<void>;
  /** Closes every socket and writes what is not yet written. */
  stop(): Promise<void>;
}

/** Puts a relay together. Two relays in one process share nothing. */
export async function createRelay(parts: RelayParts): Promise<Relay> {
  const { version, config, log, host, stores } = parts;
  // An object at the edge has no clock of its own to be wrong.
  const clock = parts.socketsOutliveMemory
    ? trustedClock(parts.clock)
    : await openSteadyClock({ clock: parts.clock, store: stores.open('clock'), log: log.named('clock') });
  const domains = await createDomains(
    { ...parts, clock },
    { channels: () => channels, listener: () => relay.listener },
  );
  const { sessions } = domains;
  const inOrder = Object.values(domains);
  let cancelSweeps = () => {};

  const relay: Relay = {
    ...domains,
    version,
    config,
    clock,
    log,
    host,
    storeState() {
      if (!stores.durable) return 'memory';
      return stores.failing.size > 0 ? 'degraded' : sessions.storeState();
    },

    failingStores() {
      const failing = [...stores.failing].map(([store, error]) => ({ store, error: describeError(error) }));
      const isWaiting = sessions.storeState() === 'degraded' && !stores.failing.has('sessions');
      return isWaiting ? [...failing, { store: 'sessions', error: 'changes wait to be stored again' }] : failing;
    },

    clockProblem() {
      const problem = clock.problem();
      const kept_aside = problem ? sessions.ended().filter(({ reason }) => reason === 'clock?').length : 0;
      return problem && (problem.state !== 'ahead' || kept_aside > 0) ? { ...problem, kept_aside } : undefined;
    },

    listener: { host: config.host, port: config.port, tls: false },
    state: 'starting',

    start() {
      const failed = (error: unknown) => log.error(`periodic work failed: ${describeError(error)}`);
      const sweep = () => {
        domains.refusals.sweep();
        void domains.endNotices.sweep();
        void domains.phone.settleJump();
        return sessions.sweep();
      };
      cancelSweeps = every(clock, SWEEP_PERIOD, sweep, failed);
      clock.start();
      for (const domain of inOrder) if (domain && 'start' in domain) domain.start();
    },

    async sweep() {
      for (const domain of inOrder) if (domain && 'sweep' in domain) await domain.sweep();
    },

    async restored() {
      for (const domain of inOrder) if (domain && 'restored' in domain) await domain.restored();
    },

    async stop() {
      relay.state = 'stopping';
      cancelSweeps();
      // A failure must not keep the others open, nor the sessions unsaved.
      const end = async (stop: () => unknown) => {
        try {
          await stop();
        } catch (error) {
          log.error(`stopping failed: ${describeError(error)}`);
        }
      };
      const stopping = inOrder.toReversed().map((domain) => end(() => domain && 'stop' in domain && domain.stop()));
      await Promise.all([...stopping, end(() => host?.databases.close()), end(() => host?.yaml.close())]);
      await sessions.flush();
      await clock.stop();
    },
  };
  const channels = parts.channels(relay);
  return relay;
}

/** Files of the host; without one, uploads in the object store, where there is one. */
async function openMedia(
  { host, objects, stores, config, clock, log: all }: DomainParts,
  changed: (change: MediaChange) => void,
): Promise<Media | undefined> {
  const log = all.named('media');
  const store = stores.open('media');
  if (host) return openHostMedia({ host, store, config, clock, log, changed });
  if (!objects) return undefined;
  return openObjectMedia({
    objects: objects.store,
    prefix: objects.prefix,
    store,
    config,
    clock,
    log,
    changed,
  });
}

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
import type { DialBroker } from './host/broker-socket.ts';
import type { Host } from './host/index.ts';
import type { Upstream } from './host/upstream.ts';
import type { DialUpstream } from './host/upstream-socket.ts';
import { createReadBudgets } from './kit/byte-budget.ts';
import type { Clock } from './kit/clock.ts';
import { MiB } from './kit/units.ts';
import type { Log } from './log.ts';
import { openMcp } from './mcp/mcp.ts';
import { openHostMedia } from './media/host-media.ts';
import type { Media } from './media/media.ts';
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
import { openPush, type Push } from './push/push.ts';
import { openReach, type Reach } from './reach/reach.ts';
import { brokerCandidate, linkCandidate } from './secure-link/candidate.ts';
import { createSecureLink, type SecureLink } from './secure-link/secure-link.ts';
import { createEndNotices } from './sessions/end-notices.ts';
import type { Session } from './sessions/session.ts';
import { openSessions, type Sessions } from './sessions/sessions.ts';
import type { Channels } from './socket/channel.ts';
import { createSockets } from './socket/sockets.ts';
import type { SteadyClock } from './steady-clock.ts';
import { createTerminals } from './terminal/terminals.ts';
import { createTui } from './tui/tui.ts';
import type { ProviderBases } from './usage/provider.ts';
import { createUsage } from './usage/usage.ts';
import { createVoice } from './voice/voice.ts';
import { createPages, type LoadPages } from './web/pages.ts';
import { fetchUpstream } from './web/upstream.ts';
import { dialByFetch } from './web/upstream-socket.ts';

/** Maximum seconds for which the edge honours sessions of home without hearing from it (contract 12 §2). */
const MAX_LEASE = 7 * 86_400;

/** Parts that the runtime provides. */
export interface DomainDeps {
  version: string;
  config: Config;
  stores: Stores;
  clock: Clock;
  log: Log;
  /** Absent at the edge. */
  host?: Host;
  /** Calls servers behind the relay; by default the platform's `fetch` (edge). */
  upstream?: Upstream;
  /** Opens WebSockets to servers behind the relay; by default an upgrade of the platform's `fetch` (edge). */
  dialUpstream?: DialUpstream;
  /** Opens the WebSocket to the broker of Reach. Without it, as at the edge, there is no Reach. */
  dialBroker?: DialBroker;
  /** The deployment's variables, which replace the default profile's `.env` if there is no host (edge). */
  env?: Readonly<Record<string, string | undefined>>;
  /** The command that updates this installation to a version (contract 01 §8.3); none at the edge. */
  updateCommand?(latest: string): string | null;
  /** Overrides the base URLs for providers' usage. */
  usageBases?: Partial<ProviderBases>;
  /** Object store for uploads without a host, and the prefix of this relay's keys in it (edge). */
  objects?: { store: ObjectStore; prefix: string };
  /** Checks the host, the agent and this relay. Absent at the edge. */
  diagnose?(): Promise<Diagnosis>;
  /** Loads the pages for browsers. At the edge, the Worker answers for them before it wakes the relay. */
  pages?: LoadPages;
  /** True if sockets may outlive this process's memory (edge). */
  socketsOutliveMemory?: boolean;
}

/** The parts that domains are made from. */
function createBase(deps: DomainDeps & { clock: SteadyClock }) {
  const { host, config, clock, stores, upstream = fetchUpstream(), dialUpstream = dialByFetch } = deps;
  return {
    ...deps,
    upstream,
    dialUpstream,
    events: createEvents(clock),
    sleeps: deps.socketsOutliveMemory === true,
    /** The parts that most domains take; `name` is that of their log. */
    room: (name: string) => ({ host, config, upstream, clock, log: deps.log.named(name) }),
    /** A store for what lasts as long as sockets do; undefined where memory lasts as long (all but the edge). */
    socketStore: <N extends StoreName>(name: N) => (deps.socketsOutliveMemory ? stores.open(name) : undefined),
  };
}

type Base = ReturnType<typeof createBase>;

/** The sessions and their proofs, and the freeze. */
async function openAccess({ room, stores, config, clock, log, events, socketsOutliveMemory }: Base) {
  const gate = await openGate({ ...room('gate'), store: stores.open('freeze') });
  const sessions = await openSessions({
    ...room('sessions'),
    store: stores.open('sessions'),
    ended: stores.open('ended-sessions'),
    jump: clock.jump(),
    maxSessions: config.maxSessions,
    savesSeenAtOnce: socketsOutliveMemory,
  });
  // Before the sockets listen: the end of a session is published before those of its sockets.
  sessions.onEnd((session, reason) => events.publish('device', deviceChange(session, reason)));
  sessions.onChange((session, change) => events.publish('device', deviceChange(session, change)));
  const proofs = createProofs(clock);
  return {
    gate,
    refusals: createRefusals({ clock, log }),
    sessions,
    endNotices: createEndNotices({ sessions, clock }),
    proofs,
    sessionBearers: createSessionBearers({ sessions, proofs }),
  };
}

/** Secure Link and Reach, by which this host can be reached from elsewhere. Both are absent at the edge, and Reach without a way to its broker. */
async function openRemoteAccess({ room, host, stores, dialBroker }: Base, sessions: Sessions) {
  const secureLink = host && createSecureLink({ ...room('secure-link'), host });
  const reach =
    host && secureLink && dialBroker
      ? await openReach({ ...room('reach'), host, store: stores.open('reach'), sessions, secureLink, dialBroker })
      : undefined;
  // Reach stops before Secure Link.
  return { secureLink, reach };
}

/** The rules by which callers count as the operator, and by which pages and proxies may call. */
async function openOperatorAccess(base: Base, secureLink: SecureLink | undefined) {
  const { room, host, stores } = base;
  const ownHosts = createOwnHosts({
    ...room('access'),
    urls: async () => [host && (await readPinnedUrl(host)).url],
    secureLink: () => secureLink?.advertised?.url,
  });
  return {
    security: await openSecurity({ ...room('operator'), store: stores.open('switches') }),
    localOperator: await openLocalOperator({ ...room('access'), isBehindProxy: ownHosts.isBehindProxy }),
    ownHosts,
    /** Determines who sent a request, before any guard. */
    ingressMarker: await openMarker(base),
  };
}

/** Messages to the phone, and its replies. */
async function openMessages({ room, host, stores, clock, log, events, socketStore }: Base, sessions: Sessions) {
  const grant = PHONE_GRANT;
  const notifications = await openNotifications({
    store: stores.open('notifications'),
    log: log.named('notifications'),
  });
  const threads = await openPhoneThreads({ host, store: stores.open('phone-threads'), log: log.named('phone') });
  const push = await openPush({ ...room('push'), store: stores.open('push'), sessions, grant });
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
    restored: stores.open('restored'),
    delivered: stores.open('phone-delivered'),
    subscribers: socketStore('phone-subscribers'),
  });
  const store = socketStore('phone-subscribers');
  const replyReaders = await openReplyReaders({ ...room('phone'), replies: phone.replies, sessions, grant, store });
  return { notifications, threads, push, phone, replyReaders };
}

/** Conversations with the agent. */
async function openAgent(base: Base, { sessions, push }: { sessions: Sessions; push: Push }) {
  const { room, host, config, version, stores, env, sleeps } = base;
  const agent = createAgentHistory({ host, config });
  const chatTurns = await openChatTurns({
    ...room('chat'),
    recover: agent.answerTo,
    store: stores.open('chat-turns'),
    sessions,
    calls: push.turns,
    sleeps,
  });
  return {
    chat: createChat(room('chat')),
    chatTurns,
    history: createChatHistory({ agent, storedTurns: chatTurns.conversation }),
    models: createModelCapabilities({ ...room('models'), version, env }),
  };
}

/** The operator's view of this relay. */
function createOperator(base: Base, media: Media | undefined) {
  const { room, host, config, clock, version, stores, updateCommand, diagnose } = base;
  return {
    info: createRelayInfo({
      ...room('operator'),
      capabilities: capabilities({ hasHost: host !== undefined, without: media ? [] : ['media'] }),
      canChat: host ? undefined : canChat(base),
    }),
    updates: createUpdateCheck({ config, clock, version, updateCommand }),
    /** Absent at the edge. */
    doctor: diagnose && createDoctor(diagnose),
    snapshots: host && createSnapshots({ ...room('operator'), files: host.files, stateFile: config.stateFile, stores }),
  };
}

/** The domains, by name. */
export type Domains = Readonly<Awaited<ReturnType<typeof createDomains>>>;

/**
 * Creates every domain. A new one is a line here: `Relay` gets its type from the result, and its lifecycle follows
 * from its methods. `start()` is called in this order once a process that stays is listening, `stop()` in the reverse
 * order; in one that sleeps (edge), `restored()` once the sockets that outlived the sleep are back, and `sweep()` when an
 * alarm fires. All four are optional. Domains call `deferred` only later, since those exist after them.
 */
export async function createDomains(
  deps: DomainDeps & { clock: SteadyClock },
  deferred: { channels(): Channels; listener(): Listener },
) {
  const base = createBase(deps);
  const { version, config, clock, host, stores, events, room, socketStore, sleeps } = base;
  const access = await openAccess(base);
  const { gate, sessions, sessionBearers, proofs } = access;
  const qrSecret = createQrSecret({ ...room('pairing'), store: stores.open('pairing') });
  const { isCurrent: isCurrentKey } = qrSecret;
  const codes = await openPairingCodes({ ...room('pairing'), isCurrentKey, store: stores.open('pairing-codes') });
  const limiter = await openLimiter({ ...room('access'), store: stores.open('limiter') });
  const profiles = createProfiles(room('profiles'));
  const remote = await openRemoteAccess(base, sessions);
  const { secureLink, reach } = remote;
  const budgets = createReadBudgets(config.readBudgetMb * MiB, clock);
  const sockets = createSockets({
    ...room('socket'),
    budgets,
    channels: deferred.channels,
    sessions,
    codes,
    limiter,
    proofs,
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
    store: socketStore('sockets'),
  });
  const media = await openMedia(base);
  const operator = await openOperatorAccess(base, secureLink);
  const messages = await openMessages(base, sessions);
  const { notifications, push, phone } = messages;
  const bridge = await openBridge({
    ...room('bridge'),
    sessions,
    gate,
    activity: stores.open('bridge-activity'),
    registry: socketStore('bridge'),
  });
  const desktop = await openDesktop({
    ...room('desktop'),
    sessions,
    gate,
    activity: stores.open('desktop-activity'),
    registry: socketStore('desktop'),
  });
  const agent = await openAgent(base, { sessions, push });
  const operations = createOperations({
    phone,
    bridge,
    desktop,
    sessions,
    sockets,
    gate,
    clock,
    homeRefusal: (session) => edgeMirror?.homeRefusal(session),
  });
  const mcpSessions = stores.open('mcp-sessions');
  /** Other people's agents. */
  const mcp = await openMcp({ ...room('mcp'), version, operations, sessions, gate, media, store: mcpSessions, sleeps });

  const redemption = createRedemption({ codes, home: () => homeMirror, edge: () => edgeMirror });
  const mint = createMint({
    ...room('pairing'),
    codes,
    redemption,
    secret: qrSecret,
    routes: async (expiresAt) => [...(await ownRoutes(expiresAt, secureLink, reach)), ...mailboxRoutes(homeMirror)],
    publicUrl: host && (async () => (await readPinnedUrl(host)).url),
    advertised: operator.ownHosts.advertise,
  });
  /** Absent at the edge, whose address stays. */
  const addresses: Addresses | undefined =
    host &&
    createAddresses({
      ...room('pairing'),
      network: host.network,
      candidates: async () => {
        const built: Candidate[] = await mint.candidates(deferred.listener());
        const link = secureLink?.advertised;
        const own = [...(link ? [linkCandidate(link)] : []), ...mailboxRoutes(homeMirror)];
        return own.length > 0 ? orderCandidates([...built, ...own]) : built;
      },
      port: () => deferred.listener().port,
      linkUrl: () => secureLink?.advertised?.url,
      mailboxUrl: () => homeMirror?.mailboxUrl(),
      mailbox: (session) => homeMirror?.mailbox(session),
      sessions,
      isConnected: sockets.isConnected,
      send: (session, { type, payload, onDelivered }) => sockets.send(session, 'pairing', type, payload, onDelivered),
    });
  const terminals = createTerminals({ ...room('terminal'), sessions, gate });
  const mirrored = { ...room('mirror'), store: stores.open('mirror'), sessions, phone, notifications, gate, push };
  /** Absent at the edge. */
  const homeMirror: HomeMirror | undefined =
    host &&
    media &&
    (await openHomeMirror({
      ...mirrored,
      media,
      maxUpload: config.mediaMaxSizeMb * MiB,
      dial: base.dialUpstream,
      routes: async () => {
        const endpoints = (await addresses?.endpoints()) ?? [];
        return { endpoints, urls: [...new Set([...urlsOf(endpoints), await mint.url(deferred.listener())])] };
      },
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
  /** Absent at the edge. */
  const profileFiles = host && createProfileFiles({ ...room('profiles'), host });
  const { security, localOperator } = operator;
  const callers = { sessions, sessionBearers, security, localOperator };

  return {
    /** Budgets for the memory of clients' messages. */
    budgets,
    events,
    ...access,
    codes,
    redemption,
    limiter,
    sockets,
    profiles,
    profileFiles,
    bridge,
    desktop,
    operations,
    mcp,
    ...agent,
    ...messages,
    context: createInjectedContext(room('context')),
    usage: host && createUsage({ ...room('usage'), host, bases: deps.usageBases }),
    tui: createTui(room('tui')),
    mint,
    addresses,
    terminals,
    homeMirror,
    edgeMirror,
    ...createOperator(base, media),
    ...remote,
    clipboard: host && createClipboardInbox({ ...room('clipboard'), host }),
    /** Absent without a host and without an object store. */
    media,
    ...operator,
    voice: await createVoice({ ...base, ...room('voice'), ...callers, gate, profileFiles, pushMessage: phone.push }),
    pages: createPages(deps.pages ?? (async () => [])),
    operatorTokens: createOperatorTokens(config.operatorPublicKey, clock, room('access').log),
  };
}

/** Distinguishes requests forwarded by the dashboard's ingress from calls of this host. */
function openMarker({ config, host, stores, log: all }: Base): Promise<IngressMarker> | IngressMarker {
  const log = all.named('dashboard');
  const source = {
    configured: config.dashboardProxySecret,
    signingSecret: createQrSecret({ host, store: stores.open('pairing'), log }).read,
  };
  if (!host) return createIngressMarker(source);
  const { files, agentHome, users } = host;
  return openIngressMarker(source, { files, agentHome, users, operatorUids: config.operatorUids, log });
}

/** The routes through Secure Link for a pairing code: directly, and through the broker if it accepts the credential. */
async function ownRoutes(expiresAt: number, secureLink?: SecureLink, reach?: Reach) {
  const link = secureLink?.advertised;
  if (!link) return [];
  const broker = await reach?.bootstrap(expiresAt);
  return broker ? [linkCandidate(link), brokerCandidate(link, broker)] : [linkCandidate(link)];
}

/**
 * The mailbox at the edge, which a client tries when nothing else answers, with separate credentials (contract 12 §3).
 * Without `relay`, since clients that do not know the role would send it home's credentials.
 */
function mailboxRoutes(mirror?: HomeMirror): Candidate[] {
  const url = mirror?.mailboxUrl();
  return url === undefined ? [] : [{ role: 'mailbox', priority: 0, recommended: false, mailbox: { url } }];
}

/** Without a host, there is no API server unless the deployment configures one, and it may be out of reach. */
function canChat({ config, clock, env, upstream }: Base): () => Promise<boolean> {
  if (!env?.RELAY_WEBAPI_URL?.trim()) return async () => false;
  return createReachability({ config, upstream, clock });
}

/** Files of the host; without one, uploads in the object store, where there is one. */
async function openMedia({ host, objects, stores, room }: Base): Promise<Media | undefined> {
  const deps = { ...room('media'), store: stores.open('media') };
  if (host) return openHostMedia({ ...deps, host });
  return objects && openObjectMedia({ ...deps, objects: objects.store, prefix: objects.prefix });
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

/** Features that work on this relay, sorted (contract 07 §3.1). Clients offer only these. */
export function capabilities({ hasHost, without = [] }: { hasHost: boolean; without?: readonly string[] }): string[] {
  return Object.keys(NEEDS_HOST)
    .filter((name) => (hasHost || !NEEDS_HOST[name]) && !without.includes(name))
    .sort();
}

export const deviceChange =
  ({ prefix, device }: Session, change: string, more = {}) =>
  () => ({ token_prefix: prefix, device_name: device.name, change, ...more });

import type { Stores } from '../storage/schema.ts';
import { createLimiter, type Limiter } from './access/limiter.ts';
import { createOperatorTokens, type OperatorTokens } from './access/operator-token.ts';
import { type Bridge, createBridge } from './bridge/bridge.ts';
import { type Chat, createChat } from './chat/chat.ts';
import { type ClipboardInbox, createClipboardInbox } from './clipboard/inbox.ts';
import type { Config } from './config.ts';
import { createInjectedContext, type InjectedContextReader } from './context/injected.ts';
import { createDesktop, type Desktop } from './desktop/desktop.ts';
import { describeError } from './errors.ts';
import type { Host } from './host/index.ts';
import { type Cancel, type Clock, every } from './kit/clock.ts';
import type { Log } from './log.ts';
import { createHostMedia } from './media/host-media.ts';
import type { Media } from './media/media.ts';
import { openObjectMedia } from './media/object-media.ts';
import type { ObjectStore } from './media/objects.ts';
import { createModelCapabilities, type ModelCapabilities } from './models/capabilities.ts';
import { createNotifications, type Notifications } from './notifications/ring.ts';
import { createRelayInfo, type RelayInfo } from './operator/info.ts';
import { createUpdateCheck, type UpdateCheck } from './operator/update-check.ts';
import { createPairingCodes, type PairingCodes } from './pairing/codes.ts';
import { createMint, type Mint } from './pairing/mint.ts';
import { openPhoneMessaging, type PhoneMessaging } from './phone/phone.ts';
import { createPhoneThreads, type PhoneThreads } from './phone/threads.ts';
import { createProfileFiles, type ProfileFiles } from './profiles/profile-files.ts';
import { createProfiles, type Profiles } from './profiles/profiles.ts';
import { openSessions, type Sessions } from './sessions/sessions.ts';
import type { Channels } from './socket/channel.ts';
import { createSockets, type Sockets } from './socket/sockets.ts';
import { createTerminals, type Terminals } from './terminal/terminals.ts';
import { createTui, type Tui } from './tui/tui.ts';
import type { ProviderBases } from './usage/provider.ts';
import { createUsage, type Usage } from './usage/usage.ts';
import { fetchUpstream, type Upstream } from './web/upstream.ts';

const SWEEP_PERIOD = 30_000;

/** Where this relay is reached directly. */
export interface Listener {
  /** The address it is bound to, or at the edge the name it is served under. */
  host: string;
  port: number;
  tls: boolean;
}

export interface RelayParts {
  version: string;
  config: Config;
  stores: Stores;
  clock: Clock;
  log: Log;
  /** Makes the channel table. Called once, when every domain of the relay is there. */
  channels(relay: Relay): Channels;
  /** Absent at the edge. */
  host?: Host;
  /** How servers behind the relay are called; without it, by the platform's `fetch` (edge). */
  upstream?: Upstream;
  /**
   * The deployment's variables where there is no host (edge): they stand for the `.env` of the default profile.
   */
  env?: Readonly<Record<string, string | undefined>>;
  /** Other places where providers are asked for their usage. */
  usageBases?: Partial<ProviderBases>;
  /** Where uploads are kept without a host, and what the keys of this relay's objects begin with (edge). */
  objects?: { store: ObjectStore; prefix: string };
  /** Whether sockets may outlive this process's memory (edge). */
  socketsOutliveMemory?: boolean;
}

/** Switches that the operator may throw while the relay runs (contract 01 §8.2). Never stored. */
export interface Security {
  allowInsecureApiBearer: boolean;
}

export type Readiness = 'starting' | 'ready' | 'stopping';

export interface Relay {
  readonly version: string;
  readonly config: Config;
  readonly clock: Clock;
  readonly log: Log;
  readonly host?: Host;
  readonly sessions: Sessions;
  readonly codes: PairingCodes;
  readonly limiter: Limiter;
  readonly sockets: Sockets;
  readonly profiles: Profiles;
  readonly profileFiles?: ProfileFiles;
  readonly bridge: Bridge;
  readonly chat: Chat;
  readonly desktop: Desktop;
  readonly models: ModelCapabilities;
  readonly notifications: Notifications;
  readonly threads: PhoneThreads;
  readonly context: InjectedContextReader;
  /** Absent at the edge. */
  readonly usage?: Usage;
  readonly phone: PhoneMessaging;
  readonly tui: Tui;
  readonly terminals: Terminals;
  readonly mint: Mint;
  readonly info: RelayInfo;
  readonly updates: UpdateCheck;
  readonly clipboard?: ClipboardInbox;
  /** Absent without a host and without an object store. */
  readonly media?: Media;
  readonly security: Security;
  readonly operatorTokens: OperatorTokens;
  /** Whether sessions survive a restart: `ok`, `memory`, or `degraded` after a failed save. */
  storeState(): 'ok' | 'memory' | 'degraded';
  /** The listener, once there is one. */
  listener: Listener;
  state: Readiness;
  /** Begins the periodic work of a process that stays. */
  start(): void;
  /** Closes every socket and writes what is not yet written. */
  stop(): Promise<void>;
}

/** Puts a relay together. Nothing is shared between two of them. */
export async function createRelay(parts: RelayParts): Promise<Relay> {
  const { version, config, clock, log, host, stores } = parts;
  const upstream = parts.upstream ?? fetchUpstream();
  const sessions = await openSessions({
    store: stores.open('sessions'),
    clock,
    log: log.named('sessions'),
  });
  const threads = createPhoneThreads({ host });
  const phone = await openPhoneMessaging({
    sessions,
    clock,
    log: log.named('phone'),
    seen: threads.seen,
    queue: stores.open('phone'),
    replies: stores.open('phone-replies'),
    remember: parts.socketsOutliveMemory ? stores.open('phone-subscribers') : undefined,
  });
  const codes = createPairingCodes(clock, log.named('pairing'));
  const limiter = createLimiter(clock);
  const profiles = createProfiles({
    host,
    config,
    clock,
    log: log.named('profiles'),
    changed: (rows) => sockets.broadcast('pairing', 'profiles.updated', { profiles: rows }, { profiles: rows }),
  });
  const sockets = createSockets({
    channels: () => channels,
    sessions,
    codes,
    limiter,
    clock,
    log: log.named('socket'),
    version,
    profiles: profiles.rows,
    remember: parts.socketsOutliveMemory ? stores.open('sockets') : undefined,
  });
  const periodic: Cancel[] = [];
  const media = await openMedia(parts);

  const relay: Relay = {
    version,
    config,
    clock,
    log,
    host,
    sessions,
    codes,
    limiter,
    sockets,
    profiles,
    profileFiles:
      host &&
      createProfileFiles({
        host,
        config,
        log: log.named('profiles'),
        written: () => void profiles.rescan(),
      }),
    bridge: createBridge({
      sessions,
      clock,
      log: log.named('bridge'),
      remember: parts.socketsOutliveMemory ? stores.open('bridge') : undefined,
    }),
    chat: createChat({ config, upstream, clock, log: log.named('chat') }),
    desktop: createDesktop({
      sessions,
      clock,
      log: log.named('desktop'),
      remember: parts.socketsOutliveMemory ? stores.open('desktop') : undefined,
    }),
    models: createModelCapabilities({
      host,
      config,
      upstream,
      clock,
      log: log.named('models'),
      version,
      env: parts.env,
    }),
    notifications: createNotifications(),
    threads,
    context: createInjectedContext({ host, config, log: log.named('context') }),
    usage: host && createUsage({ host, config, clock, log: log.named('usage'), upstream, bases: parts.usageBases }),
    phone,
    terminals: createTerminals({ host, config, sessions, clock, log: log.named('terminal') }),
    tui: createTui({ host, config, clock, log: log.named('tui') }),
    mint: createMint({
      config,
      host,
      codes,
      store: stores.open('pairing'),
      log: log.named('pairing'),
      listener: () => relay.listener,
    }),
    info: createRelayInfo({ host, config, clock, log: log.named('operator'), without: media ? [] : ['media'] }),
    updates: createUpdateCheck({ host, config, clock, version }),
    clipboard: host && createClipboardInbox({ host, clock, log: log.named('clipboard') }),
    media,
    security: { allowInsecureApiBearer: config.allowInsecureApiBearer },
    operatorTokens: createOperatorTokens(config.operatorPublicKey, log.named('access')),
    storeState: () => (stores.durable ? sessions.storeState() : 'memory'),
    listener: { host: config.host, port: config.port, tls: false },
    state: 'starting',

    start() {
      const failed = (error: unknown) => log.error(`periodic work failed: ${describeError(error)}`);
      periodic.push(
        every(clock, SWEEP_PERIOD, () => sessions.sweep(), failed),
        sockets.keepAlive(),
      );
      profiles.start();
      media?.start();
      void relay.profileFiles?.sweep();
    },

    async stop() {
      relay.state = 'stopping';
      for (const cancel of periodic) cancel();
      profiles.stop();
      relay.bridge.stop();
      relay.desktop.stop();
      const phoneStopped = phone.stop();
      const gatewaysEnded = relay.tui.shutdown();
      relay.chat.shutdown();
      relay.models.stop();
      const terminalsEnded = relay.terminals.shutdown();
      sockets.stop();
      host?.databases.close();
      await Promise.all([phoneStopped, gatewaysEnded, terminalsEnded, media?.stop()]);
      await sessions.flush();
    },
  };
  const channels = parts.channels(relay);
  return relay;
}

/** A host serves its files; without one, what devices upload goes to the object store, if there is any. */
async function openMedia({ host, objects, stores, config, clock, log: all }: RelayParts): Promise<Media | undefined> {
  const log = all.named('media');
  if (host) return createHostMedia({ host, config, clock, log });
  if (!objects) return undefined;
  return openObjectMedia({
    objects: objects.store,
    prefix: objects.prefix,
    store: stores.open('media'),
    config,
    clock,
    log,
  });
}

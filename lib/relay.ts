import { createLimiter, type Limiter } from './access/limiter.ts';
import { createOperatorTokens, type OperatorTokens } from './access/operator-token.ts';
import { type ClipboardInbox, createClipboardInbox } from './clipboard/inbox.ts';
import { type Cancel, type Clock, every } from './clock.ts';
import type { Config } from './config.ts';
import { describeError } from './errors.ts';
import type { Host } from './host/index.ts';
import type { Log } from './log.ts';
import { createRelayInfo, type RelayInfo } from './operator/info.ts';
import { createUpdateCheck, type UpdateCheck } from './operator/update-check.ts';
import { createPairingCodes, type PairingCodes } from './pairing/codes.ts';
import { createMint, type Mint } from './pairing/mint.ts';
import { createProfiles, type Profiles } from './profiles/profiles.ts';
import type { StoredSession } from './sessions/session.ts';
import { openSessions, type Sessions } from './sessions/sessions.ts';
import type { Channels } from './socket/channel.ts';
import { createSockets, type SocketRecord, type Sockets } from './socket/sockets.ts';
import type { StoreOpener } from './stores.ts';

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
  stores: StoreOpener;
  clock: Clock;
  log: Log;
  channels: Channels;
  /** Absent at the edge. */
  host?: Host;
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
  readonly mint: Mint;
  readonly info: RelayInfo;
  readonly updates: UpdateCheck;
  readonly clipboard?: ClipboardInbox;
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
  const sessions = await openSessions({
    store: stores.open<StoredSession>('sessions'),
    clock,
    log: log.named('sessions'),
  });
  const codes = createPairingCodes(clock);
  const limiter = createLimiter(clock);
  const profiles = createProfiles({
    host,
    config,
    clock,
    log: log.named('profiles'),
    changed: (rows) => sockets.broadcast('pairing', 'profiles.updated', { profiles: rows }, { profiles: rows }),
  });
  const sockets = createSockets({
    channels: parts.channels,
    sessions,
    codes,
    limiter,
    clock,
    log: log.named('socket'),
    version,
    profiles: profiles.rows,
    remember: parts.socketsOutliveMemory ? stores.open<SocketRecord>('sockets') : undefined,
  });
  const periodic: Cancel[] = [];

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
    mint: createMint({
      config,
      host,
      codes,
      store: stores.open<{ secret: string }>('pairing'),
      log: log.named('pairing'),
      listener: () => relay.listener,
    }),
    info: createRelayInfo({ host, config, clock, log: log.named('operator') }),
    updates: createUpdateCheck({ host, config, clock, version }),
    clipboard: host && createClipboardInbox({ host, clock }),
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
    },

    async stop() {
      relay.state = 'stopping';
      for (const cancel of periodic) cancel();
      profiles.stop();
      sockets.stop();
      await sessions.flush();
    },
  };
  return relay;
}

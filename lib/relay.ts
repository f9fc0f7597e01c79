import type { StoreName } from '../storage/schema.ts';
import type { Config } from './config.ts';
import { createDomains, type DomainDeps, type Domains, deviceChange } from './domains.ts';
import { describeError } from './errors.ts';
import type { Host } from './host/index.ts';
import { type Clock, every } from './kit/clock.ts';
import type { Log } from './log.ts';
import type { Listener } from './pairing/mint.ts';
import type { Channels } from './socket/channel.ts';
import { type ClockProblem, openSteadyClock, trustedClock } from './steady-clock.ts';

const SWEEP_PERIOD = 30_000;
export interface RelayDeps extends DomainDeps {
  /** Builds the channel table. Called once, after every domain has been created. */
  channels(relay: Relay): Channels;
}

export type Readiness = 'starting' | 'ready' | 'stopping';

/**
 * Has domains listen to the events of others. Phone messaging gets its listeners when it is opened, because it already has
 * events then.
 */
function listen(domains: Domains, { tail }: Log): void {
  const { events, sockets, gate, profiles, addresses, homeMirror, mcp, push, terminals, media } = domains;
  tail?.onLine((line) => events.publish('log', () => line));
  sockets.onPresence((session, change) => events.publish('device', deviceChange(session, change)));
  domains.endNotices.onWarning((session) =>
    events.publish('device', deviceChange(session, 'ends_soon', { expires_at: session.expiresAt })),
  );
  domains.endNotices.onPush(push.endsSoon);
  gate.onChange((freeze) => {
    const state = freeze ? { ...freeze } : { frozen: false };
    sockets.broadcast(null, 'system', 'frozen', state);
    events.publish('freeze', () => state);
  });
  domains.codes.onChange((change, masked) => events.publish('pairing', () => ({ change, masked })));
  domains.security.onChange((allow) => events.publish('security', () => ({ allow_insecure_api_bearer: allow })));
  media?.onChange((change) => events.publish('media', () => ({ change, count: media.count() })));
  domains.bridge.onCommand((record) => events.publish('bridge', () => record));
  domains.bridge.onDevices(mcp.devicesChanged);
  domains.desktop.onCommand((record) => events.publish('desktop', () => record));
  domains.desktop.onDevices(mcp.devicesChanged);
  domains.profileFiles?.onWrite(profiles.rescan);
  profiles.onChange((rows) =>
    sockets.broadcast('profiles', 'pairing', 'profiles.updated', { profiles: rows }, { profiles: rows }),
  );
  addresses?.onChange(() => homeMirror?.routesChanged());
  homeMirror?.onMailbox((session) => addresses?.giveMailbox(session));
  homeMirror?.onEnd(terminals.endShells);
  homeMirror?.onReduce(terminals.afterReduction);
}

export interface Relay extends Domains {
  readonly version: string;
  readonly config: Config;
  readonly clock: Clock;
  readonly log: Log;
  /** Absent at the edge. */
  readonly host?: Host;
  /** Durability of the state: `ok`, `memory`, or `degraded` while any durable store fails. */
  storeState(): 'ok' | 'memory' | 'degraded';
  /** Durable stores with missing writes, each with the reason (contract 01 §6.7). */
  failingStores(): { store: StoreName; error: string }[];
  /**
   * The problem with the clock (contract 11 §5), and the number of sessions set aside for it. A clock ahead is a problem
   * only with such sessions, since it looks the same on a machine that was off for days.
   */
  clockProblem(): (ClockProblem & { kept_aside: number }) | undefined;
  /** Set by a runtime on a host once it listens. At the edge, each request has its own address. */
  listener: Listener;
  state: Readiness;
  /** Starts the periodic work of a process that keeps running. */
  start(): void;
  /** Removes expired data in every domain. Called by the alarm of a process that sleeps (edge). */
  sweep(): Promise<void>;
  /** The runtime has restored every socket that survived a sleep of the process (edge). */
  restored(): Promise<void>;
  /** Closes every socket and finishes all writes. */
  stop(): Promise<void>;
}

/** Creates a relay. Two relays in one process share nothing. */
export async function createRelay(deps: RelayDeps): Promise<Relay> {
  const { version, config, log, host, stores } = deps;
  // An object at the edge has no clock of its own that could be wrong.
  const clock = deps.socketsOutliveMemory
    ? trustedClock(deps.clock)
    : await openSteadyClock({ clock: deps.clock, store: stores.open('clock'), log: log.named('clock') });
  const domains = await createDomains({ ...deps, clock }, { channels: () => channels, listener: () => relay.listener });
  listen(domains, log);
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
  const channels = deps.channels(relay);
  return relay;
}

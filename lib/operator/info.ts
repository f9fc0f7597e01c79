import type { Config } from '../config.ts';
import { describeError } from '../errors.ts';
import type { Host } from '../host/index.ts';
import type { Clock } from '../kit/clock.ts';
import { singleFlight } from '../kit/single-flight.ts';
import type { Log } from '../log.ts';
import { type RelayState, readEnablement } from './enablement.ts';
import { type Heartbeat, type PriorExit, readHeartbeat, readPriorExit } from './gateway.ts';

export interface RelayInfoDeps {
  /** Absent at the edge. */
  host?: Host;
  config: Config;
  clock: Clock;
  log: Log;
  /** Capabilities of this relay, sorted. */
  capabilities?: readonly string[];
  /** True if `chat` works now. If absent, it always does. */
  canChat?(): Promise<boolean>;
}

/** State of the agent, as shown by `GET /relay/info`, without pid, path or timestamp. */
export interface AgentInfo {
  profiles: { name: string; relay_state: RelayState }[];
  gateway_heartbeat: Heartbeat;
  gateway_prior_exit: PriorExit;
}

/** The parts of `GET /relay/info` other than counters (contract 01 §8.1, 07 §3.1). */
export function createRelayInfo({ host, config, clock, log, capabilities = [], canChat }: RelayInfoDeps) {
  const started = clock.monotonic();

  async function profiles(of: Host): Promise<AgentInfo['profiles']> {
    try {
      const rows = await readEnablement(of, config);
      return rows.map(({ profile, state }) => ({ name: profile, relay_state: state }));
    } catch (error) {
      log.warn(`cannot read the profiles of the agent home: ${describeError(error)}`);
      return [];
    }
  }

  async function read(): Promise<AgentInfo> {
    if (!host) {
      return {
        profiles: [],
        gateway_heartbeat: { status: 'missing', supported: false },
        gateway_prior_exit: { prior_exit: 'unknown' },
      };
    }
    const [rows, heartbeat, priorExit] = await Promise.all([
      profiles(host),
      readHeartbeat(host, clock),
      readPriorExit(host),
    ]);
    return { profiles: rows, gateway_heartbeat: heartbeat, gateway_prior_exit: priorExit };
  }

  return {
    /** Features that work on this relay now, sorted. */
    async capabilities(): Promise<readonly string[]> {
      if (!canChat || (await canChat())) return capabilities;
      return capabilities.filter((name) => name !== 'chat');
    },
    /** Whole seconds since this relay was created. */
    uptimeSeconds: (): number => Math.floor((clock.monotonic() - started) / 1000),
    /** Reads the agent home once for concurrent callers. Never rejects: unreadable state counts as unknown. */
    agent: singleFlight(read),
  };
}

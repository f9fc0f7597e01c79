import type { Config } from '../config.ts';
import { describeError } from '../errors.ts';
import type { Host } from '../host/index.ts';
import type { LocalProxy, Owner } from '../host/users.ts';
import { timingSafeEqual } from '../kit/bytes.ts';
import type { Clock } from '../kit/clock.ts';
import { withTimeout } from '../kit/timeouts.ts';
import type { Log } from '../log.ts';
import { type CallerFacts, isStrictLoopback } from './loopback.ts';
import { OPERATOR_KEY_HEADER, openOperatorKey, operatorKeyPath, readOperatorKey } from './operator-key.ts';
import type { Peer } from './peer.ts';

/** Milliseconds between two searches for programs that forward calls, and for one of them. */
const SEARCH_PERIOD = 60_000;
const SEARCH_TIMEOUT = 1_000;
const MAX_FORWARDERS = 16;

/**
 * Why a caller is not the operator: `remote` breaks one of the rules 1 to 5 and 7, `other-user` is another account of
 * this host, `no-key` lacks the key that this relay requires of every caller.
 */
export type Refusal = 'remote' | 'other-user' | 'no-key';

export interface LocalOperatorDeps {
  /** Absent at the edge, where nobody is local. */
  host?: Host;
  config: Pick<Config, 'port' | 'requireOperatorKey' | 'operatorUids'>;
  clock: Clock;
  log: Log;
  /**
   * True if a proxy on this machine forwards to the relay. Every caller then needs the key, unless the owner has
   * configured otherwise.
   */
  isBehindProxy?(): Promise<boolean>;
}

/** The rule by which callers count as the operator now, for the doctor. */
export interface OperatorState {
  /** True if every caller needs the operator key. */
  keyRequired: boolean;
  /** Programs that called as the relay's own user without the key and listen on ports themselves, as a proxy does. */
  forwarders: readonly LocalProxy[];
}

export type LocalOperator = Awaited<ReturnType<typeof openLocalOperator>>;

/**
 * Distinguishes the operator from every other caller on this host, by the same rule everywhere (contract 01 §1.3).
 * Creates the operator key at the first start; without a key file, no key is accepted. The file is read for each call
 * that presents a key, so that `svc relay operator-key rotate` takes effect at once (contract 11 §3).
 */
export async function openLocalOperator({ host, config, clock, log, isBehindProxy }: LocalOperatorDeps) {
  const users = host?.users;
  const trusted = new Set([...(users?.own == null ? [] : [users.own]), ...config.operatorUids]);
  if (host) await makeKey(host, log);
  /** Looked up once per connection, and only for operator routes. */
  const owners = new WeakMap<Peer, Promise<Owner>>();

  function ownerOf(peer: Peer): Promise<Owner> {
    const known = owners.get(peer);
    if (known) return known;
    const owner = users && peer.ends ? users.ofConnection(peer.ends()) : Promise.resolve<Owner>('unknown');
    owners.set(peer, owner);
    return owner;
  }

  const isKeyRequired = async (): Promise<boolean> => config.requireOperatorKey ?? (await isBehindProxy?.()) ?? false;

  /** Keyed by program and ports. */
  const forwarders = new Map<string, LocalProxy>();
  let searchAgain = Number.NEGATIVE_INFINITY;

  /**
   * Searches for forwarders during a call, because most proxies hold a connection no longer than that. Never rejects.
   */
  async function searchForwarders(): Promise<void> {
    if (users?.own == null || clock.monotonic() < searchAgain) return;
    searchAgain = clock.monotonic() + SEARCH_PERIOD;
    const search = users.proxies(config.port, users.own, []).catch(() => []);
    for (const found of await withTimeout({ clock, timeout: SEARCH_TIMEOUT }, search, () => [])) {
      const key = `${found.program} ${found.ports}`;
      forwarders.delete(key);
      forwarders.set(key, found);
      if (forwarders.size > MAX_FORWARDERS) forwarders.delete(forwarders.keys().next().value as string);
    }
  }

  return {
    /** Returns why the caller is not the operator; undefined if it is. */
    async refusal(caller: CallerFacts): Promise<Refusal | undefined> {
      if (!isStrictLoopback(caller)) return 'remote';
      const given = caller.headers.get(OPERATOR_KEY_HEADER);
      if (given !== null && host && (await isKey(host, given.trim()))) return undefined;
      if (await isKeyRequired()) return 'no-key';
      const owner = await ownerOf(caller.peer);
      if (owner === 'untold') return undefined;
      if (owner === 'unknown' || !trusted.has(owner)) return 'other-user';
      if (owner === users?.own) await searchForwarders();
      return undefined;
    },

    state: async (): Promise<OperatorState> => ({
      keyRequired: await isKeyRequired(),
      forwarders: [...forwarders.values()],
    }),

    /** Returns the account at the other end of a connection, for the log. */
    async describe(peer: Peer): Promise<string> {
      const owner = await owners.get(peer);
      return typeof owner === 'number' ? `${peer.address}, user ${owner}` : (peer.address ?? 'unknown');
    },
  };
}

async function makeKey({ files, agentHome }: Host, log: Log): Promise<void> {
  const path = operatorKeyPath(agentHome);
  try {
    await openOperatorKey(files, path, log);
  } catch (error) {
    log.warn(
      `the operator key ${path} can be neither read nor created, so no key is accepted: ${describeError(error)}`,
    );
  }
}

/** Without a readable key file, no key matches. */
async function isKey({ files, agentHome }: Host, given: string): Promise<boolean> {
  const key = await readOperatorKey(files, operatorKeyPath(agentHome)).catch(() => null);
  return key !== null && timingSafeEqual(given, key);
}

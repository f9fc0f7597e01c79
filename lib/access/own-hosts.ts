import type { Config } from '../config.ts';
import { describeError } from '../errors.ts';
import type { Host } from '../host/index.ts';
import {
  canonicalAddress,
  defaultPort,
  isHost,
  isLoopbackName,
  splitUrl,
  unbracket,
  urlHost,
} from '../kit/addresses.ts';
import type { Clock } from '../kit/clock.ts';
import { createTurns } from '../kit/semaphore.ts';
import type { Log } from '../log.ts';
import type { HeaderReader, Peer } from './peer.ts';

/** Milliseconds for which the results of file reads and programs are cached. */
const CACHE_TIME = 60_000;
/** Milliseconds after which names are resolved again, because the network may have been missing at the start. */
const JUDGED = 600_000;
const MAX_ADVERTISED = 64;
/** Changes that may wait for the one before. */
const MAX_WAITING = 64;
const RESOLVE_TIMEOUT = 2_000;
const MAX_FILE = 32 * 1024;

export interface OwnHostsDeps {
  config: Pick<Config, 'host' | 'port' | 'relayHosts' | 'publicUrl'>;
  /** Absent at the edge, where the Worker in front knows the names. */
  host?: Host;
  /** Further URLs of this relay, besides those of the configuration. */
  urls(): Promise<(string | null | undefined)[]>;
  /** The URL of its Secure Link, if enabled. */
  secureLink?(): string | undefined;
  clock: Clock;
  log: Log;
}

/**
 * The names by which browsers may call this relay (contract 01 §9.1a): any address literal, `localhost`, and the names
 * that it knows. A page that rebinds its own name to the address of the relay is a stranger under any other.
 */
export function createOwnHosts({ config, host, urls, secureLink, clock, log }: OwnHostsDeps) {
  const configured = new Set(
    [config.host, config.publicUrl && hostOf(config.publicUrl), ...(config.relayHosts?.keys() ?? [])].flatMap((name) =>
      name ? [nameOf(name)] : [],
    ),
  );
  const path = host && `${host.agentHome}/svc-relay/advertised-hosts`;
  let lookup: Promise<ReadonlySet<string>> | undefined;
  let until = Number.NEGATIVE_INFINITY;
  let proxied: Promise<boolean> | undefined;
  let judgeAgain = Number.NEGATIVE_INFINITY;
  /** One change of the list at a time, since each writes what it has read. */
  const inTurn = createTurns(MAX_WAITING);

  async function advertised(): Promise<string[]> {
    const text = host && path ? await host.files.readText(path, MAX_FILE) : null;
    return (text ?? '').split('\n').filter((line) => isHost(hostOf(`http://${line}`)));
  }

  /** Names that come from elsewhere. A failure omits some, so that a browser is refused until the next lookup. */
  async function lookUp(): Promise<ReadonlySet<string>> {
    const found = await Promise.all([
      advertised().then((lines) => lines.map((line) => hostOf(`http://${line}`))),
      urls().then((list) => [...list, secureLink?.()].flatMap((url) => (url ? [hostOf(url)] : []))),
      host?.network.tailnet().then((tailnet) => (tailnet?.name ? [tailnet.name] : [])) ?? [],
    ]).catch((error: unknown) => {
      log.debug(`the names of this relay cannot be read: ${describeError(error)}`);
      return [];
    });
    return new Set(found.flat().map(nameOf));
  }

  function known(): Promise<ReadonlySet<string>> {
    if (!lookup || clock.monotonic() >= until) {
      lookup = lookUp();
      until = clock.monotonic() + CACHE_TIME;
    }
    return lookup;
  }

  /** True if this relay itself listens on an address of this machine. */
  function isOwn(address: string, port: number): boolean {
    const link = splitUrl(secureLink?.() ?? '');
    if (link?.port === port) return true;
    return port === config.port && (!isLoopbackName(config.host) || isLoopbackName(address));
  }

  /** True if an authority leads to another program on this machine. */
  async function isProxy(authority: string, of: Host): Promise<boolean> {
    const { host: name = '', port = 0 } = splitUrl(`http://${authority}`) ?? {};
    const addresses = canonicalAddress(name) === null ? await of.network.resolve(name, RESOLVE_TIMEOUT) : [name];
    const own = new Set(of.network.addresses().map((address) => canonicalAddress(address)));
    return addresses.some((address) => own.has(canonicalAddress(address)) && !isOwn(address, port));
  }

  /** For a minute, a failure counts as a proxy: at worst, the operator key is required without need. */
  async function findProxy(of: Host): Promise<boolean> {
    try {
      const pinned = [...(await urls()), config.publicUrl].flatMap((url) => (url && authorityOf(url)) || []);
      const all = [...new Set([...pinned, ...(await advertised())])];
      const found = (await Promise.all(all.map(async (one) => ((await isProxy(one, of)) ? [one] : [])))).flat();
      if (found.length === 0) return false;
      log.warn(
        `${found[0]} leads to a proxy on this machine, so every operator call needs the operator key: RELAY_REQUIRE_OPERATOR_KEY`,
      );
      return true;
    } catch (error) {
      log.warn(`it is not known whether a proxy on this machine leads here: ${describeError(error)}`);
      judgeAgain = clock.monotonic() + CACHE_TIME;
      return true;
    }
  }

  return {
    /**
     * True if a published name of this relay leads to a proxy on this machine, whose forwarded requests may look like
     * calls of the operator (contract 01 §1.3 rule 6). Looked up every ten minutes, and when a new name is advertised.
     */
    isBehindProxy(): Promise<boolean> {
      if (!proxied || clock.monotonic() >= judgeAgain) {
        judgeAgain = clock.monotonic() + JUDGED;
        proxied = host ? findProxy(host) : Promise.resolve(false);
      }
      return proxied;
    },

    /**
     * True if a browser calls this relay by a foreign name. Returns a promise only for a name that is not in the
     * configuration.
     */
    isForeign(peer: Peer, headers: HeaderReader): boolean | Promise<boolean> {
      if (peer.via !== 'direct' || !isFromBrowser(headers)) return false;
      const name = nameOf(hostOf(`http://${headers.get('host')}`));
      if (name === 'localhost' || canonicalAddress(name) !== null || configured.has(name)) return false;
      return known().then((names) => !names.has(name));
    },

    /**
     * Remembers the hosts of URLs that the operator gives to devices: names, and for `published` URLs, which lead here
     * through another program, addresses too. Never rejects.
     */
    async advertise(given: readonly string[], published: readonly string[] = []): Promise<void> {
      const named = given.filter((url) => canonicalAddress(hostOf(url)) === null);
      const names = [...named, ...published].flatMap((url) => authorityOf(url) ?? []);
      if (!host || !path || names.length === 0) return;
      try {
        await inTurn(async () => {
          const before = await advertised();
          const all = [...new Set([...names, ...before])].slice(0, MAX_ADVERTISED);
          const isNew = all.join() !== before.join();
          if (isNew) await host.files.writeAtomic(path, new TextEncoder().encode(`${all.join('\n')}\n`), 0o600);
          // Not earlier, since a lookup during the write finds the names of before.
          lookup = undefined;
          if (isNew) proxied = undefined;
        });
      } catch (error) {
        log.warn(
          `the names in a pairing code cannot be remembered, so browsers are refused there: ${describeError(error)}`,
        );
      }
    },
  };
}

/** True for a request from a browser, by its headers. */
const isFromBrowser = (headers: HeaderReader): boolean =>
  headers.get('origin') !== null || headers.get('sec-fetch-site') !== null;

/** Host and port of a URL, `home.test:443`; undefined for an address that is valid on this machine only. */
function authorityOf(url: string): string | undefined {
  const { scheme = '', host = '', port = defaultPort(scheme) } = splitUrl(url) ?? {};
  if (!isHost(host) || (canonicalAddress(host) !== null && isLoopbackName(host))) return undefined;
  return `${urlHost(nameOf(host))}:${port}`;
}

const hostOf = (url: string): string => splitUrl(url)?.host ?? '';
const nameOf = (host: string): string => unbracket(host).toLowerCase().replace(/\.$/, '');

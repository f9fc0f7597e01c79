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
import type { Log } from '../log.ts';
import type { HeaderReader, Peer } from './peer.ts';

/** Milliseconds for which names are kept that cost a look at a file or a program. */
const KEPT = 60_000;
/** Milliseconds after which names are resolved again: the network may have been missing at the start. */
const JUDGED = 600_000;
const MAX_ADVERTISED = 64;
const RESOLVE_TIMEOUT = 2_000;
const MAX_FILE = 32 * 1024;

export interface OwnHostsParts {
  config: Pick<Config, 'host' | 'port' | 'relayHosts' | 'publicUrl'>;
  /** Absent at the edge, where the Worker in front knows the names. */
  host?: Host;
  /** URLs under which this relay can be reached beside those of the configuration. */
  urls(): Promise<(string | null | undefined)[]>;
  /** The URL of its Secure Link, while there is one. */
  secureLink?(): string | undefined;
  clock: Clock;
  log: Log;
}

export type OwnHosts = ReturnType<typeof createOwnHosts>;

/**
 * The names by which browsers may call this relay (contract 01 §9.1a): any address literal, `localhost`, and the names
 * that it knows. A page that rebinds its own name to the address of the relay is a stranger under any other.
 */
export function createOwnHosts({ config, host, urls, secureLink, clock, log }: OwnHostsParts) {
  const configured = new Set(
    [config.host, config.publicUrl && hostOf(config.publicUrl), ...(config.relayHosts?.keys() ?? [])].flatMap((name) =>
      name ? [nameOf(name)] : [],
    ),
  );
  const path = host && `${host.agentHome}/svc-relay/advertised-hosts`;
  let looking: Promise<ReadonlySet<string>> | undefined;
  let until = Number.NEGATIVE_INFINITY;
  let proxied: Promise<boolean> | undefined;
  let judgeAgain = Number.NEGATIVE_INFINITY;

  async function advertised(): Promise<string[]> {
    const text = host && path ? await host.files.readText(path, MAX_FILE) : null;
    return (text ?? '').split('\n').filter((line) => isHost(hostOf(`http://${line}`)));
  }

  /** Names that are known elsewhere. A failure leaves some out, which refuses a browser until the next look. */
  async function look(): Promise<ReadonlySet<string>> {
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
    if (!looking || clock.monotonic() >= until) {
      looking = look();
      until = clock.monotonic() + KEPT;
    }
    return looking;
  }

  /** True if what listens on an address of this machine is the relay itself. */
  function isOwn(address: string, port: number): boolean {
    const link = splitUrl(secureLink?.() ?? '');
    if (link?.port === port) return true;
    return port === config.port && (!isLoopbackName(config.host) || isLoopbackName(address));
  }

  /** True if an authority leads to this machine, and there to another program than the relay. */
  async function isProxy(authority: string, of: Host): Promise<boolean> {
    const { host: name = '', port = 0 } = splitUrl(`http://${authority}`) ?? {};
    const addresses = canonicalAddress(name) === null ? await of.network.resolve(name, RESOLVE_TIMEOUT) : [name];
    const own = new Set(of.network.addresses().map((address) => canonicalAddress(address)));
    return addresses.some((address) => own.has(canonicalAddress(address)) && !isOwn(address, port));
  }

  /** A failure counts as a proxy, for a minute: the operator key is then asked for once too often. */
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
      judgeAgain = clock.monotonic() + KEPT;
      return true;
    }
  }

  return {
    /**
     * True if a name under which the relay is published leads to a proxy on this machine: what that forwards may look
     * like a call of the operator (contract 01 §1.3 rule 6). Looked up every ten minutes, and when a new name is
     * advertised.
     */
    isBehindProxy(): Promise<boolean> {
      if (!proxied || clock.monotonic() >= judgeAgain) {
        judgeAgain = clock.monotonic() + JUDGED;
        proxied = host ? findProxy(host) : Promise.resolve(false);
      }
      return proxied;
    },

    /**
     * True if a request is one of a browser that calls this relay by a name which is not its own. Returns a promise
     * only for a name that the configuration does not know.
     */
    isForeign(peer: Peer, headers: HeaderReader): boolean | Promise<boolean> {
      if (peer.via !== 'direct' || !isFromBrowser(headers)) return false;
      const name = nameOf(hostOf(`http://${headers.get('host')}`));
      if (name === 'localhost' || canonicalAddress(name) !== null || configured.has(name)) return false;
      return known().then((names) => !names.has(name));
    },

    /**
     * Remembers the hosts of URLs that the operator gives to devices: names, and of `published`, which lead here through
     * something else, addresses too. Never rejects.
     */
    async advertise(given: readonly string[], published: readonly string[] = []): Promise<void> {
      const named = given.filter((url) => canonicalAddress(hostOf(url)) === null);
      const names = [...named, ...published].flatMap((url) => authorityOf(url) ?? []);
      if (!host || !path || names.length === 0) return;
      try {
        const before = await advertised();
        const all = [...new Set([...names, ...before])].slice(0, MAX_ADVERTISED);
        looking = undefined;
        if (all.join() === before.join()) return;
        proxied = undefined;
        await host.files.writeAtomic(path, new TextEncoder().encode(`${all.join('\n')}\n`), 0o600);
      } catch (error) {
        log.warn(
          `the names in a pairing code cannot be remembered, so browsers are refused there: ${describeError(error)}`,
        );
      }
    },
  };
}

/** True if a browser says that it has sent this. */
const isFromBrowser = (headers: HeaderReader): boolean =>
  headers.get('origin') !== null || headers.get('sec-fetch-site') !== null;

/** Host and port of a URL, `home.test:443`; undefined for an address that only this machine has. */
function authorityOf(url: string): string | undefined {
  const { scheme = '', host = '', port = defaultPort(scheme) } = splitUrl(url) ?? {};
  if (!isHost(host) || (canonicalAddress(host) !== null && isLoopbackName(host))) return undefined;
  return `${urlHost(nameOf(host))}:${port}`;
}

const hostOf = (url: string): string => splitUrl(url)?.host ?? '';
const nameOf = (host: string): string => unbracket(host).toLowerCase().replace(/\.$/, '');

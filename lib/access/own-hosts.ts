import type { Config } from '../config.ts';
import { describeError } from '../errors.ts';
import type { Host } from '../host/index.ts';
import { canonicalAddress, isHost, splitUrl, unbracket } from '../kit/addresses.ts';
import type { Clock } from '../kit/clock.ts';
import type { Log } from '../log.ts';
import type { HeaderReader, Peer } from './peer.ts';

/** Milliseconds for which names are kept that cost a look at a file or a program. */
const KEPT = 60_000;
const MAX_ADVERTISED = 64;
const MAX_FILE = 32 * 1024;

export interface OwnHostsParts {
  config: Pick<Config, 'host' | 'relayHosts' | 'publicUrl'>;
  /** Absent at the edge, where the Worker in front knows the names. */
  host?: Host;
  /** URLs under which this relay can be reached beside those of the configuration. */
  urls(): Promise<(string | null | undefined)[]>;
  clock: Clock;
  log: Log;
}

export type OwnHosts = ReturnType<typeof createOwnHosts>;

/**
 * The names by which browsers may call this relay (contract 01 §9.1a): any address literal, `localhost`, and the names
 * that it knows. A page that rebinds its own name to the address of the relay is a stranger under any other.
 */
export function createOwnHosts({ config, host, urls, clock, log }: OwnHostsParts) {
  const configured = new Set(
    [config.host, config.publicUrl && hostOf(config.publicUrl), ...(config.relayHosts?.keys() ?? [])].flatMap((name) =>
      name ? [nameOf(name)] : [],
    ),
  );
  const path = host && `${host.agentHome}/svc-relay/advertised-hosts`;
  let looking: Promise<ReadonlySet<string>> | undefined;
  let until = Number.NEGATIVE_INFINITY;

  async function advertised(): Promise<string[]> {
    const text = host && path ? await host.files.readText(path, MAX_FILE) : null;
    return (text ?? '').split('\n').filter((line) => line !== '' && isHost(line));
  }

  /** Names that are known elsewhere. A failure leaves some out, which refuses a browser until the next look. */
  async function look(): Promise<ReadonlySet<string>> {
    const found = await Promise.all([
      advertised(),
      urls().then((list) => list.flatMap((url) => (url ? [hostOf(url)] : []))),
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

  return {
    /**
     * Whether a request is one of a browser that calls this relay by a name which is not its own. Returns a promise only for
     * a name that the configuration does not know.
     */
    isForeign(peer: Peer, headers: HeaderReader): boolean | Promise<boolean> {
      if (peer.via !== 'direct' || !isFromBrowser(headers)) return false;
      const name = nameOf(hostOf(`http://${headers.get('host')}`));
      if (name === 'localhost' || canonicalAddress(name) !== null || configured.has(name)) return false;
      return known().then((names) => !names.has(name));
    },

    /** Remembers the hosts of addresses that the operator gives to devices. Never rejects. */
    async advertise(given: readonly string[]): Promise<void> {
      const names = given
        .map((url) => nameOf(hostOf(url)))
        .filter((name) => isHost(name) && canonicalAddress(name) === null);
      if (!host || !path || names.length === 0) return;
      try {
        const before = await advertised();
        const all = [...new Set([...names, ...before])].slice(0, MAX_ADVERTISED);
        looking = undefined;
        if (all.join() === before.join()) return;
        await host.files.writeAtomic(path, new TextEncoder().encode(`${all.join('\n')}\n`), 0o600);
      } catch (error) {
        log.warn(
          `the names in a pairing code cannot be remembered, so browsers are refused there: ${describeError(error)}`,
        );
      }
    },
  };
}

/** Whether a browser says that it has sent this. */
const isFromBrowser = (headers: HeaderReader): boolean =>
  headers.get('origin') !== null || headers.get('sec-fetch-site') !== null;

const hostOf = (url: string): string => splitUrl(url)?.host ?? '';
const nameOf = (host: string): string => unbracket(host).toLowerCase().replace(/\.$/, '');

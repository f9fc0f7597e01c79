import type { Config } from '../config.ts';
import { RelayError } from '../errors.ts';
import type { Host } from '../host/index.ts';
import { defaultPort, isLoopbackName, joinUrl, unbracket } from '../kit/addresses.ts';
import { asObject } from '../kit/json.ts';
import type { Log } from '../log.ts';
import { lanForm, readApiOverrides, resolveApiTarget, speaksTls } from './api-target.ts';
import type { BuiltCandidate } from './build-candidates.ts';
import { type Candidate, finalCandidates, orderCandidates, readCandidates } from './candidates.ts';
import { maskCode } from './code.ts';
import type { PairingCodes } from './codes.ts';
import { hostCandidates } from './host-candidates.ts';
import { routesOf } from './known-routes.ts';
import { buildPayload, pairingUrl } from './payload.ts';
import { describePolicy, readPolicy, readRedeemer } from './policy.ts';
import type { Redemption } from './redemption.ts';
import { keyIdOf, type QrSecret } from './secret.ts';

/** Where clients reach this relay directly. */
export interface Listener {
  /** The address it is bound to; at the edge, the name it is served under. */
  host: string;
  port: number;
  tls: boolean;
}

export interface MintParts {
  config: Config;
  /** Absent at the edge. */
  host?: Host;
  codes: PairingCodes;
  redemption: Redemption;
  /** Signs the payloads. */
  secret: Pick<QrSecret, 'read'>;
  /**
   * Candidates of this relay's own for a code that expires at `expiresAt` (epoch seconds), in addition to those of the
   * caller; none by default. Must not reject: the code is already made (contract 08 §6.2).
   */
  routes?(expiresAt: number): Promise<Candidate[]>;
  /** The URL under which the operator has said that this relay is published; none by default. */
  publicUrl?(): Promise<string | null>;
  /** Gets the URLs of the relay that a code names, and those of them that the operator publishes, before it is made. */
  advertised?(urls: string[], published: string[]): Promise<void>;
  log: Log;
}

/** Response of `POST /pairing/mint`. `expires_at` is in epoch seconds. */
export interface MintAnswer {
  ok: true;
  code: string;
  qr_payload: string;
  pairing_url: string;
  expires_at: number;
  host?: string;
  port?: number;
  tls?: boolean;
  relay_url: string;
  dashboard_url?: string;
  endpoints?: Candidate[];
}

export type Mint = ReturnType<typeof createMint>;

function readDashboardUrl(body: Record<string, unknown>): string | undefined {
  const value = body.dashboard_url ?? body.dashboardUrl;
  if (value == null || value === '') return undefined;
  const url = typeof value === 'string' ? value.trim().replace(/\/+$/, '') : '';
  if (/^https?:\/\/[^\s/?#]\S*$/i.test(url) && URL.canParse(url)) return url;
  throw new RelayError('invalid', 'dashboard_url must be an absolute http:// or https:// URL');
}

/** The literal by which programs of this machine reach a relay that listens for them alone (contract 01 §9.1a). */
const LOOPBACK = '127.0.0.1';

/** Candidates without those of the local network, which does not reach a relay on loopback. */
const withoutLan = (candidates: Candidate[] | undefined): Candidate[] | undefined => {
  const others = candidates?.filter(({ role }) => String(role).toLowerCase() !== 'lan');
  return others?.length === 0 ? undefined : others;
};

/** The relay's socket URLs that candidates name. */
export const urlsOf = (candidates: Candidate[] = []): string[] =>
  candidates.map(({ relay }) => asObject(relay)?.url).filter((url) => typeof url === 'string');

/**
 * The addresses that public candidates name for the relay, and for the API server: a proxy that stands before the one may
 * stand before the other. `apiPort` is that of the API server itself, where no proxy listens.
 */
function publishedUrls(candidates: Candidate[] = [], apiPort?: number): string[] {
  const published = candidates.filter(({ role }) => String(role).toLowerCase() === 'public');
  const apis = published.flatMap(({ api }) => {
    const { host, port, tls } = asObject(api) ?? {};
    if (typeof host !== 'string' || typeof port !== 'number' || port === apiPort) return [];
    return joinUrl({ scheme: tls === true ? 'https' : 'http', host, port, rest: '' });
  });
  return [...urlsOf(published), ...apis];
}

/** Makes signed QR payloads, each with a new pairing code (contract 01 §5.3, §5.4). */
export function createMint({ config, host, codes, redemption, secret, routes, publicUrl, advertised, log }: MintParts) {
  /** The relay's own WebSocket URL. At the edge the listener's name is the public one, with its scheme's port. */
  async function relayUrl({ host: bound, port, tls }: Listener): Promise<string> {
    const scheme = tls ? 'wss' : 'ws';
    if (host) {
      const reached = isLoopbackName(bound) ? LOOPBACK : await lanForm(bound, host.network);
      return joinUrl({ scheme, host: reached, port, rest: '' });
    }
    const implied = port === defaultPort(scheme);
    return joinUrl({ scheme, host: unbracket(bound), port: implied ? undefined : port, rest: '' });
  }

  return {
    /** The URL of the relay itself, as a code names it beside its candidates. */
    url: relayUrl,

    /**
     * The addresses of this host for `endpoints` of a request body, best first; none at the edge, which has one address.
     * `published` replaces the URL that the operator has pinned.
     * @throws RelayError `invalid` when the API server's host is a wildcard.
     */
    async candidates({ host: bound, port, tls }: Listener, published?: string): Promise<BuiltCandidate[]> {
      if (!host) return [];
      const [api, pinned] = await Promise.all([resolveApiTarget({}, { config, host, log }), publicUrl?.() ?? null]);
      const url = published ?? pinned ?? undefined;
      const relay = { port, tls, isLocal: isLoopbackName(bound) };
      return hostCandidates({ mode: 'auto', api, relay, publicUrl: url, network: host.network });
    },

    /**
     * Makes a code and its payload for a request body; `at` is the address that the payload names. Everything
     * that may be refused comes before the code is made, so that a refusal leaves none behind.
     * @throws RelayError `invalid` naming the field; `rate-limited` when too many codes are pending.
     */
    async issue(body: Record<string, unknown>, at: Listener): Promise<MintAnswer> {
      const policy = readPolicy(body);
      const redeem = readRedeemer(body);
      const overrides = readApiOverrides(body);
      const dashboardUrl = readDashboardUrl(body);
      const isLocal = host !== undefined && isLoopbackName(at.host);
      const named = readCandidates(body.endpoints);
      const supplied = isLocal ? withoutLan(named) : named;

      const direct = { apiTls: speaksTls(overrides, config), relayTls: at.tls };
      const [api, own, given, key] = await Promise.all([
        resolveApiTarget(overrides, { config, host, log }),
        relayUrl(at),
        finalCandidates(supplied, direct, host?.network),
        secret.read(),
      ]);

      await advertised?.([own, ...urlsOf(given)], publishedUrls(given, api?.port));
      const minted = await redemption.mint(policy, key ? keyIdOf(key) : undefined, redeem);
      const { code, secret: codeSecret, expiresAt, url = own } = minted;
      // A code that is good at the edge alone names no address where it is not.
      const isHere = minted.url === undefined;
      const more = (isHere && (await routes?.(expiresAt))) || [];
      const endpoints = !isHere ? undefined : more.length > 0 ? orderCandidates([...(given ?? []), ...more]) : given;
      if (host && isHere) await codes.setRoutes(code, routesOf(endpoints ?? [], [url], host.network.addresses()));
      const parts = { api, relay: { url, code, secret: codeSecret, policy }, endpoints, dashboardUrl };
      const text = JSON.stringify(buildPayload(parts, key));
      const access = api ? `API key ${api.key === '' ? 'absent' : 'present'}` : 'API server disabled';
      log.info(`minted pairing code ${maskCode(code)}: ${describePolicy(policy)}, ${access}`);
      return {
        ok: true,
        code,
        qr_payload: text,
        pairing_url: pairingUrl(text),
        expires_at: expiresAt,
        ...(api && { host: api.host, port: api.port, tls: api.tls }),
        relay_url: url,
        ...(dashboardUrl !== undefined && { dashboard_url: dashboardUrl }),
        ...(endpoints && { endpoints }),
      };
    },
  };
}

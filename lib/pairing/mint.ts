import type { Config } from '../config.ts';
import { RelayError } from '../errors.ts';
import type { Host } from '../host/index.ts';
import { defaultPort, isLoopbackName, joinUrl, unbracket } from '../kit/addresses.ts';
import { asObject } from '../kit/json.ts';
import type { Log } from '../log.ts';
import { lanForm, readApiOverrides, resolveApiTarget, speaksTls } from './api-target.ts';
import type { BuiltCandidate } from './build-candidates.ts';
import { type Candidate, correctTailscale, orderCandidates, readCandidates } from './candidates.ts';
import { maskCode } from './code.ts';
import type { PairingCodes } from './codes.ts';
import { hostCandidates } from './host-candidates.ts';
import { routesOf } from './known-routes.ts';
import { buildPayload, pairingUrl } from './payload.ts';
import { describePolicy, readPolicy, readRedeemer } from './policy.ts';
import type { Redemption } from './redemption.ts';
import { keyIdOf, type QrSecret } from './secret.ts';

/** The address at which clients reach this relay directly. */
export interface Listener {
  /** The address it is bound to; at the edge, the name it is served under. */
  host: string;
  port: number;
  tls: boolean;
}

export interface MintDeps {
  config: Config;
  /** Absent at the edge. */
  host?: Host;
  codes: PairingCodes;
  redemption: Redemption;
  /** Signs the payloads. */
  secret: Pick<QrSecret, 'read'>;
  /**
   * Further candidates of this relay for a code that expires at `expiresAt` (epoch seconds); none by default. Must not
   * reject, since the code already exists (contract 08 §6.2).
   */
  routes?(expiresAt: number): Promise<Candidate[]>;
  /** The URL under which the operator publishes this relay; none by default. */
  publicUrl?(): Promise<string | null>;
  /** Called before a code is made, with the relay URLs in it, and those of them that the operator publishes. */
  advertised?(urls: string[], published: string[]): Promise<void>;
  log: Log;
}

function readDashboardUrl(body: Record<string, unknown>): string | undefined {
  const value = body.dashboard_url ?? body.dashboardUrl;
  if (value == null || value === '') return undefined;
  const url = typeof value === 'string' ? value.trim().replace(/\/+$/, '') : '';
  if (/^https?:\/\/[^\s/?#]\S*$/i.test(url) && URL.canParse(url)) return url;
  throw new RelayError('invalid', 'dashboard_url must be an absolute http:// or https:// URL');
}

/** The address at which local programs reach a relay that listens for them only (contract 01 §9.1a). */
const LOOPBACK = '127.0.0.1';

/** Candidates without those of the local network, which does not reach a relay on loopback. */
const withoutLan = (candidates: Candidate[] | undefined): Candidate[] | undefined => {
  const others = candidates?.filter(({ role }) => String(role).toLowerCase() !== 'lan');
  return others?.length === 0 ? undefined : others;
};

/** The relay's socket URLs in the candidates. */
export const urlsOf = (candidates: Candidate[] = []): string[] =>
  candidates.map(({ relay }) => asObject(relay)?.url).filter((url) => typeof url === 'string');

/**
 * The addresses of public candidates for the relay and for the API server, since a proxy in front of one may be in front of
 * the other too. `apiPort` is that of the API server itself, which has no proxy.
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
export function createMint({ config, host, codes, redemption, secret, routes, publicUrl, advertised, log }: MintDeps) {
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
    /** The URL of the relay itself, in a code besides its candidates. */
    url: relayUrl,

    /**
     * The addresses of this host for `endpoints` of a request body, best first; none at the edge, which has one address.
     * `published` replaces the URL that the operator has pinned.
     * @throws RelayError `invalid` if the API server's host is a wildcard.
     */
    async candidates({ host: bound, port, tls }: Listener, published?: string): Promise<BuiltCandidate[]> {
      if (!host) return [];
      const [api, pinned] = await Promise.all([resolveApiTarget({}, { config, host, log }), publicUrl?.() ?? null]);
      const url = published ?? pinned ?? undefined;
      const relay = { port, tls, isLocal: isLoopbackName(bound) };
      return hostCandidates({ mode: 'auto', api, relay, publicUrl: url, network: host.network });
    },

    /**
     * Makes a code and its payload for a request body; `at` is the address in the payload. All checks come before the code
     * is made, so that a refusal leaves no code behind. Returns the response of `POST /pairing/mint`.
     * @throws RelayError `invalid` naming the field; `rate-limited` if too many codes are pending.
     */
    async issue(body: Record<string, unknown>, at: Listener) {
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
        supplied && correctTailscale(supplied, direct, host?.network),
        secret.read(),
      ]);

      await advertised?.([own, ...urlsOf(given)], publishedUrls(given, api?.port));
      const minted = await redemption.mint(policy, key ? keyIdOf(key) : undefined, redeem);
      const { code, secret: codeSecret, expiresAt, url = own } = minted;
      // A code that is valid at the edge only must not contain addresses of home.
      const isHere = minted.url === undefined;
      const more = (isHere && (await routes?.(expiresAt))) || [];
      const endpoints = !isHere ? undefined : more.length > 0 ? orderCandidates([...(given ?? []), ...more]) : given;
      if (host && isHere) await codes.setRoutes(code, routesOf(endpoints ?? [], [url], host.network.addresses()));
      const fields = { api, relay: { url, code, secret: codeSecret, policy }, endpoints, dashboardUrl };
      const text = JSON.stringify(buildPayload(fields, key));
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

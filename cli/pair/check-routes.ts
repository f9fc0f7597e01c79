import type { X509Certificate } from 'node:crypto';
import type { Host } from '../../lib/host/index.ts';
import { servedLeaf } from '../../lib/host/node/identity.ts';
import { createPinnedConnector } from '../../lib/host/node/pinned.ts';
import { probe } from '../../lib/host/node/probe.ts';
import { createCallRelay } from '../../lib/host/node/relay-call.ts';
import { splitUrl, unbracket } from '../../lib/kit/addresses.ts';
import { asObject, parseJson } from '../../lib/kit/json.ts';
import { DAY } from '../../lib/kit/units.ts';
import type { BuiltCandidate } from '../../lib/pairing/build-candidates.ts';
import { failed, ok, type Step, skipped, warning } from './check-step.ts';

/** Milliseconds for each route. */
export const ROUTE_TIMEOUT = 5000;
/** Days before the end of a certificate from which a warning is given. */
const SOON = 14;

const IDS: Record<string, { id: string; title: string; next: string }> = {
  lan: {
    id: 'lan-address',
    title: 'the LAN address',
    next: 'Open the port in the firewall of this machine, or listen on every address with: svc relay start --host 0.0.0.0',
  },
  tailscale: {
    id: 'tailnet',
    title: 'the tailnet address',
    next: 'See that the relay listens there, or leave it out with: svc pair --mode lan',
  },
  public: {
    id: 'public-url',
    title: 'the public URL',
    next: 'See that the proxy there passes /health and /ws on to the relay; then type again: svc pair --check --public-url <url>',
  },
};

/** Tries each address that a code would offer, from the outermost inwards. */
export async function checkRoutes(candidates: readonly BuiltCandidate[], isLoopbackOnly: boolean): Promise<Step[]> {
  const roles = ['lan', 'tailscale', 'public'];
  const steps = await Promise.all(
    roles.map(async (role): Promise<Step> => {
      const { id, title, next } = IDS[role] as (typeof IDS)[string];
      const candidate = candidates.find((one) => one.role === role);
      if (!candidate) return skipped(id, `${title} is not offered: this machine has none`);
      const { url } = candidate.relay;
      if (role === 'lan' && isLoopbackOnly) {
        return failed(
          id,
          `the relay listens on this machine only, not on ${url}`,
          'Listen on every address with: svc relay start --host 0.0.0.0',
        );
      }
      const problem = await (role === 'public' ? healthThroughUrl(url) : health(url));
      return problem === null ? ok(id, `${url} answers`) : failed(id, `${url}: ${problem}`, next);
    }),
  );
  return steps;
}

const isHealthy = (body: unknown): boolean => asObject(body)?.status === 'ok';

/** Like a phone that pins the key: without a certificate authority. */
async function health(socketUrl: string): Promise<string | null> {
  const call = createCallRelay(createPinnedConnector());
  try {
    const { status, bytes } = await call({
      socketUrl,
      refuse: () => null,
      method: 'GET',
      path: '/health',
      headers: {},
      limit: 256 * 1024,
      signal: AbortSignal.timeout(ROUTE_TIMEOUT),
    });
    if (status !== 200) return `answered ${status}`;
    return isHealthy(parseJson(new TextDecoder().decode(bytes))) ? null : 'another server answers there';
  } catch (error) {
    return (error as Error).message;
  }
}

/** Like any client on the internet: requires a valid certificate. */
async function healthThroughUrl(socketUrl: string): Promise<string | null> {
  const base = socketUrl.replace(/^ws/, 'http').replace(/\/(?:ws)?$/, '');
  const { ok: isOk, status, error, json } = await probe('GET', `${base}/health`, ROUTE_TIMEOUT);
  if (!isOk) return error ?? `answered ${status}`;
  return isHealthy(json) ? null : 'another server answers there';
}

/** The validity dates of the certificate that a listener serves. Its issuer is not checked. */
export async function checkTls(host: string, port: number, isTls: boolean, now: number): Promise<Step> {
  const id = 'tls';
  if (!isTls) return skipped(id, 'the relay speaks plain http: a VPN or Secure Link keeps it private');
  const leaf = await servedLeaf(unbracket(host), port, ROUTE_TIMEOUT);
  if (!leaf)
    return failed(
      id,
      'the TLS handshake fails',
      'Check RELAY_SSL_CERT and RELAY_SSL_KEY, and start it with: svc relay start',
    );
  return judgeCertificate(id, leaf, now);
}

function judgeCertificate(id: string, cert: X509Certificate, now: number): Step {
  const [from, to] = [Date.parse(cert.validFrom), Date.parse(cert.validTo)];
  const until = new Date(to).toISOString().slice(0, 10);
  const renew = 'Renew the certificate that RELAY_SSL_CERT names, and start the relay anew with: svc relay start';
  if (now > to) return failed(id, `the certificate ended on ${until}`, renew);
  if (now < from)
    return failed(
      id,
      `the certificate is not valid before ${new Date(from).toISOString()}`,
      'Set the clock of this machine.',
    );
  const kind = cert.checkIssued(cert)
    ? 'self-signed: devices pin its key'
    : `issued by ${cert.issuer.split('\n').at(-1)}`;
  if (to - now < SOON * DAY) return warning(id, `the certificate ends on ${until}`, renew);
  return ok(id, `valid until ${until}, ${kind}`);
}

/** Checks that Secure Link serves the key in pairing codes (contract 08 §2.5). */
export async function checkSecureLink(healthBody: unknown, { identities }: Pick<Host, 'identities'>): Promise<Step> {
  const id = 'secure-link';
  const link = asObject(asObject(healthBody)?.secure_link);
  const proxy = asObject(asObject(asObject(healthBody)?.secure_proxy)?.proxy);
  const fix = 'See what it lacks with: svc relay secure-link status';
  if (link === null || link === undefined || link.status === 'disabled') return skipped(id, 'Secure Link is off');
  const origin = splitUrl(String(proxy?.url ?? ''));
  if (link.status !== 'available' || !origin?.port) return failed(id, `Secure Link is ${String(link.status)}`, fix);
  const served = await identities.servedPin(origin.host, origin.port, ROUTE_TIMEOUT);
  if (served === null) return failed(id, `${proxy?.url} does not answer`, fix);
  return served === proxy?.pin_sha256
    ? ok(id, `${proxy.url} serves the key that codes name`)
    : failed(id, `${proxy?.url} serves another key than codes name`, fix);
}

/**
 * Checks that the clock of this machine is plausible, because the expiry of certificates, codes and sessions depends on it.
 */
export async function checkClock({ children, env }: Pick<Host, 'children' | 'env'>, now: number): Promise<Step> {
  const id = 'clock';
  if (now < Date.UTC(2026, 0))
    return failed(
      id,
      `this machine believes it is ${new Date(now).toISOString()}`,
      'Set its clock, for example with: timedatectl set-ntp true',
    );
  const file = await children.find('timedatectl');
  const PATH = env.PATH ?? '';
  const args = ['show', '-p', 'NTPSynchronized', '--value'];
  const answer = file && (await children.run({ file, args, env: { PATH }, cwd: '/' }, 2000));
  const text = answer ? answer.stdout.trim() : '';
  if (text === 'no')
    return warning(id, 'the clock is not synchronised', 'Synchronise it, for example with: timedatectl set-ntp true');
  return ok(id, text === 'yes' ? 'synchronised' : `plausible: ${new Date(now).toISOString()}`);
}

/** Checks that the state of the relay can be written to disk. */
export function checkState(store: unknown, file: string | null): Step {
  const id = 'state-file';
  if (store === 'ok') return ok(id, file ?? 'kept');
  if (store === 'memory')
    return warning(
      id,
      'in memory only: a restart forgets every device',
      'Unset RELAY_STATE_FILE, and start it with: svc relay start',
    );
  return failed(
    id,
    `the relay cannot write its state${file === null ? '' : ` to ${file}`}`,
    'See the disk space and who owns the file with: svc relay doctor',
  );
}

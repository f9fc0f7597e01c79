import type { Config } from '../config.ts';
import type { Host } from '../host/index.ts';
import type { Upstream } from '../host/upstream.ts';
import { isLoopbackName, isWildcard, splitUrl, unbracket, urlHost } from '../kit/addresses.ts';
import type { Clock } from '../kit/clock.ts';
import type { Turns } from '../kit/semaphore.ts';
import { withTimeout } from '../kit/timeouts.ts';
import { type AdvertisedLink, advertisedHost } from './advertised.ts';
import { isApiHealthy, isDashboardGated, type Probe } from './gate.ts';
import { type FoundIdentity, findIdentity, identityProblem, REPLACE } from './identity.ts';
import { DEFAULT_PORT, namedFiles, parseHost, parsePort, readUpstream } from './settings.ts';
import { loopbackLiteral } from './upstreams.ts';

export type PreflightStatus = 'ok' | 'warning' | 'blocked';
type PreflightState = 'enabled' | 'ready_to_configure' | 'needs_attention';

export interface PreflightCheck {
  id: 'address' | 'listener' | 'api' | 'dashboard' | 'certificate';
  label: string;
  status: PreflightStatus;
  detail: string;
}

/** Body of `GET /secure-link/preflight` (contract 08 §5), without `connected_clients`. */
export type PreflightReport = Awaited<ReturnType<typeof preflight>>;

/** The caller's proposal, as text; undefined for unspecified values. */
export interface Proposal {
  host?: string;
  port?: string;
}

export interface PreflightDeps {
  config: Config;
  host: Pick<Host, 'agentHome' | 'files' | 'identities' | 'network'>;
  upstream: Upstream;
  clock: Clock;
  /** Routes that the relay serves now. */
  current: { link: AdvertisedLink; bindHost: string } | null;
  /** One trial listener at a time, since two would take each other for strangers. */
  inTrial: Turns;
}

/** Milliseconds for each check. All but that of the address run concurrently, within the 10 s of the contract. */
const CHECK_TIMEOUT = 8_000;
const RESOLVE_TIMEOUT = 2_000;

const LABELS: Record<PreflightCheck['id'], string> = {
  address: 'Address',
  listener: 'Listener',
  api: 'API server',
  dashboard: 'Dashboard',
  certificate: 'Certificate',
};

type Verdict = readonly [status: PreflightStatus, detail: string];

const ok = (detail: string): Verdict => ['ok', detail];
const warning = (detail: string): Verdict => ['warning', detail];
const blocked = (detail: string): Verdict => ['blocked', detail];

/**
 * Checks the requirements of Secure Link at a proposed origin. Changes nothing: reads files, requests the health of both
 * upstreams, and listens for a moment on free ports. The report contains neither keys nor pins nor paths.
 */
export async function preflight(proposal: Proposal, deps: PreflightDeps) {
  const { config, current, clock } = deps;
  const found = await findIdentity({ files: namedFiles(config) }, deps.host);
  const host = await proposedHost(proposal.host, found, deps);
  const configuredPort = parsePort(config.secureLinkPort);
  const port = proposal.port === undefined ? configuredPort : parsePort(proposal.port);
  const url = host === null || port === null ? null : `https://${urlHost(host)}:${port}`;

  const bounded = async (id: PreflightCheck['id'], work: Promise<Verdict>): Promise<PreflightCheck> => {
    const timedOut = (): Verdict => blocked('could not be checked in time');
    const failed = (): Verdict => blocked('could not be checked');
    const [status, detail] = await withTimeout({ clock, timeout: CHECK_TIMEOUT }, work.catch(failed), timedOut);
    return { id, label: LABELS[id], status, detail };
  };
  const [api, dashboard] = upstreamChecks(deps);
  const checks = await Promise.all([
    bounded('address', Promise.resolve(addressCheck(host, port))),
    ...(host === null || port === null ? [] : [bounded('listener', listenerCheck(host, port, deps))]),
    bounded('api', api),
    bounded('dashboard', dashboard),
    bounded('certificate', certificateCheck(found, host, deps)),
  ]);

  const isReady = checks.every(({ status }) => status !== 'blocked');
  const isActive = url !== null && current?.link.url === url;
  const settings = isReady && host !== null && port !== null ? { host, port: String(port) } : null;
  const state: PreflightState = !isReady ? 'needs_attention' : isActive ? 'enabled' : 'ready_to_configure';
  return {
    schema_version: 1,
    state,
    read_only: true,
    url,
    current_url: current?.link.url ?? null,
    host: host ?? '',
    port: port ?? configuredPort ?? DEFAULT_PORT,
    checks,
    ready_to_enable: isReady,
    pairing_ready: isActive && isReady,
    requires_repair: url !== null && current !== null && !isActive,
    activation_mode: 'instructions',
    restart_notice:
      'Secure Link changes when the relay restarts: every connection closes for a moment, and devices come back by themselves.',
    configuration_note:
      'Flags of svc relay start override the variables. Another host, port or certificate is another origin: pair every device again.',
    environment: settings
      ? {
          RELAY_SECURE_LINK_ENABLED: '1',
          RELAY_SECURE_LINK_HOST: settings.host,
          RELAY_SECURE_LINK_PORT: settings.port,
        }
      : {},
    start_arguments: settings
      ? ['--secure-link', '--secure-link-host', settings.host, '--secure-link-port', settings.port]
      : [],
    disable_environment: { RELAY_SECURE_LINK_ENABLED: '0' },
    pair_command: isActive && isReady ? 'svc pair --png' : null,
  };
}

/** The host to check; null if it is invalid. A wildcard leaves it open. */
async function proposedHost(given: string | undefined, found: FoundIdentity, deps: PreflightDeps) {
  const { config, current, host } = deps;
  if (given !== undefined && !isWildcard(given.trim())) return parseHost(given);
  const advertised = current && splitUrl(current.link.url)?.host;
  if (advertised) return advertised;
  if (!isWildcard(config.secureLinkHost)) return parseHost(config.secureLinkHost);
  const isFor = found.kind === 'found' ? found.facts.isFor : undefined;
  return advertisedHost(unbracket(config.secureLinkHost), isFor, host.network);
}

function addressCheck(host: string | null, port: number | null): Verdict {
  if (host === null) return blocked('The host must be an IP address or a DNS name of this machine.');
  if (port === null) return blocked('The port must be a whole number from 1 to 65535.');
  if (isLoopbackName(host)) return blocked('No phone can reach a loopback address.');
  return ok(`Devices will connect to ${urlHost(host)}:${port}.`);
}

async function listenerCheck(host: string, port: number, deps: PreflightDeps): Promise<Verdict> {
  const { current, inTrial } = deps;
  const { network } = deps.host;
  const own = splitUrl(current?.link.url ?? '');
  if (own?.host === host && own.port === port) return ok('This relay already serves that origin.');
  const resolved = await network.resolve(host, RESOLVE_TIMEOUT).catch((): string[] => []);
  if (resolved.length === 0) return blocked('The name has no address here.');
  const addresses = resolved.filter((address) => !isLoopbackName(address));
  if (addresses.length === 0) return blocked('The name leads to a loopback address only.');
  // If this relay's own listener holds the port, only the address has to belong to this machine.
  const isOwnPort =
    own?.port === port && current !== null && (isWildcard(current.bindHost) || addresses.includes(current.bindHost));
  const canListen = (address: string) => network.canListen(address, isOwnPort ? 0 : port);
  const results = await inTrial(() => Promise.all(addresses.map(canListen)));
  if (results.some(Boolean))
    return ok(isOwnPort ? 'This relay already has that port.' : 'This machine can listen there.');
  return blocked('This machine cannot listen there: the address is not its own, or the port is in use or reserved.');
}

/** Checks the API server and the dashboard. A server on another host is not probed. */
function upstreamChecks({ config, host, upstream, clock }: PreflightDeps): [Promise<Verdict>, Promise<Verdict>] {
  const ask = async (name: string, text: string, probe: Probe, verdict: (isFine: boolean) => Verdict) => {
    const url = readUpstream(text);
    if (!url) return blocked(`${name} must be an http:// URL of this machine.`);
    return verdict(await probe(await loopbackLiteral(url, host.network), { upstream, clock }));
  };
  return [
    ask('RELAY_WEBAPI_URL', config.webapiUrl, isApiHealthy, (isFine) =>
      isFine ? ok('The API server answers.') : warning('The API server does not answer. Secure Link works without it.'),
    ),
    ask('RELAY_SECURE_LINK_DASHBOARD_URL', config.secureLinkDashboardUrl, isDashboardGated, (isFine) =>
      isFine
        ? ok('The dashboard asks its users to sign in.')
        : blocked('The dashboard does not answer, or does not ask its users to sign in.'),
    ),
  ];
}

async function certificateCheck(found: FoundIdentity, host: string | null, deps: PreflightDeps): Promise<Verdict> {
  const { config, host: machine, clock } = deps;
  if ((config.secureLinkCert === undefined) !== (config.secureLinkKey === undefined)) {
    return blocked('RELAY_SECURE_LINK_CERT and RELAY_SECURE_LINK_KEY must be set together.');
  }
  if (found.kind === 'unusable') return blocked(`${sentence(found.reason)} ${sentence(REPLACE)}`);
  if (found.kind === 'none') {
    const writable = await Promise.all(
      [found.files.cert, found.files.key].map((path) => canCreate(path, machine.files)),
    );
    return writable.every(Boolean)
      ? ok('The relay will make one when it starts.')
      : blocked('The relay cannot create the files of a new one: it may not write there.');
  }
  // Without a valid host, only the rest is checked.
  const problem = identityProblem(found.facts, host, clock.now());
  if (problem) return blocked(`${sentence(problem)} ${sentence(REPLACE)}`);
  if (found.key.isLoose) return blocked('Other accounts can read the private key: change its mode to 0600.');
  return ok(`It is for this address and valid until ${new Date(found.facts.validTo).toISOString().slice(0, 10)}.`);
}

const sentence = (text: string): string => `${text.slice(0, 1).toUpperCase()}${text.slice(1)}.`;

/** True if a file can be created, judging by the nearest existing directory above it. */
async function canCreate(path: string, files: Host['files']): Promise<boolean> {
  for (let directory = parentOf(path); ; directory = parentOf(directory)) {
    const facts = await files.stat(directory);
    if (facts) return facts.kind === 'directory' && files.isWritable(directory);
    if (directory === '/') return false;
  }
}

const parentOf = (path: string): string => path.slice(0, path.lastIndexOf('/')) || '/';

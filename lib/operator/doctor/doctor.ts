import type { Config } from '../../config.ts';
import type { Host } from '../../host/index.ts';
import { type Probe, type ProbeMethod, type ProbeResult, unanswered } from '../../host/probe.ts';
import type { Clock } from '../../kit/clock.ts';
import { withTimeout } from '../../kit/timeouts.ts';
import { isMapping } from '../../kit/yaml.ts';
import { type FreezeState, readFreeze } from '../../operations/freeze-state.ts';
import { type CompatParts, type CompatStatus, compatEntry, compatStatus } from '../compat.ts';
import { type Heartbeat, type PriorExit, readHeartbeat, readPriorExit } from '../gateway.ts';
import type { ServiceParts } from '../service/service.ts';
import { type ApiFacts, apiChecks, gatewayChecks } from './agent.ts';
import { type Base, type Check, notKnown, ok, warn } from './check.ts';
import { type DashboardFacts, dashboardChecks, dashboardFacts, surfaceChecks } from './dashboard.ts';
import { devicesCheck, machineChecks } from './machine.ts';
import { mirrorChecks } from './mirror.ts';
import {
  type OperatorFacts,
  type OperatorSettings,
  operatorCheck,
  readOperator,
  toolsCheck,
  unknownOperator,
} from './operator.ts';
import { noPluginFacts, type PluginFacts, pluginChecks, readPlugin, unknownPlugin } from './plugin.ts';
import { pushCheck } from './push.ts';
import {
  clockChecks,
  goneAddressChecks,
  type ImportChain,
  importCheck,
  type Lifecycle,
  loopbackCheck,
  noLifecycle,
  type RelayModules,
  readLifecycle,
  remoteCheck,
  storesChecks,
  tryImports,
  unknownImports,
} from './relay.ts';
import { readSecureLink, type SecureLinkFacts, secureLinkChecks, unknownSecureLink } from './secure-link.ts';

export interface DoctorParts {
  version: string;
  host: Host;
  clock: Clock;
  probe: Probe;
  modules: RelayModules;
  compat: CompatParts;
  service: ServiceParts;
  api: Base;
  dashboard: Base;
  /** `url` of a relay elsewhere, instead of the one on this machine; `headers` by which it knows its operator. */
  relay: { port: number; tls: boolean; url?: string; headers?: Record<string, string> };
  operator: OperatorSettings;
  /** The relay's configuration, where it is valid. */
  config?: Config;
  /** Process of the relay on this machine; null without one that this user can see. */
  process(): Promise<number | null>;
  /** Milliseconds for every check; all run at once. */
  timeout: number;
}

/** The findings (contract 07 §5.2). `reportOf` makes the JSON of the command of them. */
export interface Diagnosis {
  plugin: PluginFacts;
  standard: { api_url: string; dashboard_url: string; api: ApiFacts; dashboard: DashboardFacts };
  relay: { port: number; info: ProbeResult; import_chain: ImportChain };
  gateway_heartbeat: Heartbeat;
  gateway_prior_exit: PriorExit;
  bootstrap: Bootstrap;
  lifecycle: Lifecycle;
  /** The freeze in effect; null when there is none, or the relay did not say (contract 09 §3). */
  frozen: FreezeState | null;
  checks: Check[];
}

interface Bootstrap {
  package_importable: boolean;
  package_path: string | null;
  hook_files: CompatStatus['hook_files'];
  installed: boolean;
  mode: 'legacy-compatibility';
  recommendation: string | null;
}

/**
 * Examines this installation, its agent and the relay. Read-only; sends no bodies, and no credential but `relay.headers`
 * to the relay they are for. Everything runs at once and takes at most `timeout`, however much hangs.
 */
export async function diagnose(parts: DoctorParts): Promise<Diagnosis> {
  const { host, clock, api, dashboard, relay, version } = parts;
  const { pluginDirectory } = parts.compat;
  const probe = (
    method: ProbeMethod,
    base: string,
    path: string,
    headers?: Record<string, string>,
  ): Promise<ProbeResult> => {
    const url = base + path;
    if (base === '') return Promise.resolve(unanswered(method, url, 'the configured address is not a URL'));
    return bounded(parts.probe(method, url, parts.timeout, headers), (reason) => unanswered(method, url, reason));
  };
  /** The outcome of `work`, or what `instead` returns for the reason of its failure. */
  const bounded = <T>(work: Promise<T>, instead: (reason: string) => T) =>
    withTimeout(
      { clock, timeout: parts.timeout },
      work.catch((error: unknown) => instead(error instanceof Error ? error.message : String(error))),
      () => instead(`nothing within ${parts.timeout / 1000} s`),
    );
  /** Slow is not broken: facts that came too late are reported as unknown, not as missing. */
  const late: { plugin?: string; imports?: string } = {};
  const latePlugin = (reason: string): PluginFacts => {
    late.plugin = reason;
    return noPluginFacts(host, version, pluginDirectory);
  };
  const lateImports = (error: string): ImportChain => {
    late.imports = error;
    return { ok: false, module: 'relay', error };
  };
  const relayBase = relay.url ?? `${relay.tls ? 'https' : 'http'}://127.0.0.1:${relay.port}`;

  /** A relay elsewhere is not asked how it treats callers on this machine. */
  const localBase = relay.url === undefined ? relayBase : '';

  const infoProbe = probe('GET', relayBase, '/relay/info', relay.headers);
  const lifecycleRead = bounded(readLifecycle(parts.service), () => noLifecycle(parts.service));
  const devices = probe('GET', relayBase, '/relay/devices', relay.headers).then(devicesCheck);
  const push = probe('GET', relayBase, '/push/status', relay.headers).then((answer) => pushCheck(answer, clock.now()));
  const mirrorProbe = probe('GET', relayBase, '/relay/mirror', relay.headers);
  const machine: [id: string, check: Promise<Check>][] =
    relay.url === undefined
      ? machineChecks({
          ...{ host, config: parts.config, now: clock.now(), relay, process: parts.process, timeout: parts.timeout },
          ...{ info: infoProbe, devices, push, lifecycle: lifecycleRead },
        })
      : [
          ['relay-devices', devices],
          ['relay-push', push],
        ];

  const [
    capabilities,
    toolsets,
    status,
    audio_transcribe,
    ws_ticket,
    dashboardCapabilities,
    sessions_prune,
    info,
    sessions,
    desktop,
    operator,
    secureLink,
    plugin,
    import_chain,
    gateway_heartbeat,
    gateway_prior_exit,
    bootstrap,
    lifecycle,
    machineSide,
  ] = await Promise.all([
    probe('GET', api.url, '/v1/capabilities'),
    probe('GET', api.url, '/v1/toolsets'),
    probe('GET', dashboard.url, '/api/status'),
    probe('HEAD', dashboard.url, '/api/audio/transcribe'),
    probe('POST', dashboard.url, '/api/auth/ws-ticket'),
    probe('GET', dashboard.url, '/v1/capabilities'),
    // Never POST: that deletes sessions.
    probe('HEAD', dashboard.url, '/api/sessions/prune'),
    infoProbe,
    probe('GET', localBase, '/sessions', relay.headers),
    probe('GET', localBase, '/desktop/health', relay.headers),
    bounded<OperatorFacts | string>(
      readOperator(host, relay.port, parts.operator, {
        urls: [
          ['the API server', api.url],
          ['the dashboard', dashboard.url],
        ],
        process: parts.process,
      }),
      (reason) => reason,
    ),
    parts.config &&
      bounded<SecureLinkFacts | string | undefined>(
        readSecureLink({
          config: parts.config,
          host,
          now: clock.now(),
          health: probe('GET', localBase, '/health', relay.headers),
          probe: (base, path) => probe('GET', base, path),
          timeout: parts.timeout,
        }),
        // Most relays have no Secure Link, and need no warning about it.
        (reason) => (parts.config?.secureLinkEnabled ? reason : undefined),
      ),
    bounded(readPlugin(host, version, pluginDirectory), latePlugin),
    bounded(tryImports(parts.modules), lateImports),
    bounded(readHeartbeat(host, clock), (): Heartbeat => ({ status: 'malformed', supported: true })),
    bounded(readPriorExit(host), (): PriorExit => ({ prior_exit: 'unknown' })),
    bounded(readBootstrap(parts.compat), () => noBootstrap(parts.compat)),
    lifecycleRead,
    Promise.all(machine.map(([id, check]) => bounded(check, (reason) => notKnown(id, reason)))),
  ]);

  const apiFacts = { capabilities, toolsets };
  const dashboardSide = dashboardFacts({
    status,
    audio_transcribe,
    ws_ticket,
    capabilities: dashboardCapabilities,
    sessions_prune,
  });
  return {
    plugin,
    standard: { api_url: api.url, dashboard_url: dashboard.url, api: apiFacts, dashboard: dashboardSide },
    relay: { port: relay.port, info, import_chain },
    gateway_heartbeat,
    gateway_prior_exit,
    bootstrap,
    lifecycle,
    frozen: info.ok && isMapping(info.json) ? readFreeze(info.json.freeze) : null,
    checks: [
      ...(late.plugin === undefined ? pluginChecks(plugin) : unknownPlugin(late.plugin)),
      ...apiChecks(apiFacts, api),
      ...dashboardChecks(dashboardSide, dashboard),
      ...gatewayChecks(gateway_heartbeat, gateway_prior_exit),
      ...surfaceChecks(dashboardSide, dashboard),
      late.imports === undefined ? importCheck(import_chain) : unknownImports(late.imports),
      ...(relay.url === undefined
        ? [
            loopbackCheck(info, version, relay.port),
            typeof operator === 'string' ? unknownOperator(operator) : operatorCheck(operator, info),
            toolsCheck(parts.operator, { info, sessions, desktop }),
            ...(secureLink === undefined ? [] : linkChecks(secureLink, dashboard.url)),
          ]
        : [remoteCheck(info, version)]),
      ...storesChecks(info),
      ...clockChecks(info),
      ...goneAddressChecks(info),
      ...machineSide,
      ...mirrorChecks(await mirrorProbe, clock.now()),
      bootstrapCheck(bootstrap),
    ],
  };
}

const linkChecks = (facts: SecureLinkFacts | string, dashboardUrl: string): Check[] =>
  typeof facts === 'string' ? unknownSecureLink(facts) : secureLinkChecks(facts, dashboardUrl);

/** True if the diagnosis is a failure: an error, or with `strict` a warning. */
export const hasProblems = (checks: Check[], strict: boolean): boolean =>
  checks.some(({ status }) => status === 'error' || (strict && status === 'warn'));

async function readBootstrap(parts: CompatParts): Promise<Bootstrap> {
  const status = await compatStatus(parts);
  return {
    package_importable: status.package.importable,
    package_path: status.package.path,
    hook_files: status.hook_files,
    installed: status.installed,
    mode: 'legacy-compatibility',
    recommendation: status.recommendation,
  };
}

const noBootstrap = (parts: CompatParts): Bootstrap => ({
  package_importable: false,
  package_path: compatEntry(parts),
  hook_files: [],
  installed: false,
  mode: 'legacy-compatibility',
  recommendation: null,
});

function bootstrapCheck({ installed, hook_files, recommendation }: Bootstrap): Check {
  const id = 'legacy-bootstrap';
  if (!installed) return ok(id, 'no compat hook is installed, and none is needed');
  const paths = hook_files.filter((file) => file.references_bootstrap).map(({ path }) => path);
  return warn(id, `a compat hook is installed: ${paths.join(', ')}`, recommendation ?? 'svc relay compat remove --all');
}

import type { Config } from '../../config.ts';
import type { Host } from '../../host/index.ts';
import { type Probe, type ProbeMethod, type ProbeResult, unanswered } from '../../host/probe.ts';
import type { Clock } from '../../kit/clock.ts';
import { withTimeout } from '../../kit/timeouts.ts';
import { isMapping } from '../../kit/yaml.ts';
import { type FreezeState, readFreeze } from '../../operations/freeze-state.ts';
import { type CompatDeps, type CompatStatus, compatEntry, compatStatus } from '../compat.ts';
import { type Heartbeat, type PriorExit, readHeartbeat, readPriorExit } from '../gateway.ts';
import type { ServiceDeps } from '../service/service.ts';
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

export interface DoctorDeps {
  version: string;
  host: Host;
  clock: Clock;
  probe: Probe;
  modules: RelayModules;
  compat: CompatDeps;
  service: ServiceDeps;
  api: Base;
  dashboard: Base;
  /** `url` of a remote relay, instead of the one on this machine; `headers` that authenticate the operator there. */
  relay: { port: number; tls: boolean; url?: string; headers?: Record<string, string> };
  operator: OperatorSettings;
  /** The relay's configuration, if it is valid. */
  config?: Config;
  /** Process of the relay on this machine; null if this user can see none. */
  process(): Promise<number | null>;
  /** Milliseconds for every check; all run at once. */
  timeout: number;
}

/** The findings (contract 07 §5.2). `reportOf` makes the command's JSON from them. */
export interface Diagnosis {
  plugin: PluginFacts;
  standard: { api_url: string; dashboard_url: string; api: ApiFacts; dashboard: DashboardFacts };
  relay: { port: number; info: ProbeResult; import_chain: ImportChain };
  gateway_heartbeat: Heartbeat;
  gateway_prior_exit: PriorExit;
  bootstrap: Bootstrap;
  lifecycle: Lifecycle;
  /** The freeze in effect; null if the relay is not frozen or did not report it (contract 09 §3). */
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
 * Examines this installation, its agent and the relay. Read-only; sends no bodies, and no credential but `relay.headers`, to
 * the relay only. All checks run at once and take at most `timeout`, even if some hang.
 */
export async function diagnose(deps: DoctorDeps): Promise<Diagnosis> {
  const { host, clock, api, dashboard, relay, version } = deps;
  const { pluginDirectory } = deps.compat;
  const probe = (
    method: ProbeMethod,
    base: string,
    path: string,
    headers?: Record<string, string>,
  ): Promise<ProbeResult> => {
    const url = base + path;
    if (base === '') return Promise.resolve(unanswered(method, url, 'the configured address is not a URL'));
    return bounded(deps.probe(method, url, deps.timeout, headers), (reason) => unanswered(method, url, reason));
  };
  /** The outcome of `work`, or what `instead` returns for the reason of its failure. */
  const bounded = <T>(work: Promise<T>, instead: (reason: string) => T) =>
    withTimeout(
      { clock, timeout: deps.timeout },
      work.catch((error: unknown) => instead(error instanceof Error ? error.message : String(error))),
      () => instead(`nothing within ${deps.timeout / 1000} s`),
    );
  const relayBase = relay.url ?? `${relay.tls ? 'https' : 'http'}://127.0.0.1:${relay.port}`;

  /** A remote relay is not asked about its rule for callers on this machine. */
  const localBase = relay.url === undefined ? relayBase : '';

  const infoProbe = probe('GET', relayBase, '/relay/info', relay.headers);
  const lifecycleRead = bounded(readLifecycle(deps.service), () => noLifecycle(deps.service));
  const devices = probe('GET', relayBase, '/relay/devices', relay.headers).then(devicesCheck);
  const push = probe('GET', relayBase, '/push/status', relay.headers).then((answer) => pushCheck(answer, clock.now()));
  const mirrorProbe = probe('GET', relayBase, '/relay/mirror', relay.headers);
  const machine: [id: string, check: Promise<Check>][] =
    relay.url === undefined
      ? machineChecks({
          ...{ host, config: deps.config, now: clock.now(), relay, process: deps.process, timeout: deps.timeout },
          ...{ info: infoProbe, devices, push, lifecycle: lifecycleRead },
        })
      : [
          ['relay-devices', devices],
          ['relay-push', push],
        ];

  const { capabilities, toolsets, machineSide, ...facts } = await allOf({
    capabilities: probe('GET', api.url, '/v1/capabilities'),
    toolsets: probe('GET', api.url, '/v1/toolsets'),
    dashboard: allOf({
      status: probe('GET', dashboard.url, '/api/status'),
      audio_transcribe: probe('HEAD', dashboard.url, '/api/audio/transcribe'),
      ws_ticket: probe('POST', dashboard.url, '/api/auth/ws-ticket'),
      capabilities: probe('GET', dashboard.url, '/v1/capabilities'),
      // Never POST, which deletes sessions.
      sessions_prune: probe('HEAD', dashboard.url, '/api/sessions/prune'),
    }),
    info: infoProbe,
    sessions: probe('GET', localBase, '/sessions', relay.headers),
    desktop: probe('GET', localBase, '/desktop/health', relay.headers),
    operator: bounded<OperatorFacts | string>(
      readOperator(host, relay.port, deps.operator, {
        urls: [
          ['the API server', api.url],
          ['the dashboard', dashboard.url],
        ],
        process: deps.process,
      }),
      (reason) => reason,
    ),
    secureLink:
      deps.config &&
      bounded<SecureLinkFacts | string | undefined>(
        readSecureLink({
          config: deps.config,
          host,
          now: clock.now(),
          health: probe('GET', localBase, '/health', relay.headers),
          probe: (base, path) => probe('GET', base, path),
          timeout: deps.timeout,
        }),
        // Most relays have no Secure Link, and need no warning about it.
        (reason) => (deps.config?.secureLinkEnabled ? reason : undefined),
      ),
    // Slow is not broken, so facts that came too late are reported as unknown, not as missing.
    plugin: bounded<PluginFacts | string>(readPlugin(host, version, pluginDirectory), (reason) => reason),
    importChain: bounded<ImportChain | string>(tryImports(deps.modules), (reason) => reason),
    heartbeat: bounded(readHeartbeat(host, clock), (): Heartbeat => ({ status: 'malformed', supported: true })),
    priorExit: bounded(readPriorExit(host), (): PriorExit => ({ prior_exit: 'unknown' })),
    bootstrap: bounded(readBootstrap(deps.compat), () => noBootstrap(deps.compat)),
    lifecycle: lifecycleRead,
    machineSide: Promise.all(machine.map(([id, check]) => bounded(check, (reason) => notKnown(id, reason)))),
  });
  const { info, operator, secureLink, plugin, importChain, heartbeat, priorExit, bootstrap } = facts;

  const apiFacts = { capabilities, toolsets };
  const dashboardSide = dashboardFacts(facts.dashboard);
  return {
    plugin: typeof plugin === 'string' ? noPluginFacts(host, version, pluginDirectory) : plugin,
    standard: { api_url: api.url, dashboard_url: dashboard.url, api: apiFacts, dashboard: dashboardSide },
    relay: {
      ...{ port: relay.port, info },
      import_chain: typeof importChain === 'string' ? { ok: false, module: 'relay', error: importChain } : importChain,
    },
    gateway_heartbeat: heartbeat,
    gateway_prior_exit: priorExit,
    bootstrap,
    lifecycle: facts.lifecycle,
    frozen: info.ok && isMapping(info.json) ? readFreeze(info.json.freeze) : null,
    checks: [
      ...(typeof plugin === 'string' ? unknownPlugin(plugin) : pluginChecks(plugin)),
      ...apiChecks(apiFacts, api),
      ...dashboardChecks(dashboardSide, dashboard),
      ...gatewayChecks(heartbeat, priorExit),
      ...surfaceChecks(dashboardSide, dashboard),
      typeof importChain === 'string' ? unknownImports(importChain) : importCheck(importChain),
      ...(relay.url === undefined
        ? [
            loopbackCheck(info, version, relay.port),
            typeof operator === 'string' ? unknownOperator(operator) : operatorCheck(operator, info),
            toolsCheck(deps.operator, facts),
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

/** Waits for every member of an object. */
async function allOf<T extends object>(members: T): Promise<{ [Name in keyof T]: Awaited<T[Name]> }> {
  const waited = Object.entries(members).map(async ([name, member]) => [name, await member]);
  return Object.fromEntries(await Promise.all(waited));
}

const linkChecks = (facts: SecureLinkFacts | string, dashboardUrl: string): Check[] =>
  typeof facts === 'string' ? unknownSecureLink(facts) : secureLinkChecks(facts, dashboardUrl);

/** True if the diagnosis is a failure: an error, or with `strict` a warning. */
export const hasProblems = (checks: Check[], strict: boolean): boolean =>
  checks.some(({ status }) => status === 'error' || (strict && status === 'warn'));

async function readBootstrap(deps: CompatDeps): Promise<Bootstrap> {
  const status = await compatStatus(deps);
  return {
    package_importable: status.package.importable,
    package_path: status.package.path,
    hook_files: status.hook_files,
    installed: status.installed,
    mode: 'legacy-compatibility',
    recommendation: status.recommendation,
  };
}

const noBootstrap = (deps: CompatDeps): Bootstrap => ({
  package_importable: false,
  package_path: compatEntry(deps),
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

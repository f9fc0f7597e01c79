import type { ProbeResult } from '../../host/probe.ts';
import { isMapping } from '../../kit/yaml.ts';
import { clockAdvice, clockText, readClockProblem } from '../clock-problem.ts';
import { GONE_ADVICE, goneText, readGoneAddresses } from '../gone-addresses.ts';
import { type ServiceDeps, serviceStatus, unitPath } from '../service/service.ts';
import type { SystemdState } from '../service/systemd.ts';
import { type Check, fail, MORE_TIME, ok, outcome, unknown, warn } from './check.ts';

/** Modules of a relay, in loading order. */
export interface RelayModules {
  /** The relay's entry, without which no relay runs. */
  relay(): Promise<unknown>;
  /** The native module behind terminal sessions, without which a relay has none. */
  terminal(): Promise<unknown>;
}

export interface ImportChain {
  ok: boolean;
  /** The first module that does not load, else the last one. */
  module: keyof RelayModules;
  error: string | null;
}

const MAX_ERROR = 300;

/** Loads both modules and reports the first failure. */
export async function tryImports(modules: RelayModules): Promise<ImportChain> {
  for (const module of ['relay', 'terminal'] as const) {
    try {
      await modules[module]();
    } catch (error) {
      const text = error instanceof Error ? error.message : String(error);
      return { ok: false, module, error: (text.split('\n')[0] as string).slice(0, MAX_ERROR) };
    }
  }
  return { ok: true, module: 'terminal', error: null };
}

const IMPORTS = 'relay-import-chain';

export function importCheck({ ok: loads, module, error }: ImportChain): Check {
  const id = IMPORTS;
  const again = 'Run npm install again, with the Node version that runs the relay.';
  if (loads) return ok(id, 'the relay and its terminal module load');
  if (module === 'terminal') {
    return warn(
      id,
      `the terminal module does not load: ${error}`,
      `${again} Without it there are no terminal sessions.`,
    );
  }
  return fail(id, `the relay does not load: ${error}`, again);
}

/** Verdict when the modules did not load in time. */
export const unknownImports = (reason: string): Check =>
  warn(IMPORTS, `whether the relay loads is not known: ${reason}`, MORE_TIME);

/** Checks that a relay answers on this machine, and its version. */
export function loopbackCheck(info: ProbeResult, version: string, port: number): Check {
  const id = 'relay-loopback';
  if (info.ok) {
    const running = isMapping(info.json) && typeof info.json.version === 'string' ? info.json.version : null;
    if (running === null) return unknown(id, `port ${port} answers /relay/info, but does not say that it is svc-relay`);
    const other = running === version ? '' : `; ${version} is installed: restart it to run that`;
    return ok(id, `svc-relay ${running} answers on port ${port}${other}`);
  }
  const summary = `${info.url}: ${outcome(info)}`;
  if (info.status === 401 || info.status === 403) return warn(id, summary, 'See relay-operator.');
  if (info.status !== null) {
    return warn(
      id,
      summary,
      `Something else may listen on port ${port}: stop it, or set the relay's port with --relay-port.`,
    );
  }
  if (info.error === 'connection refused') {
    return warn(id, summary, 'Start it with: svc relay start (or keep it running: svc relay service install)');
  }
  return warn(id, summary, 'Restart the relay. If it runs without TLS, run this without RELAY_SSL_CERT.');
}

/** The stores that the relay cannot write, from its `/relay/info` (contract 01 §6.7). Empty while there are none. */
export function storesChecks({ ok: answers, json }: ProbeResult): Check[] {
  const failing = answers && isMapping(json) && Array.isArray(json.failing_stores) ? json.failing_stores : [];
  const names = failing
    .filter(isMapping)
    .flatMap(({ store, error }) =>
      typeof store === 'string' && typeof error === 'string' ? `${store} (${error})` : [],
    );
  if (names.length === 0) return [];
  const advice =
    'Free or replace the disk that holds its state: a crash undoes what is not stored. It tries again by itself.';
  return [fail('relay-stores', `the relay cannot store ${names.join(', ')}`, advice)];
}

/** The clock of the relay's machine, from `/relay/info` (contract 11 §5). Empty while it has no problem. */
export function clockChecks({ ok: answers, json }: ProbeResult): Check[] {
  const problem = readClockProblem(answers ? json : undefined);
  return problem ? [warn('relay-clock', clockText(problem), clockAdvice(problem))] : [];
}

/**
 * The devices that know only addresses which this machine no longer has, from `/relay/info` (contract 11 §2). Empty while
 * there are none.
 */
export function goneAddressChecks({ ok: answers, json }: ProbeResult): Check[] {
  const gone = readGoneAddresses(answers ? json : undefined);
  if (gone.length === 0) return [];
  return [warn('relay-gone-address', gone.map(goneText).join('; '), GONE_ADVICE)];
}

/** Checks that the relay at the edge answers its operator, and its version (contract 01 §12). */
export function remoteCheck(info: ProbeResult, version: string): Check {
  const id = 'relay-edge';
  const running = isMapping(info.json) && typeof info.json.version === 'string' ? info.json.version : null;
  if (info.ok && running !== null) {
    const other = running === version ? '' : `; ${version} is installed: deploy it to run that`;
    return ok(id, `svc-relay ${running} answers this machine as its operator${other}`);
  }
  const summary = `${info.url}: ${outcome(info)}`;
  if (info.status === 401 || info.status === 403) {
    return fail(
      id,
      summary,
      'Set RELAY_OPERATOR_PUBLIC_KEY of the deployment to the output of: svc relay operator-token --public-key. ' +
        'RELAY_PUBLIC_URL must be the URL of the relay.',
    );
  }
  if (info.status === 421) {
    return fail(id, summary, 'Set RELAY_PUBLIC_URL of the deployment to this URL, or add its host to RELAY_HOSTS.');
  }
  return fail(id, summary, "Check the URL, and that 'wrangler deploy' has published the relay on that host.");
}

/** The service that keeps the relay running: facts without a verdict (contract 07 §5.2 leaves the members open). */
export interface Lifecycle {
  service: {
    systemd: SystemdState | 'unknown';
    unit_path: string;
    installed: boolean;
    current: boolean;
    enabled: boolean | null;
    active: string | null;
    linger: boolean | null;
  };
}

export async function readLifecycle(deps: ServiceDeps): Promise<Lifecycle> {
  const { systemd, unit_path, installed, current, enabled, active, linger } = await serviceStatus(deps);
  return { service: { systemd, unit_path, installed, current, enabled, active, linger } };
}

export const noLifecycle = (deps: ServiceDeps): Lifecycle => ({
  service: {
    systemd: 'unknown',
    unit_path: unitPath(deps),
    installed: false,
    current: false,
    enabled: null,
    active: null,
    linger: null,
  },
});

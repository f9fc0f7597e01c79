import type { ProbeResult } from '../../host/probe.ts';
import { isMapping } from '../../kit/yaml.ts';
import { adviceFor, type Base, type Check, notKnown, ok, outcome, unknown, warn } from './check.ts';

/** Probes of the dashboard's address. */
export interface DashboardProbes {
  status: ProbeResult;
  audio_transcribe: ProbeResult;
  ws_ticket: ProbeResult;
  capabilities: ProbeResult;
  sessions_prune: ProbeResult;
}

export interface DashboardFacts extends DashboardProbes {
  component_health: ComponentHealth;
  manage_surface: ManageSurface;
}

export const dashboardFacts = (probes: DashboardProbes): DashboardFacts => ({
  ...{ status: probes.status, component_health: componentHealth(probes.status.json) },
  ...probes,
  manage_surface: manageSurface(probes),
});

/** Checks of the dashboard's own report (contract 07 §5.2). */
export function dashboardChecks({ status, component_health }: DashboardFacts, base: Base): Check[] {
  return [statusCheck(status, base), healthCheck(component_health, status), ...sessionChecks(status.json)];
}

/** Checks of the routes that clients use. */
export function surfaceChecks(facts: DashboardFacts, base: Base): Check[] {
  const { manage_surface: surface } = facts;
  const route = (id: string, feature: string, result: ProbeResult): Check => {
    if (result.exists) return ok(id, `the dashboard has ${feature}`);
    const next =
      result.status === null ? startAdvice(result, base) : `Update the agent: its dashboard has no ${feature}.`;
    return warn(id, `${feature}: ${outcome(result)}`, next);
  };
  return [
    surface.kind === 'dashboard'
      ? ok('dashboard-manage-surface', surface.summary)
      : warn(
          'dashboard-manage-surface',
          surface.summary,
          surface.kind === 'unreachable' ? startAdvice(facts.status, base) : (surface.recommendation ?? ''),
        ),
    route('dashboard-session-prune', 'session pruning', facts.sessions_prune),
    route('dashboard-audio', 'audio transcription', facts.audio_transcribe),
    route('dashboard-ws-ticket', 'WebSocket tickets', facts.ws_ticket),
  ];
}

const startAdvice = (result: ProbeResult, base: Base) =>
  adviceFor("the agent's dashboard", result, base, '--dashboard-url', 'SVC_DASHBOARD_URL');

function statusCheck(status: ProbeResult, base: Base): Check {
  if (status.ok) return ok('dashboard-status', `${base.url} answers /api/status`);
  return warn('dashboard-status', `${status.url}: ${outcome(status)}`, statusAdvice(status, base));
}

function statusAdvice(result: ProbeResult, base: Base): string {
  if (result.status === null) return startAdvice(result, base);
  if (result.status === 401 || result.status === 403) {
    return 'This route requires a sign-in, which this command does not send. The app signs in by itself.';
  }
  return "Check the dashboard's own log, then run this again.";
}

function healthCheck({ supported, components }: ComponentHealth, { ok: isKnown }: ProbeResult): Check {
  const id = 'dashboard-component-health';
  if (!isKnown) return notKnown(id, 'the dashboard does not say');
  if (!supported) return unknown(id, 'the dashboard does not report components');
  const ill = components.filter(({ healthy }) => !healthy).map(({ name, status }) => `${name} is ${status}`);
  if (ill.length === 0)
    return ok(
      id,
      components.length === 1 ? 'the only component is healthy' : `all ${components.length} components are healthy`,
    );
  return warn(id, ill.join(', '), "Restart these components, or check the dashboard's own log.");
}

/** Checks that apply only if the status has their members. */
function sessionChecks(json: unknown): Check[] {
  if (!isMapping(json)) return [];
  const checks: Check[] = [];
  if (json.nous_session_valid === 'terminal') {
    checks.push(warn('dashboard-nous-session', "the agent's sign-in has expired", 'Sign in again on the dashboard.'));
  }
  if (json.gateway_mode !== undefined || json.profiles !== undefined) {
    const mode = typeof json.gateway_mode === 'string' ? json.gateway_mode : 'not reported';
    const count = Array.isArray(json.profiles) ? json.profiles.length : undefined;
    const profiles = count === undefined ? '' : `, ${count} ${count === 1 ? 'profile' : 'profiles'}`;
    checks.push(ok('dashboard-topology', `gateway mode: ${mode}${profiles}`));
  }
  return checks;
}

const HEALTHY = new Set(['ok', 'healthy', 'ready']);
const MAX_COMPONENTS = 100;

export interface Component {
  name: string;
  status: string;
  healthy: boolean;
}

export interface ComponentHealth {
  /** True if the dashboard reports components at all. */
  supported: boolean;
  overall: 'ok' | 'degraded' | 'unknown';
  components: Component[];
}

/**
 * The `components` of a dashboard's status: a mapping by name, or a list of objects with a `name` or `id`. A state is a
 * string, or the `status`, `state` or `health` of an object (contract 07 §5.2). At most 100.
 */
export function componentHealth(status: unknown): ComponentHealth {
  const given = isMapping(status) ? status.components : undefined;
  if (!isMapping(given) && !Array.isArray(given)) return { supported: false, overall: 'unknown', components: [] };
  const pairs: [name: string, value: unknown][] = Array.isArray(given)
    ? given.map((value, index) => [nameOf(value) ?? String(index), value])
    : Object.entries(given);
  const components = pairs.slice(0, MAX_COMPONENTS).map(([name, value]) => component(name, value));
  return { supported: true, overall: components.every(({ healthy }) => healthy) ? 'ok' : 'degraded', components };
}

function nameOf(value: unknown): string | undefined {
  const name = isMapping(value) ? (value.name ?? value.id) : undefined;
  return typeof name === 'string' || typeof name === 'number' ? `${name}` : undefined;
}

function component(name: string, value: unknown): Component {
  const state = isMapping(value) ? (value.status ?? value.state ?? value.health) : value;
  const status = typeof state === 'string' && state.trim() !== '' ? state.trim().slice(0, 100) : 'unknown';
  return { name: name.slice(0, 100), status, healthy: HEALTHY.has(status.toLowerCase()) };
}

export interface ManageSurface {
  kind: 'dashboard' | 'api-server' | 'unreachable' | 'unknown';
  summary: string;
  recommendation: string | null;
}

/** The kind of server at the dashboard's address (contract 07 §5.2). */
function manageSurface(probes: { status: ProbeResult; capabilities: ProbeResult }): ManageSurface {
  const { status, capabilities } = probes;
  if (status.ok) {
    return { kind: 'dashboard', summary: "the dashboard answers at the dashboard's address", recommendation: null };
  }
  if (capabilities.ok) {
    return {
      kind: 'api-server',
      summary: "an API server answers at the dashboard's address",
      recommendation: 'Set the address of the dashboard with --dashboard-url or SVC_DASHBOARD_URL (its port is 9119).',
    };
  }
  if (status.status === null && capabilities.status === null) {
    return {
      kind: 'unreachable',
      summary: "nothing answers at the dashboard's address",
      recommendation: "Start the agent's dashboard, or say where it is with --dashboard-url or SVC_DASHBOARD_URL.",
    };
  }
  return {
    kind: 'unknown',
    summary: "neither a dashboard nor an API server answers at the dashboard's address",
    recommendation: 'Find out which program listens there, and set the address of the dashboard with --dashboard-url.',
  };
}

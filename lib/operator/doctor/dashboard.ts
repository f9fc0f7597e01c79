import type { ProbeResult } from '../../host/probe.ts';
import { isMapping } from '../../kit/yaml.ts';
import { elsewhere } from './api.ts';
import type { Base } from './bases.ts';
import { type Check, ok, outcome, warn } from './check.ts';
import { type ComponentHealth, componentHealth } from './component-health.ts';
import { type ManageSurface, manageSurface } from './manage-surface.ts';

/** What the dashboard's address was asked. */
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
  status: probes.status,
  component_health: componentHealth(probes.status.json),
  audio_transcribe: probes.audio_transcribe,
  ws_ticket: probes.ws_ticket,
  capabilities: probes.capabilities,
  sessions_prune: probes.sessions_prune,
  manage_surface: manageSurface(probes),
});

/** What the dashboard says of itself (contract 07 §5.2). */
export function dashboardChecks({ status, component_health }: DashboardFacts, base: Base): Check[] {
  return [statusCheck(status, base), healthCheck(component_health, status), ...sessionChecks(status.json)];
}

/** What clients use of the dashboard besides. */
export function surfaceChecks(facts: DashboardFacts, base: Base): Check[] {
  const { manage_surface: surface } = facts;
  const route = (id: string, what: string, result: ProbeResult): Check => {
    if (result.exists) return ok(id, `${what} is there`);
    const next = result.status === null ? startIt(result, base) : `Update the agent: its dashboard has no ${what}.`;
    return warn(id, `${what}: ${outcome(result)}`, next);
  };
  return [
    surface.kind === 'dashboard'
      ? ok('dashboard-manage-surface', surface.summary)
      : warn(
          'dashboard-manage-surface',
          surface.summary,
          surface.kind === 'unreachable' ? startIt(facts.status, base) : (surface.recommendation ?? ''),
        ),
    route('dashboard-session-prune', 'session pruning', facts.sessions_prune),
    route('dashboard-audio', 'audio transcription', facts.audio_transcribe),
    route('dashboard-ws-ticket', 'WebSocket tickets', facts.ws_ticket),
  ];
}

const startIt = (result: ProbeResult, base: Base) =>
  elsewhere("the agent's dashboard", result, base, '--dashboard-url', 'SVC_DASHBOARD_URL');

function statusCheck(status: ProbeResult, base: Base): Check {
  if (status.ok) return ok('dashboard-status', `${base.url} answers /api/status`);
  return warn('dashboard-status', `${status.url}: ${outcome(status)}`, statusWayOut(status, base));
}

function statusWayOut(result: ProbeResult, base: Base): string {
  if (result.status === null) return startIt(result, base);
  if (result.status === 401 || result.status === 403) {
    return 'The dashboard wants a sign-in for this route, and none is sent here. The app has its own.';
  }
  return "Look into the dashboard's own log, then run this again.";
}

function healthCheck({ supported, components }: ComponentHealth, { ok: isKnown }: ProbeResult): Check {
  const id = 'dashboard-component-health';
  if (!supported) {
    return ok(id, isKnown ? 'the dashboard does not report components' : 'not known without the status above');
  }
  const ill = components.filter(({ healthy }) => !healthy).map(({ name, status }) => `${name} is ${status}`);
  if (ill.length === 0) return ok(id, `all ${components.length} components are healthy`);
  return warn(id, ill.join(', '), "Restart what is named, or look into the dashboard's own log.");
}

/** Checks that exist only when the status has something to say about them. */
function sessionChecks(json: unknown): Check[] {
  if (!isMapping(json)) return [];
  const checks: Check[] = [];
  if (json.nous_session_valid === 'terminal') {
    checks.push(
      warn('dashboard-nous-session', "the agent's sign-in has ended for good", 'Sign in again on the dashboard.'),
    );
  }
  if (json.gateway_mode !== undefined || json.profiles !== undefined) {
    const mode = typeof json.gateway_mode === 'string' ? json.gateway_mode : 'not said';
    const profiles = Array.isArray(json.profiles) ? `, ${json.profiles.length} profiles` : '';
    checks.push(ok('dashboard-topology', `gateway mode: ${mode}${profiles}`));
  }
  return checks;
}

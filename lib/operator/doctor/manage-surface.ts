import type { ProbeResult } from '../../host/probe.ts';

export interface ManageSurface {
  kind: 'dashboard' | 'api-server' | 'unreachable' | 'unknown';
  summary: string;
  recommendation: string | null;
}

/** What it is that answers at the dashboard's address (contract 07 §5.2). */
export function manageSurface(probes: { status: ProbeResult; capabilities: ProbeResult }): ManageSurface {
  const { status, capabilities } = probes;
  if (status.ok) {
    return { kind: 'dashboard', summary: "the dashboard answers at the dashboard's address", recommendation: null };
  }
  if (capabilities.ok) {
    return {
      kind: 'api-server',
      summary: "an API server answers at the dashboard's address",
      recommendation: 'Give the address of the dashboard with --dashboard-url or SVC_DASHBOARD_URL (its port is 9119).',
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
    summary: "what answers at the dashboard's address is neither a dashboard nor an API server",
    recommendation: 'See what listens there, and give the address of the dashboard with --dashboard-url.',
  };
}

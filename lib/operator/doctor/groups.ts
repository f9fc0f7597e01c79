import { type Check, warn } from './check.ts';
import type { Diagnosis } from './doctor.ts';

export interface CheckGroup {
  title: 'Relay' | 'Agent' | 'Dashboard';
  checks: Check[];
}

const isOfApi = ({ id }: Check): boolean => id.startsWith('api-');
/** `dashboard-plugin` is about the files of this installation. */
const isOfDashboard = ({ id }: Check): boolean => id.startsWith('dashboard-') && id !== 'dashboard-plugin';
const isOfAgent = (check: Check): boolean =>
  isOfApi(check) || check.id.startsWith('gateway-') || check.id === 'legacy-bootstrap';

/**
 * The checks as people read them: by part, and one line for a part that does not answer at all instead of one for each of
 * its routes. Scripts get every check, in the order of the contract (07 §5.2).
 */
export function groupChecks({ checks, standard }: Diagnosis): CheckGroup[] {
  const { api, dashboard, api_url: apiUrl, dashboard_url: dashboardUrl } = standard;
  const apiSilent = api.capabilities.status === null && api.toolsets.status === null;
  const dashboardSilent = dashboard.manage_surface.kind === 'unreachable';
  const relay = checks.filter((check) => !isOfAgent(check) && !isOfDashboard(check));
  const agent = checks.filter((check) => isOfAgent(check) && !(apiSilent && isOfApi(check)));
  const pages = dashboardSilent ? [] : checks.filter(isOfDashboard);

  if (apiSilent && dashboardSilent && apiUrl !== '' && dashboardUrl !== '') {
    agent.unshift(
      warn(
        'agent',
        `it does not run: neither its API server (${apiUrl}) nor its dashboard (${dashboardUrl}) answers`,
        'Start the agent, or say where it is with --api-url and --dashboard-url (SVC_API_URL, SVC_DASHBOARD_URL).',
      ),
    );
  } else {
    if (apiSilent) agent.unshift(...oneOf(checks, 'api-capabilities'));
    if (dashboardSilent) pages.push(...oneOf(checks, 'dashboard-status'));
  }
  const groups: CheckGroup[] = [
    { title: 'Relay', checks: relay },
    { title: 'Agent', checks: agent },
    { title: 'Dashboard', checks: pages },
  ];
  return groups.filter((group) => group.checks.length > 0);
}

const oneOf = (checks: readonly Check[], id: string): Check[] => checks.filter((check) => check.id === id);

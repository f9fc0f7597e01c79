import { toNodeHandler } from 'h3/node';
import { readConfig, variables } from '../../lib/config.ts';
import { createPageStore } from '../../lib/dashboard/pages/store.ts';
import { createPublicUrl } from '../../lib/dashboard/public-url.ts';
import { createNodeHost } from '../../lib/host/node/index.ts';
import { systemClock } from '../../lib/kit/clock.ts';
import type { Log } from '../../lib/log.ts';
import { createUpdateCheck } from '../../lib/operator/update-check.ts';
import { createUsage, type LiveCredential, type Usage } from '../../lib/usage/usage.ts';
import { loadEnvironment, readVariable } from '../environment.ts';
import { ownPackage } from '../own-package.ts';
import { updateCommandOf } from '../update-command.ts';
import { managementRoutes } from './management.ts';
import { mobileRoutes } from './mobile.ts';
import { createOperatorCalls } from './operator-calls.ts';
import { createPluginRoutes } from './plugin-routes.ts';
import type { RelayLink } from './relay-link.ts';

export interface OwnRoutesDeps {
  link: Pick<RelayLink, 'host' | 'port' | 'request' | 'unreachable'>;
  /** Where the relay listens on this host. */
  relay: { port: number; tls: boolean };
  /** The environment of the process, before `<agent_home>/.env`. */
  env: Record<string, string | undefined>;
  mountPath: string;
  /** The credential that a live session uses, where the dashboard can tell (contract 07 §4.2). */
  activeCredential?(sessionId: string): Promise<LiveCredential | null>;
  log: Log;
}

/** The routes that the plugin answers itself: management, provider usage and the mobile page store (contract 07 §4). */
export function createOwnRoutes({ link, relay, env, mountPath, activeCredential, log }: OwnRoutesDeps) {
  const environment = () => loadEnvironment(env);
  const now = environment();
  const { agentHome } = now.directories;
  const host = createNodeHost({ agentHome, env: now.env, log });
  let usage: Promise<Usage> | undefined;

  async function openUsage(): Promise<Usage> {
    // Reads certificates and starts clients, which most dashboards never need.
    const [{ readTrust }, { createNodeUpstream }] = await Promise.all([
      import('../../lib/host/node/trust.ts'),
      import('../../lib/host/node/upstream.ts'),
    ]);
    const { env: variables, directories } = environment();
    const { config } = readConfig(variables, directories);
    const trust = await readTrust(config, log.warn);
    return createUsage({ host, config, clock: systemClock, log, upstream: createNodeUpstream({ trust }) });
  }

  const management = managementRoutes({
    call: createOperatorCalls({ link, agentHome }),
    host,
    relay,
    environment,
    publicUrl: createPublicUrl({ files: host.files, agentHome, clock: systemClock }),
    updates: createUpdateCheck({
      updateCommand: (latest) => updateCommandOf(ownPackage(), latest),
      config: { updateFeedUrl: readVariable(variables.updateFeedUrl, now) },
      version: ownPackage().version,
      clock: systemClock,
    }),
    usage() {
      usage ??= openUsage().catch((error) => {
        // The next call tries again.
        usage = undefined;
        throw error;
      });
      return usage;
    },
    activeCredential,
    log,
  });
  const pages = mobileRoutes(createPageStore({ host, clock: systemClock }));

  return {
    handle: toNodeHandler(createPluginRoutes([...management, ...pages], mountPath, log)),
    /** Cancels open reads of the host. */
    close(): void {
      host.databases.close();
      host.yaml.close();
    },
  };
}

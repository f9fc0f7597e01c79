import { hostIdOfName } from '../../../lib/reach/broker/label.ts';
import { CONNECT_PATH } from '../../../lib/reach/settings.ts';
import { errorResponse } from '../../../lib/web/json.ts';
import type { BrokerEnv } from './broker.ts';
import broker from './broker-worker.ts';
import { type createEntry, type EntryEnv, readSettings, relayNameOf } from './entry.ts';

/** Bindings of a deployment: the relay, and the broker of Reach if it runs beside it. */
export type DeploymentEnv = EntryEnv & Partial<BrokerEnv>;

const hasBroker = (env: DeploymentEnv): env is DeploymentEnv & BrokerEnv =>
  env.BROKER !== undefined && env.COUNTER !== undefined;

/**
 * One Worker for relay and broker under one name (contract 12 §1). The broker gets `/v1/connect`, and everything on a host's
 * own name, whose first label is that of its ID (08 §8). The relay gets the rest, including `/health` and `/v1/home`. A
 * deployment without the broker's objects is the relay only.
 */
export function createDeployment(relay: ReturnType<typeof createEntry>) {
  return {
    fetch(request: Request, env: DeploymentEnv): Promise<Response> | Response {
      if (!hasBroker(env)) return relay.fetch(request, env);
      const { hostname, pathname } = new URL(request.url);
      if (hostIdOfName(hostname) !== null) return broker.fetch(request, env);
      if (pathname !== CONNECT_PATH) return relay.fetch(request, env);
      if (relayNameOf(hostname, readSettings(env)) !== undefined) return broker.fetch(request, env);
      return errorResponse(421, 'no relay and no broker answers for that host name');
    },
  };
}

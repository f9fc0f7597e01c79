import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { onTestFinished } from 'vitest';
import { createOwnRoutes } from '../../cli/dashboard/own-routes.ts';
import { createRelayLink } from '../../cli/dashboard/relay-link.ts';
import { createLog } from '../../lib/log.ts';
import type { LiveCredential } from '../../lib/usage/usage.ts';

export interface OwnRoutesOptions {
  relayPort: number;
  agentHome: string;
  env?: Record<string, string | undefined>;
  /** File of the relay's certificate. */
  certificate?: string;
  activeCredential?(sessionId: string): Promise<LiveCredential | null>;
}

/** The plugin's own routes on a listener, as if the dashboard had admitted every request. Ends with the test. */
export async function serveOwnRoutes({ relayPort, agentHome, env = {}, certificate, ...more }: OwnRoutesOptions) {
  const link = createRelayLink({ port: () => relayPort, certificate: () => certificate, connectTimeout: 5_000 });
  const log: string[] = [];
  const own = createOwnRoutes({
    link,
    relay: { port: relayPort, tls: certificate !== undefined },
    mountPath: '',
    env: { PATH: process.env.PATH, HOME: agentHome, SVC_HOME: agentHome, ...env },
    log: createLog('DEBUG', (line) => log.push(line)),
    ...more,
  });
  const server = createServer((req, res) => void own.handle(req, res)).listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => {
    own.close();
    link.close();
    server.close();
    server.closeAllConnections();
  });
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;

  return {
    log,
    url,
    async ask(method: string, path: string, body?: unknown, headers: Record<string, string> = {}) {
      const response = await fetch(url + path, {
        method,
        headers: { ...(body !== undefined && { 'content-type': 'application/json' }), ...headers },
        body: body === undefined ? undefined : typeof body === 'string' ? body : JSON.stringify(body),
      });
      // biome-ignore lint/suspicious/noExplicitAny: the cases look into answers of many shapes
      return { status: response.status, headers: response.headers, body: (await response.json()) as any };
    },
  };
}

import { once } from 'node:events';
import { createServer, type IncomingMessage, type RequestListener, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { onTestFinished } from 'vitest';
import { type WebSocket, WebSocketServer } from 'ws';
import {
  createDashboardPlugin,
  type DashboardHost,
  type DashboardPlugin,
  type DashboardPluginOptions,
  type PluginLimits,
} from '../../cli/dashboard/plugin.ts';
import { temporaryDirectory } from './temp.ts';

export const MOUNT = '/api/plugins/svc-relay';
export const TRANSPORT = `${MOUNT}/transport`;

/** A dashboard of one user, who is signed in with the cookie `user=1`; sockets need the query `ticket=good`. */
export interface TestDashboard {
  port: number;
  url: string;
  plugin: DashboardPlugin;
  /** Calls of the plugin to its host, in order. */
  asked: string[];
  /** Replaces decisions of the host. */
  host: DashboardHost;
  server: Server;
}

export const SIGNED_IN = { cookie: 'user=1' };

/** Starts a real HTTP server with the plugin in it. It is stopped after the test. */
export async function startDashboard(
  options: Partial<DashboardPluginOptions> & {
    limits?: PluginLimits;
    activeCredential?: DashboardHost['activeCredential'];
  } = {},
): Promise<TestDashboard> {
  const asked: string[] = [];
  const host: DashboardHost = {
    authenticate: async (req) => (req.headers.cookie?.includes('user=1') ? { principal: 'user' } : null),
    checkHostOrigin: (req) => req.headers.origin === undefined || req.headers.origin === 'http://dashboard.test',
    consumeWsTicket: async (req) => (req.url?.includes('ticket=good') ? {} : null),
    isPluginEnabled: () => true,
  };
  const asking = <Name extends keyof DashboardHost>(name: Name) =>
    ((...args: unknown[]) => {
      asked.push(name);
      return (host[name] as (...args: unknown[]) => unknown)(...args);
    }) as DashboardHost[Name];
  const { limits, activeCredential, ...given } = options;
  const plugin = createDashboardPlugin(
    {
      env: {},
      agentHome: given.agentHome ?? (await temporaryDirectory()),
      ...given,
      host: {
        authenticate: asking('authenticate'),
        checkHostOrigin: asking('checkHostOrigin'),
        consumeWsTicket: asking('consumeWsTicket'),
        isPluginEnabled: asking('isPluginEnabled'),
        activeCredential,
      },
    },
    limits,
  );
  const server = createServer((req, res) => {
    void plugin.handle(req, res).then((isOurs) => {
      if (!isOurs) res.writeHead(418, { 'content-length': '0' }).end();
    });
  });
  server.on('upgrade', (req, socket, head) => {
    void plugin.upgrade(req, socket, head).then((isOurs) => {
      if (!isOurs) socket.destroy();
    });
  });
  const port = await listen(server);
  onTestFinished(async () => {
    await plugin.close();
    server.closeAllConnections();
    server.close();
  });
  return { port, url: `http://127.0.0.1:${port}`, plugin, asked, host, server };
}

export interface Recorded {
  method: string;
  url: string;
  headers: IncomingMessage['headers'];
}

/** A server in the relay's place that records every request and upgrade. */
export async function startRecorder(answer: RequestListener = (_req, res) => void res.end('{}')) {
  const requests: Recorded[] = [];
  const upgrades: Recorded[] = [];
  const sockets: WebSocket[] = [];
  /** The subprotocol of an accepted upgrade: the first that was offered unless set. */
  const recorder = { requests, upgrades, sockets, selects: undefined as string | false | undefined };
  const record = ({ method = '', url = '', headers }: IncomingMessage): Recorded => ({ method, url, headers });
  const server = createServer((req, res) => {
    requests.push(record(req));
    answer(req, res);
  });
  const webSockets = new WebSocketServer({
    noServer: true,
    maxPayload: 64 * 1024 * 1024,
    handleProtocols: (offered) => recorder.selects ?? [...offered][0] ?? false,
  });
  server.on('upgrade', (req, socket, head) => {
    upgrades.push(record(req));
    webSockets.handleUpgrade(req, socket, head, (webSocket) => {
      sockets.push(webSocket);
      server.emit('opened', webSocket);
    });
  });
  const port = await listen(server);
  onTestFinished(() => {
    for (const webSocket of sockets) webSocket.terminate();
    server.closeAllConnections();
    server.close();
  });
  return Object.assign(recorder, { port, server });
}

async function listen(server: Server): Promise<number> {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  return (server.address() as AddressInfo).port;
}

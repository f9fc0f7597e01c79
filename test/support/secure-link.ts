import type { RequestListener } from 'node:http';
import { onTestFinished } from 'vitest';
import {
  openSecureLink,
  type SecureLinkLimits,
  type SecureLinkListener,
} from '../../cli/runtime/node/secure-link/listener.ts';
import { createFetch } from '../../handlers/routes.ts';
import { createSocketTable } from '../../handlers/sockets.ts';
import { createIdentities } from '../../lib/host/node/identity.ts';
import type { LoopbackGuard } from '../../lib/host/node/loopback-guard.ts';
import { type BuiltTarget, startBuiltTarget } from './built-relay.ts';
import { startRecorder } from './dashboard.ts';
import { connectRaw, exchange, openRaw, type RawResponse, request } from './raw-socket.ts';

export type Recorder = Awaited<ReturnType<typeof startRecorder>>;

const HOST = '127.0.0.1';
/** The advertised authority, which is another than that of the listener here. */
export const AUTHORITY = 'relay.test:9443';

/** The answer of a dashboard whose gate is on, and that of any request beside it. */
export const withGate =
  (answer: RequestListener = (_req, res) => void res.end('page')): RequestListener =>
  (req, res) =>
    req.url === '/api/health' ? void res.end('{"auth_required":true}') : answer(req, res);

export interface TestSecureLink {
  target: BuiltTarget;
  listener: SecureLinkListener;
  port: number;
  api: Recorder;
  dashboard: Recorder;
  /** Trust in the listener's certificate. */
  secure: { ca: string };
  /** Sends one request on a connection of its own. */
  ask(
    method: string,
    path: string,
    headers?: Record<string, string | string[]>,
    body?: Buffer | string,
  ): Promise<RawResponse>;
  connect(): ReturnType<typeof connectRaw>;
  open(path: string, headers?: Record<string, string>): ReturnType<typeof openRaw>;
}

/** A relay with a Secure Link listener before two recorders. All of it ends with the test. */
export async function startSecureLink({
  api: answerApi,
  dashboard: answerDashboard = withGate(),
  limits,
  upstreams,
  guard,
  port: wanted = 0,
}: {
  api?: RequestListener;
  dashboard?: RequestListener;
  limits?: Partial<SecureLinkLimits>;
  /** URLs instead of the recorders. */
  upstreams?: { api?: string; dashboard?: string };
  guard?: LoopbackGuard;
  port?: number;
} = {}): Promise<TestSecureLink> {
  const [api, dashboard, target] = await Promise.all([
    startRecorder(answerApi),
    startRecorder(answerDashboard),
    startBuiltTarget({ env: { RELAY_TRUST_PROXY_HEADERS: '1' } }),
  ]);
  onTestFinished(target.stop);
  const { relay } = target;
  const { cert, key } = await createIdentities().generate(HOST, Date.now());
  const plan = {
    bindHost: HOST,
    port: wanted,
    authority: AUTHORITY,
    cert,
    key,
    api: new URL(upstreams?.api ?? `http://${HOST}:${api.port}`),
    dashboard: new URL(upstreams?.dashboard ?? `http://${HOST}:${dashboard.port}`),
  };
  const main = {
    fetch: createFetch(relay),
    sockets: createSocketTable(relay),
    log: relay.log,
    reading: relay.budgets.reading,
    guard,
  };
  const listener = await openSecureLink(relay, plan, main, limits);
  onTestFinished(listener.close);
  const { port } = listener;
  const secure = { ca: cert };
  return {
    target,
    listener,
    port,
    api,
    dashboard,
    secure,
    ask(method, path, headers = {}, body = '') {
      const all: Record<string, string | string[]> = { connection: 'close', ...headers };
      if (body.length > 0) all['content-length'] = String(Buffer.byteLength(body));
      return exchange(port, request(method, path, all, body), method, secure);
    },
    connect: () => connectRaw(port, secure),
    open: (path, headers) => openRaw(port, { path, headers, secure }),
  };
}

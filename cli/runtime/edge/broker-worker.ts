import type { WebSocket as WorkerSocket } from '@cloudflare/workers-types';
import { limitKey } from '../../../lib/access/peer.ts';
import { isLoopbackName } from '../../../lib/kit/addresses.ts';
import { hostIdOfName } from '../../../lib/reach/broker/label.ts';
import { type ErrorCode, encodeMessage, PROTOCOL_VERSION, parseRegister } from '../../../lib/reach/messages.ts';
import { CONNECT_PATH } from '../../../lib/reach/settings.ts';
import { type BrokerCounter, type BrokerEnv, COUNTER_NAME, digestsOf, SOURCE_HEADER } from './broker.ts';
import { readCounts } from './broker-health.ts';

export { BrokerCounter, BrokerObject } from './broker.ts';

/** Milliseconds in which a socket must register. */
const REGISTRATION_TIMEOUT = 10_000;
const HEADERS = {
  'content-type': 'application/json',
  'x-content-type-options': 'nosniff',
  'cache-control': 'no-store',
};

/**
 * The stateless Worker in front of the brokers (contract 08 §8): one object per host, found by the first label of the
 * host name, or by the first message on a name that all hosts share.
 */
export default {
  async fetch(request: Request, env: BrokerEnv): Promise<Response> {
    const url = new URL(request.url);
    if (url.protocol === 'http:' && !isLoopbackName(url.hostname)) return answer(403, { error: 'use https' });
    if (url.pathname === '/health' && (request.method === 'GET' || request.method === 'HEAD'))
      return health(request, env);
    if (url.pathname !== CONNECT_PATH) return answer(404, { error: 'not found' });
    if (request.url.includes('?') || request.headers.has('authorization')) {
      return answer(400, { error: 'neither a query nor an Authorization header is accepted' });
    }
    if (request.method !== 'GET' || request.headers.get('upgrade')?.toLowerCase() !== 'websocket') {
      return answer(426, { error: 'this is a WebSocket' });
    }
    const key = limitKey(request.headers.get(SOURCE_HEADER));
    if (env.ATTEMPTS && !(await env.ATTEMPTS.limit({ key })).success)
      return answer(429, { error: 'too many attempts' });
    const hostId = hostIdOfName(url.hostname);
    if (hostId === null) return shared(request, env);
    const isKnown = (await digestsOf(env, hostId)).length > 0;
    return isKnown ? objectOf(env, hostId).fetch(request) : refuseAfterUpgrade();
  },
};

const answer = (status: number, body: object): Response =>
  new Response(JSON.stringify({ ok: false, ...body }), { status, headers: HEADERS });

async function health(request: Request, env: BrokerEnv): Promise<Response> {
  const key = `health ${limitKey(request.headers.get(SOURCE_HEADER))}`;
  if (env.ATTEMPTS && !(await env.ATTEMPTS.limit({ key })).success) return answer(429, { error: 'too many attempts' });
  const counter = env.COUNTER.get(env.COUNTER.idFromName(COUNTER_NAME)) as unknown as BrokerCounter;
  const counts = await readCounts((caches as unknown as { default: Cache }).default, async () => counter.counts());
  if (!counts) return answer(503, { error: 'the counter does not answer' });
  return answer(200, { ok: true, service: 'svc_reach', protocol_version: PROTOCOL_VERSION, ...counts });
}

const objectOf = (env: BrokerEnv, hostId: string) =>
  env.BROKER.get(env.BROKER.idFromName(hostId)) as unknown as { fetch(request: Request): Promise<Response> };

/** Accepts a socket and resolves with its first message; null when it closes or waits too long. */
function accept(): { response: Response; socket: WorkerSocket; first: Promise<string | ArrayBuffer | null> } {
  const { 0: client, 1: server } = new WebSocketPair();
  const socket = server as never as WorkerSocket;
  socket.accept();
  const first = new Promise<string | ArrayBuffer | null>((resolve) => {
    const timer = setTimeout(() => resolve(null), REGISTRATION_TIMEOUT);
    const end = (message: string | ArrayBuffer | null) => {
      clearTimeout(timer);
      resolve(message);
    };
    socket.addEventListener('message', ({ data }) => end(data), { once: true });
    socket.addEventListener('close', () => end(null), { once: true });
  });
  return { response: new Response(null, { status: 101, webSocket: client } as ResponseInit), socket, first };
}

function refuse(socket: WorkerSocket, code: ErrorCode): void {
  try {
    socket.send(encodeMessage({ type: 'error', code }));
    socket.close(1008, '');
  } catch {
    // The client has gone.
  }
}

/** Answers for a host that is not known as its object would for a wrong token. */
function refuseAfterUpgrade(): Response {
  const { response, socket, first } = accept();
  void first.then((message) => {
    const registration = typeof message === 'string' ? parseRegister(message) : 'unauthorized';
    refuse(socket, typeof registration === 'string' ? registration : 'unauthorized');
  });
  return response;
}

/** Joins a socket on the shared name with the object of the host that its first message names. */
function shared(request: Request, env: BrokerEnv): Response {
  const { response, socket, first } = accept();
  const headers = new Headers(request.headers);
  void first.then(async (message) => {
    const registration = typeof message === 'string' ? parseRegister(message) : 'unauthorized';
    if (typeof registration === 'string') return refuse(socket, registration);
    if ((await digestsOf(env, registration.host_id)).length === 0) return refuse(socket, 'unauthorized');
    const upgraded = await objectOf(env, registration.host_id).fetch(new Request(request.url, { headers }));
    const inner = (upgraded as unknown as { webSocket: WorkerSocket | null }).webSocket;
    if (!inner) return refuse(socket, 'host_busy');
    inner.accept();
    inner.send(message as string);
    join(socket, inner);
    join(inner, socket);
  });
  return response;
}

/** Passes on messages and the close of one socket to the other. */
function join(from: WorkerSocket, to: WorkerSocket): void {
  const close = (code: number) => {
    try {
      to.close(code >= 1000 && code !== 1005 && code !== 1006 && code !== 1015 ? code : 1000, '');
    } catch {
      // Closed already.
    }
  };
  from.addEventListener('message', ({ data }) => {
    try {
      to.send(data);
    } catch {
      from.close(1001, '');
    }
  });
  from.addEventListener('close', ({ code }) => close(code));
  from.addEventListener('error', () => close(1001));
}

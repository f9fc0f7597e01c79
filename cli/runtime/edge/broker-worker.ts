import type { WebSocket as WorkerSocket } from '@cloudflare/workers-types';
import { type H3Event, HTTPError, toWebHandler } from 'h3';
import { limitKey } from '../../../lib/access/peer.ts';
import { describeError } from '../../../lib/errors.ts';
import { isLoopbackName } from '../../../lib/kit/addresses.ts';
import { attempt } from '../../../lib/kit/attempt.ts';
import { createBrokerHttp, HEADERS } from '../../../lib/reach/broker/http.ts';
import { hostIdOfName } from '../../../lib/reach/broker/label.ts';
import { type ErrorCode, encodeMessage, parseRegister } from '../../../lib/reach/messages.ts';
import { type BrokerEnv, counterOf, digestsOf, SOURCE_HEADER } from './broker.ts';
import { readCounts } from './broker-health.ts';

export { BrokerCounter, BrokerObject } from './broker.ts';

/** Milliseconds in which a socket must register. */
const REGISTRATION_TIMEOUT = 10_000;

/** Refuses an address that tries too often. */
async function limit(env: BrokerEnv, key: string): Promise<void> {
  if (!env.ATTEMPTS || (await env.ATTEMPTS.limit({ key })).success) return;
  throw new HTTPError({ status: 429, message: 'too many attempts' });
}

const keyOf = (request: Request): string => limitKey(request.headers.get(SOURCE_HEADER));

const envOf = ({ context }: H3Event): BrokerEnv => context.env as BrokerEnv;

const handle = toWebHandler(
  createBrokerHttp({
    async counts(event) {
      const env = envOf(event);
      await limit(env, `health ${keyOf(event.req)}`);
      return readCounts((caches as unknown as { default: Cache }).default, async () => counterOf(env).counts());
    },
    async connect(event) {
      const { req: request, url } = event;
      const env = envOf(event);
      await limit(env, keyOf(request));
      const hostId = hostIdOfName(url.hostname);
      if (hostId === null) return shared(request, env);
      const isKnown = (await digestsOf(env, hostId)).length > 0;
      return isKnown ? objectOf(env, hostId).fetch(request) : refuseAfterUpgrade();
    },
  }),
);

/**
 * The stateless Worker in front of the brokers (contract 08 §8): one object per host, found by the first label of the host
 * name, or by the first message on the name that all hosts share.
 */
export default {
  fetch(request: Request, env: BrokerEnv): Promise<Response> | Response {
    const { protocol, hostname } = new URL(request.url);
    if (protocol !== 'http:' || isLoopbackName(hostname)) return handle(request, { env });
    return Response.json({ ok: false, error: 'use https' }, { status: 403, headers: HEADERS });
  },
};

const objectOf = (env: BrokerEnv, hostId: string) =>
  env.BROKER.get(env.BROKER.idFromName(hostId)) as unknown as { fetch(request: Request): Promise<Response> };

function accept() {
  const { 0: client, 1: server } = new WebSocketPair();
  const socket = server as never as WorkerSocket;
  socket.accept();
  /** Code with which the client has closed; undefined while it has not. */
  let closedWith: number | undefined;
  /** The first message; null if the socket closes or waits too long. */
  const first = new Promise<string | ArrayBuffer | null>((resolve) => {
    const timer = setTimeout(() => resolve(null), REGISTRATION_TIMEOUT);
    const end = (message: string | ArrayBuffer | null) => {
      clearTimeout(timer);
      resolve(message);
    };
    socket.addEventListener('message', ({ data }) => end(data), { once: true });
    socket.addEventListener(
      'close',
      ({ code }) => {
        closedWith = code;
        end(null);
      },
      { once: true },
    );
  });
  const response = new Response(null, { status: 101, webSocket: client } as ResponseInit);
  return { response, socket, first, closedWith: () => closedWith };
}

function refuse(socket: WorkerSocket, code: ErrorCode): void {
  // Fails if the client has disconnected.
  attempt(() => {
    socket.send(encodeMessage({ type: 'error', code }));
    socket.close(1008, '');
  });
}

/** Answers for an unknown host like its object would for a wrong token. */
function refuseAfterUpgrade(): Response {
  const { response, socket, first } = accept();
  void first.then((message) => {
    const registration = typeof message === 'string' ? parseRegister(message) : 'unauthorized';
    refuse(socket, typeof registration === 'string' ? registration : 'unauthorized');
  });
  return response;
}

/** Joins a socket on the shared name with the object of the host in its first message. */
function shared(request: Request, env: BrokerEnv): Response {
  const { response, socket, first, closedWith } = accept();
  const headers = new Headers(request.headers);
  const meet = async (message: string | ArrayBuffer | null): Promise<void> => {
    const registration = typeof message === 'string' ? parseRegister(message) : 'unauthorized';
    if (typeof registration === 'string') return refuse(socket, registration);
    if ((await digestsOf(env, registration.host_id)).length === 0) return refuse(socket, 'unauthorized');
    const upgraded = await objectOf(env, registration.host_id).fetch(new Request(request.url, { headers }));
    const inner = (upgraded as unknown as { webSocket: WorkerSocket | null }).webSocket;
    if (!inner) return refuse(socket, 'host_busy');
    inner.accept();
    join(socket, inner);
    join(inner, socket);
    // A close while the object was called had nobody to pass it on to: the object would take the client for connected.
    const code = closedWith();
    if (code === undefined) inner.send(message as string);
    else for (const each of [socket, inner]) close(each, code);
  };
  first.then(meet).catch((error) => {
    // biome-ignore lint/suspicious/noConsole: the console is the log of a Worker
    console.log(`a socket could not be joined with its host: ${describeError(error)}`);
    close(socket, 1011);
  });
  return response;
}

const close = (socket: WorkerSocket, code: number): void =>
  attempt(() => socket.close(code >= 1000 && code !== 1005 && code !== 1006 && code !== 1015 ? code : 1000, ''));

/** Passes messages and the close of one socket to the other. */
function join(from: WorkerSocket, to: WorkerSocket): void {
  from.addEventListener('message', ({ data }) => {
    try {
      to.send(data);
    } catch {
      from.close(1001, '');
    }
  });
  from.addEventListener('close', ({ code }) => close(to, code));
  from.addEventListener('error', () => close(to, 1001));
}

import { createHash, X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { Agent, request as httpRequest, type IncomingMessage, type RequestOptions } from 'node:http';
import { Duplex } from 'node:stream';
import { connect as connectTls, type TLSSocket } from 'node:tls';
import { WebSocket } from 'ws';
import { newId } from '../../lib/reach/ids.ts';
import { encodeMessage, parseClientAnswer } from '../../lib/reach/messages.ts';
import type { Frame } from './client.ts';

const MAX_RECORD = 64 * 1024;

/** A route as a pairing payload or `auth.ok` names it, with the origin behind it. */
export interface ReachRoute {
  /** Ends in `/v1/connect`. */
  url: string;
  hostId: string;
  kind: 'bootstrap' | 'route';
  token: string;
  /** `https://host:port` of the relay's listener. */
  origin: string;
  /** `sha256/...`. */
  pin: string;
  /** Base64 of the only certificate that is trusted. */
  certDer: string;
  /** PEM of the authority of the broker. */
  brokerCa: string | Buffer;
}

/** The broker answered with this code instead of `matched`. */
export class Refused extends Error {
  readonly code: string;
  constructor(code: string) {
    super(`the broker refused: ${code}`);
    this.code = code;
  }
}

/** The opaque stream behind a match (contract 08 §7.9, steps 1 to 3). @throws Refused */
export async function openStream(route: ReachRoute): Promise<Duplex> {
  const socket = new WebSocket(route.url, { ca: route.brokerCa, perMessageDeflate: false });
  await once(socket, 'open');
  socket.send(
    encodeMessage({
      type: 'register',
      role: 'client',
      credential_kind: route.kind,
      host_id: route.hostId,
      connection_id: newId(),
      token: route.token,
    }),
  );
  const [text] = await once(socket, 'message');
  const answer = parseClientAnswer(String(text));
  if (answer?.type !== 'matched') throw new Refused(answer?.code ?? String(text));
  const stream = new Duplex({
    read: () => socket.resume(),
    // A message has 1 MiB at most, and TLS may write more at once.
    write(chunk: Buffer, _encoding, done) {
      for (let at = 0; at < chunk.length - MAX_RECORD; at += MAX_RECORD) {
        socket.send(chunk.subarray(at, at + MAX_RECORD), () => {});
      }
      const rest = chunk.subarray(chunk.length - (chunk.length % MAX_RECORD || Math.min(chunk.length, MAX_RECORD)));
      if (rest.length > 0) socket.send(rest, () => done());
      else done();
    },
    destroy(error, done) {
      socket.close();
      done(error);
    },
  });
  socket.on('message', (data: Buffer) => {
    if (!stream.push(data)) socket.pause();
  });
  socket.on('error', () => {});
  socket.once('close', () => stream.push(null));
  return stream;
}

/** TLS to the relay inside a stream, with the pin checked (step 4). */
export async function openTunnel(route: ReachRoute): Promise<TLSSocket> {
  const stream = await openStream(route);
  const { hostname } = new URL(route.origin);
  const ca = `-----BEGIN CERTIFICATE-----\n${route.certDer.match(/.{1,64}/g)?.join('\n')}\n-----END CERTIFICATE-----\n`;
  const tls = connectTls({ socket: stream, host: hostname, ca, ALPNProtocols: ['h2', 'http/1.1'] });
  try {
    await once(tls, 'secureConnect');
    const spki = new X509Certificate(tls.getPeerCertificate().raw).publicKey.export({ type: 'spki', format: 'der' });
    const pin = `sha256/${createHash('sha256').update(spki).digest('base64')}`;
    if (pin !== route.pin) throw new Error(`the pin is another one: ${pin}`);
  } catch (error) {
    tls.destroy();
    stream.destroy();
    throw error;
  }
  tls.on('error', () => {});
  // Nothing else ends the outer socket.
  tls.once('close', () => stream.destroy());
  return tls;
}

/** An agent whose one connection is the tunnel. */
export function agentOf(tls: TLSSocket): Agent {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  return Object.assign(agent, { createConnection: () => tls });
}

/** One request inside a tunnel. The response is as Node has it. */
export async function fetchThrough(
  agent: Agent,
  route: ReachRoute,
  options: RequestOptions & { path: string },
  body?: Buffer,
): Promise<IncomingMessage> {
  const { host } = new URL(route.origin);
  const request = httpRequest({ ...options, agent, headers: { host, ...options.headers } });
  request.end(body);
  const [response] = (await once(request, 'response')) as [IncomingMessage];
  return response;
}

/** Reads a body to its end without keeping it: how many bytes there were. */
export async function drain(response: AsyncIterable<Buffer>): Promise<number> {
  let bytes = 0;
  for await (const chunk of response) bytes += chunk.length;
  return bytes;
}

/** Authenticates at the relay's socket through a tunnel of its own: the answer, and the socket (step 5). */
export async function authenticateThrough(
  route: ReachRoute,
  payload: Record<string, unknown>,
): Promise<{ frame: Frame; socket: WebSocket }> {
  const tls = await openTunnel(route);
  const { host } = new URL(route.origin);
  const socket = new WebSocket(`ws://${host}/relay/ws`, { createConnection: () => tls, perMessageDeflate: false });
  socket.on('error', () => {});
  await once(socket, 'open');
  socket.send(JSON.stringify({ channel: 'system', type: 'auth', id: 'auth', payload }));
  const [text] = await once(socket, 'message');
  return { frame: JSON.parse(String(text)), socket };
}

/** The Reach route of a pairing payload. @throws Error when it has none */
export function reachRouteOf(payload: string, brokerCa: string | Buffer): ReachRoute {
  const { endpoints = [] } = JSON.parse(payload);
  const candidate = endpoints.find(({ role }: { role: string }) => role === 'outbound_broker');
  if (!candidate) throw new Error(`no Reach candidate among ${JSON.stringify(endpoints)}`);
  const { broker, proxy } = candidate;
  return {
    url: broker.url,
    hostId: broker.host_id,
    kind: broker.credential_kind,
    token: broker.token,
    origin: proxy.url,
    pin: proxy.pin_sha256,
    certDer: proxy.cert_der,
    brokerCa,
  };
}

/** The same origin through the credential of an `auth.ok` (step 6). */
export function withCredential(route: ReachRoute, credential: Record<string, unknown>): ReachRoute {
  if (credential.broker_url !== route.url || credential.host_id !== route.hostId) {
    throw new Error('the credential is for another broker or host');
  }
  return { ...route, kind: 'route', token: credential.token as string };
}

import { paired, voice } from '../../handlers/guards.ts';
import type { Guard, RelayRequest } from '../../handlers/request.ts';
import type { SocketRow } from '../../handlers/sockets.ts';
import { VOICE_PROTOCOL } from '../../lib/access/bearer.ts';
import { type ErrorKind, RelayError } from '../../lib/errors.ts';
import type { Relay } from '../../lib/relay.ts';
import type { SocketEvents, Transport } from '../../lib/socket/transport.ts';
import { fetchUpstream } from '../../lib/web/upstream.ts';
import { dialByFetch } from '../../lib/web/upstream-socket.ts';

/** Bytes of the largest message on `/test/echo`. */
export const ECHO_LIMIT = 1024;

const REFUSALS: Record<string, ErrorKind> = {
  '401': 'unauthorized',
  '403': 'forbidden',
  '404': 'not-found',
  '410': 'gone',
  '429': 'rate-limited',
};

/** Refuses with the status that the path names. */
const refusing: Guard = ({ params: { status = '' } }) => {
  const kind = REFUSALS[status];
  if (kind) throw new RelayError(kind, `refused with ${status}`, { retryAfter: status === '429' ? 7 : undefined });
  throw new Error('a guard that fails');
};

/** Sends back what it hears: text after its greeting, bytes as they are. */
function echo(greeting: unknown, socket: Transport): SocketEvents {
  socket.send(JSON.stringify(greeting));
  return {
    message(text) {
      if (text === 'fail') throw new Error('a row that fails');
      if (text === 'bye') socket.close(4000, 'bye');
      else socket.send(text);
    },
    bytes: (bytes) => socket.send(bytes),
    drained() {},
    pinged() {},
    closed() {},
  };
}

/** An echo that fails at the named step. */
function failing(step: string | undefined, socket: Transport): SocketEvents {
  const events = echo('failing', socket);
  const fail = () => {
    throw new Error(`${step} fails`);
  };
  if (step === 'open') return fail();
  return { ...events, ...(step === 'pinged' && { pinged: fail }), ...(step === 'closed' && { closed: fail }) };
}

/** An echo that ends with its principal. */
function watched({ voice: principal }: RelayRequest, socket: Transport, { voice: { callers } }: Relay): SocketEvents {
  if (!principal) throw new Error('the guard has set no principal');
  const { kind, key } = principal;
  const stop = callers.onPrincipalEnded(principal, 'voice:tts', (reason) => socket.close(4001, reason));
  return { ...echo({ kind, key }, socket), closed: stop };
}

/** Passes text on to the server that the query names, by the edge's dialer, and reports what comes back. */
function dialing({ query }: RelayRequest, socket: Transport): SocketEvents {
  const report = (event: Record<string, unknown>) => socket.send(JSON.stringify(event));
  const end = new AbortController();
  const request = {
    url: String(query.to),
    headers: { 'x-key': 'a key' },
    signal: end.signal,
    maxMessage: ECHO_LIMIT,
  };
  const dialed = dialByFetch(request, {
    message: (text) => report({ message: text }),
    closed: (how) => report({ closed: how }),
  });
  dialed.then(
    () => report({ open: true }),
    ({ message, status }) => report({ failed: message, status }),
  );
  return {
    async message(text) {
      if (text === 'abort') return end.abort();
      const open = await dialed;
      if (text === 'pause') open.pause();
      else if (text === 'resume') open.resume();
      else if (text === 'close') open.close(4000, 'enough');
      else if (text === 'terminate') open.terminate();
      else return open.send(text);
      report({ done: text });
    },
    drained() {},
    pinged() {},
    closed: () => end.abort(),
  };
}

/** Sends three chunks to the server that the query names, by the edge's `Upstream`. */
function uploading({ query }: RelayRequest, socket: Transport): SocketEvents {
  async function* chunks() {
    for (const text of ['one', 'two', 'three']) yield new TextEncoder().encode(text);
  }
  return {
    async message(length) {
      const headers: Record<string, string> = length === '' ? {} : { 'content-length': length };
      const { signal } = new AbortController();
      const request = { method: 'PUT', url: String(query.to), headers, body: chunks(), signal };
      try {
        const { status, headers: answered } = await fetchUpstream()(request);
        socket.send(JSON.stringify({ status, header: answered['x-answer'] }));
      } catch (error) {
        socket.send(JSON.stringify({ failed: String(error) }));
      }
    },
    drained() {},
    pinged() {},
    closed() {},
  };
}

/** Made-up rows of the socket table, for its tests on both runtimes. */
export const testRows: readonly SocketRow[] = [
  {
    path: '/test/echo/:id',
    guard: () => undefined,
    maxMessage: ECHO_LIMIT,
    binary: true,
    open: ({ params, query }, socket) => echo({ params, query }, socket),
  },
  {
    path: '/test/failing/:step',
    guard: () => undefined,
    maxMessage: ECHO_LIMIT,
    binary: true,
    open: ({ params }, socket) => failing(params.step, socket),
    restore: () => Promise.reject(new Error('restore fails')),
  },
  {
    path: '/test/text',
    guard: () => undefined,
    maxMessage: 2 * ECHO_LIMIT,
    binary: false,
    open: (_request, socket) => echo('text', socket),
  },
  {
    path: '/test/chat',
    guard: paired('chat'),
    maxMessage: ECHO_LIMIT,
    binary: true,
    open: ({ session }, socket) => echo({ device: session?.device.name }, socket),
  },
  {
    path: '/voice/test',
    guard: voice('voice:tts'),
    maxMessage: ECHO_LIMIT,
    binary: false,
    protocol: VOICE_PROTOCOL,
    open: watched,
  },
  {
    path: '/test/dial',
    guard: () => undefined,
    maxMessage: ECHO_LIMIT,
    binary: false,
    open: dialing,
  },
  {
    path: '/test/upload',
    guard: () => undefined,
    maxMessage: ECHO_LIMIT,
    binary: false,
    open: uploading,
  },
  {
    path: '/test/refused/:status',
    guard: refusing,
    maxMessage: ECHO_LIMIT,
    binary: true,
    open: (_request, socket) => echo('never', socket),
  },
];

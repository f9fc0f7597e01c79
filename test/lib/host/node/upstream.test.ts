import { createServer, type Socket } from 'node:net';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { createNodeUpstream } from '../../../../lib/host/node/upstream.ts';
import { type Upstream, type UpstreamRequest, upstreamReason } from '../../../../lib/host/upstream.ts';
import { fetchUpstream } from '../../../../lib/web/upstream.ts';

/** A TCP server on loopback, controlled by the test. */
async function startServer(serve: (socket: Socket) => void) {
  const sockets: Socket[] = [];
  const server = createServer((socket) => {
    sockets.push(socket);
    socket.on('error', () => {}).resume();
    serve(socket);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return { port: (server.address() as { port: number }).port, sockets };
}

/** Answers the first bytes of each connection with this text, and leaves it open. */
const saying = (text: string) => startServer((socket) => socket.once('data', () => socket.write(text)));

const get = (upstream: Upstream, url: string, signal = new AbortController().signal) =>
  upstream({ method: 'GET', url, headers: {}, signal });

const send = (upstream: Upstream, port: number, request: Partial<UpstreamRequest>) =>
  upstream({
    method: 'PUT',
    url: `http://127.0.0.1:${port}/`,
    headers: {},
    signal: new AbortController().signal,
    ...request,
  });

/** Reads each connection as Latin-1, and answers 204 once everything has come. */
async function collecting(isWhole: (received: string) => boolean) {
  let received = '';
  const { port } = await startServer((socket) =>
    socket.on('data', (data) => {
      received += data.toString('latin1');
      if (isWhole(received)) socket.write('HTTP/1.1 204 No Content\r\n\r\n');
    }),
  );
  return { port, received: () => received };
}

function gate() {
  let open = () => {};
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { open: () => open(), opened };
}

async function readText(body: AsyncIterable<Uint8Array>): Promise<string> {
  const decoder = new TextDecoder();
  let text = '';
  for await (const chunk of body) text += decoder.decode(chunk, { stream: true });
  return text;
}

/** Undici reconnects needlessly after it has dropped a connection: only used ones count. */
const closedAll = (sockets: Socket[]) =>
  vi.waitFor(() => {
    const used = sockets.filter((socket) => socket.bytesRead > 0);
    expect(used.length).toBeGreaterThan(0);
    expect(used.every((socket) => socket.destroyed || socket.readableEnded)).toBe(true);
  });

const CHUNKED = 'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n';

const upstreams: [string, Upstream][] = [
  ['node', createNodeUpstream()],
  ['fetch', fetchUpstream()],
];

describe.each(upstreams)('upstream of %s (contract 02 §5.2)', (_name, upstream) => {
  it('returns status and body', async () => {
    const { port } = await saying(`${CHUNKED}0\r\n\r\n`);
    const { status, body } = await get(upstream, `http://127.0.0.1:${port}/`);
    expect([status, await readText(body)]).toEqual([200, 'abc']);
  });

  it('sends method, headers and body', async () => {
    let received = '';
    const { port } = await startServer((socket) =>
      socket.on('data', (data) => {
        received += data;
        if (received.includes('ü')) socket.write('HTTP/1.1 204 No Content\r\n\r\n');
      }),
    );
    const { signal } = new AbortController();
    const request = {
      method: 'POST',
      url: `http://127.0.0.1:${port}/a?b=c`,
      headers: { 'x-y': 'z' },
      body: 'ü',
      signal,
    } as const;
    expect((await upstream(request)).status).toBe(204);
    expect(received).toMatch(/^POST \/a\?b=c HTTP\/1.1\r\n/);
    expect(received).toMatch(/\r\nx-y: z\r\n/i);
    expect(received).toMatch(/\r\ncontent-length: 2\r\n/i);
  });

  it('returns headers in lower case', async () => {
    const { port } = await saying('HTTP/1.1 200 OK\r\nX-One: a\r\nx-two: b\r\nX-Two: c\r\ncontent-length: 0\r\n\r\n');
    const { headers } = await get(upstream, `http://127.0.0.1:${port}/`);
    expect(headers).toMatchObject({ 'x-one': 'a', 'x-two': 'b, c', 'content-length': '0' });
  });

  it('sends bytes as they are', async () => {
    const server = await collecting((received) => received.endsWith('\r\n\r\n\xff\x00\xfe'));
    await send(upstream, server.port, { body: new Uint8Array([0xff, 0, 0xfe]) });
    expect(server.received()).toMatch(/^PUT \/ [\s\S]*\r\ncontent-length: 3\r\n/i);
  });

  it('sends chunks as they come', async () => {
    const server = await collecting((received) => received.endsWith('0\r\n\r\n'));
    const sent = gate();
    async function* chunks() {
      yield Uint8Array.of(0x61);
      await sent.opened;
      yield Uint8Array.of(0x62);
    }
    const call = send(upstream, server.port, { body: chunks() });
    await vi.waitFor(() => expect(server.received()).toMatch(/\r\n\r\n1\r\na/));
    sent.open();
    expect((await call).status).toBe(204);
    expect(server.received()).toMatch(/\r\ntransfer-encoding: chunked\r\n/i);
  });

  it('fails with what its chunks throw, and leaves them when the call ends', async () => {
    const silent = await saying('');
    async function* failing() {
      yield Uint8Array.of(1);
      await vi.waitFor(() => expect(silent.sockets[0]?.bytesRead).toBeGreaterThan(0));
      throw new Error('the file is gone');
    }
    await expect(send(upstream, silent.port, { body: failing() })).rejects.toThrow();
    await closedAll(silent.sockets);

    const end = new AbortController();
    let hasLeft = false;
    async function* endless() {
      try {
        for (;;) {
          yield new Uint8Array(1024);
          await new Promise((resolve) => setImmediate(resolve));
        }
      } finally {
        hasLeft = true;
      }
    }
    const call = send(upstream, silent.port, { body: endless(), signal: end.signal });
    call.catch(() => {});
    await vi.waitFor(() => expect(silent.sockets.some((socket) => socket.bytesRead > 2000)).toBe(true));
    end.abort();
    await expect(call).rejects.toThrow();
    await vi.waitFor(() => expect(hasLeft).toBe(true));
    await closedAll(silent.sockets);
  });

  it('follows no redirect', async () => {
    const { port, sockets } = await saying('HTTP/1.1 302 Found\r\nlocation: /x\r\ncontent-length: 0\r\n\r\n');
    expect((await get(upstream, `http://127.0.0.1:${port}/`)).status).toBe(302);
    expect(sockets).toHaveLength(1);
  });

  it('throws when a body is cut off', async () => {
    const { port, sockets } = await saying(CHUNKED);
    const { body } = await get(upstream, `http://127.0.0.1:${port}/`);
    await expect(
      (async () => {
        for await (const _chunk of body) sockets[0]?.destroy();
      })(),
    ).rejects.toThrow();
  });

  it('an abort closes the connection: before the response, in the body, and between two reads', async () => {
    const silent = await saying('');
    const before = new AbortController();
    const call = get(upstream, `http://127.0.0.1:${silent.port}/`, before.signal);
    call.catch(() => {});
    await vi.waitFor(() => expect(silent.sockets).toHaveLength(1));
    before.abort();
    await expect(call).rejects.toThrow();
    await closedAll(silent.sockets);

    const talking = await saying(CHUNKED);
    const during = new AbortController();
    const { body } = await get(upstream, `http://127.0.0.1:${talking.port}/`, during.signal);
    const chunks = body[Symbol.asyncIterator]();
    await chunks.next();
    const waiting = chunks.next();
    waiting.catch(() => {});
    during.abort();
    await expect(waiting).rejects.toThrow();
    await closedAll(talking.sockets);

    const idle = await saying(CHUNKED);
    const between = new AbortController();
    const answer = await get(upstream, `http://127.0.0.1:${idle.port}/`, between.signal);
    const iterator = answer.body[Symbol.asyncIterator]();
    await iterator.next();
    between.abort();
    await closedAll(idle.sockets);
    await expect(iterator.next()).rejects.toThrow();
  });

  it('leaving the body early closes the connection', async () => {
    const { port, sockets } = await saying(CHUNKED);
    const { body } = await get(upstream, `http://127.0.0.1:${port}/`);
    for await (const _chunk of body) break;
    await closedAll(sockets);
  });
});

describe('upstream of node', () => {
  it('sends chunks with the length that was announced', async () => {
    const server = await collecting((received) => received.endsWith('ab'));
    async function* chunks() {
      yield Uint8Array.of(0x61);
      yield Uint8Array.of(0x62);
    }
    await send(createNodeUpstream(), server.port, { body: chunks(), headers: { 'content-length': '2' } });
    expect(server.received()).toMatch(/\r\ncontent-length: 2\r\n/i);
    expect(server.received()).not.toMatch(/chunked/i);
  });

  it('takes no more chunks than the server accepts', async () => {
    const { port, sockets } = await startServer((socket) => socket.pause());
    let taken = 0;
    async function* chunks() {
      for (; taken < 1000; taken++) yield new Uint8Array(0x10000);
    }
    const end = new AbortController();
    const call = send(createNodeUpstream(), port, { body: chunks(), signal: end.signal });
    call.catch(() => {});
    await vi.waitFor(() => expect(sockets).toHaveLength(1));
    let last = -1;
    await vi.waitFor(
      () => {
        const moved = taken !== last || taken === 0;
        last = taken;
        expect(moved).toBe(false);
      },
      { interval: 300 },
    );
    // Of 64 MiB, as much as fits into the kernel's buffers.
    expect(taken).toBeLessThan(300);
    end.abort();
    await expect(call).rejects.toThrow();
  });

  const OK = 'HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok';
  const kept = (upstream: Upstream, port: number, request: Partial<UpstreamRequest> = {}) =>
    send(upstream, port, { method: 'GET', keepAlive: true, ...request }).then(({ body }) => readText(body));

  it('keeps a connection for repeated calls that ask for it', async () => {
    const { port, sockets } = await startServer((socket) => socket.on('data', () => socket.write(OK)));
    const upstream = createNodeUpstream();
    for (let round = 0; round < 3; round++) expect(await kept(upstream, port)).toBe('ok');
    expect(sockets).toHaveLength(1);
    expect(await kept(upstream, port, { keepAlive: false })).toBe('ok');
    expect(await kept(upstream, port, { method: 'POST', body: 'x' })).toBe('ok');
    expect(sockets).toHaveLength(3);
  });

  it('repeats a call on a new connection when the kept one was closed before the first byte of an answer', async () => {
    const { port, sockets } = await startServer((socket) => {
      let calls = 0;
      socket.on('data', () => (++calls === 1 ? socket.write(OK) : socket.destroy()));
    });
    const upstream = createNodeUpstream();
    for (let round = 0; round < 3; round++) expect(await kept(upstream, port)).toBe('ok');
    expect(sockets).toHaveLength(3);
  });

  it('repeats a call only once, and not after its answer has begun', async () => {
    let connections = 0;
    const { port } = await startServer((socket) => {
      const isFirst = ++connections === 1;
      let calls = 0;
      socket.on('data', () => (isFirst && ++calls === 1 ? socket.write(OK) : socket.destroy()));
    });
    const upstream = createNodeUpstream();
    expect(await kept(upstream, port)).toBe('ok');
    await expect(kept(upstream, port)).rejects.toThrow();
    expect(connections).toBe(2);

    const cutting = await startServer((socket) => {
      let calls = 0;
      socket.on('data', () => (++calls === 1 ? socket.write(OK) : socket.end(OK.slice(0, -1))));
    });
    expect(await kept(upstream, cutting.port)).toBe('ok');
    await expect(kept(upstream, cutting.port)).rejects.toThrow();
    expect(cutting.sockets).toHaveLength(1);
  });

  it('gives up on a connection that is not established in time', async () => {
    // Accepts, but never answers the TLS handshake.
    const { port, sockets } = await startServer(() => {});
    const call = get(createNodeUpstream({ connectTimeout: 1_000 }), `https://127.0.0.1:${port}/`);
    await expect(call).rejects.toThrow('timed out while connecting');
    await closedAll(sockets);
  });

  it.each(['127.0.0.1', 'localhost'])('an abort ends a connection that is not established: %s', async (host) => {
    // Accepts, but never answers the TLS handshake.
    const { port, sockets } = await startServer(() => {});
    const stop = new AbortController();
    const upstream = createNodeUpstream({ connectTimeout: 600_000 });
    const call = get(upstream, `https://${host}:${port}/`, stop.signal);
    await vi.waitFor(() => expect(sockets[0]?.bytesRead).toBeGreaterThan(0));
    stop.abort(new Error('enough'));
    await expect(call).rejects.toThrow('enough');
    await closedAll(sockets);
  });

  it('the time limit covers the connection only', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    onTestFinished(() => void vi.useRealTimers());
    const { port } = await startServer((socket) =>
      socket.once('data', () => {
        vi.advanceTimersByTime(60 * 60_000);
        socket.write(`${CHUNKED}0\r\n\r\n`);
      }),
    );
    const { status } = await get(createNodeUpstream(), `http://127.0.0.1:${port}/`);
    expect(status).toBe(200);
  });

  it.each([
    ['HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n'],
    ['nonsense\r\n\r\n'],
    ['HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n'],
  ])('rejects a malformed response: %j', async (text) => {
    const { port } = await saying(text);
    await expect(get(createNodeUpstream(), `http://127.0.0.1:${port}/`)).rejects.toThrow();
  });

  it('receives a body no faster than it is read', async () => {
    let written = 0;
    const chunk = `10000\r\n${'x'.repeat(0x10000)}\r\n`;
    const { port } = await startServer((socket) => {
      const more = () => {
        while (written < 1000 && socket.write(chunk)) written++;
      };
      socket.on('drain', more);
      socket.once('data', () => {
        socket.write(CHUNKED);
        more();
      });
    });
    const { body } = await get(createNodeUpstream(), `http://127.0.0.1:${port}/`);
    const chunks = body[Symbol.asyncIterator]();
    await chunks.next();
    let last = -1;
    await vi.waitFor(
      () => {
        const moved = written !== last;
        last = written;
        expect(moved).toBe(false);
      },
      { interval: 300 },
    );
    // Of 64 MiB, as much as fits into the kernel's buffers.
    expect(written).toBeLessThan(300);
    await chunks.return?.();
  });
});

it('a reason is short and contains no address', () => {
  expect(upstreamReason(Object.assign(new Error('connect ECONNREFUSED 127.0.0.1:1'), { code: 'ECONNREFUSED' }))).toBe(
    'connection refused',
  );
  expect(upstreamReason(Object.assign(new AggregateError([]), { code: 'EXOTIC' }))).toBe('EXOTIC');
  expect(upstreamReason(new Error('x'.repeat(500)))).toHaveLength(200);
  expect(upstreamReason(undefined)).toBe('connection failed');
});

it('contract 02 §5.2: an abort cancels a body that nobody reads, where the platform would not', async () => {
  const cancel = vi.fn();
  // Like the edge, it does not pass the signal of a request on to the body.
  const upstream = fetchUpstream(async () => new Response(new ReadableStream({ cancel }), { status: 500 }));
  const [early, late] = [new AbortController(), new AbortController()];
  const { status } = await get(upstream, 'http://relay.example/', late.signal);
  expect([status, cancel.mock.calls.length]).toEqual([500, 0]);
  late.abort();
  expect(cancel).toHaveBeenCalledOnce();
  early.abort();
  const { body } = await get(upstream, 'http://relay.example/', early.signal);
  expect(cancel).toHaveBeenCalledTimes(2);
  await expect(readText(body)).rejects.toThrow(/abort/);
});

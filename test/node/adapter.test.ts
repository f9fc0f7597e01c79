import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, it } from 'vitest';
import { createAdapter } from '../../cli/runtime/node/adapter.ts';
import type { RelayRequest } from '../../handlers/request.ts';
import type { PipedBody } from '../../lib/host/media.ts';
import { createLog } from '../../lib/log.ts';
import { jsonText } from '../../lib/web/json.ts';
import { WebResponse } from '../../lib/web/response.ts';
import { chunksOf } from '../../lib/web/streams.ts';
import { cleanups } from '../support/built-relay.ts';
import { connectRaw, exchange, request } from '../support/raw-socket.ts';

const pending = cleanups();

type Answer = (request: RelayRequest) => Response | Promise<Response>;

/** A server that has nothing but the adapter. */
async function serve(answer: Answer): Promise<{ port: number; log: string[] }> {
  const log: string[] = [];
  const adapter = createAdapter(
    async (incoming) => answer(incoming as RelayRequest),
    createLog('DEBUG', (line) => log.push(line)),
  );
  const server: Server = createServer({ requireHostHeader: false }, adapter).listen(0, '127.0.0.1');
  await once(server, 'listening');
  pending.push(() => {
    server.closeAllConnections();
    server.close();
  });
  return { port: (server.address() as AddressInfo).port, log };
}

const send = (port: number, bytes: Buffer, method?: string) => exchange(port, bytes, method);
/** All of a body, chunk by chunk. */
async function collected(chunks: AsyncIterable<Uint8Array>): Promise<string> {
  const parts: Uint8Array[] = [];
  for await (const chunk of chunks) parts.push(chunk);
  return Buffer.concat(parts).toString();
}

/** A promise that is resolved from outside. */
function event() {
  let fire = () => {};
  const happened = new Promise<void>((resolve) => {
    fire = resolve;
  });
  return { fire: () => fire(), happened };
}

const describeUrl: Answer = ({ url, headers }) => jsonText(JSON.stringify({ url, host: headers.get('host') }));

it.each([
  ['a plain path', '/a/b?c=1', 'relay.test', 'http://localhost/a/b?c=1'],
  ['a Host with a path', '/a', 'relay.test/pairing/register?', 'http://localhost/a'],
  ['a Host with an invalid port', '/a', 'relay.test:99999', 'http://localhost/a'],
  ['a whole URL', 'http://other.test:1/a?b', 'relay.test', 'http://localhost/a?b'],
  ['two slashes', '//a', 'relay.test', 'http://localhost//a'],
])('the URL of %s is that of its target', async (_name, target, host, url) => {
  const { port } = await serve(describeUrl);
  const { body } = await send(port, request('GET', target, { host }));
  expect(JSON.parse(body)).toEqual({ url, host });
});

it('a header with an empty value is present', async () => {
  const { port } = await serve(({ headers }) => jsonText(JSON.stringify([headers.has('via'), headers.has('origin')])));
  const { body } = await send(port, request('GET', '/', { via: '' }));
  expect(JSON.parse(body)).toEqual([true, false]);
});

it.each<[string, (request: RelayRequest) => Promise<string>]>([
  ['arrayBuffer()', async (incoming) => Buffer.from(await incoming.arrayBuffer()).toString()],
  ['text()', (incoming) => incoming.text()],
  ['body', ({ body }) => collected(chunksOf(body))],
  ['chunks()', ({ chunks }) => collected(chunks?.() ?? expect.fail('no chunks'))],
])('a body is read by %s', async (_name, read) => {
  const { port } = await serve(async (incoming) => new WebResponse(await read(incoming)));
  const text = 'ü'.repeat(100_000);
  const answer = await send(port, request('POST', '/', { 'content-length': `${Buffer.byteLength(text)}` }, text));
  expect(answer.body).toBe(text);
});

it('each response has a length of its own, although headers are shared constants', async () => {
  const headers = Object.freeze({ 'content-type': 'text/plain' });
  const { port } = await serve(({ url }) => new WebResponse(url.slice('http://localhost/'.length), { headers }));
  for (const text of ['a', 'long', '%C3%BC']) {
    const answer = await send(port, request('GET', `/${text}`));
    expect(answer).toMatchObject({ body: text, headers: { 'content-length': `${text.length}` } });
  }
  expect(headers).toEqual({ 'content-type': 'text/plain' });
});

it('text, bytes, nothing and streams arrive whole', async () => {
  const streamed = () =>
    new ReadableStream<Uint8Array>({
      start(controller) {
        controller.enqueue(new Uint8Array([1, 2]));
        controller.enqueue(new Uint8Array([3]));
        controller.close();
      },
    });
  const bodies: Record<string, () => Response> = {
    '/text': () => new WebResponse('grüße'),
    '/bytes': () => new WebResponse(new Uint8Array([0, 255])),
    '/nothing': () => new WebResponse(null, { status: 204 }),
    '/stream': () => new WebResponse(streamed(), { headers: { 'content-length': '3' } }),
    '/foreign': () => new Response('foreign', { status: 201, headers: { 'x-own': 'yes', 'content-length': '7' } }),
  };
  const { port } = await serve(({ url }) => bodies[new URL(url).pathname]?.() ?? new WebResponse('none'));
  const ask = (path: string) => send(port, request('GET', path));
  expect(await ask('/text')).toMatchObject({ status: 200, body: 'grüße', headers: { 'content-length': '7' } });
  expect((await ask('/bytes')).headers['content-length']).toBe('2');
  expect(await ask('/nothing')).toMatchObject({ status: 204, body: '' });
  expect(await ask('/stream')).toMatchObject({ body: '\u0001\u0002\u0003' });
  expect(await ask('/foreign')).toMatchObject({ status: 201, body: 'foreign', headers: { 'x-own': 'yes' } });
});

/** An endless body that tells when it is given up. */
function endless() {
  const ended = event();
  const stream = new ReadableStream<Uint8Array>({
    pull: (controller) => controller.enqueue(new Uint8Array(64 * 1024)),
    cancel: ended.fire,
  });
  return { stream, ended: ended.happened };
}

it('a stream is cancelled when its client hangs up, and for HEAD', async () => {
  const { stream, ended } = endless();
  const forHead = endless();
  const { port } = await serve(({ method }) => new WebResponse(method === 'HEAD' ? forHead.stream : stream));
  const raw = await connectRaw(port);
  raw.write(request('GET', '/'));
  expect((await raw.head()).status).toBe(200);
  // It reads no more, so that the server waits for it.
  raw.socket.pause();
  raw.reset();
  await ended;
  expect((await send(port, request('HEAD', '/'), 'HEAD')).status).toBe(200);
  await forHead.ended;
});

it('a stream that failed before its client hung up is dropped', async () => {
  const { happened: isGone, fire: gone } = event();
  const { happened: isSent, fire: sent } = event();
  const { port } = await serve(async ({ signal }) => {
    signal.addEventListener('abort', gone);
    await isGone;
    const failed = new ReadableStream<Uint8Array>({ start: (controller) => controller.error(new Error('it broke')) });
    const response = new WebResponse(failed);
    response.sent = sent;
    return response;
  });
  const raw = await connectRaw(port);
  raw.write(request('GET', '/'));
  raw.reset();
  await isSent;
  // The rejection of the stream would have been reported by now.
  await new Promise(setImmediate);
});

it('a body that pipes itself is dropped for HEAD', async () => {
  let dropped = 0;
  const body: PipedBody = { pipe: () => expect.fail('sent'), destroy: () => void dropped++ };
  const { port } = await serve(() => new WebResponse(body));
  expect((await send(port, request('HEAD', '/'), 'HEAD')).status).toBe(200);
  expect(dropped).toBe(1);
});

it('the signal aborts when the client hangs up, and not after its response', async () => {
  const aborted = event();
  const signals: AbortSignal[] = [];
  const { port } = await serve(({ signal, url }) => {
    signals.push(signal);
    if (!url.endsWith('/wait')) return new WebResponse('done');
    return new Promise(() => signal.addEventListener('abort', aborted.fire));
  });
  await send(port, request('GET', '/', { connection: 'close' }));
  const raw = await connectRaw(port);
  raw.write(request('GET', '/wait'));
  await expect.poll(() => signals.length).toBe(2);
  raw.reset();
  await aborted.happened;
  expect(signals.map((signal) => signal.aborted)).toEqual([false, true]);
});

it('a handler that fails costs one connection, and one line of the log', async () => {
  const { port, log } = await serve(({ url }) => {
    if (url.endsWith('/fail')) throw new Error('no reason');
    return new WebResponse('fine');
  });
  await expect(send(port, request('GET', '/fail'))).rejects.toThrow(/ended/);
  expect(log).toEqual([expect.stringMatching(/\[ERROR\].*response failed: .*no reason/)]);
  expect((await send(port, request('GET', '/'))).body).toBe('fine');
});

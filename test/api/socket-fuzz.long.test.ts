import fc from 'fast-check';
import { afterAll, afterEach, expect, it, vi } from 'vitest';
import { type BuiltTarget, cleanups, startBuiltTarget } from '../support/built-relay.ts';
import type { Client } from '../support/client.ts';
import { garbageCollector } from '../support/garbage.ts';
import {
  connectRaw,
  exchange,
  frame,
  handshakeHeaders,
  openAuthenticated,
  openRaw,
  type RawConnection,
  request,
  textFrame,
} from '../support/raw-socket.ts';
import { pair } from '../support/relay.ts';

const MiB = 1024 * 1024;
const pending = cleanups();

/** Uncaught errors, which would have ended the relay's process. */
const uncaught: unknown[] = [];
const note = (error: unknown) => void uncaught.push(error);
process.on('uncaughtExceptionMonitor', note);
afterAll(() => void process.off('uncaughtExceptionMonitor', note));
afterEach(() => expect(uncaught.splice(0)).toEqual([]));

/** A relay, and a device that must not be disturbed. */
async function start(env: Record<string, string> = {}) {
  const target = await startBuiltTarget({ env });
  pending.push(target.stop);
  const honest = await pair(target);
  pending.push(() => honest.client.terminate());
  return { target, honest: honest.client, token: honest.token };
}

async function ping(client: Client): Promise<void> {
  const id = crypto.randomUUID();
  client.send('system', 'ping', {}, id);
  expect((await client.next({ id })).type).toBe('pong');
}

/** Pings continuously until told to stop. Returns the number of answers. */
function pingAllTheWhile(client: Client): () => Promise<number> {
  let going = true;
  const done = (async () => {
    let count = 0;
    for (; going; count++) await ping(client);
    return count;
  })();
  return () => {
    going = false;
    return done;
  };
}

const text = fc.string({ unit: 'binary', maxLength: 300 });
const envelope = fc
  .record(
    {
      channel: fc.oneof(fc.constantFrom('system', 'chat', 'pairing', '__proto__'), text, fc.jsonValue()),
      type: fc.oneof(fc.constantFrom('auth', 'ping', 'pong', 'auth.ok'), text, fc.jsonValue()),
      id: fc.oneof(text, fc.jsonValue()),
      payload: fc.oneof(
        fc.record(
          {
            pairing_code: fc.jsonValue(),
            session_token: fc.oneof(text, fc.jsonValue()),
            refresh_token: fc.jsonValue(),
            device_id: fc.jsonValue(),
            device_name: fc.oneof(text, fc.jsonValue()),
            supports: fc.jsonValue(),
            ts: fc.jsonValue(),
          },
          { requiredKeys: [] },
        ),
        fc.jsonValue(),
      ),
    },
    { requiredKeys: [] },
  )
  .map((value) => JSON.stringify(value));

const bytes = (maxLength: number) => fc.uint8Array({ maxLength }).map((array) => Buffer.from(array));

/** One write of a hostile client. */
const writing = fc.oneof(
  { weight: 2, arbitrary: bytes(200) },
  { weight: 4, arbitrary: envelope.map((payload) => frame({ payload })) },
  { weight: 2, arbitrary: fc.json().map((payload) => frame({ payload })) },
  { weight: 2, arbitrary: text.map((payload) => frame({ payload })) },
  { weight: 1, arbitrary: bytes(200).map((payload) => frame({ payload })) },
  {
    weight: 3,
    arbitrary: fc
      .record({
        fin: fc.boolean(),
        rsv: fc.constantFrom(0, 0, 0, 1, 2, 4, 7),
        opcode: fc.nat(15),
        masked: fc.constantFrom(true, true, true, false),
        payload: bytes(130),
        length: fc.option(fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }), { nil: undefined }),
      })
      .map((bits) => frame({ ...bits, lengthBits: bits.length === undefined ? undefined : 64 })),
  },
  {
    weight: 2,
    arbitrary: fc.tuple(envelope, fc.nat(100)).map(([payload, percent]) => {
      const whole = frame({ payload });
      return whole.subarray(0, Math.floor((whole.length * percent) / 100));
    }),
  },
  {
    weight: 1,
    arbitrary: fc.integer({ min: 60_000, max: 70_000 }).map((size) => frame({ payload: 'x'.repeat(size) })),
  },
);
const ending = fc.constantFrom('destroy' as const, 'reset' as const, 'end' as const);

/** Ends a connection. A polite end in the middle of a frame may leave it half open at the relay: it is dropped. */
async function finish(raw: RawConnection, how: 'destroy' | 'reset' | 'end', honest: Client): Promise<void> {
  if (how !== 'end') {
    raw[how]();
    return;
  }
  raw.socket.end();
  await ping(honest);
  raw.destroy();
}

async function expectRelaxed(target: BuiltTarget, honest: Client): Promise<void> {
  await vi.waitFor(() => expect(target.relay.sockets.count()).toBe(1));
  await ping(honest);
  // All slots are free again.
  target.relay.limiter.clear();
  await vi.waitFor(async () => {
    const slots = await Promise.allSettled(Array.from({ length: 16 }, () => openRaw(target.port)));
    for (const slot of slots) if (slot.status === 'fulfilled') slot.value.destroy();
    expect(slots.filter((slot) => slot.status === 'fulfilled')).toHaveLength(16);
  });
  expect(target.log.filter((line) => line.includes('[ERROR]'))).toEqual([]);
}

it('contract 01 §3.6: arbitrary first frames are refused or ignored and never crash the relay', async () => {
  const { target, honest } = await start();
  await fc.assert(
    fc.asyncProperty(fc.array(writing, { minLength: 1, maxLength: 4 }), ending, async (writings, how) => {
      target.relay.limiter.clear();
      const raw = await openRaw(target.port);
      for (const one of writings) raw.write(one);
      await ping(honest);
      await finish(raw, how, honest);
    }),
    { numRuns: 250 },
  );
  await expectRelaxed(target, honest);
});

it('contract 01 §3.7: after arbitrary frames the socket answers, or it alone is closed', async () => {
  const { target, honest, token } = await start();
  await fc.assert(
    fc.asyncProperty(fc.array(writing, { minLength: 1, maxLength: 6 }), ending, async (writings, how) => {
      const raw = await openAuthenticated(target.port, { session_token: token });
      for (const one of writings) raw.write(one);
      await ping(honest);
      await finish(raw, how, honest);
      await vi.waitFor(() => expect(target.relay.sockets.count()).toBe(1), { interval: 5 });
    }),
    { numRuns: 250 },
  );
  await expectRelaxed(target, honest);
});

it('contract 01 §3.7: arbitrary text after auth leaves the socket open', async () => {
  const { target, token } = await start();
  const raw = await openAuthenticated(target.port, { session_token: token });
  pending.push(raw.destroy);
  let count = 0;
  await fc.assert(
    fc.asyncProperty(fc.oneof(envelope, fc.json(), text), async (payload) => {
      raw.write(frame({ payload }));
      const id = `check-${count++}`;
      raw.write(textFrame('system', 'ping', {}, id));
      for (let answer = await raw.envelope(); answer.id !== id; answer = await raw.envelope()) {
        // Some channels answer in their own error envelope (contract 02 §1.4).
        if (answer.channel === 'system') expect(['error', 'pong']).toContain(answer.type);
        else expect(answer.type).toBe(`${answer.channel}.error`);
        expect(answer.payload).toBeTypeOf('object');
        expect(answer.id.length).toBeGreaterThan(0);
      }
    }),
    { numRuns: 600 },
  );
});

const ROUTES = [
  '/health',
  '/sessions',
  '/sessions/abcd',
  '/ws',
  '/',
  '/pairing',
  '/pairing/register',
  '/pairing/approve',
  '/pairing/mint',
  '/clipboard/inbox',
  '/relay/info',
  '/relay/security',
  '/relay/update-check',
];
const METHODS = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'HEAD', 'OPTIONS', 'TRACE', 'PROPFIND'];
/** Characters that Node's parser accepts in a request line; the others have their own cases. */
const pathText = fc
  .string({ unit: fc.integer({ min: 0x21, max: 0xff }).map((code) => String.fromCharCode(code)), maxLength: 30 })
  .filter((path) => !path.includes('\x7f'));
const path = fc.oneof(
  { weight: 3, arbitrary: fc.constantFrom(...ROUTES) },
  { weight: 2, arbitrary: fc.tuple(fc.constantFrom(...ROUTES), pathText).map(([route, more]) => route + more) },
  { weight: 1, arbitrary: fc.tuple(fc.constantFrom(...ROUTES), pathText).map(([route, more]) => `${route}?${more}`) },
  { weight: 1, arbitrary: fc.tuple(fc.constantFrom(...ROUTES), pathText).map(([route, more]) => `${route}/${more}`) },
  { weight: 1, arbitrary: pathText.map((more) => `/${more}`) },
  { weight: 1, arbitrary: pathText.filter((more) => more !== '') },
);
const headerValue = fc.string({
  unit: fc.integer({ min: 0x20, max: 0xff }).map((code) => (code === 0x7f ? ' ' : String.fromCharCode(code))),
  maxLength: 40,
});
const headers = fc.dictionary(
  fc.constantFrom(
    'authorization',
    'origin',
    'sec-fetch-site',
    'x-forwarded-for',
    'x-forwarded-host',
    'x-svc-operator',
    'content-type',
    'accept',
    'cookie',
    'range',
    'if-none-match',
    'x-any',
  ),
  fc.oneof(headerValue, fc.constantFrom('1', 'Bearer x', 'Bearer', 'null', 'application/json')),
  { maxKeys: 4 },
);
const deep = fc.nat(200).map((depth) => `${'{"a":'.repeat(depth)}1${'}'.repeat(depth)}`);
const body = fc.oneof(
  bytes(300),
  fc.json().map((json) => Buffer.from(json)),
  deep.map((json) => Buffer.from(json)),
  fc
    .record(
      {
        code: fc.oneof(fc.constant('FUZZED'), fc.jsonValue()),
        ttl_seconds: fc.oneof(fc.double(), fc.jsonValue()),
        grants: fc.oneof(fc.dictionary(fc.string(), fc.oneof(fc.double(), fc.jsonValue())), fc.jsonValue()),
        transport_hint: fc.jsonValue(),
        endpoints: fc.oneof(fc.array(fc.jsonValue()), fc.jsonValue()),
        host: fc.oneof(fc.string(), fc.jsonValue()),
        port: fc.oneof(fc.integer(), fc.jsonValue()),
        tls: fc.jsonValue(),
        api_key: fc.oneof(fc.string(), fc.jsonValue()),
        dashboard_url: fc.oneof(fc.webUrl(), fc.string()),
        allow_insecure_api_bearer: fc.jsonValue(),
        format: fc.oneof(fc.constantFrom('png', 'jpeg'), fc.jsonValue()),
        bytes_base64: fc.oneof(fc.base64String(), fc.jsonValue()),
        filename_hint: fc.oneof(fc.string({ unit: 'binary' }), fc.jsonValue()),
      },
      { requiredKeys: [] },
    )
    .map((json) => Buffer.from(JSON.stringify(json))),
);

it('contract 01 §1: any request is answered, never with 500, and errors always have the JSON body', async () => {
  const { target, honest, token } = await start();
  await fc.assert(
    fc.asyncProperty(
      fc.constantFrom(...METHODS),
      path,
      headers,
      body,
      fc.boolean(),
      async (method, path, headers, body, knows) => {
        target.relay.limiter.clear();
        const answer = await exchange(
          target.port,
          request(
            method,
            path,
            {
              ...headers,
              ...(knows ? { authorization: `Bearer ${token}` } : {}),
              'content-length': String(body.length),
              connection: 'close',
            },
            body,
          ),
          method,
        );
        expect(answer.status).toBeGreaterThanOrEqual(200);
        expect(answer.status).toBeLessThan(500);
        expect(answer.headers['x-content-type-options']).toBe('nosniff');
        expect(answer.headers['content-type']).toBe('application/json');
        expect(Object.keys(answer.headers).filter((name) => name.startsWith('access-control'))).toEqual([]);
        if (method === 'HEAD') return;
        const parsed = JSON.parse(answer.body);
        if (answer.status >= 400) expect(parsed).toMatchObject({ ok: false, error: expect.stringMatching(/^[^\n]+$/) });
      },
    ),
    { numRuns: 700 },
  );
  expect(target.log.filter((line) => line.includes('[ERROR]'))).toEqual([]);
  await ping(honest);
});

it('contract 01 §1: bytes that are not a request get 400 with the JSON body, or the end of the connection', async () => {
  const { target, honest } = await start();
  const heads = fc.oneof(
    bytes(200),
    fc
      .tuple(fc.constantFrom(...METHODS), bytes(60))
      .map(([method, junk]) => Buffer.concat([Buffer.from(`${method} `), junk])),
    bytes(60).map((junk) =>
      Buffer.concat([Buffer.from('GET / HTTP/1.1\r\nhost: x\r\n'), junk, Buffer.from('\r\n\r\n')]),
    ),
    fc.string({ maxLength: 12 }).map((version) => Buffer.from(`GET / HTTP/${version}\r\n\r\n`)),
  );
  await fc.assert(
    fc.asyncProperty(heads, async (junk) => {
      const raw = await connectRaw(target.port);
      raw.write(junk);
      raw.socket.end();
      await raw.ended();
      if (raw.unread() > 0) {
        const { status, headers, body } = await raw.response();
        expect(status).toBeLessThan(500);
        expect(headers['x-content-type-options']).toBe('nosniff');
        expect(JSON.parse(body)).toBeTypeOf('object');
      }
      raw.destroy();
    }),
    { numRuns: 300 },
  );
  await ping(honest);
});

const openTcp = () => process.getActiveResourcesInfo().filter((name) => name === 'TCPSocketWrap').length;

it('contract 01 §3.1: ten thousand connections that never authenticate leave nothing behind', async () => {
  const { target, honest } = await start({ RELAY_TRUST_PROXY_HEADERS: '1' });
  const whole = request('GET', '/ws', handshakeHeaders());
  const visitors: ((index: number) => Promise<void>)[] = [
    // A complete upgrade, at most 16 per peer, that ends silently, mid-frame, or after a false announcement.
    async (index) => {
      const raw = await openRaw(target.port, { headers: { 'x-forwarded-for': `198.51.100.${index % 250}` } });
      if (index % 3 === 1) raw.write(Buffer.from([0x81, 0xfe]));
      if (index % 3 === 2) raw.write(frame({ payload: '[]' }));
      raw.reset();
    },
    // A bare connection.
    async () => (await connectRaw(target.port)).reset(),
    // Half a request head.
    async (index) => {
      const raw = await connectRaw(target.port);
      raw.write(whole.subarray(0, 1 + (index % (whole.length - 1))));
      raw.reset();
    },
  ];
  const wave = async (size: number, offset: number) => {
    await Promise.all(Array.from({ length: size }, (_, index) => visitors[(offset + index) % 3]?.(index)));
  };
  await wave(200, 0);
  await vi.waitFor(() => expect(openTcp()).toBeLessThan(20));
  const connected = openTcp();
  const collect = garbageCollector();
  collect();
  const before = process.memoryUsage().heapUsed;
  const stopPings = pingAllTheWhile(honest);
  for (let done = 0; done < 10_000; done += 200) await wave(200, done);
  expect(await stopPings()).toBeGreaterThan(50);
  await expectRelaxed(target, honest);
  await vi.waitFor(() => expect(openTcp()).toBeLessThanOrEqual(connected));
  // The log is kept by the test itself, not by the relay.
  target.log.length = 0;
  collect();
  expect(process.memoryUsage().heapUsed - before).toBeLessThan(16 * MiB);
});

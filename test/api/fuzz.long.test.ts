import { chmod, mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import fc from 'fast-check';
import { afterAll, describe, expect, it, vi } from 'vitest';
import { createChannels } from '../../handlers/channels/index.ts';
import type { Route } from '../../handlers/request.ts';
import { routes } from '../../handlers/routes.ts';
import type { Upstream } from '../../lib/host/upstream.ts';
import { isObject } from '../../lib/kit/json.ts';
import type { Relay } from '../../lib/relay.ts';
import { GRANTS } from '../../lib/sessions/grants.ts';
import { startBuiltTarget } from '../support/built-relay.ts';
import { type Client, connect } from '../support/client.ts';
import { createTestClock, type TestClock } from '../support/clock.ts';
import { startEdgeTarget } from '../support/edge.ts';
import {
  anyObject,
  anyValue,
  descriptors,
  faults,
  fuzzRuns,
  headersRead,
  LONG,
  namesReadDuring,
  spoiled,
  typesOf,
  watchCrashes,
  wordsBeside,
} from '../support/fuzz.ts';
import { PNG } from '../support/media.ts';
import { put } from '../support/profiles.ts';
import { connectRaw, exchange, type RawResponse, request } from '../support/raw-socket.ts';
import { addressHeaders, authenticate, bearer, type Paired, pair, runtimes, type Target } from '../support/relay.ts';

const crashes = watchCrashes();
afterAll(crashes.stop);

/** A row of the route table, with one method and one path of it. */
interface Row {
  method: string;
  /** With `:name` for each parameter. */
  path: string;
  handler: string;
}

const rowOf = ([method, path, , handler]: Route): Row[] => {
  const paths = path.startsWith('/(?<command>')
    ? path
        .slice('/(?<command>'.length, -1)
        .split('|')
        .map((command) => `/${command}`)
    : [path.replace(/\(\?!.*\)(?=:)/, '')];
  const methods = method === 'ALL' ? ['GET', 'POST'] : [method];
  return paths.flatMap((path) => methods.map((method) => ({ method, path, handler: handler.name })));
};
/** THE route table, so that new routes take part by themselves. */
const ROWS = routes.flatMap(rowOf);
/** Rows by handler: one of them serves all of Device Control. */
const BY_HANDLER = [...new Set(ROWS.map(({ handler }) => handler))].map((name) =>
  ROWS.filter(({ handler }) => handler === name),
);
/** Names of queries, by handler. */
const WORDS = new Map(ROWS.map(({ handler }) => [handler, wordsBeside(handler)]));

/** Answers of a server behind the relay, of phones and of desktops. Each case sets them. */
interface Behind {
  status: number;
  body: string;
  reply: unknown;
}

interface Fuzzed {
  target: Target;
  clock?: TestClock;
  behind: Behind;
  /** Devices with all grants, with one each, and with none; and the credentials of the operator. */
  callers(): Promise<Record<string, string>[]>;
  /** Texts that mean something to this relay: prefixes, tokens, names. */
  known: string[];
  /** Devices with no grant, one or some. */
  limited: Paired[];
  probe: Client;
  stop(): Promise<void>;
}

/** A relay with a phone and a desktop that answer whatever `behind` says. */
async function start(runtime: 'node' | 'edge'): Promise<Fuzzed> {
  const behind: Behind = { status: 200, body: '{}', reply: {} };
  const upstream: Upstream = async () => {
    if (behind.status === 0) throw Object.assign(new Error('connect ECONNREFUSED'), { code: 'ECONNREFUSED' });
    const bytes = Buffer.from(behind.body);
    return {
      status: behind.status,
      headers: {},
      body: (async function* () {
        yield bytes.subarray(0, bytes.length / 2);
        yield bytes.subarray(bytes.length / 2);
      })(),
    };
  };
  const clock = runtime === 'node' ? createTestClock() : undefined;
  const target: Target =
    runtime === 'edge'
      ? await startEdgeTarget()
      : await startBuiltTarget({
          clock,
          upstream,
          // What a shell or a gateway is sent comes back, and is never run. There is no tmux.
          env: {
            RELAY_TERMINAL_GRACE_SECONDS: '0',
            RELAY_USAGE_ENABLED: '1',
            RELAY_TUI_COMMAND: JSON.stringify(['/bin/sh', '-c', 'exec /bin/cat']),
          },
          hostEnv: (home) => ({ PATH: '', HOME: home, TMPDIR: join(home, 'tmp'), SHELL: join(home, 'shell') }),
        });
  if (runtime === 'node') {
    await mkdir(join(target.agentHome, 'tmp'));
    await put(target, {
      'config.yaml': 'model: x\n',
      'SOUL.md': 'soul',
      'memories/note.md': 'note',
      'skills/a/b/SKILL.md': '---\nname: b\n---\n',
      'avatar.png': PNG,
      'profiles/work/config.yaml': 'description: w\n',
      'workspace/a.txt': 'text',
      shell: '#!/bin/sh\nexec /bin/cat\n',
    });
    await chmod(join(target.agentHome, 'shell'), 0o755);
  }
  const kept: Paired[] = [];
  const device = async (policy: Record<string, unknown> = {}, more: Record<string, unknown> = {}) => {
    const paired = await pair(target, { policy, device: more });
    kept.push(paired);
    return paired;
  };
  const only = (name: string) => ({ without: GRANTS.filter((grant) => grant !== name) });
  const probe = await device({}, { device_name: 'Probe' });
  const phone = await device({}, { device_id: 'phone-1', device_name: 'Fold' });
  const desktop = await device({}, { device_id: 'pc-1', client_surface: 'desktop', device_name: 'PC' });
  answerCommands(phone.client, 'bridge', behind);
  answerCommands(desktop.client, 'desktop', behind);
  phone.client.send('bridge', 'bridge.status', { ts: 1 });
  desktop.client.send('desktop', 'desktop.status', { advertised_tools: ['desktop_terminal'], host: 'pc' });
  const known = [
    'phone-1',
    'pc-1',
    'Fold',
    'work',
    'note.md',
    'desktop_terminal',
    join(target.agentHome, 'workspace/a.txt'),
  ];
  let full: Paired | undefined;
  let uses = 0;
  const limited = await Promise.all([...GRANTS.slice(-4), 'chat', 'none'].map((name) => device(only(name))));
  return {
    target,
    clock,
    behind,
    known,
    limited,
    probe: probe.client,
    async callers() {
      // A case may well have revoked or reduced it.
      if (!full || uses++ % 40 === 0 || (target.relay && !target.relay.sessions.authenticate(full.token))) {
        full?.client.terminate();
        full = await pair(target);
        known.splice(7, Number.POSITIVE_INFINITY, full.prefix, full.token, limited[0]?.prefix ?? '');
      }
      const strict: Record<string, string> = { 'x-svc-operator': '1' };
      const grants = limited.map(({ token }) => bearer(token));
      return [bearer(full.token), bearer(full.token), strict, {}, bearer('wrong'), ...grants];
    },
    async stop() {
      for (const { client } of [...kept, ...(full ? [full] : [])]) client.terminate();
      await target.stop();
    },
  };
}

/** Answers each command with what the case has chosen, or not at all. */
function answerCommands(client: Client, channel: string, behind: Behind): void {
  client.socket.on('message', (data) => {
    const { type, payload } = JSON.parse(String(data));
    if (type !== `${channel}.command` || behind.reply === undefined) return;
    const reply = isObject(behind.reply) ? behind.reply : { result: behind.reply };
    client.send(channel, `${channel}.response`, { request_id: payload.request_id, ok: true, ...reply });
  });
}

async function ping(client: Client): Promise<void> {
  const id = crypto.randomUUID();
  client.send('system', 'ping', {}, id);
  expect((await client.next({ id })).type).toBe('pong');
}

/** Fields of the bodies of each handler, found out by asking a relay of this process. Empty in the beginning. */
const FIELDS = new Map<string, string[]>();
const filled = (path: string, values: string[]): string =>
  path.replace(/:\w+/g, () => encodeURIComponent(values.shift() ?? 'x'));

/** Offers each row bodies with what it has asked for so far, until it asks for nothing new. */
async function learnFields(): Promise<void> {
  if (FIELDS.size > 0) return;
  const { target, clock, callers, stop } = await start('node');
  const [device = {}, , operator = {}] = await callers();
  for (const rows of BY_HANDLER) {
    const names = new Set<string>();
    const row = rows.find(({ method }) => method !== 'GET');
    if (!row) continue;
    const path = filled(row.path, ['work', 'note.md']);
    for (const value of ['x', 1, true, ['x'], { x: 1 }, [{ x: 1 }]]) {
      for (const headers of [device, operator]) {
        const body = JSON.stringify(Object.fromEntries([...names, 'x'].map((name) => [name, value])));
        const found = await namesReadDuring(async () => {
          target.relay?.limiter.clear();
          await patiently(clock, ask(target, row.method, path, { ...headers }, body));
        });
        for (const name of found) names.add(name);
      }
    }
    FIELDS.set(row.handler, [...names]);
  }
  await stop();
}

/** Sends a request on a connection of its own. */
function ask(
  target: Target,
  method: string,
  path: string,
  headers: Record<string, string>,
  body: string | Buffer = '',
) {
  const { host, port } = new URL(target.url);
  const length = { 'content-length': String(Buffer.byteLength(body)) };
  return exchange(
    Number(port),
    request(method, path, { host, connection: 'close', ...length, ...headers }, body),
    method,
  );
}

/** Moves time forward while an answer is awaited: a long poll ends, a silent phone is given up. */
async function patiently<T>(clock: TestClock | undefined, answer: Promise<T>): Promise<T> {
  let done = false;
  const over = answer.finally(() => {
    done = true;
  });
  over.catch(() => {});
  while (clock && !done) {
    await Promise.race([over.catch(() => {}), sleep(40)]);
    if (!done) await clock.advanceAsync(20_000);
  }
  return over;
}

const HEADERS = headersRead();
const METHODS = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'HEAD', 'OPTIONS', 'TRACE', 'PROPFIND'];
const HEADER_TEXTS = [
  ...['', '0', '1', '*', 'x', '"x"', 'W/"x"', '"x", "y",', ',', 'Bearer', 'Bearer  ', 'Basic eDp4', 'null', 'true'],
  ...['bytes=0-', 'bytes=-0', 'bytes=-1', 'bytes=1-0', 'bytes=0-0,2-2', 'bytes=99999999999999999999-', 'bytes=a-b'],
  ...['items=0-1', 'Thu, 01 Jan 1970 00:00:00 GMT', 'Thu, 99 Foo 9999', '-1', '1e9', 'http://x', 'https://127.0.0.1'],
  ...[
    'application/json',
    'application/json; charset=utf-16',
    'text/plain',
    'multipart/form-data',
    'multipart/mixed; boundary=b',
  ],
  ...[
    'multipart/form-data; boundary=',
    'multipart/form-data; boundary=b',
    `multipart/form-data; boundary=${'b'.repeat(300)}`,
  ],
  ...['\x80\xff\xfe', '\t', 'a'.repeat(3000), 'gzip', '127.0.0.1', '203.0.113.9, x', 'for=127.0.0.1'],
];

/** One request of a hostile client. */
interface Shot {
  row: Row;
  /** Another one than the row's. */
  method?: string;
  params: string[];
  query: [string, string][];
  headers: Record<string, string>;
  body: Buffer;
  /** How the body is announced. */
  framing: 'length' | 'chunked' | 'short' | 'none';
  caller: number;
  behind: Behind;
}

function shots(known: () => readonly string[], runtime: 'node' | 'edge'): fc.Arbitrary<Shot & { method: string }> {
  const value = anyValue(known);
  const text = value.map((value) => (typeof value === 'string' ? value : JSON.stringify(value)));
  const wellFormed = text.map((text) => text.toWellFormed());
  const multipart = fc
    .tuple(
      wellFormed,
      wellFormed,
      fc.constantFrom('--b', '--b--', '--c', '-', ''),
      fc.constantFrom('file', 'x', '"', ''),
    )
    .map(([one, other, end, name]) =>
      Buffer.from(
        `--b\r\ncontent-disposition: form-data; name="${name}"; filename="${one}"\r\ncontent-type: ${other}\r\n\r\n${one}\r\n${end}\r\n`,
      ),
    );
  const anyBody = (row: Row) => {
    const object = anyObject(
      [FIELDS, FIELDS, WORDS].flatMap((names) => names.get(row.handler) ?? []),
      value,
    ).map((body) => JSON.stringify(body));
    const bytes = (texts: fc.Arbitrary<string>) => texts.map((text) => Buffer.from(text));
    return fc.oneof(
      { weight: 8, arbitrary: bytes(object) },
      { weight: 2, arbitrary: bytes(spoiled(object)) },
      { weight: 1, arbitrary: bytes(value.map((value) => JSON.stringify(value) ?? '')) },
      { weight: 2, arbitrary: row.path.includes('upload') ? multipart : bytes(object) },
      { weight: 1, arbitrary: fc.uint8Array({ maxLength: 200 }).map((bytes) => Buffer.from(bytes)) },
      {
        weight: 1,
        arbitrary: fc.constantFrom(Buffer.alloc(0), Buffer.alloc(70_000, 'x'), Buffer.alloc(2_200_000, '[')),
      },
    );
  };
  const behind = fc.record({
    // Not 500, which a phone may answer but the relay may not.
    status: fc.constantFrom(0, 200, 200, 200, 204, 301, 401, 403, 404, 429, 503, 599),
    body: fc.oneof(spoiled(text), text, fc.constantFrom('data: {"a":1}\n\n', '{"data":[{"id":"x"}]}', '[]', '')),
    reply: fc.oneof(
      fc.record(
        {
          status: fc
            .oneof(fc.constantFrom(200, 204, 304, 404, 100, 99, 600, -1, 0, 418), value)
            .filter((it) => it !== 500),
          result: value,
          error: value,
          ok: value,
          blocked: value,
          error_code: value,
        },
        { requiredKeys: [] },
      ),
      value,
    ),
  });
  const anyMethod = fc.constantFrom(...METHODS);
  const shotOf = (rows: Row[]): fc.Arbitrary<Shot> => {
    const [row] = rows as [Row];
    // The local edge runtime reports no hang-up, and its time cannot be moved.
    const words = (WORDS.get(row.handler) ?? []).filter((word) => runtime === 'node' || word !== 'timeout');
    return fc.record<Shot>({
      row: fc.constantFrom(...rows),
      method: fc.oneof({ weight: 9, arbitrary: fc.constant(undefined) }, { weight: 1, arbitrary: anyMethod }),
      params: fc.tuple(
        fc.oneof(fc.constantFrom('default', 'work', 'desktop_terminal'), wellFormed),
        fc.oneof(fc.constant('note.md'), wellFormed),
      ),
      query: fc.array(fc.tuple(fc.constantFrom(...words, 'x', '__proto__', ''), wellFormed), { maxLength: 5 }),
      headers: fc.dictionary(
        fc
          .constantFrom(...HEADERS, 'content-type', 'expect', 'cookie', 'accept', 'x-any')
          .filter((name) => !['content-length', 'authorization', 'host'].includes(name)),
        fc.oneof(
          { weight: 4, arbitrary: fc.constantFrom(...HEADER_TEXTS) },
          { weight: 1, arbitrary: fc.string({ maxLength: 20 }) },
        ),
        { maxKeys: 4 },
      ),
      body: anyBody(row),
      framing: fc.oneof(
        { weight: 20, arbitrary: fc.constant('length' as const) },
        { weight: 3, arbitrary: fc.constantFrom('chunked' as const, 'short' as const, 'none' as const) },
      ),
      caller: fc.nat(100),
      behind,
    });
  };
  return fc.oneof(...BY_HANDLER.map(shotOf)).map((shot) => ({ ...shot, method: shot.method ?? shot.row.method }));
}

/** Texts of a URL: percent-encoded, but for a few that leave them as they are. */
const urlOf = ({ row, params, query }: Shot): string => {
  const search = query.map(([name, value]) => `${encodeURIComponent(name)}=${encodeURIComponent(value)}`).join('&');
  return `${filled(
    row.path,
    params.map((param) => param.slice(0, 300)),
  )}${search && '?'}${search.slice(0, 6000)}`;
};

function bytesOf(shot: Shot, host: string, caller: Record<string, string>): Buffer {
  const { method = shot.row.method, headers, body, framing } = shot;
  const all: Record<string, string> = { host, ...headers, ...caller, connection: 'close' };
  if (framing === 'length') all['content-length'] = String(body.length);
  if (framing === 'short') all['content-length'] = String(body.length + 7);
  if (framing !== 'chunked') return request(method, urlOf(shot), all, framing === 'none' ? '' : body);
  const half = body.length >> 1;
  const chunks = [body.subarray(0, half), body.subarray(half)].filter((part) => part.length > 0);
  const parts = chunks.flatMap((part) => [Buffer.from(`${part.length.toString(16)}\r\n`), part, Buffer.from('\r\n')]);
  return request(
    method,
    urlOf(shot),
    { ...all, 'transfer-encoding': 'chunked' },
    Buffer.concat([...parts, Buffer.from('0\r\n\r\n')]),
  );
}

/** Checks that hold for every answer of the relay (contract 01 §1). */
function expectSound({ status, headers, body }: RawResponse, { method, row }: Shot): void {
  // The contract wants 500 of these two when no provider can be used (05 §6, §7).
  const hasProvider = ['/voice/transcribe', '/voice/synthesize'].includes(row.path) && body.includes('"success":false');
  expect([status === 500 && !hasProvider, body.slice(0, 300)]).toEqual([false, expect.anything()]);
  expect(body).not.toContain('internal error');
  expect(headers['x-content-type-options']).toBe('nosniff');
  expect(Object.keys(headers).filter((name) => name.startsWith('access-control'))).toEqual([]);
  if (method === 'HEAD' || status === 204 || status === 205 || status === 304) return;
  // Voice routes answer errors as text (contract 05), the console with a page for people (09 §5).
  const types = row.path.startsWith('/voice/') ? 'application/json|text/plain' : 'application/json';
  const errors = new RegExp(`^(?:${row.path === '/console/*' ? `${types}|text/html` : types})`);
  if (status >= 400) expect(headers['content-type']).toMatch(errors);
  if (!headers['content-type']?.startsWith('application/json')) return;
  JSON.parse(body);
}

const RUNS = { node: 400, edge: 100 };

describe.each(runtimes())('requests to every route [%s]', (runtime) => {
  it('contract 01 §1: are answered without an internal error, whatever they carry', LONG, async () => {
    await learnFields();
    expect([...FIELDS.values()].flat().length).toBeGreaterThan(40);
    const fuzzed = await start(runtime);
    const { target, clock, behind, probe, known } = fuzzed;
    const { host, port } = new URL(target.url);
    await ping(probe);
    let logged = target.log.length;
    const before = descriptors();
    const statuses = new Map<string, Set<number>>();
    const count = fuzzRuns(RUNS[runtime]);
    let unanswered = 0;
    await fc.assert(
      fc.asyncProperty(
        shots(() => known, runtime),
        async (shot) => {
          target.relay?.limiter.clear();
          Object.assign(behind, shot.behind);
          const callers = await fuzzed.callers();
          const caller = callers[shot.caller % callers.length] ?? {};
          const raw = await connectRaw(Number(port));
          try {
            raw.write(bytesOf(shot, host, caller));
            if (shot.framing === 'short') raw.socket.end();
            // The platform goes on waiting for a client that has finished its own half, and its time cannot be moved for
            // a long poll.
            const response = raw.response(shot.method);
            const answering = runtime === 'edge' ? Promise.race([response, sleep(2_000)]) : response;
            const answer = await patiently(clock, answering).catch((error: unknown) => {
              // Whoever hangs up in the middle of a body may get no answer, nor the sender of what the platform refuses.
              if (shot.framing === 'short' || (runtime === 'edge' && raw.isOver())) return undefined;
              throw error;
            });
            if (!answer) {
              unanswered++;
              return;
            }
            // The platform's own answers lack the header that all of the relay's have.
            if (runtime === 'edge' && answer.headers['x-content-type-options'] === undefined) {
              expect(answer.status).toBeGreaterThanOrEqual(400);
              expect(answer.status).toBeLessThan(500);
              return;
            }
            expectSound(answer, shot);
            const key = shot.row.handler;
            statuses.set(key, (statuses.get(key) ?? new Set()).add(answer.status));
          } finally {
            raw.destroy();
          }
          expect(faults(target.log.slice(logged))).toEqual([]);
          logged = target.log.length;
        },
      ),
      count,
    );
    crashes.expectNone();
    expect(faults(target.log.slice(logged))).toEqual([]);
    await ping(probe);
    expect(unanswered).toBeLessThan(count.numRuns * 0.15);
    // The cases reach the handlers: few rows only refuse.
    const passed = [...statuses].filter(([, seen]) => [...seen].some((status) => ![401, 403, 405].includes(status)));
    if (runtime === 'node') expect(passed.length).toBeGreaterThan(BY_HANDLER.length * 0.7);
    await vi.waitFor(() => expect(descriptors()).toBeLessThanOrEqual(before + 2));
    await fuzzed.stop();
  });
});

/** THE channel table, so that new channels take part by themselves. */
const CHANNELS = [...Object.keys(createChannels({ log: { named() {} } } as unknown as Relay)), 'pairing'];
/** The types of each channel's messages. */
const TYPES = new Map(
  CHANNELS.map((channel) => [channel, channel === 'pairing' ? ['profiles.updated'] : typesOf(channel)]),
);
/** Members of the payloads of each channel, found out by a relay of this process. Empty in the beginning. */
const PAYLOADS = new Map<string, string[]>();

async function learnPayloads(): Promise<void> {
  if (PAYLOADS.size > 0) return;
  const { target, stop } = await start('node');
  const { client } = await pair(target);
  for (const channel of CHANNELS) {
    const names = new Set<string>();
    for (const value of ['x', 1, true, ['x'], { x: 1 }, [{ x: 1 }]]) {
      const found = await namesReadDuring(async () => {
        const payload = Object.fromEntries([...names, 'x'].map((name) => [name, value]));
        for (const type of TYPES.get(channel) ?? []) client.send(channel, type, payload);
        await ping(client);
      });
      for (const name of found) names.add(name);
    }
    PAYLOADS.set(channel, [...names]);
  }
  client.terminate();
  await stop();
}

type Message = { text: string; cuts: number[] } | { binary: Buffer } | { control: 'ping' | 'pong'; data: string };

function messages(known: () => readonly string[]): fc.Arbitrary<Message[]> {
  const value = anyValue(known);
  const envelopeOn = (channel: string) =>
    fc.record(
      {
        channel: fc.constant<unknown>(channel),
        type: fc.oneof(
          { weight: 9, arbitrary: fc.constantFrom<unknown>(...(TYPES.get(channel) ?? [])) },
          { weight: 1, arbitrary: value },
        ),
        // Two messages may well have the same.
        id: fc.oneof(fc.constantFrom<unknown>('a', 'b'), value),
        payload: fc.oneof(
          { weight: 8, arbitrary: anyObject(PAYLOADS.get(channel) ?? [], value) as fc.Arbitrary<unknown> },
          { weight: 1, arbitrary: value },
        ),
        extra: value,
      },
      { requiredKeys: ['channel', 'type', 'payload'] },
    );
  const strange = fc.record({ channel: value, type: value, id: value, payload: value }, { requiredKeys: [] });
  const text = fc.oneof(...CHANNELS.map(envelopeOn), strange).map((envelope) => JSON.stringify(envelope) ?? '');
  const cuts = fc.array(fc.nat(200), { maxLength: 3 });
  const message: fc.Arbitrary<Message> = fc.oneof(
    { weight: 12, arbitrary: fc.record({ text, cuts: fc.constant<number[]>([]) }) },
    { weight: 2, arbitrary: fc.record({ text, cuts }) },
    { weight: 2, arbitrary: fc.record({ text: spoiled(text), cuts }) },
    {
      weight: 1,
      arbitrary: fc.record({ binary: fc.uint8Array({ maxLength: 300 }).map((bytes) => Buffer.from(bytes)) }),
    },
    {
      weight: 1,
      arbitrary: fc.record({
        control: fc.constantFrom('ping' as const, 'pong' as const),
        data: fc.string({ maxLength: 30 }),
      }),
    },
  );
  return fc.array(message, { minLength: 1, maxLength: 8 });
}

function sendMessage({ socket }: Client, message: Message): void {
  if ('binary' in message) socket.send(message.binary, { binary: true });
  else if ('control' in message) socket[message.control](message.data);
  else {
    const bytes = Buffer.from(message.text);
    let from = 0;
    for (const cut of message.cuts.toSorted((a, b) => a - b).filter((cut) => cut < bytes.length)) {
      socket.send(bytes.subarray(from, cut), { binary: false, fin: false });
      from = cut;
    }
    socket.send(bytes.subarray(from), { binary: false, fin: true });
  }
}

/** Checks that hold for every message of the relay (contract 02 §1.2). */
function expectEnvelopes(client: Client): void {
  for (const frame of client.frames) {
    expect(frame).toEqual(expect.objectContaining({ channel: expect.any(String), type: expect.any(String) }));
    expect(frame.id.length).toBeGreaterThan(0);
    expect(isObject(frame.payload)).toBe(true);
    expect(['internal', 'internal_error']).not.toContain(frame.payload.error);
    expect(frame.payload.message).not.toBe('internal error');
  }
}

const SOCKET_RUNS = { node: 200, edge: 60 };

describe.each(runtimes())('messages of every channel [%s]', (runtime) => {
  it('contract 02 §1: cause no internal error, and disturb no other socket', LONG, async () => {
    await learnPayloads();
    expect([...PAYLOADS.values()].flat().length).toBeGreaterThan(40);
    const { target, behind, probe, known, limited, stop } = await start(runtime);
    await ping(probe);
    let logged = target.log.length;
    const before = descriptors();
    let full = await pair(target);
    const answers = new Set<string>();
    /** Sockets of the last cases: some answers come late. */
    const open: Client[] = [];
    const finish = (client: Client) => {
      expectEnvelopes(client);
      for (const { channel, type } of client.frames) answers.add(`${channel}/${type}`);
      client.terminate();
    };
    await fc.assert(
      fc.asyncProperty(
        messages(() => known),
        fc.nat(20),
        fc.nat(30),
        async (sent, which, status) => {
          Object.assign(behind, {
            status: [200, 200, 0, 404, 503][status % 5],
            body: `data: {"event":"${status}"}\n\n`,
          });
          target.relay?.limiter.clear();
          // Before authentication, from an address of its own, or as one of the devices.
          const isStranger = which === 0;
          const address = `203.0.113.${(which * 31 + status) % 250}`;
          const client = isStranger
            ? await connect(target.wsUrl, { headers: addressHeaders(target, address) }).catch(() => null)
            : await authenticated((which % 3 === 0 ? limited[which % limited.length] : undefined) ?? full);
          if (!client) return;
          for (const message of sent) sendMessage(client, message);
          const id = crypto.randomUUID();
          client.send('system', 'ping', {}, id);
          await ping(probe);
          if (isStranger) {
            if (runtime === 'node') await client.closed();
          } else {
            const pong = await Promise.race([client.next({ id }), client.closed()]);
            expect(pong).toMatchObject({ type: 'pong' });
          }
          open.push(client);
          if (open.length > 4) finish(open.shift() as Client);
          expect(faults(target.log.slice(logged))).toEqual([]);
          logged = target.log.length;
        },
      ),
      fuzzRuns(SOCKET_RUNS[runtime]),
    );
    crashes.expectNone();
    await ping(probe);
    for (const client of open) finish(client);
    if (runtime === 'node')
      expect([...answers]).toEqual(
        expect.arrayContaining(['terminal/terminal.error', 'tui/tui.error', 'chat/chat.error', 'system/error']),
      );
    full.client.terminate();
    await vi.waitFor(() => expect(descriptors()).toBeLessThanOrEqual(before + 2));
    await stop();

    async function authenticated(device: Paired): Promise<Client> {
      const { client, frame } = await authenticate(target, { session_token: device.token });
      if (frame.type === 'auth.ok') return client;
      full = await pair(target);
      return full.client;
    }
  });
});

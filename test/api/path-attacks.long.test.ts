import { realpath, rename, rm, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { gunzipSync } from 'node:zlib';
import fc from 'fast-check';
import { describe, expect, it, vi } from 'vitest';
import { open } from '../../handlers/guards.ts';
import type { Handler, Route } from '../../handlers/request.ts';
import { routes } from '../../handlers/routes.ts';
import { cleanups, startBuiltTarget } from '../support/built-relay.ts';
import { fuzzRuns, LONG } from '../support/fuzz.ts';
import {
  buildHostileWorld,
  containerEnv,
  encoded,
  hostilePath,
  markIn,
  mayServe,
  maySize,
  snapshot,
} from '../support/hostile-paths.ts';
import { exchange, type RawResponse, request } from '../support/raw-socket.ts';
import { bearer, pair } from '../support/relay.ts';
import { temporaryDirectory } from '../support/temp.ts';

const pending = cleanups();
const STRANGER = { 'x-forwarded-for': '203.0.113.9' };
/** Paths that a phone and the relay itself may write. */
const WRITABLE =
  /\/memories\/(?!secret)[^/]*$|\/memories$|\/images\/inbox(?:$|\/clip_)|\/svc-relay-upload-|\/tmp$|\/Ünï(?:\/SOUL\.md)?$|\/work$|\/away$|\/logs/;

async function start(mode: 'strict' | 'container') {
  const outside = await temporaryDirectory();
  const target = await startBuiltTarget({
    env: mode === 'strict' ? { RELAY_MEDIA_STRICT_SANDBOX: '1' } : containerEnv(outside),
    hostEnv: (home) => ({ PATH: '', HOME: join(outside, 'user'), TMPDIR: join(home, 'tmp') }),
  });
  pending.push(target.stop);
  const world = await buildHostileWorld(target.agentHome, outside);
  const { token, client } = await pair(target);
  pending.push(() => client.terminate());
  const secrets = new Set(await Promise.all(world.secrets.map((path) => realpath(path))));
  const allowsOutside = mode !== 'strict';

  /** Sends a request as the paired device. Rejects when the answer shows anything of a secret. */
  async function ask(method: string, path: string, headers: Record<string, string> = {}, body: string | Buffer = '') {
    const length: Record<string, string> = body.length > 0 ? { 'content-length': String(Buffer.byteLength(body)) } : {};
    const all = { ...bearer(token), connection: 'close', ...length, ...headers };
    const answer = await exchange(target.port, request(method, path, all, body), method);
    expectNoSecret(answer);
    expect([500, 502, 503]).not.toContain(answer.status);
    return answer;
  }

  /** A route that serves files may only serve public ones, also in part, and tell only of their sizes. */
  function expectPublic({ status, headers, body }: RawResponse): void {
    if (status === 200 || status === 206) expect(mayServe(body, allowsOutside)).toBe(true);
    if (![200, 206, 304, 416].includes(status)) return;
    const sizes = [
      headers['content-range']?.split('/')[1],
      status === 200 ? headers['content-length'] : undefined,
      headers.etag === undefined ? undefined : String(Number.parseInt(headers.etag.slice(1), 16)),
    ].filter((size) => size !== undefined);
    expect(sizes.length).toBeGreaterThan(0);
    for (const size of sizes) expect([size, maySize(Number(size), allowsOutside)]).toEqual([size, true]);
  }

  return { target, world, secrets, ask, expectPublic, token };
}

function expectNoSecret({ headers, body }: RawResponse): void {
  const plain = headers['content-encoding'] === undefined ? body : String(gunzipSync(body));
  expect(markIn(plain)).toBeNull();
  expect(markIn(JSON.stringify(headers))).toBeNull();
}

const range = fc.oneof(
  fc.constantFrom(
    'bytes=0-',
    'bytes=0-0',
    'bytes=-1',
    'bytes=1-3,5-7',
    'bytes=399-',
    'bytes=0-0,-1',
    'bytes=9999-',
    'x',
  ),
  fc.tuple(fc.nat(500), fc.nat(500)).map(([from, to]) => `bytes=${from}-${to}`),
);
const conditions = fc.record(
  {
    range,
    'if-none-match': fc.constantFrom('*', '"x"', 'W/"x"'),
    'if-modified-since': fc.constantFrom('Thu, 01 Jan 1970 00:00:00 GMT', 'Fri, 01 Jan 2100 00:00:00 GMT', 'x'),
    'if-range': fc.constantFrom('"x"', 'Fri, 01 Jan 2100 00:00:00 GMT'),
    'accept-encoding': fc.constantFrom('gzip', 'br, gzip, identity'),
  },
  { requiredKeys: [] },
);
/** How a query carries a path. `direct` says that nothing else in it counts. */
interface Carrier {
  write(path: string): string;
  direct: boolean;
}
const PLAIN: Carrier = { write: (path) => `/media/by-path?path=${path}`, direct: true };
const carriers = fc.constantFrom<Carrier>(
  PLAIN,
  { write: (path) => `/media/by-path?path=/x&path=${path}&content_type=text/plain`, direct: true },
  { write: (path) => `/media/by-path?path=%20${path}%20`, direct: true },
  { write: (path) => `/media/by-path?path=${path}&path=/x`, direct: false },
  { write: (path) => `/media/by-path?path[]=${path};path=${path}`, direct: false },
  { write: (path) => `/media/by-path/?path=${path}`, direct: true },
  { write: (path) => `http://127.0.0.1/media/./by-path?path=${path}`, direct: true },
  { write: (path) => `/media/%2e%2e/media/by-path?path=${path}`, direct: true },
  { write: (path) => `/media/${path}`, direct: false },
  { write: (path) => `/media/by-path/${path}`, direct: false },
);

describe.each(['strict', 'container'] as const)('files of a host, %s (contract 04 §2)', (mode) => {
  it('§3.7: no path makes by-path serve a secret, or tell whether it is there', LONG, async () => {
    const { world, secrets, ask, expectPublic } = await start(mode);
    let [served, refused] = [0, 0];
    const plainly = (path: string) => ({ path, text: encodeURIComponent(path), exact: true });
    await fc.assert(
      fc.asyncProperty(
        hostilePath(world).chain((path) => encoded(path).map((spelled) => ({ path, ...spelled }))),
        carriers,
        conditions,
        fc.constantFrom('GET', 'GET', 'GET', 'HEAD'),
        async ({ path, text, exact }, { write, direct }, headers, method) => {
          // Node itself refuses longer heads.
          fc.pre(text.length < 15_000);
          const answer = await ask(method, write(text), headers);
          expectPublic(answer);
          if (answer.status < 300) served++;
          const real = await realpath(path.trim()).catch(() => null);
          if (!exact || !direct || real === null || !secrets.has(real)) return;
          refused++;
          expect(answer.status).toBe(403);
        },
      ),
      {
        ...fuzzRuns(300),
        // By chance alone, few paths remain those of a file.
        examples: [...world.publicFiles, ...world.secrets].map((path) => [plainly(path), PLAIN, {}, 'GET']),
      },
    );
    // The attack reaches both kinds of files.
    expect(served).toBeGreaterThan(2);
    expect(refused).toBeGreaterThan(10);
  });

  it('§3.3: no path is registered that leads to a secret', LONG, async () => {
    const { target, world, secrets, ask, expectPublic } = await start(mode);
    const escaped = (path: string) =>
      Array.from(path, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`).join('');
    let [served, refused] = [0, 0];
    await fc.assert(
      fc.asyncProperty(
        hostilePath(world),
        fc.boolean(),
        conditions,
        fc.boolean(),
        async (path, isEscaped, headers, owned) => {
          fc.pre(path.isWellFormed());
          const quoted = isEscaped && /^[\0-\uffff]*$/.test(path) ? `"${escaped(path)}"` : JSON.stringify(path);
          const body = `{"content_type":"text/plain","owned_file":${owned},"path":${quoted}}`;
          const length = { 'content-length': String(Buffer.byteLength(body)), connection: 'close' };
          const answer = await exchange(target.port, request('POST', '/media/register', length, body), 'POST');
          expectNoSecret(answer);
          expect([200, 400]).toContain(answer.status);
          const real = await realpath(path).catch(() => null);
          if (real !== null && secrets.has(real)) {
            refused++;
            expect(answer.status).toBe(400);
          }
          if (answer.status !== 200) return;
          served++;
          expectPublic(await ask('GET', `/media/${JSON.parse(answer.body).token}`, headers));
        },
      ),
      { ...fuzzRuns(300), examples: world.publicFiles.map((path) => [path, false, {}, false]) },
    );
    expect(served).toBeGreaterThan(0);
    expect(refused).toBeGreaterThan(3);
  });
});

it('contract 07 §1.5: no name of a profile or a document leads out of it, to read or to write', LONG, async () => {
  const { world, ask } = await start('strict');
  const before = [await snapshot(world.home, WRITABLE), await snapshot(world.outside, /^$/)];
  const names = fc.oneof(
    { weight: 3, arbitrary: fc.constantFrom('default', 'work', 'away', 'up', 'ssh', 'Ünï', '..', '.', 'none') },
    {
      weight: 2,
      arbitrary: fc
        .tuple(
          fc.constantFrom('work', 'away', '', '.', 'none', 'default'),
          fc.constantFrom('/', '\\', '%2f', '\0', ' ', '\u2215', ''),
          fc.constantFrom('..', '../..', '..\\..', '.ssh', '.env', 'work', '../pairing', ''),
        )
        .map((parts) => parts.join('')),
    },
    { weight: 2, arbitrary: hostilePath(world) },
    { weight: 1, arbitrary: fc.string({ unit: 'binary', maxLength: 140 }) },
  );
  const filenames = fc.oneof(
    { weight: 2, arbitrary: fc.constantFrom('note.md', 'secret.md', 'SOUL.md', 'soul.MD', '..md', '.md', 'x.md/') },
    { weight: 2, arbitrary: names.map((name) => `${name}.md`) },
    {
      weight: 2,
      arbitrary: fc.tuple(names, fc.constantFrom('/', '%2f', '\\', '\0')).map((two) => `${two.join('')}note.md`),
    },
    { weight: 1, arbitrary: names },
  );
  const spell = (text: fc.Arbitrary<string>) =>
    text.filter((text) => text.isWellFormed()).chain((text) => encoded(text).map((spelled) => spelled.text));
  const documents = fc.constantFrom('config', 'skills', 'soul', 'memory', 'avatar');
  const attack = fc.oneof(
    fc.record({ method: fc.constantFrom('GET', 'HEAD'), name: spell(names), rest: documents }),
    fc.record({ method: fc.constant('PUT'), name: spell(names), rest: fc.constant('soul') }),
    fc.record({
      method: fc.constant('PUT'),
      name: spell(names),
      rest: spell(filenames).map((name) => `memory/${name}`),
    }),
  );
  const written = new Set<string>();
  await fc.assert(
    fc.asyncProperty(attack, async ({ method, name, rest }) => {
      fc.pre(name.length + rest.length < 15_000);
      const answer = await ask(method, `/api/profiles/${name}/${rest}`, {}, method === 'PUT' ? '{"content":"pq"}' : '');
      if (method === 'PUT' && answer.status === 200) {
        const { profile, path } = JSON.parse(answer.body);
        written.add(`${profile}/${path}`);
        expect(path).toMatch(profile === 'Ünï' ? /^SOUL\.md$/ : /^memories\/[A-Za-z0-9_][\w.-]*\.md$/);
      }
    }),
    { ...fuzzRuns(300), examples: [[{ method: 'PUT', name: 'work', rest: 'memory/note.md' }]] },
  );
  expect(written.size).toBeGreaterThan(0);
  expect([await snapshot(world.home, WRITABLE), await snapshot(world.outside, /^$/)]).toEqual(before);
});

it('contract 04 §3.5, §6: no name of an upload or a picture makes a file anywhere else', LONG, async () => {
  const { target, world, ask } = await start('strict');
  const before = [await snapshot(world.home, WRITABLE), await snapshot(world.outside, /^$/)];
  const png = Buffer.from('89504e470d0a1a0a0000000d49484452', 'hex');
  await fc.assert(
    fc.asyncProperty(hostilePath(world), hostilePath(world), fc.boolean(), async (one, other, isUpload) => {
      if (isUpload) {
        const type = 'multipart/form-data; boundary=b';
        const head = `--b\r\ncontent-disposition: form-data; name="file"; filename="${one}"\r\ncontent-type: ${other}\r\n\r\n`;
        const answer = await ask('POST', '/media/upload', { 'content-type': type }, `${head}pq\r\n--b--\r\n`);
        expect([200, 400]).toContain(answer.status);
        return;
      }
      const body = { format: one.length % 3 ? 'png' : other, bytes_base64: png.toString('base64'), filename_hint: one };
      const answer = await ask('POST', '/clipboard/inbox', {}, JSON.stringify(body));
      expect([200, 400]).toContain(answer.status);
      if (answer.status === 200) {
        expect(JSON.parse(answer.body).path.slice(world.home.length)).toMatch(/^\/images\/inbox\/clip_[\w-]+\.png$/);
      }
    }),
    fuzzRuns(80),
  );
  expect(target.relay.media?.count()).toBeGreaterThan(10);
  expect([await snapshot(world.home, WRITABLE), await snapshot(world.outside, /^$/)]).toEqual(before);
});

it('contract 04 §2: links that are swapped all the time lead no request to a secret', LONG, async () => {
  const { target, world, ask, expectPublic, token } = await start('strict');
  const at = (name: string) => join(world.home, name);
  /** Places that are a public directory at one moment and a link to a secret one at the next. */
  const paths = [
    { at: at('workspace/swap'), real: at('workspace/sub'), link: join(world.outside, 'user/.ssh') },
    { at: at('profiles/work/memories'), real: at('profiles/work/kept'), link: join(world.outside, 'dotconfig') },
  ];
  await rename(at('profiles/work/memories'), at('profiles/work/kept'));
  for (const place of paths) await symlink(place.link, `${place.at}.link`);
  const before = await snapshot(world.outside, /^$/);
  let over = false;
  const swapping = (async () => {
    for (let round = 0; !over; round++) {
      for (const { at, real } of paths) {
        for (const other of [real, `${at}.link`]) {
          await move(other, at);
          // Sometimes it stays for a whole request, sometimes for a part of one.
          await sleep(round % 6);
          await rename(at, other);
        }
      }
    }
  })();
  const outcomes = new Set<string>();
  const attacks: (() => Promise<RawResponse>)[] = [
    async () => {
      const answer = await ask('GET', `/media/by-path?path=${at('workspace/swap/b.txt')}`);
      expectPublic(answer);
      return answer;
    },
    () => ask('GET', `/media/by-path?path=${at('workspace/swap/id_ed25519')}`),
    () => ask('GET', '/api/profiles/work/memory'),
    () => exchange(target.port, putMemory('note.md', token)),
    () => exchange(target.port, putMemory('fresh.md', token)),
  ];
  try {
    await fc.assert(
      fc.asyncProperty(fc.array(fc.nat(attacks.length - 1), { minLength: 1, maxLength: 8 }), async (picked) => {
        const answers = await Promise.all(picked.map((index) => attacks[index]?.()));
        for (const [at, answer] of answers.entries()) outcomes.add(`${picked[at]} ${answer?.status}`);
      }),
      fuzzRuns(60),
    );
    // By chance, none of them may have met the folder itself.
    await vi.waitFor(async () => expect((await attacks[0]?.())?.status).toBe(200));
  } finally {
    over = true;
    await swapping;
  }
  expect([...outcomes].filter((outcome) => /^1 [23]/.test(outcome))).toEqual([]);
  expect(await snapshot(world.outside, /^$/)).toEqual(before);
});

/** Renames, also over a directory that a write has made meanwhile. */
async function move(from: string, to: string): Promise<void> {
  while (
    !(await rename(from, to).then(
      () => true,
      () => false,
    ))
  ) {
    await rm(to, { recursive: true, force: true }).catch(() => {});
  }
}

const putMemory = (name: string, token: string): Buffer =>
  request(
    'PUT',
    `/api/profiles/work/memory/${name}`,
    { ...bearer(token), 'content-length': '16', connection: 'close' },
    '{"content":"pq"}',
  );

/** Rows whose handlers a test saw at work. */
const reached = new Set<string>();

/** Notes each row of the table when its handler is called. Must precede the start of a relay. */
function watchHandlers(): void {
  const table = routes as Route[];
  for (const [at, [method, path, guard, handler]] of [...table].entries()) {
    const watched: Handler = (request, relay) => {
      reached.add(`${method} ${path}`);
      return handler(request, relay);
    };
    table[at] = [method, path, guard, watched];
  }
  pending.push(() => reached.clear());
}

/** A path of the table with something in the place of each parameter. */
const plainPath = (path: string): string[] =>
  path.startsWith('/(?<command>')
    ? path
        .slice('/(?<command>'.length, -1)
        .split('|')
        .map((command) => `/${command}`)
    : [
        path
          .replace(/\(\?![^:]*\):/, ':')
          .replace(/:name/, 'work')
          .replace(/:\w+/g, 'note.md'),
      ];

it('contract 01 §1.2: no spelling of a path reaches a handler that its caller may not reach', LONG, async () => {
  watchHandlers();
  const { target, world } = await start('strict');
  const { token, client } = await pair(target, {
    policy: { without: ['chat', 'terminal', 'tui', 'bridge', 'desktop', 'files', 'profiles', 'phone', 'devices'] },
  });
  pending.push(() => client.terminate());
  const callers: Record<string, Record<string, string>> = {
    stranger: { ...STRANGER, 'x-svc-operator': '1' },
    liar: { ...STRANGER, authorization: `Bearer ${token}x` },
    grantless: { ...STRANGER, ...bearer(token) },
  };
  const rows = routes.flatMap(([method, path, guard]) =>
    plainPath(path).flatMap((plain) =>
      (method === 'ALL' ? ['GET', 'POST', 'DELETE'] : [method]).map((method) => ({ method, path: plain, guard })),
    ),
  );
  const call = async (caller: string, method: string, path: string) => {
    target.relay.limiter.clear();
    reached.clear();
    const body = method === 'GET' || method === 'HEAD' ? '' : '{}';
    const headers = { ...callers[caller], 'content-length': String(body.length), connection: 'close' };
    const answer = await exchange(target.port, request(method, path, headers, body), method).catch(() => null);
    return { answer, rows: [...reached] };
  };
  /** Rows that each caller reaches by their plain spelling. */
  const allowed: Record<string, Set<string>> = {};
  for (const caller of Object.keys(callers)) {
    const plain = new Set<string>();
    allowed[caller] = plain;
    for (const { method, path } of rows) {
      // Its own end would make the caller a liar.
      if (method === 'DELETE' && path.startsWith('/sessions')) continue;
      for (const row of (await call(caller, method, path)).rows) plain.add(row);
    }
  }
  const health = rows.find(({ path }) => path === '/health') as (typeof rows)[number];
  const openRows = routes.filter(([, , guard]) => guard === open).map(([method, path]) => `${method} ${path}`);
  expect([...(allowed.stranger as Set<string>)].sort()).toEqual(openRows.sort());
  expect([...(allowed.liar as Set<string>)].sort()).toEqual(openRows.sort());
  expect((allowed.grantless as Set<string>).size).toBeGreaterThan(openRows.length);

  const twist = fc.oneof<fc.Arbitrary<(path: string) => string>[]>(
    fc.tuple(fc.nat(40), fc.constantFrom('%', '%25', '%u00')).map(([at, sign]) => (path) => {
      const place = 1 + (at % Math.max(1, path.length - 1));
      return path.slice(0, place) + sign + path.charCodeAt(place).toString(16) + path.slice(place + 1);
    }),
    fc
      .tuple(
        fc.nat(40),
        fc.constantFrom(
          ...[
            '/',
            '//',
            '/./',
            '/../',
            '%2f',
            '%2F',
            '%5c',
            '\\',
            '%252f',
            ';',
            ';x=1',
            '%00',
            '%20',
            '%09',
            '.',
            '..',
          ],
          ...[
            '%2e',
            '%2e%2e/',
            '/x/../',
            '/x/%2e%2e/',
            '%c0%af',
            '%e0%80%af',
            '\u00ff',
            '%EF%BC%8F',
            '?',
            '#',
            '%3f',
            '%23',
          ],
          ...['\t', '\x0b', '\0', ' '],
        ),
      )
      .map(([at, text]) => (path) => {
        const place = at % (path.length + 1);
        return path.slice(0, place) + text + path.slice(place);
      }),
    fc
      .constantFrom(
        ...[
          'http://127.0.0.1',
          'http://localhost',
          'HTTP://LOCALHOST:80',
          'https://x',
          'http://[::1]',
          'ws://x',
          'file://',
        ],
        ...['//127.0.0.1', '//', '/..', '/.', '/%2e', '/health/..', '/health;/..', '/sessions/x/..', '/media/..%2f..'],
        ...['http://127.0.0.1/health?', '/health#', '/health%23', 'x', '', '*', 'http:/', 'http:', 'javascript:'],
      )
      .map((prefix) => (path) => prefix + path),
    fc
      .constantFrom('/', '//', '/.', '/..', '/x/..', '%2f', '.json', ';', '?', '#', '%00', '%20', ' ', '~', '/*', ':')
      .map((suffix) => (path) => path + suffix),
    fc.constantFrom<(path: string) => string>(
      (path) => path.toUpperCase(),
      (path) => `/${path.slice(1, 2).toUpperCase()}${path.slice(2)}`,
      (path) => path.slice(1),
      (path) => path.replaceAll('/', '\\'),
      (path) => path.replaceAll('/', '//'),
      (path) => path.replaceAll('/', '/./'),
      (path) => `/${encodeURIComponent(path.slice(1))}`,
      (path) => path.replace(/[aeiou]/g, (vowel) => `%${vowel.charCodeAt(0).toString(16)}`),
      (path) => `${'/a/..'.repeat(300)}${path}`,
      (path) => `/media/by-path?path=${world.home}/.env&x=${path}`,
    ),
  );
  const sneaking = {
    method: fc.constantFrom('GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'TRACE', 'PROPFIND', 'pOST'),
    headers: fc.constantFrom<Record<string, string>>(
      {},
      { 'x-http-method-override': 'POST', 'x-original-url': '/relay/security', 'x-rewrite-url': '/pairing/mint' },
      { 'x-forwarded-prefix': '/', 'x-forwarded-for': '127.0.0.1', 'x-real-ip': '127.0.0.1', via: 'x' },
      { host: 'evil.example' },
    ),
  };
  const statuses = new Map<number, number>();
  await fc.assert(
    fc.asyncProperty(
      fc.constantFrom(...Object.keys(callers)),
      fc.constantFrom(...rows),
      fc.array(twist, { maxLength: 3 }),
      fc.option(sneaking.method, { freq: 2 }),
      sneaking.headers,
      async (caller, { method, path }, twists, other, headers) => {
        const spelled = twists.reduce((path, twist) => twist(path), path);
        fc.pre(!(caller === 'grantless' && (other ?? method) === 'DELETE' && /sessions/i.test(decodeAll(spelled))));
        callers.sneaky = { ...headers, ...callers[caller] };
        const { answer, rows } = await call('sneaky', other ?? method, spelled);
        for (const row of rows) expect([row, allowed[caller]?.has(row)]).toEqual([row, true]);
        if (answer === null) return;
        statuses.set(answer.status, (statuses.get(answer.status) ?? 0) + 1);
        expectNoSecret(answer);
        if (rows.length === 0) expect([400, 401, 403, 404, 405, 426, 429]).toContain(answer.status);
        expect(answer.status).toBeLessThan(500);
      },
    ),
    { ...fuzzRuns(600), examples: [['stranger', health, [], null, {}]] },
  );
  expect([...statuses.keys()]).toEqual(expect.arrayContaining([200, 400, 401, 403, 404, 405]));
});

/** A path that has been decoded until nothing is left to decode. */
function decodeAll(path: string): string {
  const plain = path.replace(/%([0-9a-f]{2})/gi, (_, code) => String.fromCharCode(Number.parseInt(code, 16)));
  return plain === path ? path : decodeAll(plain);
}

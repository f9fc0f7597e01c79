import { mkdtempSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { mkdir, readdir, readFile, stat, symlink } from 'node:fs/promises';
import { request as httpRequest } from 'node:http';
import { join } from 'node:path';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { routes } from '../../handlers/routes.ts';
import { openLimiter } from '../../lib/access/limiter.ts';
import { openOperatorKey } from '../../lib/access/operator-key.ts';
import type { Command, Host } from '../../lib/host/index.ts';
import { createNodeHost } from '../../lib/host/node/index.ts';
import { createUsers } from '../../lib/host/node/users.ts';
import { systemClock } from '../../lib/kit/clock.ts';
import { createLog } from '../../lib/log.ts';
import { openSecurity } from '../../lib/operator/security.ts';
import { createQrSecret } from '../../lib/pairing/secret.ts';
import { findIdentity, openIdentity } from '../../lib/secure-link/identity.ts';
import type { Session } from '../../lib/sessions/session.ts';
import { openSessions } from '../../lib/sessions/sessions.ts';
import { resolveShell } from '../../lib/terminal/environment.ts';
import { ownerOf } from '../../lib/terminal/owner.ts';
import { createShellEnds } from '../../lib/terminal/shell-ends.ts';
import { createTmux } from '../../lib/terminal/tmux.ts';
import { createArtifacts } from '../../lib/voice/artifacts.ts';
import { createStores } from '../../storage/index.ts';
import type { Store, StoreName, Stores } from '../../storage/schema.ts';
import { type BuiltOptions, type BuiltTarget, cleanups, startBuiltTarget } from '../support/built-relay.ts';
import { createTestClock } from '../support/clock.ts';
import { faults, withEveryFault } from '../support/faults.ts';
import { PNG } from '../support/media.ts';
import { bearer, pair } from '../support/relay.ts';
import { sessionStores } from '../support/states.ts';
import { temporaryDirectory, writeFiles } from '../support/temp.ts';

vi.mock('node:fs/promises', async (original) =>
  (await import('../support/faults.ts')).faults.wrapFs(await original<object>()),
);

const pending = cleanups();
afterEach(() => void faults.disarm());
/** Marks every text that no caller may get. */
const SECRET = 'SECRET-TEXT';

interface Answer {
  status: number;
  body: string;
}

/** A request over a connection of its own: what the relay learns of one counts for the next request on it, too. */
function ask(
  { port }: BuiltTarget,
  method: string,
  path: string,
  headers: Record<string, string> = {},
  body = '',
): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const options = { host: '127.0.0.1', port, method, path, agent: false };
    const all = { ...headers, 'content-length': String(Buffer.byteLength(body)) };
    const sent = httpRequest({ ...options, headers: all }, (response) => {
      let text = '';
      response.setEncoding('latin1').on('data', (part) => {
        text += part;
      });
      response.on('close', () => resolve({ status: response.statusCode ?? 0, body: text }));
    });
    sent.on('error', reject).end(body);
  });
}

/** Every store of a relay, its calls among those that fail. */
/** A batch does not fail by itself: each of its writes may. */
const faultyStore = <K extends StoreName>(stores: Stores, name: K): Store<K> =>
  faults.wrap(name, stores.open(name), ['batch']);

const faultyStores = (stores: Stores): Stores => ({
  ...stores,
  open: (name) => faultyStore(stores, name),
});

/** A relay with secrets behind links, as in homes whose settings are kept elsewhere, and a device with every grant. */
async function start({ isPaired = true, ...options }: BuiltOptions & { isPaired?: boolean } = {}) {
  const outside = await temporaryDirectory({
    'note.md': `${SECRET} note`,
    'SOUL.md': `${SECRET} soul`,
    'icon.png': PNG.toString('latin1') + SECRET,
  });
  const target = await startBuiltTarget({
    env: { RELAY_PROFILE_DISCOVERY: '0' },
    hostEnv: (home) => ({ PATH: '', HOME: join(home, 'user'), TMPDIR: join(home, 'tmp') }),
    withStores: faultyStores,
    ...options,
  });
  pending.push(target.stop);
  const at = (name: string) => join(target.agentHome, name);
  await writeFiles(target.agentHome, {
    'vault/id_rsa': `${SECRET} key`,
    'vault/env': `${SECRET} env`,
    'user/film.txt': 'film',
    'workspace/a.txt': 'text',
    'SOUL.md': `${SECRET} soul of the root`,
    'profiles/work/SOUL.md': 'soul',
    'profiles/work/config.yaml': 'description: w\n',
    'profiles/linked/memories/own.md': 'own',
    active_profile: 'work',
  });
  await mkdir(at('tmp'));
  await symlink(at('vault'), at('user/.ssh'));
  await symlink(at('vault/env'), at('.env'));
  await symlink(outside, at('profiles/thief'));
  await symlink(join(outside, 'SOUL.md'), at('profiles/linked/SOUL.md'));
  await symlink(join(outside, 'icon.png'), at('profiles/linked/icon.png'));
  await symlink(join(outside, 'note.md'), at('profiles/linked/memories/note.md'));
  const { token, client } = isPaired ? await pair(target) : { token: '', client: undefined };
  pending.push(() => client?.terminate());
  const device = (method: string, path: string, body = '', headers: Record<string, string> = {}) =>
    ask(target, method, path, { ...bearer(token), ...headers }, body);
  const byPath = (name: string) => device('GET', `/media/by-path?path=${encodeURIComponent(at(name))}`);
  /** Whatever the relay has read of these places does not count any more. */
  const touch = () => {
    for (const place of ['user', '']) {
      writeFileSync(at(`${place}/.touched`), '');
      rmSync(at(`${place}/.touched`));
    }
  };
  return { target, at, outside, device, byPath, touch };
}

type World = Awaited<ReturnType<typeof start>>;

/** Requests whose answer must be a refusal, whatever fails meanwhile. One line covers a new one. */
const REFUSED: Record<string, (world: World) => Promise<Answer>> = {
  'media by path, behind a linked directory': ({ byPath }) => byPath('vault/id_rsa'),
  'media by path, through the link': ({ byPath }) => byPath('user/.ssh/id_rsa'),
  'media by path, behind a linked file': ({ byPath }) => byPath('vault/env'),
  'registering media': ({ target, at }) =>
    ask(
      target,
      'POST',
      '/media/register',
      { 'content-type': 'application/json' },
      JSON.stringify({ path: at('vault/env'), content_type: 'text/plain' }),
    ),
  'a soul that is a link out of the profile': ({ device }) => device('GET', '/api/profiles/linked/soul'),
  'an avatar that is a link out of the profile': ({ device }) => device('GET', '/api/profiles/linked/avatar'),
  'a profile that is a link': ({ device }) => device('GET', '/api/profiles/thief/soul'),
  'writing through a link': ({ device }) => device('PUT', '/api/profiles/linked/soul', '{"content":"mine"}'),
  'writing a profile that is a link': ({ device }) =>
    device('PUT', '/api/profiles/thief/memory/note.md', '{"content":"mine"}'),
  'writing over another version': ({ device }) =>
    device('PUT', '/api/profiles/work/soul', '{"content":"mine"}', { 'if-match': '"0"' }),
};

describe('nothing that fails turns an answer to "allowed" (fail closed)', () => {
  it.each(Object.entries(REFUSED))('%s', async (_name, request) => {
    const world = await start();
    const { status } = await request(world);
    expect(status).toBeGreaterThanOrEqual(400);
    const made = await withEveryFault(
      () => {
        world.touch();
        return request(world);
      },
      ({ status, body }, fault) => {
        expect({ fault, status, allowed: status < 400 }).toEqual({ fault, status, allowed: false });
        expect(body).not.toContain(SECRET);
      },
    );
    expect(made).toBeGreaterThan(0);
    // Nothing of a failure is remembered.
    expect((await request(world)).status).toBe(status);
    expect(await readFile(join(world.outside, 'SOUL.md'), 'utf8')).toBe(`${SECRET} soul`);
    expect(await readFile(join(world.outside, 'note.md'), 'utf8')).toBe(`${SECRET} note`);
    expect(await readFile(world.at('profiles/work/SOUL.md'), 'utf8')).toBe('soul');
  });

  it('a memory, or the default profile, never shows what lies elsewhere', async () => {
    const { device } = await start();
    for (const path of ['/api/profiles/linked/memory', '/api/profiles/default/soul', '/api/profiles/default/memory']) {
      expect((await device('GET', path)).status).toBe(200);
      await withEveryFault(
        () => device('GET', path),
        ({ body }, fault) => expect({ path, fault, leaks: body.includes(SECRET) }).toMatchObject({ leaks: false }),
      );
    }
  });

  it('an image for the agent is private, whole, and replaces nothing', async () => {
    const { device, at } = await start();
    const image = JSON.stringify({ format: 'png', bytes_base64: PNG.toString('base64') });
    await withEveryFault(
      () => device('POST', '/clipboard/inbox', image),
      async ({ status }, fault) => {
        expect({ fault, isKnown: [200, 500].includes(status) }).toEqual({ fault, isKnown: true });
        for (const name of await readdir(at('images/inbox')).catch(() => [])) {
          const path = at(`images/inbox/${name}`);
          const found = { fault, name, mode: (await stat(path)).mode & 0o777, bytes: await readFile(path) };
          expect(found).toEqual({ fault, name: expect.stringMatching(/\.png$/), mode: 0o600, bytes: PNG });
        }
      },
    );
  });
});

/** A path of the route table with something in the place of each parameter. */
const plainPath = (path: string): string[] =>
  path.startsWith('/(?<command>')
    ? path
        .slice('/(?<command>'.length, -1)
        .split('|')
        .map((command) => `/${command}`)
        .slice(0, 1)
    : [
        path
          .replace(/\(\?![^:]*\):/, ':')
          .replace(/:name/, 'work')
          .replace(/:\w+/g, 'note.md'),
      ];

/** THE route table, so that new routes take part by themselves. */
const ROWS = routes.flatMap(([method, path]) =>
  plainPath(path).flatMap((plain) =>
    (method === 'ALL' ? ['GET', 'POST'] : [method]).map((one) => [one, plain] as const),
  ),
);

/** Of proc_net_tcp(5), as it is without a connection. */
const HEADING = '  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n';

describe('every route, with every call failing once', () => {
  it.each([
    ['another user of this host', {}],
    ['a host tool of another user', { 'x-svc-operator': '1' }],
    ['a client behind a proxy', { 'x-forwarded-for': '203.0.113.9' }],
    ['a client behind the ingress, with a wrong marker', { 'x-svc-dashboard-proxy-secret': '0'.repeat(64) }],
  ])('is no more open to %s', async (_name, headers) => {
    // The tables of this machine have thousands of rows, and the relay runs as somebody else than this test.
    const tables = await temporaryDirectory({ tcp: HEADING, tcp6: HEADING });
    const users = createUsers({ tables: [join(tables, 'tcp'), join(tables, 'tcp6')] });
    const withHost = (host: Host): Host => ({ ...host, users: { ...users, own: 4242 } });
    const { target } = await start({ withHost, isPaired: false });
    let [refused, made] = [0, 0];
    for (const [method, path] of ROWS) {
      const call = () => {
        target.relay.limiter.clear();
        return ask(
          target,
          method,
          path,
          { ...headers, 'content-type': 'application/json' },
          method === 'GET' ? '' : '{}',
        );
      };
      const { status } = await call();
      if (status < 400) continue;
      refused++;
      made += await withEveryFault(call, (answer, fault) => {
        const allowed = answer.status < 400;
        expect({ method, path, fault, allowed, status: answer.status }).toMatchObject({ allowed: false });
        expect(answer.body).not.toContain(SECRET);
      });
    }
    expect(refused).toBeGreaterThan(40);
    // A client that a proxy names is refused before anything is read.
    if (!('x-forwarded-for' in headers)) expect(made).toBeGreaterThan(0);
  });

  it('is no more open to a device without grants', async () => {
    const { target } = await start();
    const without = ['chat', 'terminal', 'tui', 'bridge', 'desktop', 'files', 'profiles', 'phone', 'devices'];
    const { token, client } = await pair(target, { policy: { without } });
    pending.push(() => client.terminate());
    for (const [method, path] of ROWS) {
      const call = () => {
        target.relay.limiter.clear();
        const headers = { ...bearer(token), 'x-forwarded-for': '203.0.113.9', 'content-type': 'application/json' };
        return ask(target, method, path, headers, method === 'GET' ? '' : '{}');
      };
      const { status } = await call();
      if (status !== 401 && status !== 403) continue;
      await withEveryFault(call, (answer, fault) => {
        expect({ method, path, fault, allowed: answer.status < 400 }).toMatchObject({ allowed: false });
      });
    }
  });
});

describe('secrets of the relay itself', () => {
  const log = createLog('ERROR', () => {});

  it('no failure replaces an operator key, a QR secret or the identity that phones have pinned', async () => {
    const agentHome = await temporaryDirectory();
    const host = createNodeHost({ agentHome, env: { HOME: agentHome, PATH: '' } });
    const keyPath = join(agentHome, 'svc-relay/operator-key');
    const settings = { bindHost: '127.0.0.1' };
    const qr = () => createQrSecret({ host, store: createStores('node').open('pairing'), log }).read();
    const pinOf = (identity: Awaited<ReturnType<typeof openIdentity>>) =>
      typeof identity === 'string' ? null : identity.facts.pin;
    const identity = async () => pinOf(await openIdentity(settings, host, Date.now(), log).catch(() => 'failed'));
    const made = {
      key: await openOperatorKey(host.files, keyPath, log),
      secret: Buffer.from((await qr()) ?? []).toString('hex'),
      pin: await identity(),
    };
    expect(made.pin).not.toBeNull();
    await withEveryFault(
      () => openOperatorKey(host.files, keyPath, log).catch(() => null),
      (key, fault) => expect([fault, null, made.key]).toContain(key),
    );
    await withEveryFault(qr, (secret, fault) =>
      expect([fault, null, made.secret]).toContain(secret && Buffer.from(secret).toString('hex')),
    );
    await withEveryFault(identity, (pin, fault) => expect([fault, null, made.pin]).toContain(pin));
    await withEveryFault(
      () => findIdentity({}, host),
      ({ kind }, fault) => expect({ fault, kind }).not.toEqual({ fault, kind: 'none' }),
    );
    expect(await identity()).toBe(made.pin);
    expect(await openOperatorKey(host.files, keyPath, log)).toBe(made.key);
  });

  it('stores that fail while a relay starts end the start: nothing revoked comes back, no block and no switch is lost', async () => {
    const stores = createStores('node');
    const clock = createTestClock();
    const deps = <K extends StoreName>(name: K) => ({ store: faultyStore(stores, name), clock, log });
    const limiter = await openLimiter(deps('limiter'));
    for (let attempt = 0; attempt < 50; attempt++) limiter.fail('203.0.113.9', 'session');
    clock.advance(10_000);
    await vi.waitFor(async () => expect((await stores.open('limiter').getKeys()).length).toBeGreaterThan(0));
    expect(await blocks()).toBe(true);

    async function blocks(): Promise<boolean | null> {
      return openLimiter(deps('limiter')).then(
        (opened) => opened.blockedFor('203.0.113.9') > 0,
        () => null,
      );
    }
    await withEveryFault(blocks, (blocked, fault) => expect({ fault, blocked }).not.toEqual({ fault, blocked: false }));

    const config = { allowInsecureApiBearer: true };
    await (await openSecurity({ ...deps('switches'), config })).setAllowInsecureApiBearer(false);
    await withEveryFault(
      () =>
        openSecurity({ ...deps('switches'), config }).then(
          (opened) => opened.allowInsecureApiBearer,
          () => null,
        ),
      (allow, fault) => expect({ fault, allow }).not.toEqual({ fault, allow: true }),
    );
  });
});

describe('what has been taken away', () => {
  const log = createLog('ERROR', () => {});
  const MONTH = 30 * 24 * 3600;

  it('stays away when the stored sessions cannot all be read: the relay does not start, or has just those', async () => {
    const stores = createStores('node');
    const clock = createTestClock();
    const open = (store = stores.open('sessions')) =>
      openSessions({ store, ended: stores.open('ended-sessions'), clock, log });
    const before = await open();
    const make = async (id: string, ttlSeconds = 0) => {
      const device = { name: id, id, model: '', platform: '', surface: 'web', formFactor: 'phone' } as const;
      return (await before.create({ device, policy: { ttlSeconds }, transportHint: 'ws' })).session;
    };
    const [kept, reduced, revoked, expired, overdue] = await Promise.all([
      ...['kept', 'reduced', 'revoked'].map((id) => make(id)),
      ...['expired', 'overdue'].map((id) => make(id, MONTH)),
    ]);
    await before.reduce(reduced as Session, { grants: { terminal: 1 } });
    await before.reduce(overdue as Session, { ttlSeconds: 1 });
    await before.revoke(revoked as Session);
    clock.advance((MONTH + 1) * 1000);
    const families = (sessions: readonly Session[]) => sessions.map(({ family }) => family).sort();
    const alive = families([kept, reduced] as Session[]);
    const records = new Map(
      await Promise.all(
        (await stores.open('sessions').getKeys()).map(
          async (key) => [key, await stores.open('sessions').getItem(key)] as const,
        ),
      ),
    );

    const calls = await withEveryFault(
      async () => {
        // What an earlier round has removed is there again.
        await Promise.all([...records].map(([key, record]) => stores.open('sessions').setItem(key, record as never)));
        return open(faultyStore(stores, 'sessions')).catch(() => null);
      },
      async (sessions, fault) => {
        if (!sessions) return;
        const listed = sessions.list();
        expect({ fault, alive: families(listed) }).toEqual({ fault, alive });
        const terminal = listed.find(({ family }) => family === reduced?.family)?.grants.terminal as number;
        expect({ fault, isOver: terminal < clock.now() / 1000 }).toEqual({ fault, isOver: true });
        expect({ fault, shells: families(sessions.takeExpiredWhileDown()) }).toEqual({
          fault,
          shells: [overdue?.family],
        });
        await sessions.flush();
        expect({ fault, stored: (await stores.open('sessions').getKeys()).sort() }).toEqual({ fault, stored: alive });
      },
    );
    expect(calls).toBeGreaterThan(records.size);
    expect(families([expired, revoked] as Session[]).some((family) => alive.includes(family))).toBe(false);
  });

  it('leaves no shell that nobody is told of, whichever call of tmux or the disk fails', async () => {
    const agentHome = await temporaryDirectory();
    const { users, ...node } = createNodeHost({ agentHome, env: { HOME: agentHome, PATH: '' } });
    const { sessions, pairs } = await (async () => {
      const sessions = await openSessions({
        ...sessionStores(),
        clock: createTestClock(),
        log,
      });
      const device = (id: string) =>
        ({ name: id, id, model: '', platform: '', surface: 'web', formFactor: 'phone' }) as const;
      const make = async (id: string) =>
        (await sessions.create({ device: device(id), policy: {}, transportHint: 'ws' })).session;
      return { sessions, pairs: [await make('own'), await make('other')] as [Session, Session] };
    })();
    const [own, other] = pairs;
    const ABSENT = { code: 1, stdout: '', stderr: "can't find session: $9\n" };
    const owners = new Map<string, Session[]>();
    /** A tmux server with the sessions of `owners`. */
    const answer = (args: readonly string[]) => {
      const id = args[args.indexOf('-t') + 1] ?? '';
      const found = owners.get(id);
      const ok = (stdout: string) => ({ code: 0, stdout, stderr: '' });
      if (args.includes('list-sessions'))
        return ok([...owners.keys()].map((id) => `${id} svc-x${id.slice(1)}\n`).join(''));
      if (!found) return args.includes('-t') ? ABSENT : ok('');
      if (args.includes('show-options')) {
        const lines = found
          .map((session) => ownerOf(session))
          .map(({ family, device }) => `@svc-device-${family} ${device}`);
        return ok(lines.join('\n'));
      }
      if (args.includes('list-panes')) return ok(`4194304 9 /tmp/tmux-0/svc-relay\n`);
      owners.delete(id);
      return ok('');
    };
    const DID_NOT_RUN = { code: null, stdout: '', stderr: '' };
    const faulty = faults.wrap('children', { run: async ({ args }: Command) => answer(args) });
    const host = {
      ...node,
      children: { ...node.children, run: (command: Command) => faulty.run(command).catch(() => DID_NOT_RUN) },
      processes: { ...node.processes, endAll: async () => ({ ended: 1, left: 0 }) },
    };

    const calls = await withEveryFault(
      async () => {
        owners.clear();
        for (const [id, by] of [
          ['$1', [own]],
          ['$2', [own, other]],
          ['$3', [other]],
          ['$4', [own]],
        ] as const) {
          owners.set(id, [...by]);
        }
        const clock = createTestClock();
        const tmux = createTmux('/usr/bin/tmux', { host: { ...host, users }, agentHome, clock: systemClock, log });
        const deps = { host, running: new Map(), sessions, clock, log, tmux: async () => tmux };
        const shellEnds = createShellEnds(deps);
        const { isLeft } = await shellEnds.end(own);
        const left = [...owners.keys()];
        faults.disarm();
        await clock.advanceAsync(1_000);
        await shellEnds.stop();
        return { isLeft, left, afterwards: [...owners.keys()] };
      },
      ({ isLeft, left, afterwards }, fault) => {
        const isHidden = !isLeft && (left.includes('$1') || left.includes('$4'));
        expect({ fault, isHidden, left }).toMatchObject({ fault, isHidden: false });
        expect({ fault, afterwards }).toEqual({ fault, afterwards: ['$2', '$3'] });
      },
    );
    expect(calls).toBeGreaterThan(8);
  });
});

describe('programs and recordings', () => {
  const log = createLog('ERROR', () => {});

  it('a shell that cannot be looked at is not replaced by one with fewer restrictions', async () => {
    const { find } = createNodeHost({ agentHome: await temporaryDirectory(), env: { PATH: '' } }).children;
    const wanted = '/bin/sh';
    expect(await resolveShell({ find }, [wanted, '/bin/bash'])).toBe(wanted);
    const calls = await withEveryFault(
      () => resolveShell({ find }, [wanted, '/bin/bash']).catch(() => null),
      (shell, fault) =>
        expect({ fault, isOther: shell !== null && shell !== wanted }).toEqual({ fault, isOther: false }),
    );
    expect(calls).toBeGreaterThan(0);
  });

  it('no recording is named that is not there as a whole; each is private; what is no recording, or young, stays', async () => {
    const DAY = 24 * 3600 * 1000;
    const pcm = new Uint8Array(960).fill(7);
    const OLD = 'realtime-20200101-000000-abc.wav';
    const YOUNG = 'realtime-20200102-000000-abc.wav';
    const THERE = [OLD, YOUNG, 'diary.wav', 'notes.jsonl'];
    const agentHome = await temporaryDirectory();
    const host = createNodeHost({ agentHome, env: { HOME: agentHome, PATH: '' } });
    let round = 0;
    const calls = await withEveryFault(
      async () => {
        // Not by `temporaryDirectory`, whose calls would fail, too.
        const runDir = mkdtempSync(join(agentHome, 'run-'));
        for (const name of THERE) writeFileSync(join(runDir, name), name);
        const clock = createTestClock(Date.now());
        for (const name of [OLD, 'diary.wav', 'notes.jsonl']) {
          const then = new Date(clock.now() - 100 * DAY);
          utimesSync(join(runDir, name), then, then);
        }
        const artifacts = createArtifacts({ host, clock, log });
        const scope = { runDir, section: {} };
        const session = artifacts.open({ prefix: 'realtime', sessionId: `round${round++}`, scope });
        session.record({ type: 'begun' });
        const path = session.startAudio(24_000);
        session.audio(pcm);
        const saved = await session.savedAudio(path);
        session.recordEnd({ type: 'ended' });
        await session.settled();
        artifacts.stop();
        return { runDir, path, saved };
      },
      async ({ runDir, path, saved }, fault) => {
        expect({ fault, isKnown: ['', path].includes(saved) }).toEqual({ fault, isKnown: true });
        if (saved !== '') {
          const bytes = await readFile(saved);
          const found = { fault, length: bytes.length, size: bytes.readUInt32LE(40) };
          expect(found).toEqual({ fault, length: 44 + pcm.length, size: pcm.length });
        }
        for (const name of [YOUNG, 'diary.wav', 'notes.jsonl']) {
          expect({ fault, name, stays: (await stat(join(runDir, name))).isFile() }).toMatchObject({ stays: true });
        }
        const own = (await readdir(runDir)).filter((name) => !THERE.includes(name));
        for (const name of own) {
          const mode = (await stat(join(runDir, name))).mode & 0o777;
          expect({ fault, name, mode }).toEqual({ fault, name, mode: 0o600 });
        }
      },
    );
    expect(calls).toBeGreaterThan(3);
  });
});

import { copyFile, mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import fc from 'fast-check';
import { expect, it } from 'vitest';
import type { Limiter } from '../../../lib/access/limiter.ts';
import { sha256 } from '../../../lib/kit/sha256.ts';
import type { PairingCodes } from '../../../lib/pairing/codes.ts';
import type { Policy } from '../../../lib/sessions/grants.ts';
import type { Reduction } from '../../../lib/sessions/policy-change.ts';
import { openSessions } from '../../../lib/sessions/sessions.ts';
import { type AuthRequest, authenticate } from '../../../lib/socket/auth.ts';
import { createStores } from '../../../storage/index.ts';
import type { Stores } from '../../../storage/schema.ts';
import { sqlBackend } from '../../../storage/sql-backend.ts';
import { openStateFile } from '../../../storage/sqlite.ts';
import { createTestClock } from '../../support/clock.ts';
import { createTestLog } from '../../support/log.ts';
import { codesOf, limiterOf, sessionStores } from '../../support/states.ts';

const DAY = 86_400;
const CHANNELS = ['chat', 'terminal', 'bridge', 'tui', 'desktop', 'voice:config', 'voice:stt', 'voice:tts'];
const GRANTS = [...CHANNELS, 'voice:realtime', 'files', 'profiles', 'phone', 'devices'];
const CODES = ['AAAAA1', 'BBBBB2', 'CCCCC3'];
/** The first two are one device; the last two identify none. */
const DEVICES = ['phone-a', 'Phone-A', 'desk-b', 'unknown', 'none'];
const isDevice = (id: string) => !['', 'unknown', 'none', 'null'].includes(id.toLowerCase());

type Grants = Record<string, number | null>;

/** Stands for a token that was issued but never delivered. */
const NOBODY_HAS = 'nobody has it';

/** One pairing and its current state, by the contract (01 §6). */
interface Family {
  device: string;
  token: string;
  refresh: { token: string; until: number };
  /** Replaced tokens, oldest first. */
  replaced: { token: string; until: number }[];
  expiresAt: number | null;
  grants: Grants;
}

/** Replaced tokens that were delivered. */
const previousOf = ({ replaced }: Family): string[] =>
  replaced.map(({ token }) => token).filter((token) => token !== NOBODY_HAS);

/** The whole state as one list; anything not in it is dead. */
class Model {
  now: number;
  families: Family[] = [];
  codes = new Map<string, { policy: Policy; until: number }>();
  everToken = new Set<string>();
  /** Every refresh token that was delivered, with its family. */
  everRefresh = new Map<string, Family>();

  constructor(now: number) {
    this.now = now;
  }

  alive = () => this.families.filter(({ expiresAt }) => expiresAt === null || expiresAt > this.now);
  end = (family: Family) => {
    this.families = this.families.filter((other) => other !== family);
  };
  byToken = (token: string) => this.alive().find((family) => family.token === token);
  byRefresh = (token: string) =>
    this.alive().find(
      ({ refresh, replaced }) =>
        refresh.until > this.now &&
        (refresh.token === token || replaced.some((one) => one.token === token && one.until > this.now)),
    );
}

/** A process's sessions and codes, on a state file that survives it. */
class Real {
  readonly directory: string;
  readonly clock = createTestClock();
  readonly log = createTestLog();
  sessions!: Awaited<ReturnType<typeof openSessions>>;
  codes!: PairingCodes;
  limiter!: Limiter;
  #stores: Stores | undefined;
  #life = 0;

  /** Sessions are read when somebody asks for them, as at the edge. */
  readonly isLazy: boolean;

  constructor(directory: string, isLazy: boolean) {
    this.directory = directory;
    this.isLazy = isLazy;
  }

  #path = () => join(this.directory, String(this.#life), 'state.db');

  async open(): Promise<void> {
    await mkdir(dirname(this.#path()), { recursive: true });
    const executor = openStateFile(this.#path(), (message) => this.log.warn(message));
    const atEdge = { commitLater: undefined, isSynchronous: true, atTurnEnd: queueMicrotask };
    this.#stores = createStores('node', sqlBackend(this.isLazy ? { ...executor, ...atEdge } : executor));
    this.sessions = await openSessions({
      ...sessionStores(this.#stores),
      clock: this.clock,
      log: this.log,
    });
    this.codes = await codesOf(this.clock, this.log, this.#stores);
    this.limiter = await limiterOf(this.clock, this.#stores);
  }

  /** The next process finds the files exactly as they are now: nothing is flushed, closed or checkpointed first. */
  async crash(): Promise<void> {
    const before = this.#path();
    this.#life++;
    await mkdir(join(this.directory, String(this.#life)));
    for (const suffix of ['', '-wal']) await copyFile(before + suffix, this.#path() + suffix).catch(() => {});
    this.close();
    await this.open();
  }

  close(): void {
    this.#stores?.close();
    this.#stores = undefined;
  }

  enter(device: string, credentials: Pick<AuthRequest, 'pairingCode' | 'sessionToken' | 'refreshToken'>) {
    return authenticate(
      { sessions: this.sessions, codes: this.codes, limiter: this.limiter, log: this.log },
      {
        ...credentials,
        device: { name: 'It', id: device, model: '', platform: '', surface: 'unknown', formFactor: 'unknown' },
        typedStream: false,
      },
      { key: '192.0.2.1', transportHint: 'ws' },
    );
  }
}

/**
 * Compares memory, index and counters with the model; runs after every step, crashes included. It asks for every session,
 * so it is left to the end where they are to be read one by one.
 */
function same(model: Model, real: Real, isLast = false): void {
  if (real.isLazy && !isLast) return;
  const byPrefix = (a: { prefix: string }, b: { prefix: string }) => (a.prefix < b.prefix ? -1 : 1);
  const good = (...tokens: { hash: string; until: number }[]) => tokens.filter(({ until }) => until > model.now);
  const known = new Set([...model.everRefresh.keys()].map((token) => sha256(token)));
  const name = (hash: string) => (known.has(hash) ? hash : NOBODY_HAS);
  const actual = real.sessions.list().map(({ prefix, device, expiresAt, grants, refresh }) => ({
    prefix,
    device: device.id,
    expiresAt,
    grants,
    refresh:
      refresh &&
      good({ hash: refresh.hash, until: refresh.expiresAt }, ...refresh.replaced).map(({ hash, until }) => ({
        hash: name(hash),
        until,
      })),
  }));
  const told = model.alive().map(({ token, device, expiresAt, grants, refresh, replaced }) => ({
    prefix: token.slice(0, 8),
    device,
    expiresAt,
    grants,
    refresh: good(...[refresh, ...replaced].map(({ token, until }) => ({ hash: name(sha256(token)), until }))),
  }));
  expect(actual.sort(byPrefix)).toEqual(told.sort(byPrefix));
  expect(real.sessions.count()).toBe(model.alive().length);
  for (const token of model.everToken) {
    expect(real.sessions.authenticate(token)?.prefix, token).toBe(model.byToken(token)?.token.slice(0, 8));
  }
  expect(real.sessions.storeState()).toBe('ok');
}

type Entered = Awaited<ReturnType<Real['enter']>>;

/** Result of a pairing (01 §6.2): the defaults, overridden by the host's grants, clamped to the session. */
function paired(model: Model, policy: Policy, device: string, entered: Entered): void {
  expect(entered?.refreshToken).toMatch(/^[\w-]{43}$/);
  for (const family of isDevice(device) ? model.families : []) {
    if (family.device.toLowerCase() === device.toLowerCase()) model.end(family);
  }
  const { now } = model;
  const ttl = policy.ttlSeconds ?? 30 * DAY;
  const expiresAt = ttl === 0 ? null : now + ttl;
  const longest: Record<string, number> = { terminal: 30 * DAY, tui: 30 * DAY, desktop: 30 * DAY, bridge: 7 * DAY };
  const grants: Grants = {};
  for (const channel of GRANTS) {
    grants[channel] = expiresAt === null ? null : now + Math.min(ttl, longest[channel] ?? ttl);
  }
  for (const [channel, seconds] of Object.entries(policy.grants ?? {})) {
    const wished = seconds === 0 ? null : now + seconds;
    grants[channel] = expiresAt === null ? wished : wished === null ? expiresAt : Math.min(wished, expiresAt);
  }
  for (const name of policy.without ?? []) delete grants[name];
  remember(model, {
    device,
    token: entered?.token as string,
    refresh: { token: entered?.refreshToken as string, until: now + 180 * DAY },
    replaced: [],
    expiresAt,
    grants,
  });
}

function remember(model: Model, family: Family): void {
  if (!model.families.includes(family)) model.families.push(family);
  model.everToken.add(family.token);
  model.everRefresh.set(family.refresh.token, family);
}

/** Presenting a token retires those before it. */
function shown(family: Family, token: string): void {
  const at = family.replaced.findIndex((one) => one.token === token);
  if (at >= 0) family.replaced = family.replaced.slice(at);
  else if (family.refresh.token === token) family.replaced = [];
}

/** The current token gets ten more minutes; earlier ones keep their end. Beyond eight, the second oldest goes. */
function replace(model: Model, family: Family, token: string): void {
  const { refresh } = family;
  const lapsed = refresh.until <= model.now;
  const rest = family.replaced.filter(({ until }) => until > model.now);
  family.replaced = lapsed ? [] : [...rest, { token: refresh.token, until: model.now + 600 }];
  if (family.replaced.length > 8) family.replaced.splice(1, 1);
  family.refresh = { token, until: lapsed ? model.now + 180 * DAY : refresh.until };
}

/** Result of a good refresh token (01 §6.5): another token under the same policy, not a second longer. */
function refreshed(model: Model, family: Family, presented: string, device: string, entered: Entered): void {
  expect(entered?.token).not.toBe(family.token);
  expect(entered?.refreshToken).toMatch(/^[\w-]{43}$/);
  shown(family, presented);
  family.token = entered?.token as string;
  replace(model, family, entered?.refreshToken as string);
  describe(model, family, device);
  remember(model, family);
}

/** An id never changes once there is one, and is never that of another device (01 §3.4). */
function describe(model: Model, family: Family, device: string): void {
  const isTaken = (other: Family) => other !== family && other.device.toLowerCase() === device.toLowerCase();
  if (isDevice(family.device) || (isDevice(device) && model.alive().some(isTaken))) return;
  family.device = device;
}

/** A dead refresh token ends its family, unless it is the current one and has only expired (01 §6.5). */
function shownDead(model: Model, token: string): void {
  const family = model.everRefresh.get(token);
  if (family && model.alive().includes(family) && family.refresh.token !== token) model.end(family);
}

/** Whether a device may use a family's refresh token. */
const fits = (family: Family, device: string) => !isDevice(family.device) || family.device === device;

/** Result of a good session token (01 §3.4): the same token, and a new refresh token if the one sent is not good. */
function resumed(model: Model, family: Family, offered: string | undefined, device: string, entered: Entered): void {
  expect(entered?.token).toBe(family.token);
  const good = offered === undefined || model.byRefresh(offered) === family;
  expect(entered?.refreshToken === undefined).toBe(good);
  if (!good) replace(model, family, entered?.refreshToken as string);
  else if (offered !== undefined) shown(family, offered);
  describe(model, family, device);
  remember(model, family);
}

type Command = fc.AsyncCommand<Model, Real>;

const command = (name: string, run: (model: Model, real: Real) => Promise<void>): Command => ({
  check: () => true,
  async run(model, real) {
    await run(model, real);
    same(model, real);
  },
  toString: () => name,
});

/** One of the items, or undefined; `index` is drawn beforehand so that a run can be repeated. */
const pick = <T>(items: Iterable<T>, index: number): T | undefined => {
  const list = [...items];
  return list[index % Math.max(1, list.length)];
};

const index = fc.nat({ max: 1_000 });
const device = fc.constantFrom(...DEVICES);
const code = fc.constantFrom(...CODES);
const ttl = fc.option(fc.constantFrom(0, 1, 60, 700, DAY, 8 * DAY, 40 * DAY, 400 * DAY), { nil: undefined });
const duration = fc.constantFrom(0, 1, 30, 599, 3_600, 8 * DAY, 400 * DAY);
const policy: fc.Arbitrary<Policy> = fc.record({
  ttlSeconds: ttl,
  grants: fc.option(fc.dictionary(fc.constantFrom(...CHANNELS, 'future'), duration, { maxKeys: 3 }), {
    nil: undefined,
  }),
  without: fc.option(fc.subarray(GRANTS), { nil: undefined }),
});

const register = fc.tuple(code, policy).map(([code, policy]) =>
  command(`register ${code} ${JSON.stringify(policy)}`, async (model, real) => {
    await real.codes.register(code, policy);
    model.codes.set(code, { policy, until: Math.floor(model.now) + 600 });
  }),
);

function consume(model: Model, code: string): Policy | undefined {
  const entry = model.codes.get(code);
  model.codes.delete(code);
  return entry && entry.until > model.now ? entry.policy : undefined;
}

const pair = fc.tuple(code, device).map(([code, device]) =>
  command(`pair ${code} as ${device}`, async (model, real) => {
    const entered = await real.enter(device, { pairingCode: code });
    const policy = consume(model, code);
    if (!policy) expect(entered).toBeUndefined();
    else paired(model, policy, device, entered);
  }),
);

const registerAndPair = fc.tuple(code, policy, device).map(([code, policy, device]) =>
  command(`register and pair ${code} ${JSON.stringify(policy)} as ${device}`, async (model, real) => {
    await real.codes.register(code, policy);
    model.codes.delete(code);
    paired(model, policy, device, await real.enter(device, { pairingCode: code }));
  }),
);

const race = fc.tuple(code, policy, device, device).map(([code, policy, one, other]) =>
  command(`race for ${code} between ${one} and ${other} (01 §3.4)`, async (model, real) => {
    await real.codes.register(code, policy);
    model.codes.delete(code);
    const [first, second] = await Promise.all([
      real.enter(one, { pairingCode: code }),
      real.enter(other, { pairingCode: code }),
    ]);
    expect(second).toBeUndefined();
    paired(model, policy, one, first);
  }),
);

/** Which refresh token is presented: a current one, a recently replaced one, or any that ever was. */
type Age = 'current' | 'previous' | 'dead' | 'any';
const age = fc.constantFrom<Age>('current', 'previous', 'dead', 'any');
const refreshTokens: Record<Age, (model: Model) => Iterable<string>> = {
  current: (model) => model.alive().map((family) => family.refresh.token),
  previous: (model) => model.alive().flatMap(previousOf),
  dead: (model) => [...model.everRefresh.keys()].filter((token) => !model.byRefresh(token)).slice(-4),
  any: (model) => model.everRefresh.keys(),
};

async function showRefresh(model: Model, real: Real, token: string, device?: string): Promise<void> {
  const family = model.byRefresh(token);
  const name = device ?? family?.device ?? 'phone-a';
  const entered = await real.enter(name, { refreshToken: token });
  if (family && fits(family, name)) refreshed(model, family, token, name, entered);
  else {
    expect(entered, 'a dead refresh token').toBeUndefined();
    if (!family) shownDead(model, token);
  }
}

const refresh = fc.tuple(index, device, fc.boolean(), age).map(([index, device, own, age]) =>
  command(`refresh ${index} of ${age} as ${own ? 'itself' : device}`, async (model, real) => {
    const token = pick(refreshTokens[age](model), index);
    if (token !== undefined) await showRefresh(model, real, token, own ? undefined : device);
  }),
);

/** Answers lost on a bad line: the same token is presented again and again, and still ends on time (01 §6.5). */
const lostAnswers = fc
  .tuple(index, fc.array(fc.constantFrom(0, 1, 299, 300, 599, 600, 601), { minLength: 1, maxLength: 4 }))
  .map(([index, waits]) =>
    command(`refresh ${index} again after ${waits.join(', ')} s`, async (model, real) => {
      const token = pick(refreshTokens.current(model), index);
      if (token === undefined) return;
      await showRefresh(model, real, token);
      for (const wait of waits) {
        real.clock.advance(wait * 1_000);
        model.now = real.clock.now() / 1000;
        await showRefresh(model, real, token);
      }
    }),
  );

const refreshTwice = index.map((index) =>
  command(`refresh ${index} from two sockets at once`, async (model, real) => {
    const token = pick(
      model.alive().map((family) => family.refresh.token),
      index,
    );
    const family = token === undefined ? undefined : model.byRefresh(token);
    if (!token || !family) return;
    const name = family.device;
    const [first, second] = await Promise.all([
      real.enter(name, { refreshToken: token }),
      real.enter(name, { refreshToken: token }),
    ]);
    // The second use replaces the first one's session: of two answers, one session is left.
    expect([first, second].filter((entered) => entered !== undefined)).toHaveLength(1);
    const winner = (second ?? first) as NonNullable<Entered>;
    shown(family, token);
    replace(model, family, NOBODY_HAS);
    replace(model, family, winner.refreshToken as string);
    family.token = winner.token;
    remember(model, family);
  }),
);

const resume = fc.tuple(index, index, device, fc.boolean()).map(([at, other, device, withRefresh]) =>
  command(`resume ${at} with refresh token ${withRefresh ? other : 'none'} as ${device}`, async (model, real) => {
    const token = pick(model.everToken, at);
    if (token === undefined) return;
    const offered = withRefresh ? pick(model.everRefresh.keys(), other) : undefined;
    const family = model.byToken(token);
    const backup = offered === undefined ? undefined : model.byRefresh(offered);
    const entered = await real.enter(device, { sessionToken: token, refreshToken: offered });
    if (family) resumed(model, family, offered, device, entered);
    else if (offered !== undefined && backup && fits(backup, device)) {
      refreshed(model, backup, offered, device, entered);
    } else {
      expect(entered).toBeUndefined();
      if (offered !== undefined && !backup) shownDead(model, offered);
    }
  }),
);

const reductionOf = (family: Family, model: Model, share: number, channels: string[], withTtl: boolean): Reduction => {
  const part = (expiry: number | null) =>
    expiry === null ? Math.ceil(share * 100 * DAY) : Math.max(1, Math.floor((expiry - model.now) * share));
  return {
    ttlSeconds: withTtl ? part(family.expiresAt) : undefined,
    grants: Object.fromEntries(channels.map((channel) => [channel, part(family.grants[channel] ?? null)])),
  };
};

/** Reductions that the contract allows and refuses (01 §6.4, checks 6-8): all or nothing. */
const reduce = fc
  .tuple(index, fc.double({ min: 0.1, max: 1.5, noNaN: true }), fc.subarray([...CHANNELS, 'nonsense']), fc.boolean())
  .map(([index, share, channels, withTtl]) =>
    command(`reduce ${index} to ${share} of ${channels.join(',')}${withTtl ? ' and all' : ''}`, async (model, real) => {
      const family = pick(model.alive(), index);
      if (!family) return;
      const session = real.sessions.authenticate(family.token);
      if (!session) throw new Error('a live session is not there');
      const wish = reductionOf(family, model, share, channels, withTtl);
      const later = (to: number | null, from: number | null) => from !== null && (to === null || to > from);
      const end = wish.ttlSeconds === undefined ? family.expiresAt : model.now + wish.ttlSeconds;
      const wished = Object.entries(wish.grants ?? {}).map(([name, seconds]) => [name, model.now + seconds] as const);
      const refused =
        later(end, family.expiresAt) ||
        wished.some(([name, expiry]) => !(name in family.grants) || later(expiry, family.grants[name] ?? null));
      if (refused) {
        await expect(real.sessions.reduce(session, wish)).rejects.toThrow();
        return;
      }
      await real.sessions.reduce(session, wish);
      family.expiresAt = end;
      for (const [name, expiry] of [...Object.entries(family.grants), ...wished]) {
        family.grants[name] = end === null ? expiry : expiry === null ? end : Math.min(expiry, end);
      }
    }),
  );

const revoke = index.map((index) =>
  command(`revoke ${index}`, async (model, real) => {
    const family = pick(model.alive(), index);
    if (!family) return;
    const [session] = real.sessions.find(family.token.slice(0, 8));
    if (!session) throw new Error('a live session is not found');
    await real.sessions.revoke(session);
    model.end(family);
  }),
);

const revokeDuring = fc.tuple(index, fc.constantFrom('resume', 'refresh')).map(([index, what]) =>
  command(`revoke ${index} while it is in its ${what} (01 §11)`, async (model, real) => {
    const family = pick(model.alive(), index);
    if (!family) return;
    const session = real.sessions.authenticate(family.token);
    if (!session || (what === 'refresh' && model.byRefresh(family.refresh.token) !== family)) return;
    // A resume with nothing to save ends at once: this one needs a new refresh token.
    const entering = real.enter(
      family.device,
      what === 'resume'
        ? { sessionToken: family.token, refreshToken: 'nonsense' }
        : { refreshToken: family.refresh.token },
    );
    const [heir] = real.sessions.list().filter((other) => other.family === session.family);
    if (heir) await real.sessions.revoke(heir);
    // The revocation wins: nobody is admitted, and no record is left.
    expect(await entering).toBeUndefined();
    model.end(family);
  }),
);

const advance = fc
  .constantFrom(1, 999, 1_000, 59_000, 599_000, 600_000, 601_000, DAY * 1_000, 8 * DAY * 1_000, 100 * DAY * 1_000)
  .map((ms) =>
    command(`advance ${ms} ms`, async (model, real) => {
      real.clock.advance(ms);
      model.now = real.clock.now() / 1000;
    }),
  );

/** A device confirms its newest refresh token, which retires the one before (01 §6.5). */
const settle = fc.tuple(index, fc.boolean()).map(([index, previous]) =>
  command(`resume ${index} with its own ${previous ? 'previous' : 'current'} refresh token`, async (model, real) => {
    const family = pick(
      model.alive().filter((family) => !previous || previousOf(family).length > 0),
      index,
    );
    if (!family) return;
    const offered = previous ? previousOf(family).at(-1) : family.refresh.token;
    const entered = await real.enter(family.device, { sessionToken: family.token, refreshToken: offered });
    resumed(model, family, offered, family.device, entered);
  }),
);

const crash = fc.constant(
  command('crash', async (model, real) => {
    await real.crash();
    // Codes and failure counts are in memory only (01 §6.7).
    model.codes.clear();
  }),
);

const sweep = fc.constant(command('sweep', async (_model, real) => real.sessions.sweep()));
const flush = fc.constant(command('flush', (_model, real) => real.sessions.flush()));

it.each([
  { isLazy: false, where: 'in memory' },
  { isLazy: true, where: 'read when they are needed (12 §6)' },
])(
  '01 §3.4, §5.1, §6.2-6.7, §11: any history of pairings, refreshes, reductions and crashes agrees with the model, with sessions $where',
  {
    timeout: 300_000,
  },
  async ({ isLazy }) => {
    const directory = await mkdtemp(join(tmpdir(), 'svc-relay-model-'));
    let run = 0;
    try {
      await fc.assert(
        fc.asyncProperty(
          fc.commands(
            [
              register,
              pair,
              registerAndPair,
              registerAndPair,
              race,
              refresh,
              refresh,
              lostAnswers,
              refreshTwice,
              refresh,
              resume,
              settle,
              settle,
              reduce,
              reduce,
              revoke,
              revokeDuring,
              advance,
              crash,
              sweep,
              flush,
            ],
            { maxCommands: 60, size: 'max' },
          ),
          async (commands) => {
            const real = new Real(join(directory, String(run++)), isLazy);
            await real.open();
            const model = new Model(real.clock.now() / 1000);
            try {
              await fc.asyncModelRun(() => ({ model, real }), commands);
              await real.crash();
              same(model, real, true);
            } finally {
              real.close();
            }
          },
        ),
        { numRuns: 80 },
      );
    } finally {
      await rm(directory, { recursive: true, force: true });
    }
  },
);

import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { familyOf } from '../../lib/sessions/refresh.ts';
import { seeded } from '../support/flaky-proxy.ts';
import { filesBelow, Gone, type RelayProcess, startRelayProcess } from '../support/process.ts';

const KILLS = 20;
const WORKERS = 4;
const SEED = Number(process.env.SURVIVE_SEED) || Date.now() % 1_000_000;

type Grants = Record<string, number | null>;
interface Policy {
  expires_at: number | null;
  grants: Grants;
}
interface Row extends Policy {
  token_prefix: string;
  device_id: string;
  created_at: number;
}
/** State that the relay has acknowledged to the device. All of it must survive. */
interface Live {
  token: string;
  refresh: string;
  /** The previous refresh token, valid until the new one has been used. */
  previous?: string;
  policy: Policy;
}
interface Wish {
  ttl_seconds?: number;
  grants?: Record<string, number>;
}
/** A request without an answer, which may have taken effect or not. */
type Flight =
  | { kind: 'pair'; wish: Wish }
  | { kind: 'refresh' | 'resume' | 'revoke' }
  | { kind: 'reduce'; wish: Wish; sentAt: number };

class Device {
  readonly id: string = crypto.randomUUID();
  live: Live | undefined;
  flight: Flight | undefined;
  /** Prefixes of sessions from pairings whose answer was lost. The next pairing ends them. */
  ghosts: string[] = [];
}

const now = () => Date.now() / 1000;

it(`issue: kill -9 at any moment loses nothing acknowledged and revives nothing revoked (01 §6.7, §10; seed ${SEED})`, {
  timeout: 300_000,
}, async () => {
  const random = seeded(SEED);
  const below = (limit: number) => Math.floor(random() * limit);
  const oneOf = <T>(items: readonly T[]): T => items[below(items.length)] as T;

  const relay: RelayProcess = await startRelayProcess({ flags: ['--log-level', 'DEBUG'] });
  const workers = Array.from({ length: WORKERS }, () => [new Device(), new Device()] as const);
  const devices = workers.flat();
  const deadTokens: string[] = [];
  const deadRefreshes: { token: string; device: string }[] = [];
  const secrets: string[] = [];
  const answered = { pair: 0, refresh: 0, resume: 0, reduce: 0, revoke: 0 };
  const inFlight = { pair: 0, refresh: 0, resume: 0, reduce: 0, revoke: 0 };
  let onAnswer = () => {};

  const bury = (device: Device) => {
    if (!device.live) return;
    deadTokens.push(device.live.token);
    for (const token of [device.live.refresh, device.live.previous]) {
      if (token !== undefined) deadRefreshes.push({ token, device: device.id });
    }
    device.live = undefined;
  };

  const register = async (code: string, policy: Wish = {}) => {
    const answer = await relay.ask('/pairing/register', { method: 'POST', body: { code, ...policy } });
    expect(answer.status, answer.text).toBe(200);
  };

  /** Authenticates once. Returns the payload of `auth.ok`, or undefined for `auth.fail`. */
  const enter = async (device: Device, credentials: Record<string, string>) => {
    const { frame, socket } = await relay.offer({ ...credentials, device_id: device.id, device_name: 'a device' });
    socket.terminate();
    if (frame.type !== 'auth.ok') return undefined;
    const { session_token: token, refresh_token: refresh, expires_at, grants } = frame.payload;
    for (const secret of [token, refresh]) if (typeof secret === 'string') secrets.push(secret);
    return {
      token: token as string,
      refresh: refresh as string | undefined,
      policy: { expires_at, grants } as Policy,
    };
  };

  /** A code that cannot occur in an ordinary word, a time or a hash. */
  const newCode = () => {
    const code = Array.from({ length: 3 }, () => `${oneOf([...'GHJKLMNPQRSTUVWXYZ'])}${below(10)}`).join('');
    secrets.push(code);
    return code;
  };

  const wishForPairing = (): Wish => ({
    ttl_seconds: oneOf([undefined, 0, 3600, 86_400, 2_592_000]),
    grants: random() < 0.5 ? { bridge: 1800 + below(1000), terminal: 2000 + below(1000) } : undefined,
  });

  const operations = {
    async pair(device: Device) {
      const code = newCode();
      const wish = wishForPairing();
      await register(code, wish);
      device.flight = { kind: 'pair', wish };
      const issued = await enter(device, { pairing_code: code });
      expect(issued, 'a registered code pairs').toBeDefined();
      bury(device);
      device.ghosts = [];
      device.live = { ...(issued as Live) };
    },
    async refresh(device: Device) {
      if (!device.live) return false;
      device.flight = { kind: 'refresh' };
      const issued = await enter(device, { refresh_token: device.live.refresh });
      expect(issued?.policy, 'a refresh keeps the policy').toEqual(device.live.policy);
      deadTokens.push(device.live.token);
      if (device.live.previous) deadRefreshes.push({ token: device.live.previous, device: device.id });
      device.live = { ...(issued as Live), previous: device.live.refresh };
    },
    async resume(device: Device) {
      if (!device.live) return false;
      const { live } = device;
      device.flight = { kind: 'resume' };
      const same = await enter(device, { session_token: live.token, refresh_token: live.refresh });
      expect(same, 'both tokens are good').toEqual({ token: live.token, refresh: undefined, policy: live.policy });
      if (live.previous) deadRefreshes.push({ token: live.previous, device: device.id });
      live.previous = undefined;
    },
    async reduce(device: Device) {
      if (!device.live) return false;
      const { live } = device;
      const left = (expiry: number | null) => (expiry === null ? 2_592_000 : Math.floor(expiry - now()));
      const wish: Wish = {};
      if (random() < 0.6) wish.ttl_seconds = Math.max(600, Math.floor(left(live.policy.expires_at) * 0.9));
      if (wish.ttl_seconds === undefined || random() < 0.5) {
        const channel = oneOf(['bridge', 'terminal', 'chat']);
        wish.grants = { [channel]: Math.max(300, Math.floor(left(live.policy.grants[channel] ?? null) * 0.8)) };
      }
      // Near its minimum, these rules cannot reduce a policy further. The relay judges this some time later.
      const SLACK = 30;
      if ((wish.ttl_seconds ?? 0) + SLACK >= left(live.policy.expires_at)) return false;
      for (const [channel, ttl] of Object.entries(wish.grants ?? {})) {
        if (ttl + SLACK >= left(live.policy.grants[channel] ?? null)) return false;
      }
      device.flight = { kind: 'reduce', wish, sentAt: now() };
      const answer = await relay.ask(`/sessions/${live.token.slice(0, 8)}`, {
        method: 'PATCH',
        headers: { authorization: `Bearer ${live.token}` },
        body: wish,
      });
      expect(answer.status, answer.text).toBe(200);
      live.policy = { expires_at: answer.json.expires_at, grants: answer.json.grants };
    },
    async revoke(device: Device, other: Device) {
      if (!device.live) return false;
      // Revoked by itself or by the other device of the same person.
      const bearer = random() < 0.5 && other.live ? other.live.token : device.live.token;
      device.flight = { kind: 'revoke' };
      const answer = await relay.ask(`/sessions/${device.live.token.slice(0, 8)}`, {
        method: 'DELETE',
        headers: { authorization: `Bearer ${bearer}` },
      });
      expect(answer.status, answer.text).toBe(200);
      bury(device);
    },
  };
  type Kind = keyof typeof operations;
  const menu: Kind[] = ['pair', 'refresh', 'refresh', 'resume', 'reduce', 'reduce', 'reduce', 'revoke'];

  /** One person with two devices, acting sequentially until the relay is killed. */
  async function work([first, second]: readonly [Device, Device]): Promise<void> {
    for (;;) {
      const [device, other] = random() < 0.5 ? [first, second] : [second, first];
      const kind = device.live ? oneOf(menu) : 'pair';
      try {
        if ((await operations[kind](device, other)) === false) continue;
      } catch (error) {
        if (error instanceof Gone) return;
        throw error;
      }
      device.flight = undefined;
      answered[kind]++;
      onAnswer();
    }
  }

  /** Whether `row` is the result of reducing `old` by `wish`, requested after `sentAt`. */
  function isReduction(row: Policy, old: Policy, wish: Wish, sentAt: number): boolean {
    const around = (value: number | null | undefined, ttl: number) =>
      typeof value === 'number' && value >= sentAt + ttl - 1 && value <= now() + ttl + 1;
    const end = wish.ttl_seconds === undefined ? old.expires_at : row.expires_at;
    if (row.expires_at !== end) return false;
    if (wish.ttl_seconds !== undefined && !around(end, wish.ttl_seconds)) return false;
    return Object.entries(old.grants).every(([channel, before]) => {
      const after = row.grants[channel];
      const ttl = wish.grants?.[channel];
      if (ttl !== undefined) return around(after, ttl) || after === end;
      return after === (before === null ? end : end === null ? before : Math.min(before, end));
    });
  }

  const listed = async (): Promise<Row[]> => {
    const answer = await relay.ask('/sessions', { headers: { 'x-svc-operator': '1' } });
    expect(answer.status).toBe(200);
    return answer.json.sessions;
  };

  const statusOf = async (token: string) =>
    (await relay.ask('/sessions', { headers: { authorization: `Bearer ${token}` } })).status;

  const policyOf = ({ expires_at, grants }: Policy): Policy => ({ expires_at, grants });

  /** After a restart, decides whether the unanswered request took effect. Everything else must be unchanged. */
  async function settle(device: Device, rows: Row[]): Promise<void> {
    const { flight, live } = device;
    device.flight = undefined;
    if (flight) inFlight[flight.kind]++;
    const own = live && rows.find((row) => row.token_prefix === live.token.slice(0, 8));
    const strangers = rows.filter((row) => row !== own && !device.ghosts.includes(row.token_prefix));
    const ghosts = rows.filter((row) => device.ghosts.includes(row.token_prefix)).map((row) => row.token_prefix);

    if (flight?.kind === 'pair') {
      expect(strangers.length, 'at most the one new session').toBeLessThanOrEqual(1);
      const [fresh] = strangers;
      if (fresh) {
        const { ttl_seconds = 2_592_000 } = flight.wish;
        if (ttl_seconds === 0) expect(fresh.expires_at).toBeNull();
        else expect(fresh.expires_at).toBeCloseTo(fresh.created_at + ttl_seconds, 2);
        // The new session is stored first, so the replaced one may still exist.
        if (!own) bury(device);
        else expect(policyOf(own)).toEqual(live.policy);
        device.ghosts = [...ghosts, fresh.token_prefix];
      } else {
        expect(ghosts, 'nothing ends unless the new session is there').toEqual(device.ghosts);
        if (live) expect(own && policyOf(own)).toEqual(live.policy);
      }
      return;
    }
    expect(ghosts).toEqual(device.ghosts);
    if (!live) {
      expect(strangers, 'what was revoked stays away').toEqual([]);
      return;
    }
    if (flight?.kind === 'revoke') {
      expect(strangers).toEqual([]);
      if (own) expect(policyOf(own)).toEqual(live.policy);
      else bury(device);
      return;
    }
    if (flight?.kind === 'refresh' && !own) {
      expect(strangers.map(policyOf), 'the family lives on with its policy').toEqual([live.policy]);
      expect(await statusOf(live.token), 'the token before the refresh').toBe(401);
      // The answer was lost, so the used refresh token is still valid.
      const issued = await enter(device, { refresh_token: live.refresh });
      expect(issued?.policy, 'the refresh token whose successor was lost').toEqual(live.policy);
      deadTokens.push(live.token);
      if (live.previous) deadRefreshes.push({ token: live.previous, device: device.id });
      device.live = { ...(issued as Live), previous: live.refresh };
      return;
    }
    expect(strangers).toEqual([]);
    expect(own, 'an answered session is there').toBeDefined();
    if (flight?.kind === 'reduce' && JSON.stringify(policyOf(own as Row)) !== JSON.stringify(live.policy)) {
      expect(isReduction(own as Row, live.policy, flight.wish, flight.sentAt), 'all of a reduction or nothing').toBe(
        true,
      );
      live.policy = policyOf(own as Row);
    }
    // It is unknown whether the relay saw the new refresh token in use.
    if (flight?.kind === 'resume') live.previous = undefined;
    expect(policyOf(own as Row), 'exactly the answered policy').toEqual(live.policy);
  }

  /** Compares everything ever acknowledged with the relay's current state. */
  async function verify(sample: number): Promise<void> {
    const rows = await listed();
    for (const device of devices)
      await settle(
        device,
        rows.filter((row) => row.device_id === device.id),
      );
    expect(rows.filter((row) => !devices.some((device) => device.id === row.device_id))).toEqual([]);

    for (const { live } of devices) if (live) expect(await statusOf(live.token), 'an answered token').toBe(200);
    const tokens = sample === Infinity ? deadTokens : Array.from({ length: sample }, () => oneOf(deadTokens));
    for (const token of tokens) if (token) expect(await statusOf(token), 'a dead token').toBe(401);

    const recent = deadRefreshes.slice(sample === Infinity ? -60 : -sample / 10);
    for (const { token, device } of recent) {
      // Most families live on, so that there is something to kill the relay over.
      const isOfLivingFamily = devices.some(({ live }) => live && familyOf(live.refresh) === familyOf(token));
      if (isOfLivingFamily && random() < 0.9) continue;
      // A failed attempt counts against this address, and a registration clears the count (01 §4).
      await register('A0A0A0');
      const { frame, socket } = await relay.offer({ refresh_token: token, device_id: device });
      socket.terminate();
      expect(frame.type, 'a dead refresh token').toBe('auth.fail');
      const family = devices.find(({ live }) => live && familyOf(live.refresh) === familyOf(token));
      if (family?.live) {
        // It is a sign of theft, and ends the family (01 §6.5).
        expect(await statusOf(family.live.token), 'the token of a family whose dead refresh token was shown').toBe(401);
        bury(family);
      }
    }
    for (const device of devices) {
      if (!device.live) continue;
      if (random() < 0.5) await operations.resume(device);
      else await operations.refresh(device);
      device.flight = undefined;
    }
  }

  for (let kill = 0; kill < KILLS; kill++) {
    const enough = 5 + below(100);
    let count = 0;
    let reached = () => {};
    const full = new Promise<void>((resolve) => {
      reached = resolve;
    });
    onAnswer = () => {
      if (++count === enough) reached();
    };
    const working = Promise.all(workers.map(work));
    await Promise.race([full, working]);
    // A small delay, so that kills hit every step of the work and not only the time after an answer.
    for (let turns = below(12); turns > 0; turns--) await new Promise((resolve) => setImmediate(resolve));
    await relay.kill('SIGKILL');
    await working;
    if (random() < 0.3) {
      // Killed again during the start, at a random moment, which takes a timer.
      const child = relay.begin();
      await new Promise((resolve) => setTimeout(resolve, 50 + below(300)));
      await child.kill('SIGKILL');
    }
    await relay.restart();
    await verify(40);
  }
  await relay.restart();
  await verify(Infinity);

  expect(Math.min(...Object.values(answered)), JSON.stringify(answered)).toBeGreaterThan(5);
  const unanswered = Object.values(inFlight).reduce((sum, count) => sum + count);
  expect(unanswered, JSON.stringify(inFlight)).toBeGreaterThan(KILLS / 2);
  process.stdout.write(
    `survive: ${KILLS} kills, answered ${JSON.stringify(answered)}, unanswered ${JSON.stringify(inFlight)}\n`,
  );

  // Searched while the relay runs, so that the write-ahead log is included (01 §6.7, §10).
  const files = await filesBelow(relay.home);
  expect(files.map((file) => file.path)).toContain(join(relay.home, 'svc-relay/state.db-wal'));
  expect(files.filter((file) => file.path.includes('.corrupt-'))).toEqual([]);
  for (const { path, bytes } of files) {
    expect((await stat(path)).mode & 0o777, path).toBe(0o600);
    expect(
      secrets.filter((secret) => bytes.includes(secret)),
      path,
    ).toEqual([]);
  }
  for (const directory of [relay.home, join(relay.home, 'svc-relay')]) {
    expect((await stat(directory)).mode & 0o777).toBe(0o700);
  }
  expect(secrets.filter((secret) => relay.output.includes(secret))).toEqual([]);
  expect(relay.output).not.toMatch(/\[ERROR\]|could not be saved|skipped a session record|damaged/);
});

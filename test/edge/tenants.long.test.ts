import { createHash } from 'node:crypto';
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { exportSPKI, generateKeyPair, SignJWT } from 'jose';
import type { MiniflareOptions } from 'miniflare';
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest';
import { OPERATOR_ALGORITHM } from '../../lib/access/operator-token.ts';
import { bundle } from '../support/edge-bundle.ts';
import { startMiniflare } from '../support/miniflare.ts';

const TENANTS = 1_000;
const PROVIDER = 'https://relay.test';
/** Without credentials, the client does not try a request again after a 401. */
const AS_IS = { redirect: 'manual', credentials: 'omit' };
const SECRET = 'a-secret-of-the-deployment';

interface Key {
  publicKey: string;
  token(audience: string): Promise<string>;
}

async function makeKey(): Promise<Key> {
  const { publicKey, privateKey } = await generateKeyPair(OPERATOR_ALGORITHM, { extractable: true });
  const token = (audience: string) =>
    new SignJWT({})
      .setProtectedHeader({ alg: OPERATOR_ALGORITHM })
      .setAudience(audience)
      .setExpirationTime('10m')
      .sign(privateKey);
  return { publicKey: await exportSPKI(publicKey), token };
}

/** The entry that `wrangler.toml` names. */
let scriptPath: string;
beforeAll(async () => {
  scriptPath = await bundle('cli/runtime/edge/worker.ts', 'tenants');
});
afterAll(() => rm(scriptPath, { force: true }));

async function deploy(
  limit: number | null = 100_000,
  options: Partial<MiniflareOptions> = { kvNamespaces: ['TENANTS'] },
) {
  const persist = await mkdtemp(join(tmpdir(), 'svc-relay-tenants-'));
  const provider = await makeKey();
  const log: string[] = [];
  const start = () =>
    startMiniflare({
      scriptPath,
      bindings: {
        RELAY_PUBLIC_URL: PROVIDER,
        RELAY_OPERATOR_PUBLIC_KEY: provider.publicKey,
        RELAY_LOG_LEVEL: 'DEBUG',
        API_SERVER_KEY: SECRET,
        RELAY_WEBAPI_URL: 'https://agent.test',
      },
      durableObjects: { RELAY: { className: 'RelayObject', useSQLite: true } },
      persist: join(persist, 'objects'),
      log,
      options: {
        ...(limit === null ? {} : { ratelimits: { ATTEMPTS: { simple: { limit, period: 60 } } } }),
        kvPersist: join(persist, 'kv'),
        ...options,
      },
    });
  let { miniflare } = await start();
  onTestFinished(async () => {
    await miniflare.dispose();
    await rm(persist, { recursive: true, force: true });
  });
  const files = async () =>
    (await readdir(join(persist, 'objects'), { recursive: true })).filter((path) =>
      /[0-9a-f]{64}\.sqlite(?:-wal)?$/.test(path),
    );
  async function ask(url: string, init: RequestInit & { token?: string } = {}) {
    const { token, ...rest } = init;
    const headers = { ...rest.headers, ...(token ? { authorization: `Bearer ${token}` } : {}) };
    const response = await miniflare.dispatchFetch(url, { ...AS_IS, ...rest, headers } as never);
    const text = await response.text();
    return { status: response.status, text, json: text.startsWith('{') ? JSON.parse(text) : undefined };
  }
  return {
    provider,
    ask,
    /** How many objects there are. */
    objects: async () => (await files()).filter((path) => path.endsWith('.sqlite')).length,
    /** Digests of the state of every object. */
    async state() {
      const entries = (await files()).map(async (path) => {
        // An object that goes to sleep after the listing takes its log with it: a file that was there before is missed then.
        const bytes = await readFile(join(persist, 'objects', path)).catch((error: NodeJS.ErrnoException) => {
          if (error.code === 'ENOENT') return 'gone';
          throw error;
        });
        return [basename(path), createHash('sha256').update(bytes).digest('hex')];
      });
      return Object.fromEntries(await Promise.all(entries)) as Record<string, string>;
    },
    wakes: () => log.filter((line) => line.includes('awake with')).length,
    async claim(origin: string, publicKey: string, more: { token?: string; settings?: object } = {}) {
      const token = more.token ?? (await provider.token(origin));
      const body = JSON.stringify({ operator_public_key: publicKey, settings: more.settings });
      return ask(`${origin}/relay/claim`, { method: 'POST', token, body });
    },
    async restart() {
      await miniflare.dispose();
      ({ miniflare } = await start());
    },
  };
}

const originOf = (index: number) => `https://tenant-${index}.test`;

it('12: names that nobody has claimed are 404, and make and wake no object', async () => {
  const { ask, objects, wakes } = await deploy();
  for (let index = 0; index < 200; index++) {
    const path = ['/health', '/app/', '/sessions', '/'][index % 4];
    expect((await ask(`${originOf(index)}${path}`)).status).toBe(404);
    expect((await ask(`${originOf(index)}/ws`, { headers: { upgrade: 'websocket' } })).status).toBe(404);
  }
  expect([await objects(), wakes()]).toEqual([0, 0]);
  expect((await ask(`${PROVIDER}/health`)).status).toBe(200);
  expect(await objects()).toBe(1);
});

it('12: a claim needs the token of the deployment for that address, a key, and settings that a tenant may have', async () => {
  const { ask, claim, objects, provider } = await deploy();
  const [own, other] = [await makeKey(), await makeKey()];
  const origin = originOf(1);
  for (const token of [
    'x',
    await own.token(origin),
    await provider.token(originOf(2)),
    await provider.token(PROVIDER),
  ]) {
    expect((await claim(origin, own.publicKey, { token })).status).toBe(401);
  }
  expect((await ask(`${origin}/relay/claim`, { method: 'POST', body: '{}' })).status).toBe(401);
  const token = await provider.token(origin);
  expect((await ask(`http://tenant-1.test/relay/claim`, { method: 'POST', token, body: '{}' })).status).toBe(404);
  for (const key of ['', 'x', SECRET, '-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----']) {
    expect((await claim(origin, key)).status).toBe(400);
  }
  for (const settings of [{ API_SERVER_KEY: 'x' }, { RELAY_MIRROR_LEASE: 5 }, { RELAY_MIRROR_LEASE: 'never' }, []]) {
    expect((await claim(origin, own.publicKey, { settings })).status, JSON.stringify(settings)).toBe(400);
  }
  expect((await claim(PROVIDER, own.publicKey)).status).toBe(404);
  expect(await objects()).toBe(0);

  expect((await claim(origin, own.publicKey, { settings: { RELAY_MIRROR_LEASE: '600' } })).json).toEqual({
    ok: true,
    name: 'tenant-1.test',
    claimed: true,
  });
  // The same again, as after an answer that was lost; and by somebody else.
  expect((await claim(origin, own.publicKey)).json).toMatchObject({ ok: true, claimed: false });
  expect((await claim(origin, other.publicKey)).status).toBe(409);
  const sessions = async (key: Key) => (await ask(`${origin}/sessions`, { token: await key.token(origin) })).status;
  expect([await sessions(own), await sessions(other), await sessions(provider)]).toEqual([200, 401, 401]);
});

it('12: 1,000 tenants, each with its own operator, and none that costs another anything', {
  timeout: 300_000,
}, async () => {
  const { ask, claim, objects, state, wakes, restart, provider } = await deploy();
  const keys = await Promise.all(Array.from({ length: TENANTS }, makeKey));
  const add = async (from: number, to: number) => {
    for (let at = from; at < to; at += 20) {
      const batch = keys.slice(at, Math.min(at + 20, to));
      const answers = await Promise.all(batch.map((key, index) => claim(originOf(at + index), key.publicKey)));
      expect(answers.map(({ status }) => status)).toEqual(batch.map(() => 200));
    }
  };
  await add(0, TENANTS / 2);
  // Nobody is awake after this, so whatever changes is of the others' making.
  await restart();
  // The log of a runtime that has ended may still be on its way.
  await expect.poll(wakes).toBe(TENANTS / 2);
  const before = await state();
  await add(TENANTS / 2, TENANTS);
  expect(await objects()).toBe(TENANTS);
  expect(await state()).toMatchObject(before);
  await restart();
  await expect.poll(wakes).toBe(TENANTS);
  for (let index = 0; index < TENANTS; index += 37) {
    const [key, neighbour] = [keys[index] as Key, keys[(index + 1) % TENANTS] as Key];
    const status = async (signer: Key, audience = originOf(index)) =>
      (await ask(`${originOf(index)}/sessions`, { token: await signer.token(audience) })).status;
    expect([
      await status(key),
      await status(neighbour),
      await status(neighbour, originOf((index + 1) % TENANTS)),
      await status(provider),
      await status(provider, PROVIDER),
    ]).toEqual([200, 401, 401, 401, 401]);
  }
  // Their names are listed for the deployment alone, 1,000 at a time.
  expect((await claim(originOf(TENANTS), (keys[0] as Key).publicKey)).status).toBe(200);
  const names = async (signer: Key, query = '') =>
    ask(`${PROVIDER}/relay/tenants${query}`, { token: await signer.token(PROVIDER) });
  expect((await names(keys[0] as Key)).status).toBe(401);
  const { json: first } = await names(provider);
  const { json: last } = await names(provider, `?cursor=${encodeURIComponent(first.cursor)}`);
  expect([first.tenants.length, last.tenants.length, last.cursor]).toEqual([TENANTS, 1, null]);
  const listed = [...first.tenants, ...last.tenants].map(({ name }: { name: string }) => `https://${name}`);
  expect(new Set(listed)).toEqual(new Set(Array.from({ length: TENANTS + 1 }, (_, index) => originOf(index))));
  expect(first.tenants[0].claimed_at).toBeGreaterThan(1_700_000_000);
  // What a tenant's relay says of itself has nothing of the deployment's.
  const info = await ask(`${originOf(0)}/relay/info`, { token: await (keys[0] as Key).token(originOf(0)) });
  expect([info.status, info.text.includes('"chat"'), info.text.includes(SECRET)]).toEqual([200, false, false]);
  const minted = await ask(`${originOf(0)}/pairing/mint`, {
    method: 'POST',
    body: '{}',
    token: await (keys[0] as Key).token(originOf(0)),
  });
  expect([minted.status, minted.text.includes('tenant-0.test'), minted.text.includes(SECRET)]).toEqual([
    200,
    true,
    false,
  ]);
});

it('12: claims are limited for an address, and refused where that is impossible', { timeout: 300_000 }, async () => {
  const key = await makeKey();
  /** Seven claims within one minute of the limit, which begins with a minute of the clock. */
  const seven = async (): Promise<{ limited: Awaited<ReturnType<typeof deploy>>; answers: number[] }> => {
    const minute = () => Math.floor(Date.now() / 60_000);
    const [began, limited] = [minute(), await deploy(5)];
    const answers: number[] = [];
    for (let at = 0; at < 7; at++) answers.push((await limited.claim(originOf(at), key.publicKey)).status);
    return minute() === began ? { limited, answers } : seven();
  };
  const { limited, answers } = await seven();
  expect(answers).toEqual([200, 200, 200, 200, 200, 429, 429]);
  expect(await limited.objects()).toBe(5);

  const unlimited = await deploy(null);
  expect((await unlimited.claim(originOf(1), key.publicKey)).status).toBe(503);
  // A deployment without tenants, as before.
  const alone = await deploy(5, {});
  expect((await alone.claim(originOf(1), key.publicKey)).status).toBe(421);
  expect([await unlimited.objects(), await alone.objects()]).toEqual([0, 0]);
});

import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { exportSPKI, generateKeyPair, SignJWT } from 'jose';
import { Response } from 'miniflare';
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest';
import { OPERATOR_ALGORITHM } from '../../lib/access/operator-token.ts';
import { deferred } from '../../lib/kit/deferred.ts';
import { bundle } from '../support/edge-bundle.ts';
import { startMiniflare } from '../support/miniflare.ts';

const PROVIDER = 'https://relay.test';
const TENANT = 'https://tenant.test';
const DAY = 86_400_000;

interface Facts {
  keys: string[];
  alarm: number | null;
  tables: number;
}

async function makeKey() {
  const { publicKey, privateKey } = await generateKeyPair(OPERATOR_ALGORITHM, { extractable: true });
  const token = (audience: string, days = 0) =>
    new SignJWT({})
      .setProtectedHeader({ alg: OPERATOR_ALGORITHM })
      .setAudience(audience)
      .setExpirationTime(Math.floor((Date.now() + days * DAY) / 1000) + 600)
      .sign(privateKey);
  return { publicKey: await exportSPKI(publicKey), token };
}

let scriptPath: string;
beforeAll(async () => {
  scriptPath = await bundle('test/support/expiry-entry.ts', 'expiry');
});
afterAll(() => rm(scriptPath, { force: true }));

/** A deployment with tenants, whose runtime is killed and started again on a later day. `puts` holds names on their way into KV. */
async function deploy(puts?: () => Promise<void>) {
  const persist = await mkdtemp(join(tmpdir(), 'svc-relay-expiry-'));
  const provider = await makeKey();
  const log: string[] = [];
  const start = (bindings: Record<string, string> = {}) =>
    startMiniflare({
      scriptPath,
      bindings: { RELAY_PUBLIC_URL: PROVIDER, RELAY_OPERATOR_PUBLIC_KEY: provider.publicKey, ...bindings },
      durableObjects: { RELAY: { className: 'RelayObject', useSQLite: true } },
      persist: join(persist, 'objects'),
      log,
      options: {
        ratelimits: { ATTEMPTS: { simple: { limit: 1_000, period: 60 } } },
        kvNamespaces: ['TENANTS'],
        kvPersist: join(persist, 'kv'),
        r2Buckets: ['MEDIA'],
        r2Persist: join(persist, 'r2'),
        ...(puts && { serviceBindings: { PUTS: () => puts().then(() => new Response()) } }),
      },
    });
  let { miniflare } = await start();
  let days = 0;
  onTestFinished(async () => {
    await miniflare.dispose();
    await rm(persist, { recursive: true, force: true });
  });
  const object = async (name: string) => {
    const relays = await miniflare.getDurableObjectNamespace('RELAY');
    return relays.get(relays.idFromName(name)) as unknown as { ring(): Promise<void>; facts(): Promise<Facts> };
  };
  async function ask(url: string, token?: string, body?: object, method = body ? 'POST' : 'GET') {
    const init = {
      method,
      headers: token ? { authorization: `Bearer ${token}` } : {},
      ...(body && { body: JSON.stringify(body) }),
      redirect: 'manual',
      credentials: 'omit',
    };
    const response = await miniflare.dispatchFetch(url, init as never);
    return { status: response.status, text: await response.text() };
  }
  return {
    log,
    ask,
    names: async () => (await (await miniflare.getKVNamespace('TENANTS')).list()).keys.map(({ name }) => name),
    bucket: () => miniflare.getR2Bucket('MEDIA'),
    idOf: async (name: string) => (await miniflare.getDurableObjectNamespace('RELAY')).idFromName(name).toString(),
    ring: async (name: string) => (await object(name)).ring(),
    // A copy: what the runtime gives ends with it.
    facts: async (name: string): Promise<Facts> => structuredClone({ ...(await (await object(name)).facts()) }),
    claim: async (publicKey: string) =>
      (await ask(`${TENANT}/relay/claim`, await provider.token(TENANT, days), { operator_public_key: publicKey }))
        .status,
    release: async () =>
      (await ask(`${TENANT}/relay/claim`, await provider.token(TENANT, days), undefined, 'DELETE')).status,
    provider: () => provider.token(PROVIDER, days),
    /** Kills the runtime, and starts it again `after` days later than the first. */
    async restart(after: number, bindings: Record<string, string> = {}) {
      await miniflare.dispose();
      days = after;
      ({ miniflare } = await start({ SHIFT_DAYS: String(after), ...bindings }));
    },
  };
}

const OBJECT = 'tenant:tenant.test';
const GONE = { keys: [], alarm: null, tables: 0 };

it('a tenant that nobody has used for 30 days is gone, with its uploads and its name, and can be claimed by others', {
  timeout: 300_000,
}, async () => {
  const { ask, claim, names, bucket, idOf, ring, facts, restart, log } = await deploy();
  const [own, other] = [await makeKey(), await makeKey()];
  expect(await claim(own.publicKey)).toBe(200);
  expect(await claim(other.publicKey)).toBe(409);
  const began = await facts(OBJECT);
  expect(began).toMatchObject({ keys: ['ends', 'tenant'], tables: 3 });
  expect((began.alarm ?? 0) - Date.now()).toBeGreaterThan(29.9 * DAY);
  const [upload, foreign] = [`${await idOf(OBJECT)}/left`, `${await idOf('svc-relay')}/other`];
  for (const key of [upload, foreign]) await (await bucket()).put(key, 'bytes');

  await restart(29);
  await ring(OBJECT);
  expect(await facts(OBJECT)).toMatchObject({ keys: ['ends', 'tenant'], alarm: began.alarm });
  expect((await ask(`${TENANT}/health`)).status).toBe(200);

  await restart(31);
  await ring(OBJECT);
  expect(await facts(OBJECT)).toEqual(GONE);
  expect(await names()).toEqual([]);
  expect((await (await bucket()).list()).objects.map(({ key }) => key)).toEqual([foreign]);
  await expect.poll(() => log.join('\n')).toContain('nobody has used this relay for 30 days');
  expect((await ask(`${TENANT}/health`)).status).toBe(404);
  expect(await facts(OBJECT)).toEqual(GONE);

  expect(await claim(other.publicKey)).toBe(200);
  expect((await ask(`${TENANT}/sessions`, await other.token(TENANT, 31))).status).toBe(200);
  expect((await ask(`${TENANT}/sessions`, await own.token(TENANT, 31))).status).toBe(401);
});

it('an end that fails or is killed in the middle is complete later, and until then nothing of the relay is served', {
  timeout: 300_000,
}, async () => {
  const { ask, claim, names, ring, facts, restart } = await deploy();
  const own = await makeKey();
  expect(await claim(own.publicKey)).toBe(200);
  await restart(31, { KV_FAILS: '1' });
  await ring(OBJECT);
  const half = await facts(OBJECT);
  expect(half.keys).toContain('ended');
  expect(half.alarm).not.toBeNull();
  expect((await ask(`${TENANT}/sessions`, await own.token(TENANT, 31))).status).toBe(503);
  expect(await claim(own.publicKey)).toBe(503);

  await restart(31);
  // Whatever wakes it removes the rest.
  await ring(OBJECT);
  expect([await facts(OBJECT), await names()]).toEqual([GONE, []]);
  expect(await claim(own.publicKey)).toBe(200);
});

it('a name that is released while its claim is on the way into KV is gone with its tenant', {
  timeout: 300_000,
}, async () => {
  const [reached, opened] = [deferred(), deferred()];
  const { ask, claim, release, names, facts } = await deploy(() => {
    reached.resolve();
    return opened.promise;
  });
  const claimed = claim((await makeKey()).publicKey);
  await reached.promise;
  const released = release();
  // A release that went by would be over long before these are.
  for (let index = 0; index < 50; index++) expect((await ask(`${PROVIDER}/health`)).status).toBe(200);
  opened.resolve();
  expect([await claimed, await released]).toEqual([200, 200]);
  expect([await facts(OBJECT), await names()]).toEqual([GONE, []]);
});

it('a claim whose name cannot be put into KV is refused, and is complete when it is made again', {
  timeout: 300_000,
}, async () => {
  const { ask, claim, names, facts, restart } = await deploy();
  const own = await makeKey();
  await restart(0, { KV_FAILS: '1' });
  expect(await claim(own.publicKey)).toBe(503);
  expect((await ask(`${TENANT}/health`)).status).toBe(404);
  await restart(0);
  expect([await claim((await makeKey()).publicKey), await claim(own.publicKey)]).toEqual([409, 200]);
  expect(await names()).toEqual(['relay:tenant.test']);
  expect(await facts(OBJECT)).toMatchObject({ keys: ['ends', 'tenant'] });
});

it('a relay of the deployment that has ended is a new one with the next request; one with a home stays', {
  timeout: 300_000,
}, async () => {
  const { ask, ring, facts, restart, provider } = await deploy();
  const NAME = 'svc-relay';
  expect((await ask(`${PROVIDER}/health`)).status).toBe(200);
  await restart(31, { RELAY_PAIRING_CODE: 'ABC123' });
  await ring(NAME);
  expect(await facts(NAME), 'its used code must not become good again').toMatchObject({ keys: [], tables: 3 });
  await restart(31);
  await ring(NAME);
  await restart(62);
  await ring(NAME);
  expect(await facts(NAME)).toEqual(GONE);
  expect((await ask(`${PROVIDER}/sessions`, await provider())).status).toBe(200);
  expect(await facts(NAME)).toMatchObject({ keys: ['ends'], tables: 3 });

  const { publicKey } = (await crypto.subtle.generateKey({ name: 'ECDSA', namedCurve: 'P-256' }, true, [
    'sign',
  ])) as CryptoKeyPair;
  const key = Buffer.from(await crypto.subtle.exportKey('raw', publicKey)).toString('base64url');
  expect((await ask(`${PROVIDER}/relay/mirror`, await provider(), { key })).status).toBe(200);
  expect(await facts(NAME)).toEqual({ keys: [], alarm: null, tables: 3 });
  await restart(400);
  await ring(NAME);
  expect(await facts(NAME)).toEqual({ keys: [], alarm: null, tables: 3 });
});

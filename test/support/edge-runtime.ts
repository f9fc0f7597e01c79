import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { exportSPKI, generateKeyPair, SignJWT } from 'jose';
import Database from 'libsql';
import { expect, inject, vi } from 'vitest';
import { OPERATOR_ALGORITHM } from '../../lib/access/operator-token.ts';
import { TIMEOUT } from './limits.ts';
import { startMiniflare, untilPutAway } from './miniflare.ts';

export type EdgeRuntime = Awaited<ReturnType<typeof startEdgeRuntime>>;

/** Relays of one runtime, each with a host name of its own. */
const RELAYS = 300;
export const relayHost = (index: number): string => `relay-${index}.localhost`;

/**
 * The local edge runtime with many relays, one per host name (`edge-entry.ts`). `deployment` holds variables of the deployment
 * itself, which its Worker reads too.
 */
export async function startEdgeRuntime(deployment: Record<string, string> = {}) {
  const scriptPath = inject('edgeBundle');
  const persist = await mkdtemp(join(tmpdir(), 'svc-relay-edge-'));
  const { publicKey, privateKey } = await generateKeyPair(OPERATOR_ALGORITHM, { extractable: true });
  const bindings = {
    RELAY_OPERATOR_PUBLIC_KEY: await exportSPKI(publicKey),
    RELAY_LOG_LEVEL: 'DEBUG',
    RELAY_HOSTS: Array.from({ length: RELAYS }, (_, index) => relayHost(index)).join(),
    ...deployment,
  };
  const log: string[] = [];
  const variables = new Map<string, Record<string, string>>();

  const start = () =>
    startMiniflare({
      scriptPath,
      bindings,
      durableObjects: { RELAY: { className: 'RelayObject', useSQLite: true } },
      persist,
      log,
      options: { r2Buckets: ['MEDIA'], r2Persist: `${persist}/r2` },
    });
  let { miniflare, port } = await start();

  /** Path of the database of the relay of a host name. */
  async function fileOf(name: string): Promise<string> {
    const relays = await miniflare.getDurableObjectNamespace('RELAY');
    const file = `${relays.idFromName(name)}.sqlite`;
    const path = (await readdir(persist, { recursive: true })).find((path) => basename(path) === file);
    return join(persist, path ?? file);
  }

  async function sendVariables(name: string): Promise<void> {
    const body = JSON.stringify(variables.get(name));
    await miniflare.dispatchFetch(`http://variables.test/${name}`, { method: 'PUT', body });
  }

  return {
    /** An operator token for a relay, by its name or URL. */
    operatorToken: (audience: string, lifetime = '10m'): Promise<string> =>
      new SignJWT({})
        .setProtectedHeader({ alg: OPERATOR_ALGORITHM })
        .setAudience(audience)
        .setExpirationTime(lifetime)
        .sign(privateKey),
    /** How many relays this runtime has made. */
    async count(): Promise<number> {
      const files = await readdir(persist, { recursive: true });
      return files.filter((path) => /(?:^|\/)[0-9a-f]{64}\.sqlite$/.test(path)).length;
    },
    /** Sends a request with any URL, host and scheme to the runtime. */
    dispatch: (url: string, init: RequestInit = {}): Promise<Response> =>
      miniflare.dispatchFetch(url, { redirect: 'manual', ...init } as never) as unknown as Promise<Response>,
    privateKey,
    publicKey,
    /** Directory of the state of its relays. */
    persist,
    /** Lines that all of its relays have logged. They arrive a moment after what they report. */
    log,
    /** Origin of the relay of a host name. It changes with a restart. */
    origin: (name: string) => `http://${name}:${port}`,
    /** Sets the variables of the relay of a host name. Must precede its first request. */
    async configure(name: string, env: Record<string, string>): Promise<void> {
      variables.set(name, env);
      await sendVariables(name);
    },
    /** Stops the clock of the Worker, not that of its relays, and waits until what they logged before has arrived. */
    async stopClock(at: number): Promise<void> {
      await miniflare.dispatchFetch(`http://clock.test/${at}`, { method: 'PUT' });
      await vi.waitFor(() => expect(log).toContain(`stopped at ${at}`), { timeout: TIMEOUT });
    },
    /** Makes every write of the relay of a host name fail, or repairs that. */
    async breakStorage(name: string, isBroken: boolean): Promise<void> {
      await miniflare.dispatchFetch(`http://storage.test/${name}`, { method: isBroken ? 'PUT' : 'DELETE' });
    },
    /** Keys of the objects that the relay of a host name has stored. */
    async objects(name: string): Promise<string[]> {
      const relays = await miniflare.getDurableObjectNamespace('RELAY');
      const bucket = await miniflare.getR2Bucket('MEDIA');
      const { objects } = await bucket.list({ prefix: relays.idFromName(name).toString() });
      return objects.map(({ key }) => key);
    },
    /** Puts other bytes into an object; returns what puts its own back. */
    async damageObject(key: string): Promise<() => Promise<void>> {
      const bucket = await miniflare.getR2Bucket('MEDIA');
      const own = new Uint8Array((await (await bucket.get(key))?.arrayBuffer()) ?? []);
      await bucket.put(
        key,
        own.map((byte) => byte ^ 1),
      );
      return async () => void (await (await miniflare.getR2Bucket('MEDIA')).put(key, own));
    },
    /** Those of some words that are anywhere in what its relays keep, in their databases and in R2, or have logged. */
    async found(words: readonly string[]): Promise<string[]> {
      const seen = new Set<string>();
      for (const entry of await readdir(persist, { recursive: true, withFileTypes: true })) {
        if (!entry.isFile()) continue;
        const bytes = await readFile(join(entry.parentPath, entry.name)).catch(() => Buffer.alloc(0));
        for (const word of words) if (bytes.includes(word)) seen.add(word);
      }
      const lines = log.join('\n');
      return words.filter((word) => seen.has(word) || lines.includes(word));
    },
    fileOf,
    /** Resolves once the relay of a host name, which has written something, has been put away. */
    asleep: async (name: string): Promise<void> => untilPutAway([await fileOf(name)]),
    /** A value in the store of a host name's relay, as JSON text. */
    async stored(name: string, store: string, key: string): Promise<string | undefined> {
      const database = new Database(await fileOf(name), { readonly: true });
      try {
        const row = database.prepare('SELECT value FROM items WHERE store = ? AND key = ?').get(store, key);
        return (row as { value: string } | undefined)?.value;
      } finally {
        database.close();
      }
    },
    /** Kills the runtime with every relay in it, and starts it again on the same state, or what `whileAway` made of it. */
    async restart(whileAway?: () => Promise<void>): Promise<void> {
      await miniflare.dispose();
      await whileAway?.();
      ({ miniflare, port } = await start());
      await Promise.all([...variables.keys()].map(sendVariables));
    },
    async stop(): Promise<void> {
      await miniflare.dispose();
      await rm(persist, { recursive: true, force: true });
    },
  };
}

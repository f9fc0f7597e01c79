import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { exportSPKI, generateKeyPair, SignJWT } from 'jose';
import { Log, LogLevel, Miniflare } from 'miniflare';
import { inject } from 'vitest';
import { OPERATOR_ALGORITHM, OPERATOR_AUDIENCE } from '../../lib/access/operator-token.ts';

export type EdgeRuntime = Awaited<ReturnType<typeof startEdgeRuntime>>;

/** The local edge runtime with any number of relays, one for every port that its clients call (`edge-entry.ts`). */
export async function startEdgeRuntime() {
  const scriptPath = inject('edgeBundle');
  const persist = await mkdtemp(join(tmpdir(), 'svc-relay-edge-'));
  const { publicKey, privateKey } = await generateKeyPair(OPERATOR_ALGORITHM, { extractable: true });
  const bindings = { RELAY_OPERATOR_PUBLIC_KEY: await exportSPKI(publicKey), RELAY_LOG_LEVEL: 'ERROR' };
  const operatorToken = await new SignJWT({})
    .setProtectedHeader({ alg: OPERATOR_ALGORITHM })
    .setAudience(OPERATOR_AUDIENCE)
    .setExpirationTime('10m')
    .sign(privateKey);
  const variables = new Map<number, Record<string, string>>();

  const start = () =>
    new Miniflare({
      modules: true,
      scriptPath,
      modulesRoot: dirname(scriptPath),
      modulesRules: [{ type: 'ESModule', include: ['**/*.mjs'] }],
      compatibilityDate: '2026-03-01',
      host: '127.0.0.1',
      port: 0,
      cf: false,
      log: new Log(LogLevel.ERROR),
      bindings,
      durableObjects: { RELAY: { className: 'RelayObject', useSQLite: true } },
      durableObjectsPersist: persist,
      r2Buckets: ['MEDIA'],
      r2Persist: `${persist}/r2`,
    });
  let miniflare = start();
  let port = Number((await miniflare.ready).port);

  async function tell(of: number): Promise<void> {
    const body = JSON.stringify(variables.get(of));
    await miniflare.dispatchFetch(`http://variables.test/${of}`, { method: 'PUT', body });
  }

  return {
    /** Where it listens. */
    get port() {
      return port;
    },
    operatorToken,
    /** Sets the variables of the relay of a port; only before its first request. */
    async configure(of: number, env: Record<string, string>): Promise<void> {
      variables.set(of, env);
      await tell(of);
    },
    /** Keys of what the relay of a port has in the object store. */
    async objects(of: number): Promise<string[]> {
      const relays = await miniflare.getDurableObjectNamespace('RELAY');
      const prefix = relays.idFromName(`${of}/127.0.0.1`).toString();
      const bucket = await miniflare.getR2Bucket('MEDIA');
      const { objects } = await bucket.list({ prefix });
      return objects.map(({ key }) => key);
    },
    /** Ends it hard, with every relay in it, and starts it again on the same state. */
    async restart(): Promise<void> {
      await miniflare.dispose();
      miniflare = start();
      port = Number((await miniflare.ready).port);
      await Promise.all([...variables.keys()].map(tell));
    },
    async stop(): Promise<void> {
      await miniflare.dispose();
      await rm(persist, { recursive: true, force: true });
    },
  };
}

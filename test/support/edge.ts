import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { exportSPKI, generateKeyPair, SignJWT } from 'jose';
import { Log, LogLevel, Miniflare } from 'miniflare';
import { inject } from 'vitest';
import { OPERATOR_ALGORITHM, OPERATOR_AUDIENCE } from '../../lib/access/operator-token.ts';
import type { Target, TargetOptions } from './relay.ts';

/** The relay under the local edge runtime, with its state in a directory of its own. */
export async function startEdgeTarget({ env = {} }: TargetOptions = {}): Promise<Target> {
  const scriptPath = inject('edgeBundle');
  const persist = await mkdtemp(join(tmpdir(), 'svc-relay-edge-'));
  const { publicKey, privateKey } = await generateKeyPair(OPERATOR_ALGORITHM, { extractable: true });
  const bindings = { RELAY_OPERATOR_PUBLIC_KEY: await exportSPKI(publicKey), RELAY_LOG_LEVEL: 'ERROR', ...env };
  const token = await new SignJWT({})
    .setProtectedHeader({ alg: OPERATOR_ALGORITHM })
    .setAudience(OPERATOR_AUDIENCE)
    .setExpirationTime('10m')
    .sign(privateKey);

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
  let ready = await miniflare.ready;
  const target: Target = {
    runtime: 'edge',
    url: ready.origin,
    wsUrl: `${ready.origin.replace('http', 'ws')}/ws`,
    agentHome: '',
    log: [],
    fetch: (path, init) => fetch(target.url + path, init),
    operator(path, init) {
      const headers = new Headers(init?.headers);
      headers.set('authorization', `Bearer ${token}`);
      return fetch(target.url + path, { ...init, headers });
    },
    async objects() {
      const bucket = await miniflare.getR2Bucket('MEDIA');
      return (await bucket.list()).objects.map(({ key }) => key);
    },
    async restart() {
      await miniflare.dispose();
      miniflare = start();
      ready = await miniflare.ready;
      target.url = ready.origin;
      target.wsUrl = `${ready.origin.replace('http', 'ws')}/ws`;
    },
    async stop() {
      await miniflare.dispose();
      await rm(persist, { recursive: true, force: true });
    },
  };
  return target;
}

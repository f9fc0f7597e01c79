import { readFile, stat, utimes, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createStorage } from 'unstorage';
import { describe, expect, test, vi } from 'vitest';
import { createQrSecret } from '../../../lib/pairing/secret.ts';
import type { PairingRecord } from '../../../storage/schema.ts';
import { type FakeHostOptions, fakeHost, fakeLog } from './fixtures.ts';

const NAME = 'svc-relay-qr-secret';
const store = () => createStorage<PairingRecord>();

async function onHost(options?: FakeHostOptions) {
  const host = await fakeHost(options);
  const { log, lines } = fakeLog();
  const deps = { host, store: store(), log };
  return { host, lines, deps, path: join(host.agentHome, NAME), secret: createQrSecret(deps) };
}

describe('on a host (contract 01 §5.4)', () => {
  test('32 random bytes, 0600, the same after a restart, nothing in the store', async () => {
    const { path, secret, deps, lines } = await onHost();
    const made = await secret.read();
    expect(made).toHaveLength(32);
    expect(new Uint8Array(await readFile(path))).toEqual(made);
    expect((await stat(path)).mode & 0o777).toBe(0o600);
    expect(await createQrSecret(deps).read()).toEqual(made);
    expect(await deps.store.getKeys()).toEqual([]);
    expect(lines).toEqual([]);
  });

  test('is read once for concurrent callers', async () => {
    const { host, secret } = await onHost();
    const read = vi.spyOn(host.files, 'read');
    const all = await Promise.all([secret.read(), secret.read(), secret.read()]);
    expect(new Set(all).size).toBe(1);
    await secret.read();
    expect(read).toHaveBeenCalledTimes(1);
  });

  test('one that was replaced counts from then on (11 §3)', async () => {
    const { host, secret, path } = await onHost();
    const before = await secret.read();
    await host.files.writeAtomic(path, new TextEncoder().encode('another secret of 32 bytes, made'), 0o600);
    await utimes(path, new Date(), new Date(Date.now() + 5000));
    expect(await secret.read()).toEqual(new TextEncoder().encode('another secret of 32 bytes, made'));
    expect(before).toHaveLength(32);
  });

  test('an existing secret of 16 bytes or more is used unchanged', async () => {
    const { secret, path } = await onHost({ content: { [NAME]: 'sixteen bytes ok' } });
    expect(await secret.read()).toEqual(new TextEncoder().encode('sixteen bytes ok'));
    expect(await readFile(path, 'utf8')).toBe('sixteen bytes ok');
  });

  test.each(['', 'fifteen bytes..'])(
    'a short file (%j) is replaced, with a warning that does not quote it',
    async (text) => {
      const { secret, path, lines } = await onHost({ content: { [NAME]: text } });
      const made = await secret.read();
      expect(made).toHaveLength(32);
      expect(new Uint8Array(await readFile(path))).toEqual(made);
      expect((await stat(path)).mode & 0o777).toBe(0o600);
      expect(lines).toEqual([expect.stringContaining('[WARNING]')]);
      expect(lines.join()).not.toContain('fifteen');
    },
  );

  test('exclusive creation: a secret created concurrently by another process is used', async () => {
    const { host, secret, path } = await onHost();
    const create = host.files.createExclusive;
    host.files.createExclusive = async (file, bytes, mode) => {
      await writeFile(path, 'theirs, and long enough', { flag: 'wx' });
      return create(file, bytes, mode);
    };
    expect(await secret.read()).toEqual(new TextEncoder().encode('theirs, and long enough'));
  });

  test.each(['read', 'createExclusive'] as const)(
    '%s fails: a warning and none; the next call tries again',
    async (method) => {
      const { host, secret, lines } = await onHost();
      const works = host.files[method];
      const fails = () => Promise.reject(Object.assign(new Error('permission denied'), { code: 'EACCES' }));
      Object.assign(host.files, { [method]: fails });
      expect(await secret.read()).toBeNull();
      expect(lines).toEqual([expect.stringMatching(/\[WARNING\].*EACCES/)]);
      Object.assign(host.files, { [method]: works });
      expect(await secret.read()).toHaveLength(32);
    },
  );
});

describe('without a host', () => {
  test('kept in the store, the same after a restart', async () => {
    const { log, lines } = fakeLog();
    const deps = { store: store(), log };
    const made = await createQrSecret(deps).read();
    expect(made).toHaveLength(32);
    expect(await createQrSecret(deps).read()).toEqual(made);
    expect(lines).toEqual([]);
  });

  test.each([{ secret: 'c2hvcnQ=' }, { secret: 'no base64' }, { other: 1 }])(
    'a bad record %j is replaced with a warning',
    async (record) => {
      const { log, lines } = fakeLog();
      const deps = { store: store(), log };
      await deps.store.setItem('qr-secret', record as { secret: string });
      expect(await createQrSecret(deps).read()).toHaveLength(32);
      expect(lines).toHaveLength(1);
    },
  );

  test('a failing store gives a warning and no secret', async () => {
    const { log, lines } = fakeLog();
    const failing = store();
    failing.setItem = () => Promise.reject(new Error('disk full'));
    expect(await createQrSecret({ store: failing, log }).read()).toBeNull();
    expect(lines).toEqual([expect.stringMatching(/\[WARNING\].*disk full/)]);
  });
});

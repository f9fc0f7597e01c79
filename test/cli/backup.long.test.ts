import { readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { LOCATIONS } from '../../storage/index.ts';
import type { StoredRow } from '../../storage/sql-driver.ts';
import {
  backedUp,
  contentOf,
  emptyHome,
  endOf,
  fileOf,
  HOME,
  plain,
  put,
  putState,
  rowsOf,
} from '../support/backups.ts';
import { agentHome } from '../support/cli.ts';

/** Each run syncs dozens of files, and a busy disk takes its time. */
const MINUTES = 300_000;
const DISK = Object.entries(LOCATIONS).flatMap(([store, { node }]) => (node === 'disk' ? [store] : []));

const FILES = [
  ...['home/.env', 'home/svc-relay-qr-secret', 'home/relay-remote.json', 'home/companion/settings.json'],
  ...['operator-key', 'operator-key.pem', 'mcp.json', 'advertised-hosts'].map((name) => `home/svc-relay/${name}`),
  ...['cert.pem', 'key.pem', 'host-id'].map((name) => `home/relay-secure-link/${name}`),
  ...['config.yaml', 'use', 'auth/xai-oauth.json'].map((name) => `.svc-relay/${name}`),
];

const rowsArbitrary = fc
  .uniqueArray(fc.tuple(fc.constantFrom(...DISK), fc.string({ unit: 'grapheme', maxLength: 40 })), {
    maxLength: 30,
    selector: (key) => key.join('\n'),
  })
  .chain((keys) =>
    fc.tuple(...keys.map(([store, key]) => fc.tuple(fc.constant(store), fc.constant(key), fc.json({ maxDepth: 2 })))),
  );
const filesArbitrary = fc.dictionary(fc.constantFrom(...FILES), fc.uint8Array({ maxLength: 300 }), {
  noNullPrototype: true,
});

it('property: a restored home has the same files and rows, whatever they are; the old one is kept aside', {
  timeout: MINUTES,
}, async () => {
  await fc.assert(
    fc.asyncProperty(rowsArbitrary, filesArbitrary, rowsArbitrary, async (rows, files, oldRows) => {
      const [from, to] = [emptyHome(), emptyHome()];
      await putState(from.home, rows as StoredRow[]);
      for (const [name, bytes] of Object.entries(files)) {
        // Variables of any bytes: those that name other folders are for the case below.
        await put(join(from.base, name), name.endsWith('.env') ? `A=${Buffer.from(bytes).toString('hex')}\n` : bytes);
      }
      const file = join(from.base, '..', `${from.base.slice(-6)}.svc`);
      const made = await from.svc('backup', file, '--plain', '--yes', '--force', '--json');
      expect([made.code, JSON.parse(made.stdout)]).toEqual([
        0,
        expect.objectContaining({ ok: true, records: rows.length }),
      ]);
      const before = await contentOf(from);

      const first = await to.svc('restore', file, '--json');
      expect([first.code, JSON.parse(first.stdout)]).toEqual([
        0,
        expect.objectContaining({ ok: true, kept_aside: null }),
      ]);
      expect(await contentOf(to)).toEqual(before);

      await putState(to.home, oldRows as StoredRow[]);
      const old = (await contentOf(to)).rows;
      const again = await to.svc('restore', file, '--replace', '--yes', '--json');
      expect(again.code).toBe(0);
      expect(await contentOf(to)).toEqual(before);
      const aside = JSON.parse(again.stdout).kept_aside;
      expect(rowsOf(join(aside, 'agent/svc-relay/state.db'))).toEqual(old);
    }),
    { numRuns: 30 },
  );
});

it('a wrong passphrase, a damaged, cut or foreign file, and a newer version change nothing', async () => {
  const { file, base, pw } = await backedUp();
  const to = emptyHome();
  const bytes = await readFile(file);
  const end = bytes.indexOf(10) + 1;
  const header = JSON.parse(bytes.toString('utf8', 0, end));
  const place = async (name: string, content: string | Uint8Array) => {
    await put(join(base, name), content);
    return join(base, name);
  };
  const headed = (fields: object) => Buffer.concat([Buffer.from(`${JSON.stringify(fields)}\n`), bytes.subarray(end)]);
  const flipped = Buffer.from(bytes);
  flipped[end + 30] = (flipped[end + 30] as number) ^ 1;
  await place('wrong', 'another horse battery');
  const wrong = ['--passphrase-file', join(base, 'wrong')];
  const cases: [file: string, options: string[], error: RegExp][] = [
    [file, wrong, /the passphrase is not that of this backup.*\nTry again/],
    [await place('flipped', flipped), pw, /passphrase is not that.*or the file was changed/],
    [await place('cut', bytes.subarray(0, -1)), pw, /passphrase is not that.*or the file was changed/],
    [await place('head', bytes.subarray(0, end)), pw, /passphrase is not that.*or the file was changed/],
    // The header is under the seal.
    [await place('dated', headed({ ...header, created_at: 1 })), pw, /passphrase is not that/],
    [await place('opened', headed({ ...header, salt: null })), pw, /damaged: it is cut off, or was changed/],
    [
      await place('newer', headed({ ...header, version: '9.1.0', svc_relay_backup: 2 })),
      pw,
      /newer was made by svc-relay 9\.1\.0, whose backups this version cannot read.*\nInstall svc-relay 9\.1\.0 or later/,
    ],
    [await place('schema', headed({ ...header, version: '9.2.0', schema: 99 })), pw, /made by svc-relay 9\.2\.0/],
    [await place('other', '{}'), pw, /other is not a backup of a relay\nMake one/],
    [await place('empty', ''), pw, /empty is not a backup/],
    [join(base, 'none'), pw, /does not exist/],
    [base, pw, /cannot be read/],
  ];
  for (const [path, options, error] of cases) {
    const result = await to.svc('restore', path, ...options);
    expect([path, result.code, result.stdout, result.stderr]).toEqual([path, 1, '', expect.stringMatching(error)]);
    expect(await readdir(to.base)).toEqual([]);
  }
  const json = await to.svc('restore', file, ...wrong, '--json');
  expect(JSON.parse(json.stdout)).toEqual({
    ok: false,
    error: expect.stringContaining('nothing was changed'),
    next: expect.stringContaining('Try again'),
  });
});

it('a file that grows without end when it is unpacked is refused in little memory', async () => {
  const to = emptyHome();
  const path = join(agentHome(), 'bomb.svc');
  // 64 MiB in one line.
  await writeFile(path, plain([HOME, fileOf('agent/.env', 'x'.repeat(48 * 1024 * 1024)), endOf(1, 0)]));
  const result = await to.svc('restore', path);
  expect([result.code, result.stderr]).toEqual([1, expect.stringContaining('a line of it is too long')]);
});

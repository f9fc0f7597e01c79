import { chmod, readFile, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { expect, it } from 'vitest';
import { openOperatorKey, operatorKeyPath, parseOperatorKey } from '../../../lib/access/operator-key.ts';
import { createFiles } from '../../../lib/host/node/files.ts';
import { createLog } from '../../../lib/log.ts';
import { temporaryDirectory } from '../../support/temp.ts';

async function setup(content?: string) {
  const home = await temporaryDirectory(content === undefined ? {} : { 'svc-relay/operator-key': content });
  const path = operatorKeyPath(home);
  if (content !== undefined) await chmod(path, 0o600);
  const lines: string[] = [];
  const log = createLog('DEBUG', (line) => lines.push(line));
  const files = createFiles();
  return { path, lines, files, open: (given = files) => openOperatorKey(given, path, log) };
}

const mode = async (path: string) => (await stat(path)).mode & 0o777;

it('contract 01 §1.3 rule 6: makes 32 random bytes in base64url, 0600 in 0700, once', async () => {
  const { open, path, lines } = await setup();
  const key = await open();
  expect(key).toMatch(/^[\w-]{43}$/);
  expect(await readFile(path, 'utf8')).toBe(key);
  expect(await mode(path)).toBe(0o600);
  expect(await mode(dirname(path))).toBe(0o700);
  expect(await open()).toBe(key);
  expect(await (await setup()).open()).not.toBe(key);
  expect(lines).toEqual([]);
});

it('takes a key that a person has written with an editor', async () => {
  const key = 'k'.repeat(43);
  const { open } = await setup(`${key}\n`);
  expect(await open()).toBe(key);
});

it.each(['', 'short', 'k'.repeat(42), 'k'.repeat(44), `${'k'.repeat(42)} `, `${'k'.repeat(42)}+`, 'k'.repeat(5000)])(
  'replaces the damaged key %j with a warning that does not show it',
  async (content) => {
    expect(parseOperatorKey(content)).toBeNull();
    const { open, path, lines } = await setup(content);
    const key = await open();
    expect(await readFile(path, 'utf8')).toBe(key);
    expect(lines).toEqual([expect.stringContaining('[WARNING] relay: the operator key was damaged and is replaced')]);
    expect(lines[0]).not.toContain(key);
  },
);

it.each([0o640, 0o604, 0o620, 0o602, 0o644])('replaces a key of mode %o, which others knew', async (given) => {
  const known = 'k'.repeat(43);
  const { open, path, lines } = await setup(known);
  await chmod(path, given);
  const key = await open();
  expect(key).not.toBe(known);
  expect(await mode(path)).toBe(0o600);
  expect(lines.join()).toContain('could be read by other accounts');
});

it('of two that make it at the same time, both use the same', async () => {
  const { open, path, files } = await setup();
  const theirs = 't'.repeat(43);
  const raced = await open({
    ...files,
    async createExclusive(path, bytes, mode) {
      await files.createExclusive(path, new TextEncoder().encode(theirs), mode);
      await files.createExclusive(path, bytes, mode);
    },
  });
  expect(raced).toBe(theirs);
  expect(await readFile(path, 'utf8')).toBe(theirs);
});

it('throws when it can be neither read nor made', async () => {
  const { files, lines } = await setup();
  const home = await temporaryDirectory({ file: '' });
  const path = operatorKeyPath(join(home, 'file'));
  await expect(
    openOperatorKey(
      files,
      path,
      createLog('DEBUG', (line) => lines.push(line)),
    ),
  ).rejects.toThrow();
});

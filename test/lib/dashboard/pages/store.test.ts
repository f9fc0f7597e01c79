import { execFile } from 'node:child_process';
import { lstat, mkdir, readdir, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, it } from 'vitest';
import { MAX_DOCUMENT } from '../../../../lib/dashboard/pages/document.ts';
import { readDraft } from '../../../../lib/dashboard/pages/entry.ts';
import { createPageStore } from '../../../../lib/dashboard/pages/store.ts';
import { systemClock } from '../../../../lib/kit/clock.ts';
import { createTestHost } from '../../../support/host.ts';
import { temporaryDirectory } from '../../../support/temp.ts';
import { documentOf, draftOf } from './support.ts';

async function openStore() {
  const agentHome = await temporaryDirectory();
  const store = createPageStore({ host: createTestHost({ agentHome }), clock: systemClock });
  const folder = join(agentHome, 'mobile-plugins');
  return { agentHome, folder, store, file: (id: string) => join(folder, `${id}.json`) };
}

const draft = (title?: string) => readDraft(draftOf(title));

describe('the page store (contract 07 §4.4)', () => {
  it('drafts, promotes and removes a page', async () => {
    const { store, file } = await openStore();
    expect(await store.list()).toEqual([]);
    const first = await store.draft(' Hello ', draft());
    expect(first).toMatchObject({ id: 'hello', status: 'draft', lifecycle: 'session', revision: 1 });
    expect(await store.get('HELLO')).toEqual(first);
    expect((await stat(file('hello'))).mode & 0o777).toBe(0o600);
    expect(JSON.parse(await readFile(file('hello'), 'utf8'))).toEqual(first);

    const second = await store.draft('hello', draft('Other'));
    await expect(store.promote('hello', first.digest)).rejects.toMatchObject({ kind: 'conflict' });
    const published = await store.promote('hello', second.digest);
    expect(published).toMatchObject({ status: 'published', lifecycle: 'persistent', revision: 3 });
    await expect(store.draft('hello', draft())).rejects.toMatchObject({ kind: 'conflict' });
    await expect(store.remove('hello', second.digest)).rejects.toMatchObject({ kind: 'conflict' });
    expect(await store.remove('hello', published.digest)).toBe('hello');
    await expect(store.get('hello')).rejects.toMatchObject({ kind: 'not-found' });
    await expect(store.remove('hello', published.digest)).rejects.toMatchObject({ kind: 'not-found' });
  });

  it('lists by id, after a restart too', async () => {
    const { agentHome, store } = await openStore();
    for (const id of ['c', 'a', 'b.1', 'b-1']) await store.draft(id, draft());
    const again = createPageStore({ host: createTestHost({ agentHome }), clock: systemClock });
    expect((await again.list()).map(({ id }) => id)).toEqual(['a', 'b-1', 'b.1', 'c']);
  });

  it('lists what is on disk now, whoever changed it', async () => {
    const { store, file } = await openStore();
    await store.draft('a', draft());
    await store.draft('b', draft());
    expect((await store.list()).map(({ revision }) => revision)).toEqual([1, 1]);
    await store.draft('a', draft());
    expect((await store.list()).map(({ revision }) => revision)).toEqual([2, 1]);
    const written = await readFile(file('b'), 'utf8');
    await writeFile(file('b'), 'damaged');
    expect((await store.list()).map(({ id }) => id)).toEqual(['a']);
    await writeFile(file('b'), written);
    await rm(file('a'));
    expect((await store.list()).map(({ id }) => id)).toEqual(['b']);
    expect((await store.list())[0]).not.toHaveProperty('document');
  });

  it('lets one of two changes from the same state win', async () => {
    const { store } = await openStore();
    const { digest } = await store.draft('a', draft());
    const results = await Promise.allSettled([store.promote('a', digest), store.remove('a', digest)]);
    expect(results.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected']);
    const revisions = await Promise.all(Array.from({ length: 8 }, () => store.draft('b', draft())));
    expect(revisions.map(({ revision }) => revision).sort()).toEqual([1, 2, 3, 4, 5, 6, 7, 8]);
  });

  it('never misses a page while it is replaced', async () => {
    const { store } = await openStore();
    await store.draft('a', draft());
    let isOver = false;
    const seen: unknown[] = [];
    const reader = async () => {
      while (!isOver) {
        seen.push(await store.get('a').then(({ id }) => id, String));
        seen.push(...(await store.list().then((list) => (list.length === 1 ? [] : ['an empty list']))));
      }
    };
    const readers = [reader(), reader(), reader()];
    for (let count = 0; count < 40; count++) await store.draft('a', draft());
    isOver = true;
    await Promise.all(readers);
    expect(new Set(seen)).toEqual(new Set(['a']));
  });

  it('has a bound on changes that wait, and loses none that it has accepted', async () => {
    const { store } = await openStore();
    const results = await Promise.allSettled(Array.from({ length: 100 }, () => store.draft('a', draft())));
    const refused = results.flatMap((result) => (result.status === 'rejected' ? [result.reason.kind] : []));
    expect(refused).toEqual(Array(35).fill('unavailable'));
    expect(await store.get('a')).toMatchObject({ revision: 65 });
  });

  it('takes neither a FIFO nor what a crash has left for a page, and one of the largest size', async () => {
    const { store, folder, file } = await openStore();
    await store.draft('real', draft());
    await promisify(execFile)('mkfifo', [file('fifo')]);
    await writeFile(join(folder, '.0123456789abcdef01234567.tmp'), '{"id"');
    await expect(store.get('fifo')).rejects.toMatchObject({ kind: 'not-found' });
    await expect(store.draft('fifo', draft())).rejects.toMatchObject({ kind: 'conflict' });
    const text = 'x'.repeat(MAX_DOCUMENT - 1000);
    const body = { ...draftOf('\u0001\u{1f600}'.repeat(60), documentOf({ type: 'text', id: 'a', text })) };
    const large = await store.draft('large', readDraft({ ...body, description: '"'.repeat(1000) }));
    expect(await store.get('large')).toEqual(large);
    expect((await store.list()).map(({ id }) => id)).toEqual(['large', 'real']);
    expect(await store.promote('large', large.digest)).toMatchObject({ status: 'published' });
  });

  it('keeps 64 pages and no more', async () => {
    const { store } = await openStore();
    for (let at = 0; at < 64; at++) await store.draft(`p${at}`, draft());
    await expect(store.draft('one-more', draft())).rejects.toMatchObject({ kind: 'conflict' });
    expect(await store.draft('p5', draft())).toMatchObject({ revision: 2 });
    expect(await store.list()).toHaveLength(64);
  });

  it('follows no link, neither of a page nor of the directory', async () => {
    const { agentHome, folder, store, file } = await openStore();
    const { digest } = await store.draft('real', draft());
    const secret = join(agentHome, 'secret.json');
    await writeFile(secret, await readFile(file('real')));
    await symlink(secret, file('link'));
    await symlink(join(agentHome, 'absent.json'), file('dangling'));
    await expect(store.get('link')).rejects.toMatchObject({ kind: 'not-found' });
    for (const id of ['link', 'dangling']) {
      await expect(store.draft(id, draft())).rejects.toMatchObject({ kind: 'conflict' });
      await expect(store.remove(id, digest)).rejects.toMatchObject({ kind: 'not-found' });
      expect((await lstat(file(id))).isSymbolicLink()).toBe(true);
    }
    expect((await store.list()).map(({ id }) => id)).toEqual(['real']);
    expect(await readdir(agentHome)).toEqual(['mobile-plugins', 'secret.json']);
    expect(await readdir(folder)).toHaveLength(3);
  });

  it.each(['elsewhere', 'nowhere'])('refuses a directory that is a link to %s', async (target) => {
    const { agentHome, folder, store } = await openStore();
    await mkdir(join(agentHome, 'elsewhere'));
    await symlink(join(agentHome, target), folder);
    await expect(store.draft('a', draft())).rejects.toMatchObject({ kind: 'conflict' });
    await expect(store.list()).rejects.toMatchObject({ kind: 'conflict' });
    expect(await readdir(join(agentHome, 'elsewhere'))).toEqual([]);
    expect(await readdir(agentHome)).not.toContain('nowhere');
  });

  it('serves no file that it has not written, and overwrites none', async () => {
    const { store, folder, file } = await openStore();
    const entry = await store.draft('good', draft());
    const texts = {
      renamed: JSON.stringify(entry),
      cut: JSON.stringify({ ...entry, id: 'cut' }).slice(0, 100),
      edited: JSON.stringify({ ...entry, id: 'edited', title: 'Changed' }),
      huge: `{"id":"huge","x":"${'x'.repeat(700_000)}"}`,
    };
    for (const [id, text] of Object.entries(texts)) await writeFile(file(id), text);
    await mkdir(join(folder, 'directory.json'));
    for (const id of [...Object.keys(texts), 'directory']) {
      await expect(store.get(id)).rejects.toMatchObject({ kind: 'not-found' });
      await expect(store.draft(id, draft())).rejects.toMatchObject({ kind: 'conflict' });
    }
    expect((await store.list()).map(({ id }) => id)).toEqual(['good']);
    expect(await readFile(file('cut'), 'utf8')).toBe(texts.cut);
  });

  it('works in an agent home that is a link itself', async () => {
    const { agentHome } = await openStore();
    const link = `${agentHome}/home`;
    await mkdir(`${agentHome}/real`);
    await symlink(`${agentHome}/real`, link);
    const store = createPageStore({ host: createTestHost({ agentHome: link }), clock: systemClock });
    await store.draft('a', draft());
    expect(await readdir(`${agentHome}/real/mobile-plugins`)).toEqual(['a.json']);
  });
});

import { createHash } from 'node:crypto';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  drafted,
  expectDigest,
  manifestOf,
  type PageEntry,
  pageOf,
  parseEntry,
  promoted,
  readDraft,
  readExpectedDigest,
  readPageId,
  summaryOf,
} from '../../../../lib/dashboard/pages/entry.ts';
import { documentOf, draftOf, validDocument } from './support.ts';

const entryOf = (present: PageEntry | null = null, now = 1000.5) => drafted('a', readDraft(draftOf()), present, now);

describe('entries of the page store (contract 07 §4.4)', () => {
  it('hashes the canonical JSON of what a person approves', () => {
    const entry = drafted('a', readDraft({ title: 'T', document: documentOf({ type: 'divider', id: 'd' }) }), null, 1);
    const canonical =
      '{"description":"","document":{"pages":[{"content":{"id":"d","type":"divider"},"id":"home",' +
      '"title":{"text":"Home"}}],"schemaVersion":1},"id":"a","lifecycle":"session","revision":1,"status":"draft","title":"T"}';
    expect(entry.digest).toBe(`sha256:${createHash('sha256').update(canonical).digest('hex')}`);
  });

  it('gives each change another digest, and a different time none', () => {
    const first = entryOf();
    expect(entryOf(null, 2000).digest).toBe(first.digest);
    const second = entryOf(first, 2000);
    const published = promoted(second, 3000);
    expect(new Set([first, second, published].map(({ digest }) => digest)).size).toBe(3);
    expect([first, second, published].map(({ revision }) => revision)).toEqual([1, 2, 3]);
    expect(second).toMatchObject({ status: 'draft', created_at: 1000.5, updated_at: 2000, published_at: null });
    expect(published).toMatchObject({
      status: 'published',
      lifecycle: 'persistent',
      created_at: 1000.5,
      published_at: 3000,
    });
    expect(promoted(published, 4000)).toBe(published);
    expect(() => entryOf(published)).toThrow(/published/);
  });

  it('reads back what it has written, and nothing that was changed since', () => {
    fc.assert(
      fc.property(validDocument, fc.string({ minLength: 1, maxLength: 120 }), (document, title) => {
        fc.pre(title.trim() !== '' && title.isWellFormed());
        const entry = drafted('page', readDraft({ title, document }), null, 1);
        const stored = JSON.stringify(entry);
        expect(parseEntry(stored, 'page')).toEqual(JSON.parse(stored));
        expect(parseEntry(stored, 'other')).toBeNull();
        expect(parseEntry(stored.slice(0, -1), 'page')).toBeNull();
        for (const change of [
          { title: `${title}!` },
          { revision: 2 },
          { status: 'published' },
          { lifecycle: 'persistent' },
        ])
          expect(parseEntry(JSON.stringify({ ...entry, ...change }), 'page')).toBeNull();
      }),
    );
  });

  it.each([
    [{ title: '' }, /title/],
    [{ title: '  ' }, /title/],
    [{ title: 'x'.repeat(121) }, /title/],
    [{ title: 1 }, /title/],
    [{ description: 'x'.repeat(1001) }, /description/],
    [{ description: null }, /description/],
    [{ lifecycle: 'forever' }, /lifecycle/],
    [{ document: undefined }, /document/],
  ])('refuses a draft with %j', (more, reason) => {
    expect(() => readDraft({ ...draftOf(), ...more })).toThrow(reason);
  });

  it('counts characters of a title, not units', () => {
    expect(readDraft(draftOf('😀'.repeat(120))).title).toHaveLength(240);
  });

  it('folds ids to one spelling and refuses those that are no file name', () => {
    expect(readPageId('  My.Page-1_x ')).toBe('my.page-1_x');
    for (const id of ['', '.', '..', '../a', 'a/b', 'a\\b', '-a', '_a', 'a b', 'ä', 'a'.repeat(65), 'a\u0000']) {
      expect(() => readPageId(id), id).toThrow(/id/);
    }
  });

  it('demands the digest that the caller has seen', () => {
    const entry = entryOf();
    expect(readExpectedDigest({ expected_digest: entry.digest })).toBe(entry.digest);
    for (const body of [{}, { expected_digest: '' }, { expected_digest: null }, { expected_digest: 1 }]) {
      expect(() => readExpectedDigest(body)).toThrow(/expected_digest/);
    }
    expectDigest(entry, entry.digest);
    expect(() => expectDigest(entry, `${entry.digest}0`)).toThrow(/changed/);
  });

  it('lists drafts as such in the manifest', () => {
    const draft = entryOf();
    const { contributions, ...rest } = manifestOf([draft, { ...promoted(draft, 5), id: 'b' }]);
    expect(contributions.map(({ id, title, status }) => [id, title, status])).toEqual([
      ['a', 'Draft: Hello', 'draft'],
      ['b', 'Hello', 'published'],
    ]);
    expect(contributions[0]).toEqual({
      id: 'a',
      surface: 'page',
      title: 'Draft: Hello',
      description: '',
      lifecycle: 'session',
      status: 'draft',
      revision: 1,
      digest: draft.digest,
      document: { method: 'GET', path: 'mobile/pages/a' },
    });
    expect(rest).toMatchObject({ schema_version: 1, id: 'svc-relay', min_host_api: 1, default_enabled: false });
    expect(rest.requested_capabilities).toMatchObject([{ id: 'plugin.api.write', required: false }]);
    expect(rest.updates).toEqual({ poll_seconds: 5 });
  });

  it('shows the document with the revision, and lists without the document', () => {
    const entry = entryOf();
    expect(pageOf(entry)).toEqual({ ...documentOf(), host_revision: 1 });
    expect(summaryOf(entry)).not.toHaveProperty('document');
    expect(summaryOf(entry)).toMatchObject({ id: 'a', digest: entry.digest });
  });
});

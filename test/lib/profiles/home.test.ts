import { mkdir, realpath, symlink } from 'node:fs/promises';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { isMatch, memoryFilenameFault } from '../../../lib/profiles/documents.ts';
import { defaultHome, profileHome } from '../../../lib/profiles/home.ts';
import { runs } from '../../support/runs.ts';
import { agent } from './support.ts';

describe('profileHome (contract 07 §1.5)', () => {
  it('resolves any name to a home directly in profiles/, or to null', async () => {
    const { home, host, config } = await agent({
      'profiles/work/config.yaml': '',
      'profiles/work/in/x': '',
      'out/x': '',
    });
    await symlink('../out', `${home}/profiles/out`);
    await symlink('work/in', `${home}/profiles/in`);
    await symlink('work', `${home}/profiles/alias`);
    const known = fc.constantFrom('work', 'out', 'in', 'alias', '.', '..', '/', '\\', '\0', 'default', ' ', '\ud800');
    const name = fc.oneof(
      fc.array(known, { maxLength: 5 }).map((parts) => parts.join('')),
      fc.string({ unit: 'binary' }),
    );
    const profiles = await realpath(`${home}/profiles`);
    await fc.assert(
      fc.asyncProperty(name, async (name) => {
        const place = await profileHome(host.files, config, name);
        if (name === 'default') expect(place?.home).toBe(home);
        else if (name === 'work' || name === 'alias')
          expect(await realpath(place?.home ?? '')).toBe(`${profiles}/work`);
        else expect(place).toBeNull();
      }),
      { numRuns: runs(300) },
    );
  });

  it('accepts names of up to 128 characters, not UTF-16 units', async () => {
    const { home, host, config } = await agent();
    const wide = '\u{1f600}'.repeat(60);
    for (const name of ['a'.repeat(128), 'a'.repeat(129), wide])
      await mkdir(`${home}/profiles/${name}`, { recursive: true });
    expect(await profileHome(host.files, config, 'a'.repeat(128))).toMatchObject({ name: 'a'.repeat(128) });
    expect(await profileHome(host.files, config, 'a'.repeat(129))).toBeNull();
    expect(await profileHome(host.files, config, wide)).not.toBeNull();
  });

  it('without a marker, default is the root with its own configuration file', async () => {
    const { home, host } = await agent({ 'profiles/w/config.yaml': '' });
    const config = { agentConfig: `${home}/other.yaml` };
    expect(await defaultHome(host.files, config)).toEqual({ name: 'default', home, config: `${home}/other.yaml` });
    const {
      host: marked,
      home: root,
      config: itsConfig,
    } = await agent({ active_profile: 'w', 'profiles/w/config.yaml': '' });
    expect(await defaultHome(marked.files, itsConfig)).toEqual({
      ...{ name: 'default', home: `${root}/profiles/w`, config: `${root}/profiles/w/config.yaml` },
    });
  });
});

describe('names of memory files (contract 07 §1.5)', () => {
  it('are ASCII, end in .md and contain no path', () => {
    fc.assert(
      fc.property(fc.oneof(fc.string({ unit: 'binary' }), fc.stringMatching(/^[A-Za-z0-9._-]{0,140}\.md$/)), (name) => {
        if (memoryFilenameFault(name) !== null) return;
        expect(name).toMatch(/^[A-Za-z0-9_-][A-Za-z0-9._-]*\.md$/);
        expect(name.length).toBeLessThanOrEqual(128);
        expect(name).not.toContain('..');
        expect(name.toLowerCase()).not.toBe('soul.md');
      }),
    );
  });
});

describe('If-Match', () => {
  const sha256 = 'ab'.repeat(32);
  it.each([
    [null, null, true],
    [null, { sha256 }, true],
    ['*', { sha256: null }, true],
    ['*', null, false],
    ['', { sha256 }, false],
    [`"${sha256}"`, { sha256 }, true],
    [`"x",\t"${sha256}" `, { sha256 }, true],
    [`W/"${sha256}"`, { sha256 }, false],
    [sha256, { sha256 }, false],
    [`"${sha256.toUpperCase()}"`, { sha256 }, false],
    ['"null"', { sha256: null }, false],
  ])('%s over %o: %s', (header, present, expected) => {
    expect(isMatch(header, present)).toBe(expected);
  });
});

import { mkdir, rm, symlink } from 'node:fs/promises';
import { describe, expect, it, vi } from 'vitest';
import type { Host } from '../../../lib/host/index.ts';
import { utf8ToBytes } from '../../../lib/kit/bytes.ts';
import { createConfigReader, createParseCache } from '../../../lib/profiles/config-file.ts';
import { agent } from './support.ts';

describe('discovery (contract 07 §1.2)', () => {
  it('lists default first, then directories by code point', async () => {
    const names = ['b', 'a', 'Z', '\u{1f600}', '\uff5e', '10', '9'];
    const files = Object.fromEntries(names.map((name) => [`profiles/${name}/config.yaml`, '']));
    const { profiles, names: listed, warnings } = await agent({ 'config.yaml': '', ...files });
    await profiles.rescan();
    expect(listed()).toEqual(['default', '10', '9', 'Z', 'a', 'b', '\uff5e', '\u{1f600}']);
    expect(warnings).toEqual([]);
  });

  it('leaves out directories with names that no client can use', async () => {
    const { profiles, names, warnings } = await agent({
      'config.yaml': '',
      'profiles/a\nb/config.yaml': '',
      'profiles/c\u0007/config.yaml': '',
      'profiles/good/config.yaml': '',
    });
    await profiles.rescan();
    expect(names()).toEqual(['default', 'good']);
    expect(warnings).toHaveLength(2);
    for (const warning of warnings)
      expect(warning).toMatch(/^profile directory [^\n]+ is left out: no client can name it so$/);
  });

  it('leaves out profiles without a readable configuration, with one warning each', async () => {
    const { profiles, names, warnings, write } = await agent({
      'config.yaml': '',
      'profiles/good/config.yaml': '',
      'profiles/bare/SOUL.md': '',
      'profiles/broken/config.yaml': 'key: [secret',
      'profiles/list/config.yaml': '- a',
      'profiles/latin/config.yaml': new Uint8Array([0x61, 0x3a, 0x20, 0xff]),
      'profiles/large/config.yaml': `a: ${'x'.repeat(300_000)}`,
      'profiles/folder/config.yaml/file': '',
      'profiles/default/config.yaml': '',
    });
    await profiles.rescan();
    expect(names()).toEqual(['default', 'good']);
    expect(warnings.toSorted()).toEqual([
      'profile bare is left out: no config.yaml',
      expect.stringMatching(/^profile broken is left out: config\.yaml is not valid YAML \(line \d+, column \d+\)$/),
      'profile directory default is left out: the name stands for the default profile',
      'profile folder is left out: config.yaml cannot be read',
      'profile large is left out: config.yaml is over 262144 bytes',
      'profile latin is left out: config.yaml is not UTF-8',
      'profile list is left out: config.yaml is not a YAML mapping',
    ]);

    warnings.length = 0;
    await profiles.rescan();
    expect(warnings).toEqual([]);

    await write('profiles/bare/config.yaml', '- a');
    await profiles.rescan();
    expect(warnings).toEqual(['profile bare is left out: config.yaml is not a YAML mapping']);

    warnings.length = 0;
    await write('profiles/bare/config.yaml', '');
    await profiles.rescan();
    await write('profiles/bare/config.yaml', '- a');
    await profiles.rescan();
    expect(warnings).toEqual(['profile bare is left out: config.yaml is not a YAML mapping']);
  });

  it('ignores files, hidden names, and links that leave the directory', async () => {
    const { profiles, names, warnings, home } = await agent({
      'config.yaml': '',
      'profiles/file': '',
      'profiles/.hidden/config.yaml': '',
      'profiles/real/config.yaml': 'model: big',
      'profiles-other/config.yaml': '',
    });
    await symlink('real', `${home}/profiles/alias`);
    await symlink('../profiles-other', `${home}/profiles/outside`);
    await symlink('..', `${home}/profiles/up`);
    await symlink('.', `${home}/profiles/self`);
    await symlink('nowhere', `${home}/profiles/dangling`);
    await symlink('loop', `${home}/profiles/loop`);
    await symlink('file', `${home}/profiles/linked-file`);
    await profiles.rescan();
    expect(names()).toEqual(['default', 'alias', 'real']);
    expect(warnings).toEqual([]);
  });

  it('follows profiles/ even when it is a link', async () => {
    const { profiles, names, home } = await agent({ 'config.yaml': '', 'elsewhere/one/config.yaml': '' });
    await symlink('elsewhere', `${home}/profiles`);
    await symlink('one', `${home}/elsewhere/two`);
    await profiles.rescan();
    expect(names()).toEqual(['default', 'one', 'two']);
  });

  it('leaves out default when its home has no configuration', async () => {
    const { profiles, names, warnings } = await agent({ 'profiles/one/config.yaml': '' });
    await profiles.rescan();
    expect(names()).toEqual(['one']);
    expect(warnings).toEqual([]);
  });

  it('gives no warning about a missing agent home', async () => {
    const { profiles, names, warnings, home } = await agent();
    await rm(home, { recursive: true });
    await profiles.rescan();
    expect(names()).toEqual([]);
    expect(warnings).toEqual([]);
    await mkdir(home);
  });

  it('reads the root configuration under its configured name, beside the other files of the root', async () => {
    const { profiles, row } = await agent(
      { 'other.yaml': 'model: right', 'config.yaml': 'model: wrong', 'SOUL.md': 'soul' },
      { config: (home) => ({ agentConfig: `${home}/other.yaml` }) },
    );
    await profiles.rescan();
    expect(row()).toMatchObject({ model: 'right', system_message: 'soul' });
  });
});

describe('active_profile (contract 07 §1.1)', () => {
  const files = {
    'config.yaml': 'model: root',
    'profiles/work/config.yaml': 'model: work',
    'profiles/work/SOUL.md': 'at work',
    'profiles/bare/SOUL.md': '',
    'profiles/Upper/config.yaml': 'model: upper',
    'elsewhere/config.yaml': 'model: elsewhere',
  };

  it('points default at a profile, which is listed under its own name too', async () => {
    const { profiles, row, names } = await agent({ ...files, active_profile: ' work\n' });
    await profiles.rescan();
    expect(names()).toEqual(['default', 'Upper', 'work']);
    expect(row()).toEqual({ ...row('work'), name: 'default' });
    expect(row().system_message).toBe('at work');
  });

  it.each(['', '\n', 'default\n'])('means the root when it contains %j', async (marker) => {
    const { profiles, row, warnings } = await agent({ ...files, active_profile: marker });
    await profiles.rescan();
    expect(row().model).toBe('root');
    expect(warnings.filter((warning) => warning.includes('active_profile'))).toEqual([]);
  });

  it.each(['nobody', 'bare', 'Upper', '../profiles/work', 'work/../work', '-work', 'a'.repeat(65), 'outside', 'wo rk'])(
    'falls back to the root with one warning for %j',
    async (marker) => {
      const { profiles, row, warnings, home } = await agent({ ...files, active_profile: marker });
      await symlink('../elsewhere', `${home}/profiles/outside`);
      await profiles.rescan();
      await profiles.rescan();
      expect(row().model).toBe('root');
      expect(warnings.filter((warning) => warning.includes('active_profile'))).toHaveLength(1);
    },
  );

  it('gives a warning when it is not a file, and is read on each scan', async () => {
    const { profiles, row, warnings, home, write } = await agent({ ...files, 'active_profile/file': '' });
    await profiles.rescan();
    expect(row().model).toBe('root');
    expect(warnings.filter((warning) => warning.includes('active_profile'))).toHaveLength(1);
    await rm(`${home}/active_profile`, { recursive: true });
    await write('active_profile', 'work');
    await profiles.rescan();
    expect(row().model).toBe('work');
  });

  it('leaves default out when the profile it names is broken', async () => {
    const { profiles, names, warnings } = await agent({
      ...files,
      'profiles/work/config.yaml': '- a',
      active_profile: 'work',
    });
    await profiles.rescan();
    expect(names()).toEqual(['Upper']);
    expect(warnings).toHaveLength(3);
  });
});

describe('the cost of a scan (contract 07 §1.3)', () => {
  it('probes many gateways at once, after reading everything', async () => {
    let under = 0;
    let highest = 0;
    const waiting: (() => void)[] = [];
    const host = (real: Host): Host => ({
      ...real,
      network: {
        ...real.network,
        canConnect: () =>
          new Promise((resolve) => {
            highest = Math.max(highest, ++under);
            waiting.push(() => {
              under--;
              resolve(true);
            });
          }),
      },
    });
    const names = Array.from({ length: 40 }, (_, index) => `profiles/p${index}/config.yaml`);
    const { profiles } = await agent(Object.fromEntries(names.map((name) => [name, 'api_server: {enabled: true}'])), {
      host,
    });
    const scan = profiles.rescan();
    await vi.waitFor(() => expect(waiting).toHaveLength(40));
    for (const go of waiting) go();
    await scan;
    expect(highest).toBe(40);
    expect(profiles.rows().every(({ gateway_running }) => gateway_running)).toBe(true);
  });

  it('goes on remembering a configuration that has had eight million characters of others before it', async () => {
    const large = 'x'.repeat(250_000);
    let content = '';
    let parsed = 0;
    const bytes = async () => utf8ToBytes(content);
    const read = createConfigReader({
      files: { stat: async () => ({}), read: bytes },
      yaml: {
        parseMapping: async () => {
          parsed++;
          return { ok: true, mapping: {} };
        },
      },
    } as unknown as Host);
    for (let change = 0; change < 40; change++) {
      content = `a: ${large}${change}`;
      await read('/config.yaml');
      await read('/config.yaml');
    }
    expect(parsed).toBe(40);
  });

  it('parses a configuration again only when it has changed, and forgets removed ones', async () => {
    const cache = createParseCache();
    const parsed: string[] = [];
    const yaml = {
      parseMapping: async (text: string) => {
        parsed.push(text);
        return { ok: true as const, mapping: {} };
      },
    };
    /** Whether a text was in the cache. */
    const isKept = async (text: string) => {
      const before = parsed.length;
      await cache.parse(text, yaml);
      return parsed.length === before;
    };
    cache.round();
    const first = await cache.parse('a: [b]', yaml);
    cache.round();
    expect(await cache.parse('a: [b]', yaml)).toBe(first);
    cache.round();
    cache.round();
    expect(await isKept('a: [b]')).toBe(false);
    const large = `a: ${'x'.repeat(5 * 1024 * 1024)}`;
    await cache.parse(large, yaml);
    await cache.parse(`${large}y`, yaml);
    expect([await isKept(large), await isKept(`${large}y`)]).toEqual([true, false]);
  });
});

import { execFileSync } from 'node:child_process';
import { chmod, symlink } from 'node:fs/promises';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { MAX_SOUL, soulText } from '../../../lib/profiles/row.ts';
import { MAX_DEPTH } from '../../../lib/profiles/skills.ts';
import { agent } from './support.ts';

const bytes = (text: string) => new TextEncoder().encode(text);

describe('a row (contract 07 §1.2)', () => {
  it('of an empty configuration', async () => {
    const { profiles } = await agent({ 'config.yaml': '' });
    await profiles.rescan();
    expect(profiles.rows()).toStrictEqual([
      {
        name: 'default',
        model: 'unknown',
        provider: '',
        description: '',
        system_message: null,
        gateway_running: false,
        has_soul: false,
        skill_count: 0,
        api_server_enabled: false,
        api_server_url: null,
        api_server_host: null,
        api_server_port: null,
        api_server_key_present: false,
      },
    ]);
  });

  it('of a full one, without the key', async () => {
    const { profiles } = await agent({
      'config.yaml':
        'model: {default: big, provider: acme}\ndescription: " Helps. "\nplatforms:\n  api_server: {host: 0.0.0.0, port: 1}\n',
      '.env': 'export API_SERVER_KEY="hunter2"\n# API_SERVER_ENABLED=0\n',
      'SOUL.md': '# Soul\nBe kind. \n\n',
      'skills/work/mail/SKILL.md': '',
    });
    await profiles.rescan();
    expect(profiles.rows()).toStrictEqual([
      {
        name: 'default',
        model: 'big',
        provider: 'acme',
        description: 'Helps.',
        system_message: '# Soul\nBe kind.',
        gateway_running: false,
        has_soul: true,
        skill_count: 1,
        api_server_enabled: true,
        api_server_url: 'http://localhost:1',
        api_server_host: '0.0.0.0',
        api_server_port: 1,
        api_server_key_present: true,
      },
    ]);
    expect(JSON.stringify(profiles.rows())).not.toContain('hunter2');
    expect(process.env.API_SERVER_KEY).not.toBe('hunter2');
  });

  it.each([
    ['model: big', 'big', ''],
    ['model: {default: 4.5}', '4.5', ''],
    ['model: {default: yes}', 'true', ''],
    ['model: {default: null, provider: 5}', 'unknown', ''],
    ['model: {default: "", provider: acme}', 'unknown', 'acme'],
    ['model: {default: [a]}', 'unknown', ''],
    ['model: [a]', 'unknown', ''],
    ['model: 5', 'unknown', ''],
    ['provider: acme', 'unknown', ''],
  ])('model and provider of %s', async (config, model, provider) => {
    const { profiles, row } = await agent({ 'config.yaml': config });
    await profiles.rescan();
    expect(row()).toMatchObject({ model, provider });
  });

  it.each([
    ['description: " said "', '# Soul', 'said'],
    ['description: "  "', '# Soul', 'Soul'],
    ['description: 5', '\r\n \r\n ## Soul of it \r\nmore', 'Soul of it'],
    ['', '\ufeffPlain', 'Plain'],
    ['', '###', ''],
    ['', ' \n', ''],
  ])('description of %j over %j', async (config, soul, description) => {
    const { profiles, row } = await agent({ 'config.yaml': config, 'SOUL.md': soul });
    await profiles.rescan();
    expect(row().description).toBe(description);
  });

  it('has_soul is true for an empty file and false for a directory', async () => {
    const { profiles, row } = await agent({
      'config.yaml': '',
      'SOUL.md': '',
      'profiles/directory/config.yaml': '',
      'profiles/directory/SOUL.md/file': '',
      'profiles/latin/config.yaml': '',
      'profiles/latin/SOUL.md': new Uint8Array([0x61, 0xff]),
    });
    await profiles.rescan();
    expect(row()).toMatchObject({ has_soul: true, system_message: null });
    expect(row('directory')).toMatchObject({ has_soul: false, system_message: null });
    expect(row('latin')).toMatchObject({ has_soul: true, system_message: null, description: '' });
  });

  it('cuts the soul at 204800 bytes, at a code point', () => {
    expect(soulText(bytes('a'.repeat(MAX_SOUL)))).toHaveLength(MAX_SOUL);
    expect(soulText(bytes('a'.repeat(MAX_SOUL + 1)))).toHaveLength(MAX_SOUL);
    expect(soulText(bytes(`${'a'.repeat(MAX_SOUL - 1)}\u20ac`))).toBe('a'.repeat(MAX_SOUL - 1));
    expect(soulText(bytes(`${'a'.repeat(MAX_SOUL - 2)} \u20ac`))).toBe('a'.repeat(MAX_SOUL - 2));
    const filler = 'a'.repeat(MAX_SOUL - 16);
    fc.assert(
      fc.property(fc.string({ unit: 'grapheme', minLength: 1, maxLength: 40 }), (tail) => {
        let fitting = filler;
        for (const character of tail) {
          if (bytes(fitting + character).length > MAX_SOUL) break;
          fitting += character;
        }
        expect(soulText(bytes(filler + tail))).toBe(fitting.trimEnd());
      }),
      { numRuns: 30 },
    );
  });

  it('tolerates unreadable files', async () => {
    const { profiles, row, home } = await agent({
      'config.yaml': 'model: big',
      '.env/file': '',
      'gateway.pid/file': '',
    });
    execFileSync('mkfifo', [`${home}/SOUL.md`]);
    await symlink('skills', `${home}/skills`);
    await profiles.rescan();
    expect(row()).toMatchObject({ model: 'big', has_soul: false, system_message: null, skill_count: 0 });
  });

  it('reads a Latin-1 .env', async () => {
    const { profiles, row } = await agent({
      'config.yaml': '',
      '.env': new Uint8Array([0x23, 0xe9, 0x0a, ...bytes("API_SERVER_KEY='k'\nAPI_SERVER_PORT=9000")]),
    });
    await profiles.rescan();
    expect(row()).toMatchObject({ api_server_enabled: true, api_server_port: 9000, api_server_key_present: true });
  });
});

describe('the .env of a profile (contract 07 §1.2)', () => {
  it('has one assignment per line, whatever the quotes', async () => {
    const { profiles, row } = await agent({
      'config.yaml': '',
      '.env': 'NOTE="it is\nAPI_SERVER_KEY=k\nAPI_SERVER_PORT=\'9001\'\nOTHER="x"\n',
    });
    await profiles.rescan();
    expect(row()).toMatchObject({ api_server_enabled: true, api_server_port: 9001, api_server_key_present: true });
  });
});

describe('skill_count (contract 07 §1.5)', () => {
  it('counts files named exactly SKILL.md, from depth 2 to 8, not through linked directories', async () => {
    const deep = (depth: number) => `skills/${'d/'.repeat(depth - 1)}SKILL.md`;
    const { profiles, row, home } = await agent({
      'config.yaml': '',
      [deep(1)]: '',
      [deep(2)]: '',
      [deep(MAX_DEPTH)]: '',
      [deep(MAX_DEPTH + 1)]: '',
      'skills/other/skill.md': '',
      'skills/other/SKILL.md.bak': '',
      'skills/directory/SKILL.md/file': '',
      'elsewhere/one/SKILL.md': '',
    });
    await symlink('../elsewhere', `${home}/skills/linked`);
    await symlink('../../elsewhere/one/SKILL.md', `${home}/skills/other/SKILL.md`);
    await profiles.rescan();
    expect(row().skill_count).toBe(3);
  });

  it('skips directories that it may not read', async () => {
    const { profiles, row, home } = await agent({
      'config.yaml': '',
      'skills/a/SKILL.md': '',
      'skills/b/SKILL.md': '',
    });
    await chmod(`${home}/skills/b`, 0);
    await profiles.rescan();
    await chmod(`${home}/skills/b`, 0o700);
    expect(row().skill_count).toBe(process.getuid?.() === 0 ? 2 : 1);
  });
});

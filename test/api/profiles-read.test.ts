import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdir, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { AVATAR_NAMES } from '../../lib/profiles/avatar.ts';
import { getRaw, profileClient, put } from '../support/profiles.ts';
import { describeMatrix, pair, type Target } from '../support/relay.ts';

const etagOf = (content: string | Uint8Array) => `"${createHash('sha256').update(content).digest('hex')}"`;
const fifo = (target: Target, path: string) => execFileSync('mkfifo', [`${target.agentHome}/${path}`]);
const PNG = Buffer.from('89504e470d0a1a0a0000000d49484452', 'hex');

describeMatrix('access to the profile routes (contract 07 §1.5)', (start, runtime) => {
  const rows = ['config', 'skills', 'soul', 'memory', 'avatar'].map((what) => ['GET', `/api/profiles/default/${what}`]);
  rows.push(['PUT', '/api/profiles/default/soul'], ['PUT', '/api/profiles/default/memory/a.md']);
  rows.push(['PUT', '/api/skills/toggle']);

  it('needs a live session, also on loopback; 501 at the edge', async () => {
    const target = await start();
    const { call } = await profileClient(target);
    for (const [method = '', path = ''] of rows) {
      const init = { method, ...(method === 'PUT' ? { body: '{"content":"x"}' } : {}) };
      expect((await target.fetch(path, init)).status).toBe(401);
      const strange = { ...init, headers: { authorization: 'Bearer nonsense' } };
      expect((await target.fetch(path, strange)).status).toBe(401);
      const answer = await call(path, init);
      if (path === '/api/skills/toggle') {
        expect(answer.status).toBe(501);
        expect(answer.body).toEqual({
          ok: false,
          error: 'skill_toggle_not_implemented',
          detail: expect.stringContaining('configuration'),
        });
      } else if (runtime === 'edge') {
        expect(answer.status).toBe(501);
        expect(answer.body).toEqual({
          ok: false,
          error: 'this relay runs without a host, so it has no profile files',
        });
      } else expect(answer.status).not.toBe(501);
    }
    expect((await call('/api/skills/toggle', { method: 'OPTIONS' })).status).toBe(405);
    expect((await call('/api/skills/toggle')).status).toBe(405);
  });
});

describeMatrix(
  'reading a profile (contract 07 §1.5)',
  (start) => {
    it('resolves names, and answers profile_not_found for unknown ones', async () => {
      const target = await start();
      const { get, token } = await profileClient(target);
      await put(target, {
        'SOUL.md': 'root',
        'profiles/work/config.yaml': '',
        'profiles/work/SOUL.md': 'work',
        'profiles/bare/SOUL.md': 'bare',
        'profiles/.hidden/SOUL.md': 'hidden',
        'profiles/ sp ace /SOUL.md': 'spaces',
        'profiles/grüß/SOUL.md': 'umlaut',
        'profiles/file': 'x',
        'outside/SOUL.md': 'outside',
        'profiles/work/inner/SOUL.md': 'inner',
      });
      for (const [link, to] of [
        ['alias', 'work'],
        ['outside', '../outside'],
        ['up', '..'],
        ['self', '.'],
        ['deeper', 'work/inner'],
        ['dangling', 'nowhere'],
      ] as const) {
        await symlink(to, `${target.agentHome}/profiles/${link}`);
      }
      for (const [segment, content] of [
        ['default', 'root'],
        ['work', 'work'],
        ['%77ork', 'work'],
        ['bare', 'bare'],
        ['alias', 'work'],
        ['%20sp%20ace%20', 'spaces'],
        [encodeURIComponent('grüß'), 'umlaut'],
      ] as const) {
        const { status, body } = await get(`${segment}/soul`);
        expect([status, body.profile, body.content]).toEqual([200, decodeURIComponent(segment), content]);
      }
      for (const segment of [
        ...['nobody', 'WORK', 'file', '.hidden', 'outside', 'up', 'self', 'deeper', 'dangling', '%20work', 'work%20'],
        ...['a%2f..%2fwork', 'work%2finner', '..%2fprofiles%2fwork', '%5cwork', 'work%5c', 'work%00', '%00', '%0awork'],
        ...['work%7f', 'work%c2%85', '...', '.%00.', 'a'.repeat(129), 'a'.repeat(128), 'DEFAULT', '..%2f'],
        encodeURIComponent('ü'.repeat(128)),
      ]) {
        const { status, body } = await get(`${segment}/soul`);
        expect([segment, status]).toEqual([segment, 404]);
        expect(body).toEqual({ ok: false, error: 'profile_not_found', profile: decodeURIComponent(segment) });
      }
      for (const segment of ['%', '%ff', '%c0%ae%c0%ae', '%zz']) {
        const { status, body } = await get(`${segment}/soul`);
        expect([status, body.error]).toEqual([404, 'profile_not_found']);
      }
      for (const path of ['../soul', '%2e%2e/soul', '.%2e/soul', './soul', '%2e/soul', 'work/../../soul', '/soul']) {
        const { status, body } = await getRaw(target, `/api/profiles/${path}`, token);
        expect([path, status]).toEqual([path, 404]);
        expect(body).not.toContain(target.agentHome);
      }
    });

    it('default follows active_profile at each use, also without discovery', async () => {
      const target = await start({ env: { RELAY_PROFILE_DISCOVERY_ENABLED: '0' } });
      const { get } = await profileClient(target);
      await put(target, { 'SOUL.md': 'root', 'profiles/w/config.yaml': 'model: m', 'profiles/w/SOUL.md': 'w' });
      expect((await get('default/soul')).body.content).toBe('root');
      await put(target, { active_profile: ' w\n' });
      expect((await get('default/soul')).body).toMatchObject({ profile: 'default', content: 'w' });
      expect((await get('default/config')).body.config).toEqual({ model: { default: 'm' } });
      await put(target, { active_profile: '../w' });
      expect((await get('default/soul')).body.content).toBe('root');
      expect(target.log.join('\n')).toContain('active_profile');
    });

    it('config shows description and model only', async () => {
      const target = await start();
      const { get } = await profileClient(target);
      const config = async (text: string) => {
        await put(target, { 'profiles/p/config.yaml': text });
        return get('p/config');
      };
      const { status, body, headers } = await config(
        'description: " D "\nmodel: {default: m, provider: secret}\napi_server: {key: secret}\n',
      );
      expect(status).toBe(200);
      expect(headers.get('cache-control')).toBe('no-store');
      expect(body).toEqual({
        profile: 'p',
        path: 'config.yaml',
        config: { description: ' D ', model: { default: 'm' } },
        readonly: true,
      });
      expect((await config('model: m')).body.config).toEqual({ model: { default: 'm' } });
      expect((await config('model: {default: 5}\ndescription: [x]')).body.config).toEqual({});
      expect((await config('')).body.config).toEqual({});
      const broken = await config('a: 1\nkey: [hunter2');
      expect(broken.status).toBe(500);
      expect(broken.body).toEqual({
        ok: false,
        error: 'config_parse_failed',
        profile: 'p',
        detail: expect.stringMatching(/line \d+, column \d+/),
      });
      expect(JSON.stringify(broken.body)).not.toContain('hunter2');
      expect((await config('- a')).body.error).toBe('config_parse_failed');
      await put(target, { 'profiles/bare/SOUL.md': '' });
      expect((await get('bare/config')).status).toBe(404);
      expect((await get('bare/config')).body).toEqual({ ok: false, error: 'config_not_found', profile: 'bare' });
    });

    it('skills are listed by path, with names from front matter or the directory', async () => {
      const target = await start();
      const { get } = await profileClient(target);
      expect((await get('default/skills')).body).toEqual({ profile: 'default', skills: [], total: 0 });
      await put(target, {
        'secret/SKILL.md': '---\nname: hunter2\n---\n',
        'skills/SKILL.md': '',
        'skills/mail/SKILL.md': '---\nname: Mail it\ndescription: " Sends. "\n---\n# x',
        'skills/mail/deep/er/SKILL.md': '---\r\nname: "  "\r\ndescription: 5\r\n---\r\n',
        'skills/bad/one/SKILL.md': '---\nname: [\n---\n',
        'skills/bad/two/SKILL.md': '---\nname: never closed\n',
        'skills/bad/three/SKILL.md': 'x\n---\nname: late\n---\n',
        'skills/bad/bomb/SKILL.md': `---\na: &a [x]\nname: &b [${'*a, '.repeat(500)}]\n---`,
        'skills/long/SKILL.md': `---\nname: long\ndescription: ${'x'.repeat(70_000)}\n---\n`,
        'skills/Zed/skill.md': '',
      });
      await symlink('../secret', `${target.agentHome}/skills/linked`);
      await mkdir(`${target.agentHome}/skills/links`);
      await symlink('../../secret/SKILL.md', `${target.agentHome}/skills/links/SKILL.md`);
      await mkdir(`${target.agentHome}/skills/out`);
      await symlink('/etc/hostname', `${target.agentHome}/skills/out/SKILL.md`);
      await mkdir(`${target.agentHome}/skills/pipe`);
      fifo(target, 'skills/pipe/SKILL.md');
      const { body } = await get('default/skills');
      const skill = (category: string, path: string, name: string, description = '') => ({
        ...{ name, category, description, path: `skills/${path}/SKILL.md`, enabled: true },
      });
      expect(body.skills).toEqual([
        skill('bad', 'bad/bomb', 'bomb'),
        skill('bad', 'bad/one', 'one'),
        skill('bad', 'bad/three', 'three'),
        skill('bad', 'bad/two', 'two'),
        skill('links', 'links', 'hunter2'),
        skill('long', 'long', 'long'),
        skill('mail', 'mail', 'Mail it', 'Sends.'),
        skill('mail', 'mail/deep/er', 'er'),
      ]);
      expect(body.total).toBe(8);
      await target.relay?.profiles.rescan();
      await put(target, { 'config.yaml': '' });
      await target.relay?.profiles.rescan();
      expect(target.relay?.profiles.rows()[0]?.skill_count).toBe(8);

      await put(target, { 'profiles/p/config.yaml': '' });
      await symlink('../../skills', `${target.agentHome}/profiles/p/skills`);
      expect((await get('p/skills')).body.total).toBe(0);
    });

    it('soul has content, size and ETag, and is cut at its limit', async () => {
      const target = await start();
      const { get, call } = await profileClient(target);
      const missing = await get('default/soul');
      expect(missing.status).toBe(200);
      expect(missing.headers.get('etag')).toBeNull();
      expect(missing.body).toEqual({ profile: 'default', path: 'SOUL.md', content: '', exists: false, size_bytes: 0 });

      const text = '\ufeffGrüße \u0000 ';
      await put(target, { 'SOUL.md': text });
      const { body, headers } = await get('default/soul');
      expect(body).toEqual({
        ...{ profile: 'default', path: 'SOUL.md', content: text, exists: true },
        ...{ size_bytes: Buffer.byteLength(text), etag: etagOf(text) },
      });
      expect(headers.get('etag')).toBe(etagOf(text));
      expect(headers.get('cache-control')).toBe('no-store');
      const head = await call('/api/profiles/default/soul', { method: 'HEAD' });
      expect([head.status, head.headers.get('etag'), head.body]).toEqual([200, etagOf(text), '']);

      const long = `${'a'.repeat(204_799)}€ and more`;
      await put(target, { 'SOUL.md': long });
      const cut = (await get('default/soul')).body;
      expect(cut.content).toBe('a'.repeat(204_799));
      expect(cut).toMatchObject({ truncated: true, size_bytes: Buffer.byteLength(long), etag: etagOf(long) });
      await put(target, { 'SOUL.md': 'a'.repeat(204_800) });
      expect((await get('default/soul')).body).not.toHaveProperty('truncated');
      await put(target, { 'SOUL.md': 'x'.repeat(9 * 1024 * 1024) });
      expect((await get('default/soul')).body).not.toHaveProperty('etag');
    });

    it('soul that cannot be read is reported', async () => {
      const target = await start();
      const { get } = await profileClient(target);
      const home = target.agentHome;
      await put(target, { 'profiles/latin/SOUL.md': new Uint8Array([0x61, 0xff]), 'profiles/dir/SOUL.md/x': '' });
      await put(target, {
        'profiles/pipe/x': '',
        'profiles/loop/x': '',
        'profiles/out/config.yaml': '',
        secret: 'hunter2',
      });
      await put(target, { 'profiles/in/notes/soul.md': 'inside' });
      fifo(target, 'profiles/pipe/SOUL.md');
      await symlink('SOUL.md', `${home}/profiles/loop/SOUL.md`);
      await symlink('../../secret', `${home}/profiles/out/SOUL.md`);
      await symlink('notes/soul.md', `${home}/profiles/in/SOUL.md`);
      for (const [profile, detail] of [
        ['latin', 'invalid utf-8'],
        ['dir', 'EISDIR'],
        ['pipe', 'EINVAL'],
        ['loop', 'ELOOP'],
      ] as const) {
        const { status, body } = await get(`${profile}/soul`);
        expect([status, body]).toEqual([500, { ok: false, error: 'soul_read_failed', profile, detail }]);
      }
      const { status, body } = await get('out/soul');
      expect([status, body]).toEqual([403, { ok: false, error: 'path_outside_profile', profile: 'out' }]);
      await target.relay?.profiles.rescan();
      expect(target.relay?.profiles.rows().find(({ name }) => name === 'out')).toMatchObject({
        system_message: null,
        has_soul: true,
      });
      expect((await get('in/soul')).body.content).toBe('inside');
    });

    it('memory is ordered, capped, and leaves out unreadable files', async () => {
      const target = await start();
      const { get } = await profileClient(target);
      expect((await get('default/memory')).body).toEqual({
        ...{ profile: 'default', memories_dir: 'memories', entries: [], total: 0 },
      });
      const long = `${'b'.repeat(51_199)}€`;
      await put(target, {
        ...{ 'memories/zeta.md': 'z', 'memories/Alpha.md': 'a', 'memories/beta.md': 'b', 'memories/USER.md': 'u' },
        ...{ 'memories/MEMORY.md': 'm', 'memories/user.md': 'lower', 'memories/a b ü.md': 's', 'memories/no.MD': '' },
        ...{ 'memories/long.md': long, 'memories/sub/deep.md': '', 'memories/dir.md/x': '', 'memories/notes.txt': '' },
        ...{ 'memories/bad.md': new Uint8Array([0xff]), secret: 'hunter2', 'memories/empty.md': '' },
      });
      await symlink('../secret', `${target.agentHome}/memories/inside.md`);
      await symlink('/etc/hostname', `${target.agentHome}/memories/outside.md`);
      await symlink('nowhere', `${target.agentHome}/memories/dangling.md`);
      fifo(target, 'memories/pipe.md');
      const { body } = await get('default/memory');
      expect(body.entries.map(({ filename }: { filename: string }) => filename)).toEqual([
        ...['MEMORY.md', 'USER.md', 'a b ü.md', 'Alpha.md', 'beta.md', 'empty.md', 'inside.md', 'long.md'],
        ...['user.md', 'zeta.md'],
      ]);
      expect(body.total).toBe(10);
      expect(body.entries[3]).toEqual({
        ...{ name: 'Alpha', filename: 'Alpha.md', path: 'memories/Alpha.md', content: 'a', size_bytes: 1 },
        ...{ truncated: false, etag: etagOf('a') },
      });
      expect(body.entries[5]).toMatchObject({ content: '', truncated: false });
      expect(body.entries[7]).toMatchObject({ content: 'b'.repeat(51_199), truncated: true, size_bytes: 51_202 });
      expect(target.log.join('\n')).toContain('memory file bad.md of profile default is left out: invalid utf-8');
    });

    it('memory has at most 500 entries and 4 MiB, and follows no link to another home', async () => {
      const target = await start();
      const { get } = await profileClient(target);
      const name = (index: number) => String(index).padStart(3, '0');
      const small = Array.from({ length: 420 }, (_, index) => [`profiles/p/memories/z${name(index)}.md`, 'tail']);
      const large = Array.from({ length: 90 }, (_, index) => [
        `profiles/p/memories/a${name(index)}.md`,
        'x'.repeat(51_200),
      ]);
      await put(target, Object.fromEntries([...small, ...large]));
      const { entries, total } = (await get('p/memory')).body;
      expect([entries.length, total]).toEqual([500, 500]);
      const bytes = entries.reduce((sum: number, { content }: { content: string }) => sum + content.length, 0);
      expect(bytes).toBeLessThanOrEqual(4 * 1024 * 1024);
      expect(entries[80]).toMatchObject({ truncated: false, size_bytes: 51_200 });
      expect(entries[89]).toMatchObject({ truncated: true, content: '', size_bytes: 51_200 });
      expect(entries[89].etag).toBe(etagOf('x'.repeat(51_200)));
      await put(target, { 'profiles/q/config.yaml': '' });
      await symlink('../p/memories', `${target.agentHome}/profiles/q/memories`);
      expect((await get('q/memory')).body.entries).toEqual([]);
    });

    it('avatar is the first of the known names, typed by its content', async () => {
      const target = await start({ env: { RELAY_MEDIA_MAX_SIZE_MB: '1' } });
      const { get, call } = await profileClient(target);
      const none = await get('default/avatar');
      expect(none.status).toBe(404);
      expect(none.body).toEqual({
        ...{ ok: false, error: 'profile_avatar_not_found', profile: 'default', expected_names: AVATAR_NAMES },
      });
      expect(AVATAR_NAMES.slice(0, 6)).toEqual([
        ...['avatar.png', 'avatar.jpg', 'avatar.jpeg', 'avatar.webp', 'avatar.gif', 'profile.png'],
      ]);
      await put(target, { 'icon.png': PNG, 'profile.gif': Buffer.from('GIF89a..'), 'sub/avatar.png': PNG });
      expect((await get('default/avatar')).headers.get('content-type')).toBe('image/gif');
      await put(target, { 'AVATAR.Webp': Buffer.from('RIFF\x10\0\0\0WEBPVP8 ') });
      const { headers } = await get('default/avatar');
      expect(Object.fromEntries(headers)).toMatchObject({
        'content-type': 'image/webp',
        'content-disposition': 'inline; filename="AVATAR.Webp"',
        'cache-control': 'private, max-age=3600',
        'x-content-type-options': 'nosniff',
      });
      await put(target, { 'avatar.jpg': Buffer.from([0xff, 0xd8, 0xff, 0xe0]) });
      const jpeg = await target.fetch('/api/profiles/default/avatar', {
        headers: { authorization: `Bearer ${(await profileClient(target)).token}` },
      });
      expect(jpeg.headers.get('content-type')).toBe('image/jpeg');
      expect(new Uint8Array(await jpeg.arrayBuffer())).toEqual(new Uint8Array([0xff, 0xd8, 0xff, 0xe0]));
      expect((await call('/api/profiles/default/avatar', { method: 'HEAD' })).status).toBe(200);

      const etag = etagOf(new Uint8Array([0xff, 0xd8, 0xff, 0xe0]));
      expect(jpeg.headers.get('etag')).toBe(etag);
      const again = (tag: string) => call('/api/profiles/default/avatar', { headers: { 'if-none-match': tag } });
      for (const tag of [etag, `"other", W/${etag}`, '*']) {
        const { status, headers, body } = await again(tag);
        expect([tag, status, headers.get('etag'), body]).toEqual([tag, 304, etag, '']);
        expect(headers.get('cache-control')).toBe('private, max-age=3600');
      }
      expect((await again('"other"')).status).toBe(200);
      await put(target, { 'avatar.jpg': Buffer.from([0xff, 0xd8, 0xff, 0xe1]) });
      expect((await again(etag)).status).toBe(200);

      await put(target, {
        'profiles/text/avatar.png': '<svg/>',
        'profiles/empty/avatar.png': '',
        'profiles/out/x': '',
      });
      await put(target, { 'profiles/dir/avatar.png/x': '', 'profiles/pipe/x': '' });
      await put(target, { 'profiles/big/avatar.png': Buffer.concat([PNG, Buffer.alloc(1024 * 1024)]) });
      await put(target, { 'profiles/fits/avatar.png': Buffer.concat([PNG, Buffer.alloc(1024 * 1024 - PNG.length)]) });
      await symlink('../../icon.png', `${target.agentHome}/profiles/out/avatar.png`);
      fifo(target, 'profiles/pipe/avatar.png');
      for (const profile of ['text', 'empty']) {
        const { status, body } = await get(`${profile}/avatar`);
        expect([status, body]).toEqual([
          415,
          { ok: false, error: 'profile_avatar_invalid', profile, detail: 'not a PNG, JPEG, GIF or WebP image' },
        ]);
      }
      for (const profile of ['out', 'dir', 'pipe', 'big']) {
        const { status, body } = await get(`${profile}/avatar`);
        expect([profile, status, body.error]).toEqual([profile, 403, 'profile_avatar_forbidden']);
        expect(JSON.stringify(body)).not.toContain(target.agentHome);
      }
      expect((await get('fits/avatar')).status).toBe(200);
    });
  },
  ['node'],
);

describeMatrix(
  'profile rows on the socket (contract 01 §3.8, 07 §1.4)',
  (start) => {
    it('auth.ok carries them; a change on disk pushes profiles.updated, with the rows at both places', async () => {
      const target = await start();
      await writeFile(join(target.agentHome, 'config.yaml'), 'model: {default: m1}\ndescription: Home\n');
      await target.relay?.profiles.rescan();
      const { client, ok } = await pair(target);
      expect(ok.payload.profiles).toMatchObject([{ name: 'default', model: 'm1', description: 'Home' }]);
      await mkdir(join(target.agentHome, 'profiles', 'work'), { recursive: true });
      await writeFile(join(target.agentHome, 'profiles', 'work', 'config.yaml'), 'model: m2\n');
      await target.relay?.profiles.rescan();
      const pushed = await client.next({ channel: 'pairing', type: 'profiles.updated' });
      expect(pushed.payload.profiles).toEqual(pushed.profiles);
      expect(pushed.profiles).toMatchObject([{ name: 'default' }, { name: 'work', model: 'm2' }]);
      const other = await pair(target);
      expect(other.ok.payload.profiles).toEqual(pushed.profiles);
    });
  },
  ['node'],
);

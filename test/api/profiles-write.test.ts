import { chmod, mkdir, readdir, readFile, readlink, stat, symlink, writeFile } from 'node:fs/promises';
import { expect, it } from 'vitest';
import { etagOf, profileClient, put } from '../support/profiles.ts';
import { describeMatrix } from '../support/relay.ts';

const MIB = 1024 * 1024;

describeMatrix(
  'writing a profile (contract 07 §1.5)',
  (start) => {
    it('soul: replaces the whole file, answers with its ETag and pushes the change', async () => {
      const target = await start();
      const { put: write, get, client } = await profileClient(target);
      await put(target, { 'config.yaml': '' });
      await target.relay?.profiles.rescan();
      await client.next({ channel: 'pairing', type: 'profiles.updated' });
      const { status, body, headers } = await write('default/soul', '# Grüße\n');
      expect(status).toBe(200);
      expect(body).toEqual({
        ...{ ok: true, profile: 'default', path: 'SOUL.md', bytes_written: 10, etag: etagOf('# Grüße\n') },
      });
      expect(headers.get('etag')).toBe(etagOf('# Grüße\n'));
      expect(await readFile(`${target.agentHome}/SOUL.md`, 'utf8')).toBe('# Grüße\n');
      expect((await stat(`${target.agentHome}/SOUL.md`)).mode & 0o777).toBe(0o600);
      const frame = await client.next({ channel: 'pairing', type: 'profiles.updated' });
      expect(frame.profiles).toMatchObject([{ description: 'Grüße', system_message: '# Grüße' }]);
      expect(frame.payload.profiles).toEqual(frame.profiles);
      expect((await write('default/soul', '')).body.bytes_written).toBe(0);
      expect((await get('default/soul')).body).toMatchObject({ exists: true, content: '', size_bytes: 0 });
      expect(target.log.join('\n')).toContain('wrote SOUL.md of profile default: 10 bytes');
      expect(target.log.join('\n')).not.toContain('Grüße');
    });

    it('memory: creates memories/, keeps the mode of a file and leaves nothing else', async () => {
      const target = await start();
      const { put: write } = await profileClient(target);
      await put(target, { 'profiles/p/config.yaml': '' });
      const { status, body } = await write('p/memory/Note-1.x_y.md', 'hello');
      expect(status).toBe(200);
      expect(body).toEqual({
        ...{ ok: true, profile: 'p', filename: 'Note-1.x_y.md', path: 'memories/Note-1.x_y.md' },
        ...{ bytes_written: 5, etag: etagOf('hello') },
      });
      const directory = `${target.agentHome}/profiles/p/memories`;
      expect((await stat(`${directory}/Note-1.x_y.md`)).mode & 0o777).toBe(0o600);
      expect((await stat(directory)).mode & 0o777).toBe(0o700);
      await chmod(`${directory}/Note-1.x_y.md`, 0o640);
      await write('p/memory/Note-1.x_y.md', 'again');
      expect((await stat(`${directory}/Note-1.x_y.md`)).mode & 0o777).toBe(0o640);
      expect(await readdir(directory)).toEqual(['Note-1.x_y.md']);
      expect((await readdir(`${target.agentHome}/profiles/p`)).sort()).toEqual(['config.yaml', 'memories']);
    });

    it('refuses invalid bodies', async () => {
      const target = await start();
      const { call, get } = await profileClient(target);
      await put(target, { 'SOUL.md': 'old' });
      for (const text of [
        ...['', '{', '[]', '"x"', 'null', '{}', '{"content":null}', '{"content":5}', '{"content":["x"]}'],
        ...['{"content":"\\ud800"}', '{"content":"a\\udc00b"}', '{"Content":"x"}'],
      ]) {
        for (const path of ['soul', 'memory/a.md']) {
          const { status, body } = await call(`/api/profiles/default/${path}`, { method: 'PUT', body: text });
          expect([text, status]).toEqual([text, 400]);
          expect(body).toEqual({ ok: false, error: 'invalid_body', detail: expect.any(String) });
        }
      }
      const latin = new Uint8Array([...new TextEncoder().encode('{"content":"'), 0xff, 0x22, 0x7d]);
      const { status, body } = await call('/api/profiles/default/soul', { method: 'PUT', body: latin });
      expect([status, body.error]).toEqual([400, 'invalid_body']);
      expect((await get('default/soul')).body.content).toBe('old');
      expect(await readdir(target.agentHome)).not.toContain('memories');
    });

    it('accepts exactly the limit and refuses more', async () => {
      const target = await start();
      const { put: write, call } = await profileClient(target);
      const full = `${'ü'.repeat(MIB / 2 - 1)}ab`;
      const { status, body } = await write('default/soul', full);
      expect([status, body.bytes_written]).toEqual([200, MIB]);
      const escaped = `{"content":"${'\\u0041'.repeat(MIB)}"}`;
      expect((await call('/api/profiles/default/soul', { method: 'PUT', body: escaped })).body.bytes_written).toBe(MIB);
      const over = await write('default/memory/a.md', `${full}c`);
      expect(over.status).toBe(413);
      expect(over.body).toEqual({
        ...{ ok: false, error: 'payload_too_large', limit_bytes: MIB, received_bytes: MIB + 1 },
      });
      const raw = await call('/api/profiles/default/soul', { method: 'PUT', body: ' '.repeat(8 * MIB + 1) });
      expect(raw.status).toBe(413);
      expect(raw.body).toEqual({
        ...{ ok: false, error: 'payload_too_large', limit_bytes: MIB, received_bytes: 8 * MIB + 1 },
      });
      const stream = new ReadableStream({
        start(controller) {
          for (let part = 0; part < 9; part++) controller.enqueue(new Uint8Array(MIB));
          controller.close();
        },
      });
      const chunked = await call('/api/profiles/default/soul', {
        method: 'PUT',
        body: stream,
        duplex: 'half',
      } as never);
      expect([chunked.status, chunked.body]).toEqual([
        413,
        { ok: false, error: 'payload_too_large', limit_bytes: MIB },
      ]);
    });

    it('refuses file names before it reads the body', async () => {
      const target = await start();
      const { call } = await profileClient(target);
      for (const segment of [
        ...['a', 'a.txt', '.md', '.a.md', 'a..md', 'a..b.md', '%2e%2e%2fa.md', 'a%2fb.md', 'a%5cb.md', 'a%00.md'],
        ...['a.md%00', 'a.md%0a', 'a%20b.md', '%20a.md', 'a.md%20', 'SOUL.md', 'soul.md', 'Soul.md', 'a.MD', 'a.md.'],
        ...['%ff.md', '%.md', '%c3%bc.md', '%ef%bd%8d.md', `${'a'.repeat(126)}.md`, '~a.md', 'a:b.md', '%E2%84%AA.md'],
      ]) {
        const path = `/api/profiles/default/memory/${segment}`;
        const { status, body } = await call(path, { method: 'PUT', body: '{' });
        expect([segment, status]).toEqual([segment, 400]);
        expect(body).toEqual({ ok: false, error: 'invalid_filename', detail: expect.any(String) });
      }
      expect(await readdir(target.agentHome)).not.toContain('memories');
      for (const segment of ['-.md', '_.md', `${'a'.repeat(125)}.md`, 'a.b.md', 'soul.x.md', '%61.md']) {
        const path = `/api/profiles/default/memory/${segment}`;
        expect((await call(path, { method: 'PUT', body: '{"content":"x"}' })).status).toBe(200);
      }
      for (const path of ['nobody/soul', 'nobody/memory/a.md', '%2e%2e%2f/soul', 'a%00/memory/a.md']) {
        const { status, body } = await call(`/api/profiles/${path}`, { method: 'PUT', body: '{"content":"x"}' });
        expect([status, body.error]).toEqual([404, 'profile_not_found']);
      }
    });

    it('never writes outside the home', async () => {
      const target = await start();
      const { put: write } = await profileClient(target);
      const home = target.agentHome;
      const profiles = ['file', 'dir', 'gone', 'goner', 'up'];
      await put(target, Object.fromEntries(profiles.map((name) => [`profiles/${name}/config.yaml`, ''])));
      await put(target, { 'outside/secret.md': 'secret' });
      await mkdir(`${home}/profiles/file/memories`);
      await symlink('../../outside/secret.md', `${home}/profiles/file/SOUL.md`);
      await symlink('../../../outside/secret.md', `${home}/profiles/file/memories/a.md`);
      await symlink('../../outside', `${home}/profiles/dir/memories`);
      await symlink('../../outside/new', `${home}/profiles/gone/memories`);
      await symlink('../../outside/new.md', `${home}/profiles/goner/SOUL.md`);
      await symlink('..', `${home}/profiles/up/memories`);
      for (const path of [
        'file/soul',
        'file/memory/a.md',
        'dir/memory/secret.md',
        'dir/memory/new.md',
        'gone/memory/a.md',
      ]) {
        const { status, body } = await write(path, 'x');
        expect([path, status]).toEqual([path, 403]);
        expect(body).toEqual({ ok: false, error: 'path_outside_profile', profile: path.split('/')[0] });
      }
      expect((await write('goner/soul', 'x')).status).toBe(403);
      expect((await write('up/memory/a.md', 'x')).status).toBe(403);
      expect(await readdir(`${home}/outside`)).toEqual(['secret.md']);
      expect(await readFile(`${home}/outside/secret.md`, 'utf8')).toBe('secret');
      expect(await readdir(`${home}/profiles`)).toHaveLength(profiles.length);
    });

    it('writes through a link that stays in the home', async () => {
      const target = await start();
      const { put: write } = await profileClient(target);
      await put(target, { 'notes/soul.md': 'old', 'notes/memories/a.md': 'old' });
      await symlink('notes/soul.md', `${target.agentHome}/SOUL.md`);
      await symlink('notes/memories', `${target.agentHome}/memories`);
      expect((await write('default/soul', 'new')).status).toBe(200);
      expect((await write('default/memory/a.md', 'new')).status).toBe(200);
      expect(await readlink(`${target.agentHome}/SOUL.md`)).toBe('notes/soul.md');
      expect(await readFile(`${target.agentHome}/notes/soul.md`, 'utf8')).toBe('new');
      expect(await readFile(`${target.agentHome}/notes/memories/a.md`, 'utf8')).toBe('new');
    });

    it('reports why a write failed, and keeps the old file', async () => {
      const target = await start();
      const { put: write } = await profileClient(target);
      await put(target, {
        'profiles/a/SOUL.md/x': '',
        'profiles/b/memories': 'a file',
        'profiles/c/memories/d.md/x': '',
      });
      for (const [path, error, detail] of [
        ['a/soul', 'soul_write_failed', 'EISDIR'],
        ['b/memory/a.md', 'memory_write_failed', 'ENOTDIR'],
        ['c/memory/d.md', 'memory_write_failed', 'EISDIR'],
      ] as const) {
        const { status, body } = await write(path, 'x');
        expect([status, body]).toEqual([500, { ok: false, error, profile: path[0], detail }]);
      }
      expect(await readdir(`${target.agentHome}/profiles/a`)).toEqual(['SOUL.md']);
      expect(await readdir(`${target.agentHome}/profiles/c/memories`)).toEqual(['d.md']);
    });

    it('If-Match must match the current file, else 412', async () => {
      const target = await start();
      const { put: write, get } = await profileClient(target);
      const attempt = async (ifMatch: string, content: string, path = 'default/soul') => {
        const { status, body } = await write(path, content, { 'if-match': ifMatch });
        if (status === 412) expect(body).toEqual({ ok: false, error: 'precondition_failed' });
        return status;
      };
      expect(await attempt(etagOf(''), 'x')).toBe(412);
      expect(await attempt('*', 'x')).toBe(412);
      expect(await attempt('*', 'x', 'default/memory/a.md')).toBe(412);
      expect(await readdir(target.agentHome)).not.toContain('memories');
      await write('default/soul', 'one');
      expect(await attempt(etagOf('two'), 'x')).toBe(412);
      expect(await attempt(`W/${etagOf('one')}`, 'x')).toBe(412);
      expect(await attempt(etagOf('one').replaceAll('"', ''), 'x')).toBe(412);
      expect(await attempt(etagOf('one'), 'two')).toBe(200);
      expect(await attempt(`"other", ${etagOf('two')}`, 'three')).toBe(200);
      expect(await attempt('*', 'four')).toBe(200);
      await writeFile(`${target.agentHome}/SOUL.md`, 'from elsewhere');
      expect(await attempt(etagOf('four'), 'x')).toBe(412);
      expect((await get('default/soul')).body.content).toBe('from elsewhere');
    });

    it('If-None-Match: * creates a file, and of ten writers with it one wins', async () => {
      const target = await start();
      const { put: write, get } = await profileClient(target);
      const create = (path: string, content: string) => write(path, content, { 'if-none-match': '*' });
      for (const path of ['default/soul', 'default/memory/a.md']) {
        const attempts = await Promise.all(Array.from({ length: 10 }, (_, writer) => create(path, `${writer}`)));
        expect(attempts.map(({ status }) => status).sort()).toEqual([200, ...Array(9).fill(412)]);
        expect(attempts.find(({ status }) => status === 412)?.body).toEqual({
          ok: false,
          error: 'precondition_failed',
        });
      }
      const { etag, content } = (await get('default/soul')).body;
      expect((await write('default/soul', 'x', { 'if-none-match': etag })).status).toBe(412);
      expect((await get('default/soul')).body.content).toBe(content);
      expect((await write('default/soul', 'x', { 'if-none-match': etagOf('other') })).status).toBe(200);
    });

    it('of ten writers with If-Match on one file one wins and nine get 412', async () => {
      const target = await start();
      const { put: write, get } = await profileClient(target);
      await put(target, { 'profiles/real/config.yaml': '', 'profiles/real/memories/A.md': 'round' });
      await symlink('real', `${target.agentHome}/profiles/alias`);
      let etag = etagOf('round');
      for (let round = 0; round < 10; round++) {
        const attempts = await Promise.all(
          Array.from({ length: 10 }, async (_, writer) => {
            // Both names of the profile lead to the same file.
            const path = `${writer % 2 === 0 ? 'real' : 'alias'}/memory/A.md`;
            const content = `${round} ${writer} ${'x'.repeat(writer * 5000)}`;
            return { content, ...(await write(path, content, { 'if-match': etag })) };
          }),
        );
        const won = attempts.filter(({ status }) => status === 200);
        expect(won).toHaveLength(1);
        expect(attempts.filter(({ status }) => status === 412)).toHaveLength(9);
        expect((await get('real/memory')).body.entries[0].etag).toBe(won[0]?.body.etag);
        expect(await readFile(`${target.agentHome}/profiles/real/memories/A.md`, 'utf8')).toBe(won[0]?.content);
        etag = won[0]?.body.etag;
      }
      expect(await readdir(`${target.agentHome}/profiles/real/memories`)).toEqual(['A.md']);
    });
  },
  ['node'],
);

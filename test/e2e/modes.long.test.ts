import { spawnSync } from 'node:child_process';
import { chmod, mkdir, readdir, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { connect } from '../support/client.ts';
import { runSvc, startRelayProcess, temporaryHome } from '../support/process.ts';
import { bearer, randomCode } from '../support/relay.ts';
import { attach, hasProgram, tmuxSocket } from '../support/terminal.ts';

const PNG = Buffer.from(
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==',
  'base64',
);

/** Mode and path of everything below a folder, and of the folder itself. */
async function modesBelow(folder: string): Promise<{ path: string; mode: string; isDirectory: boolean }[]> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true });
  const paths = [folder, ...entries.map((entry) => join(entry.parentPath, entry.name))];
  const found = paths.map(async (path) => {
    // A temporary file may have got its name meanwhile.
    const info = await stat(path).catch((error) => {
      if (error.code === 'ENOENT' && path.endsWith('.tmp')) return null;
      throw error;
    });
    return info && { path, mode: (info.mode & 0o777).toString(8), isDirectory: info.isDirectory() };
  });
  return (await Promise.all(found)).filter((one) => one !== null);
}

test.each(['000', '022'])(
  'whatever a relay and its commands create is private: umask %s (contract 07 §1.5)',
  { timeout: 300_000 },
  async (umask) => {
    const home = await temporaryHome();
    const agentHome = join(home, 'agents', 'main');
    const [uploads, tmux] = [join(home, 'tmp'), join(home, 'tmux')];
    for (const folder of [uploads, tmux]) await mkdir(folder, { mode: 0o700 });
    const env = { SVC_HOME: agentHome, TMPDIR: uploads, TMUX_TMPDIR: tmux, API_SERVER_KEY: 'key', SHELL: '/bin/sh' };
    const relay = await startRelayProcess({ home, env, umask });
    const svc = async (...words: string[]) => {
      const result = await runSvc(words, { home, umask, env: { ...env, RELAY_PORT: String(relay.port) } });
      expect([words.join(' '), result.code, result.stderr]).toEqual([words.join(' '), 0, expect.anything()]);
      return result.stdout;
    };

    await svc('pair', '--png');
    await svc('relay', 'operator-token', '--public-key');
    const [code, companionCode] = [randomCode(), randomCode()];
    for (const body of [{ code }, { code: companionCode }]) {
      expect((await relay.ask('/pairing/register', { method: 'POST', body })).status).toBe(200);
    }
    const payload = { svc: 1, relay: { url: `ws://127.0.0.1:${relay.port}`, code: companionCode } };
    await svc('companion', 'pair', JSON.stringify(payload));
    const client = await connect(relay.wsUrl);
    client.send('system', 'auth', { pairing_code: code, device_id: 'd', device_name: 'D' });
    const token = String((await client.next({ type: 'auth.ok' })).payload.session_token);
    const send = async (method: string, path: string, body: unknown) => {
      const answer = await fetch(relay.url + path, {
        method,
        body: body instanceof FormData ? body : JSON.stringify(body),
        headers: bearer(token),
      });
      expect([path, answer.status, await answer.text()]).toEqual([path, 200, expect.anything()]);
    };
    await send('PUT', '/api/profiles/default/soul', { content: '# Me' });
    await send('PUT', '/api/profiles/default/memory/NOTES.md', { content: 'secret' });
    await mkdir(join(agentHome, 'profiles/work'), { recursive: true, mode: 0o700 });
    await send('PUT', '/api/profiles/work/soul', { content: '# Work' });
    await send('PUT', '/api/profiles/work/memory/NOTES.md', { content: 'secret' });
    await send('POST', '/clipboard/inbox', { format: 'png', bytes_base64: PNG.toString('base64') });
    const form = new FormData();
    form.append('file', new Blob([PNG], { type: 'image/png' }), 'picture.png');
    await send('POST', '/media/upload', form);
    if (hasProgram('tmux')) {
      await attach(client, 'main');
      const server = ['-L', tmuxSocket(agentHome), 'kill-server'];
      onTestFinished(() => void spawnSync('tmux', server, { env: { ...process.env, ...env } }));
    }

    // Once more after damage, of files that others can read.
    const state = join(agentHome, 'svc-relay', 'state.db');
    await relay.kill();
    for (const path of [state, `${state}-wal`]) {
      await writeFile(path, Buffer.alloc(8192, 'x'));
      await chmod(path, 0o644);
    }
    await relay.restart();

    const found = [...(await modesBelow(agentHome)), ...(await modesBelow(uploads))];
    const names = found.map(({ path }) => path.slice(home.length)).join('\n');
    for (const expected of [
      ...['svc-relay/state.db', 'svc-relay/state.db-wal', 'state.db.corrupt-', 'svc-relay-qr-secret', 'SOUL.md'],
      ...['memories/NOTES.md', 'images/inbox/clip_', 'companion/settings.json', 'operator-key.pem', '.png'],
      ...(hasProgram('tmux') ? ['svc-relay-tmux.conf'] : []),
    ]) {
      expect(names).toContain(expected);
    }
    const open = found.filter(({ mode, isDirectory }) => mode !== (isDirectory ? '700' : '600'));
    expect(open).toEqual([]);
    // The folders above the agent home, which did not exist either.
    expect(((await stat(join(home, 'agents'))).mode & 0o777).toString(8)).toBe('700');
  },
);

import { chmodSync, existsSync, lstatSync, symlinkSync } from 'node:fs';
import { mkdir, readFile, stat, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { expect, it } from 'vitest';
import type { Host } from '../../lib/host/index.ts';
import { unitText } from '../../lib/operator/service/unit.ts';
import { agentHome, run } from '../support/cli.ts';
import { begin } from '../support/companion-cli.ts';

async function put(path: string, text = 'x'.repeat(3000)): Promise<void> {
  await mkdir(dirname(path), { recursive: true });
  await writeFile(path, text);
}

const GOES = [
  ...['state.db', 'operator-key', 'mcp.json', 'relay.log', 'replaced-1/agent/.env'].map(
    (name) => `.svc/svc-relay/${name}`,
  ),
  ...['svc-relay-qr-secret', 'relay-secure-link/key.pem', 'relay-remote.json', 'svc-relay-tmux.conf'].map(
    (name) => `.svc/${name}`,
  ),
  '.svc/svc-pair-abcdefgh12345678.png',
  '.svc/images/inbox/clip_20261124_1.png',
  '.svc/images/inbox/clip_20261124_2.png',
  ...['voice-output-runs', 'realtime-voice-runs', 'realtime-agent-runs'].map(
    (name) => `.svc-relay/${name}/1/audio.wav`,
  ),
  '.svc-relay/use',
  '.config/fish/completions/svc.fish',
];
const STAYS = [
  '.svc/.env',
  '.svc/config.yaml',
  '.svc/images/inbox/mine.png',
  '.svc/memories/a.md',
  '.svc/svc-pair-mine.png',
  '.svc/companion/settings.json',
  '.svc-relay/config.yaml',
  '.svc-relay/auth/xai-oauth.json',
  '.config/fish/completions/git.fish',
];

const BASHRC = 'alias ll="ls -l"\nsource <(svc completion bash)\n# source <(svc completion bash)\nexport A=1\n';

/** A user's home with everything that a relay leaves, and what is not its own. */
async function used() {
  const home = agentHome();
  for (const name of [...GOES, ...STAYS]) await put(join(home, name), name.endsWith('.env') ? 'A=1\n' : undefined);
  await put(join(home, '.config/fish/completions/svc.fish'), '# Completes svc and svc-relay in fish.\nx\n');
  await put(join(home, 'dotfiles/bashrc'), BASHRC);
  chmodSync(join(home, 'dotfiles/bashrc'), 0o644);
  symlinkSync(join(home, 'dotfiles/bashrc'), join(home, '.bashrc'));
  // No systemd of this machine has a say, and no temporary folder of other tests.
  await mkdir(join(home, 'tmp'));
  const env = {
    HOME: home,
    SVC_HOME: join(home, '.svc'),
    RELAY_PORT: '1',
    PATH: '/nowhere',
    TMPDIR: join(home, 'tmp'),
  };
  const there = (names: string[]) => names.filter((name) => existsSync(join(home, name)));
  return { home, env, there, svc: (...words: string[]) => run(words, { env }) };
}

it('removes what the relay has put there, and lists what stays (11 §3)', async () => {
  const { home, env, there, svc } = await used();
  const unit = join(home, '.config/systemd/user/svc-relay.service');
  await put(unit, unitText({ node: '/usr/bin/node', script: '/x/svc-relay.js', agentHome: env.SVC_HOME }));
  const withHost = (host: Host): Host => ({
    ...host,
    files: {
      ...host.files,
      stat: (path) => host.files.stat(path.startsWith('/var/lib/systemd/linger/') ? home : path),
    },
  });
  const result = await run(['relay', 'uninstall', '--yes', '--json'], { env: { ...env, USER: 'ada' }, withHost });
  expect(existsSync(unit)).toBe(false);
  expect([result.code, result.stderr]).toEqual([0, '']);
  expect([there(GOES), there(STAYS)]).toEqual([[], STAYS]);
  const answer = JSON.parse(result.stdout);
  expect(answer).toMatchObject({
    ok: true,
    stopped: null,
    service: true,
    failed: [],
    edited: [join(home, '.bashrc')],
  });
  expect(answer.removed).toContain(join(home, '.svc/svc-relay'));
  const left = answer.left.map(({ path }: { path: string }) => path);
  for (const name of ['.svc/.env', '.svc-relay/config.yaml', '.svc/companion'])
    expect(left).toContain(join(home, name));
  expect(answer.left).toContainEqual({ path: 'linger', what: expect.stringContaining('loginctl disable-linger') });
  // The one line goes; the file stays what it was, behind its link.
  expect(await readFile(join(home, '.bashrc'), 'utf8')).toBe(BASHRC.replace('source <(svc completion bash)\n', ''));
  expect(lstatSync(join(home, '.bashrc')).isSymbolicLink()).toBe(true);
  expect((await stat(join(home, '.bashrc'))).mode & 0o777).toBe(0o644);

  const again = await svc('relay', 'uninstall');
  expect([again.code, again.stdout]).toEqual([
    0,
    expect.stringMatching(/^There is nothing of a relay in .*\. Next: remove the program/),
  ]);
});

it('a no, or nobody to ask, changes nothing', async () => {
  const { home, env, there, svc } = await used();
  const unasked = await svc('relay', 'uninstall');
  expect([unasked.code, unasked.stderr]).toEqual([2, expect.stringContaining('confirm with --yes')]);
  const json = await svc('relay', 'uninstall', '--json');
  expect([json.code, JSON.parse(json.stdout)]).toEqual([2, expect.objectContaining({ ok: false })]);

  const asking = begin(['relay', 'uninstall'], { home: env.SVC_HOME, env, tty: true, columns: 200 });
  await asking.prints(/Every device has to pair again with the next relay\. \[y\/N\]/);
  asking.type('n\n');
  const { code, stdout, stderr } = await asking.ended;
  expect([code, stderr]).toEqual([1, expect.stringMatching(/nothing was changed\n.*svc backup relay\.svc/)]);
  expect(stdout).toMatch(
    /This goes:[\s\S]*inbox +2 pictures from the clipboard[\s\S]*\/\.svc\/svc-relay +state: sessions/,
  );
  expect(stdout).toMatch(/This stays:[\s\S]*\.env +settings/);
  expect([there(GOES), there(STAYS)]).toEqual([GOES, STAYS]);
  expect(await readFile(join(home, '.bashrc'), 'utf8')).toBe(BASHRC);
});

it('of a file of the shell, only the line of the completions goes: not what changed while it asked, nor other bytes', async () => {
  const { home, env } = await used();
  const asking = begin(['relay', 'uninstall'], { home: env.SVC_HOME, env, tty: true, columns: 200 });
  await asking.prints(/Every device has to pair again with the next relay\. \[y\/N\]/);
  // `é` of Latin-1.
  const before = Buffer.from(`${BASHRC}export B=caf\xe9\n`, 'latin1');
  await writeFile(join(home, '.bashrc'), before);
  asking.type('y\n');
  expect((await asking.ended).code).toBe(0);
  const after = before.toString('latin1').replace('source <(svc completion bash)\n', '');
  expect(await readFile(join(home, '.bashrc'), 'latin1')).toBe(after);
});

it('a state elsewhere goes file by file, and the service of another home stays', async () => {
  const { home, env, there } = await used();
  const [data, other] = ['data/state.db', 'data/state.db-wal'].map((name) => join(home, name)) as [string, string];
  await put(data, '');
  await put(other);
  await put(join(home, 'data/state.db.corrupt-1764000000'));
  await put(join(home, 'data/state.dbx'));
  const unit = join(home, '.config/systemd/user/svc-relay.service');
  await put(unit, unitText({ node: '/usr/bin/node', script: '/x/svc-relay.js', agentHome: '/another/home' }));
  const result = await run(['relay', 'uninstall', '--yes', '--json'], { env: { ...env, RELAY_STATE_FILE: data } });
  expect(result.code).toBe(0);
  expect(there(['data/state.db', 'data/state.db-wal', 'data/state.db.corrupt-1764000000'])).toEqual([]);
  expect(there(['data/state.dbx'])).toEqual(['data/state.dbx']);
  expect(existsSync(unit)).toBe(true);
  expect(JSON.parse(result.stdout)).toMatchObject({
    service: false,
    left: expect.arrayContaining([expect.objectContaining({ path: unit })]),
  });
});

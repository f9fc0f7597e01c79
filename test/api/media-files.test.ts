import { execFileSync } from 'node:child_process';
import { mkdir, rename, rm, stat, symlink, truncate, utimes, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import type { Host } from '../../lib/host/index.ts';
import { createOpener, procDescriptorPath } from '../../lib/host/node/open-exact.ts';
import { startBuiltTarget } from '../support/built-relay.ts';
import { createTestClock } from '../support/clock.ts';
import { PNG, register, registered, statusOf } from '../support/media.ts';
import { setup } from '../support/media-home.ts';
import { temporaryDirectory } from '../support/temp.ts';

const errorOf = async (response: Promise<Response>) => {
  const answer = await response;
  const body = await answer.json();
  expect(Object.keys(body)).toEqual(['ok', 'error']);
  return [answer.status, body.error];
};

describe('POST /media/register (contract 04 §3.3)', () => {
  it('registers a file under a root with its type, name and flag', async () => {
    const { relay, device, workspace } = await setup();
    await writeFile(join(workspace, 'a.txt'), 'hello');
    const path = join(workspace, 'a.txt');
    const answer = await (await register(relay, path, { file_name: 'C:\\x\\b.txt', sensitive: 'YES' })).json();
    expect(answer).toEqual({ ok: true, token: expect.any(String), expires_at: expect.any(Number), sensitive: true });
    const got = await device.get(`/media/${answer.token}`);
    expect(await got.text()).toBe('hello');
    expect(got.headers.get('content-disposition')).toBe('inline; filename="b.txt"');
    expect(got.headers.get('x-media-sensitive')).toBe('1');
    expect(got.headers.get('content-security-policy')).toBe('sandbox');
    const plain = await device.get(`/media/${await registered(relay, path, { file_name: null })}`);
    expect(plain.headers.get('content-disposition')).toBe('inline');
    expect(plain.headers.has('x-media-sensitive')).toBe(false);
    const { media } = await (await relay.operator('/media/inspect')).json();
    expect(media.map(({ file_name }: { file_name: string }) => file_name)).toEqual(['a.txt', 'b.txt']);
  });

  it('§3.2: coerces the sensitive flag', async () => {
    const { relay, workspace } = await setup();
    await writeFile(join(workspace, 'a.txt'), 'x');
    for (const [value, expected] of [
      [true, true],
      [1, true],
      [-2, true],
      [' On ', true],
      ['1', true],
      [false, false],
      [0, false],
      [1.5, false],
      ['2', false],
      ['', false],
      [null, false],
      [[1], false],
    ] as const) {
      const answer = await (await register(relay, join(workspace, 'a.txt'), { sensitive: value })).json();
      expect([value, answer.sensitive]).toEqual([value, expected]);
    }
  });

  it('refuses with 400 and a sentence that names no path', async () => {
    const { relay, workspace, outside } = await setup({ RELAY_MEDIA_MAX_SIZE_MB: '1' });
    const at = (name: string) => join(workspace, name);
    await writeFile(at('a.txt'), 'x');
    await writeFile(at('large'), '');
    await truncate(at('large'), 1024 * 1024 + 1);
    execFileSync('mkfifo', [at('fifo')]);
    await symlink(join(outside, 'a.txt'), at('escape'));
    await symlink(at('a.txt'), at('link'));
    await symlink('/etc/passwd', at('passwd'));
    for (const [path, error] of [
      [undefined, 'path is missing or invalid'],
      [7, 'path is missing or invalid'],
      ['', 'path is missing or invalid'],
      ['a.txt', 'path is not absolute'],
      [`${at('a.txt')}\0.png`, 'path is not absolute'],
      ['/etc/passwd', 'path is in a protected location'],
      [at('passwd'), 'path is in a protected location'],
      ['/proc/self/environ', 'path is in a protected location'],
      [join(relay.agentHome, '.env'), 'path is in a protected location'],
      [join(outside, 'a.txt'), 'path is not under an allowed root'],
      [join(outside, 'none'), 'path is not under an allowed root'],
      [at('escape'), 'path is not under an allowed root'],
      [`${workspace}x/a.txt`, 'path is not under an allowed root'],
      [`${workspace}/../notes.txt`, 'path is not under an allowed root'],
      [at('none'), 'file does not exist'],
      [at('a.txt/x'), 'file does not exist'],
      [workspace, 'path is not a regular file'],
      [at('fifo'), 'path is not a regular file'],
      [at('large'), 'file is too large'],
    ] as const) {
      expect([path, ...(await errorOf(register(relay, path)))]).toEqual([path, 400, error]);
    }
    expect(await statusOf(register(relay, at('link')))).toBe(200);
    for (const more of [
      { content_type: undefined },
      { content_type: '' },
      { content_type: 'nonsense' },
      { content_type: 'a/b\r\nx: y' },
      { content_type: 7 },
      { file_name: 7 },
      { file_name: {} },
      { owned_file: true },
    ]) {
      expect([more, await statusOf(register(relay, at('a.txt'), more))]).toEqual([more, 400]);
    }
    for (const body of ['{', '[]', '"x"']) {
      expect(await statusOf(relay.operator('/media/register', { method: 'POST', body }))).toBe(400);
    }
    const big = { method: 'POST', body: JSON.stringify({ path: 'x'.repeat(2 * 1024 * 1024) }) };
    expect(await statusOf(relay.operator('/media/register', big))).toBe(413);
    expect(relay.relay.media?.count()).toBe(1);
  });

  it('§2: accepts further roots, also through links', async () => {
    const outside = await temporaryDirectory({ 'real/a.txt': 'x' });
    await symlink(join(outside, 'real'), join(outside, 'link'));
    const { relay } = await setup({ RELAY_MEDIA_ALLOWED_ROOTS: `relative: ${join(outside, 'link')} ::` });
    expect(await statusOf(register(relay, join(outside, 'real/a.txt')))).toBe(200);
    expect(await statusOf(register(relay, join(outside, 'link/a.txt')))).toBe(200);
    const workspace = await setup({ SVC_WORKSPACE: outside });
    expect(await statusOf(register(workspace.relay, join(outside, 'real/a.txt')))).toBe(200);
  });

  it('owned files must be direct children of the temporary directory with a known name, and go with their token', async () => {
    const { relay, tmp, device } = await setup({ RELAY_MEDIA_LRU_CAP: '1' });
    await mkdir(join(tmp, 'svc-relay-upload-dir'));
    const files = [
      'svc-relay-upload-x.png',
      'android_screenshot_1.png',
      'other.png',
      'svc-relay-upload-dir/svc-relay-upload-x',
    ];
    for (const name of files) await writeFile(join(tmp, name), PNG);
    for (const name of files.slice(2)) {
      expect([name, await statusOf(register(relay, join(tmp, name), { owned_file: true }))]).toEqual([name, 400]);
      expect((await stat(join(tmp, name))).isFile()).toBe(true);
    }
    await registered(relay, join(tmp, files[0] as string), { owned_file: true });
    await registered(relay, join(tmp, files[1] as string), { owned_file: 1 });
    await relay.relay.media?.sweep();
    await expect(stat(join(tmp, files[0] as string))).rejects.toThrow('ENOENT');
    await device.put(PNG);
    await relay.relay.media?.sweep();
    expect((await stat(join(tmp, files[1] as string))).isFile()).toBe(true);
  });
});

describe('GET /media/{token} of a file that changes (contract 04 §3.6)', () => {
  it('is 404 once it is gone, replaced by a link, a directory or a FIFO, or in a protected place', async () => {
    const { relay, device, workspace, outside } = await setup();
    const path = join(workspace, 'dir/a.txt');
    await mkdir(join(workspace, 'dir'));
    await writeFile(path, 'one');
    const token = await registered(relay, path);
    const status = () => statusOf(device.get(`/media/${token}`));
    await writeFile(path, 'another');
    const changed = await device.get(`/media/${token}`);
    expect([changed.headers.get('content-length'), await changed.text()]).toEqual(['7', 'another']);
    await rm(path);
    expect(await status()).toBe(404);
    await symlink(join(outside, 'a.txt'), path);
    expect(await status()).toBe(404);
    await rm(path);
    await mkdir(path);
    expect(await status()).toBe(404);
    await rm(path, { recursive: true });
    execFileSync('mkfifo', [path]);
    expect(await status()).toBe(404);
    await rm(path);
    await writeFile(path, 'back');
    expect(await status()).toBe(200);
    await rename(join(workspace, 'dir'), join(workspace, 'kept'));
    await symlink(outside, join(workspace, 'dir'));
    expect(await status()).toBe(404);
    // The same place, protected from now on.
    await rm(join(workspace, 'dir'));
    await rename(join(workspace, 'kept'), join(workspace, 'dir'));
    await symlink(join(workspace, 'dir'), join(relay.agentHome, '.ssh'));
    expect(await status()).toBe(404);
  });
});

it('a file that cannot be opened for lack of descriptors is neither gone nor refused: 503, and later 200', async () => {
  let isFailing = false;
  const open = createOpener((fd) =>
    isFailing ? Promise.reject(Object.assign(new Error('EMFILE'), { code: 'EMFILE' })) : procDescriptorPath(fd),
  );
  const withHost = (host: Host): Host => ({ ...host, media: { ...host.media, open } });
  const { relay, device, workspace, byPath } = await setup({}, { withHost });
  const path = join(workspace, 'a.txt');
  await writeFile(path, 'x');
  const token = await registered(relay, path);
  const statuses = () =>
    Promise.all([device.get(`/media/${token}`), byPath(path), register(relay, path)].map((answer) => statusOf(answer)));
  isFailing = true;
  expect(await statuses()).toEqual([503, 503, 503]);
  isFailing = false;
  expect(await statuses()).toEqual([200, 200, 200]);
});

describe('GET /media/by-path (contract 04 §3.7)', () => {
  it('never serves the files with the settings of voice and the tokens of xAI', async () => {
    const secrets = await temporaryDirectory({
      'output.yaml': 'x',
      'realtime.yaml': 'x',
      'xai.json': 'x',
      'a.txt': 'x',
    });
    const { byPath } = await setup({
      RELAY_VOICE_OUTPUT_CONFIG: join(secrets, 'output.yaml'),
      RELAY_REALTIME_VOICE_CONFIG: join(secrets, 'realtime.yaml'),
      RELAY_REALTIME_VOICE_XAI_OAUTH_PATH: join(secrets, 'xai.json'),
    });
    expect(await statusOf(byPath(join(secrets, 'a.txt')))).toBe(200);
    for (const name of ['output.yaml', 'realtime.yaml', 'xai.json']) {
      expect(await statusOf(byPath(join(secrets, name)))).toBe(403);
    }
  });

  it('serves by path, guesses the type, takes a hint and carries the flag', async () => {
    const { byPath, outside } = await setup();
    await writeFile(join(outside, 'Größe.PNG'), PNG);
    const got = await byPath(` ${join(outside, 'Größe.PNG')} `);
    expect([got.status, got.headers.get('content-type')]).toEqual([200, 'image/png']);
    expect(got.headers.get('content-disposition')).toContain(`filename*=UTF-8''Gr%C3%B6%C3%9Fe.PNG`);
    expect(Buffer.from(await got.arrayBuffer()).equals(PNG)).toBe(true);
    const typeOf = async (name: string, more: string) =>
      (await byPath(join(outside, name), more)).headers.get('content-type');
    expect(await typeOf('a.txt', '')).toBe('text/plain');
    expect(await typeOf('a.txt', '&content_type=%20text/markdown%20')).toBe('text/markdown');
    expect(await typeOf('a.txt', '&content_type=a%0d%0ab')).toBe('text/plain');
    expect(await typeOf('Größe.PNG', '&content_type=image/jpeg')).toBe('image/png');
    expect((await byPath(join(outside, 'a.txt'), '&sensitive=yes')).headers.get('x-media-sensitive')).toBe('1');
    expect((await byPath(join(outside, 'a.txt'), '&sensitive=no')).headers.has('x-media-sensitive')).toBe(false);
    const part = await byPath(join(outside, 'a.txt'), '&x=1');
    expect(part.headers.get('accept-ranges')).toBe('bytes');
  });

  it('refuses with the statuses of the contract', async () => {
    const { relay, byPath, device, outside } = await setup({ RELAY_MEDIA_MAX_SIZE_MB: '1' });
    const at = (name: string) => join(outside, name);
    await writeFile(at('large'), '');
    await truncate(at('large'), 1024 * 1024 + 1);
    execFileSync('mkfifo', [at('fifo')]);
    await symlink('/etc/shadow', at('shadow'));
    for (const query of ['', '?path=', '?path=%20%20', '?PATH=/tmp']) {
      const [status, error] = (await errorOf(device.get(`/media/by-path${query}`))) as [number, string];
      expect([query, status, error.includes('path')]).toEqual([query, 400, true]);
    }
    for (const [path, status] of [
      ['relative.txt', 403],
      [`${at('a.txt')}\0`, 403],
      ['/etc/passwd', 403],
      ['/etc/none-of-that', 403],
      ['//etc/passwd', 403],
      ['/tmp/../etc/passwd', 403],
      ['/proc/self/environ', 403],
      ['/proc/self/root/etc/passwd', 403],
      ['/proc/self/fd/0', 403],
      ['/dev/zero', 403],
      ['/dev/stdin', 403],
      ['/sys/kernel/notes', 403],
      [at('shadow'), 403],
      [join(relay.agentHome, 'profiles/work/.env'), 403],
      [join(relay.agentHome, 'svc-relay/state.db'), 403],
      [at('large'), 403],
      [at('none'), 404],
      [outside, 404],
      [at('fifo'), 404],
    ] as const) {
      expect([path, (await errorOf(byPath(path)))[0]]).toEqual([path, status]);
    }
  });

  it('in the strict sandbox serves only what could be registered', async () => {
    const { byPath, outside, workspace } = await setup({ RELAY_MEDIA_STRICT_SANDBOX: 'on' });
    await writeFile(join(workspace, 'a.txt'), 'inside');
    expect(await (await byPath(join(workspace, 'a.txt'))).text()).toBe('inside');
    expect(await statusOf(byPath(join(outside, 'a.txt')))).toBe(403);
    expect(await statusOf(byPath(join(outside, 'none')))).toBe(403);
  });

  it('§4: translates container paths, which bypass no check', async () => {
    const outside = await temporaryDirectory({ 'a.txt': 'mounted', '.netrc': 'x' });
    const { byPath, relay } = await setup({
      TERMINAL_ENV: 'docker',
      TERMINAL_DOCKER_VOLUMES: JSON.stringify([`${outside}:/mnt`, '/etc:/config']),
    });
    const images = join(relay.agentHome, 'images');
    await mkdir(images);
    await writeFile(join(images, 'a.png'), PNG);
    expect(await (await byPath('/mnt/a.txt')).text()).toBe('mounted');
    expect(await statusOf(byPath('/root/.svc/images/a.png'))).toBe(200);
    expect(await statusOf(byPath('/config/passwd'))).toBe(403);
    expect(await statusOf(byPath('/root/.svc/.env'))).toBe(403);
    expect(await statusOf(byPath('/mnt/none'))).toBe(404);
  });
});

it('§1.3: neither file names nor tokens are logged', async () => {
  const { relay, device, byPath, workspace } = await setup();
  await writeFile(join(workspace, 'private-name.txt'), 'x');
  const token = await registered(relay, join(workspace, 'private-name.txt'), { file_name: 'private-name.txt' });
  await device.get(`/media/${token}`);
  await byPath(join(workspace, 'private-name.txt'));
  await byPath('/etc/private-name.txt');
  await device.put(PNG, 'private-name.png');
  const forwarded = { method: 'POST', headers: { 'x-forwarded-for': '203.0.113.7' } };
  expect(await statusOf(relay.fetch(`/media/${token}/sensitive`, forwarded))).toBe(403);
  const log = relay.log.join('\n');
  expect(log).toMatch(/added media: 1 bytes, text\/plain, sensitive false/);
  expect(log).toContain('refused an operator call from 127.0.0.1 to /media/{token}/sensitive');
  for (const secret of ['private-name', token, token.slice(0, 8), workspace]) expect(log).not.toContain(secret);
});

it('§3.1: uploads left by an earlier run are removed once their tokens have expired', async () => {
  const old = await setup();
  const names = ['svc-relay-upload-old.png', 'svc-relay-upload-new.png', 'other-old.png'];
  for (const name of names) await writeFile(join(old.tmp, name), 'x');
  for (const name of [names[0], names[2]]) await utimes(join(old.tmp, name as string), new Date(0), new Date(0));
  const relay = await startBuiltTarget({ hostEnv: () => ({ PATH: '', HOME: old.relay.agentHome, TMPDIR: old.tmp }) });
  onTestFinished(() => relay.stop());
  await expect
    .poll(() =>
      stat(join(old.tmp, names[0] as string)).then(
        () => 'there',
        () => 'gone',
      ),
    )
    .toBe('gone');
  for (const name of names.slice(1)) expect((await stat(join(old.tmp, name))).isFile()).toBe(true);
});

it('uploads and temporary files of killed relays are removed while another one runs', async () => {
  const clock = createTestClock(Date.now());
  const relay = await startBuiltTarget({
    clock,
    hostEnv: (home) => ({ PATH: '', HOME: home, TMPDIR: join(home, 'tmp') }),
  });
  onTestFinished(() => relay.stop());
  // No process has so large an id.
  const nameOf = (pid: number) => `svc-relay-upload-${pid.toString(36).padStart(6, '0')}zz${'a'.repeat(16)}.png`;
  const [dead, living] = [2 ** 22 + 1, process.ppid];
  const put = async (path: string) => {
    await mkdir(dirname(join(relay.agentHome, path)), { recursive: true });
    await writeFile(join(relay.agentHome, path), 'x');
  };
  const temporary = (pid: number) => `.svc-relay-${pid}-${'0'.repeat(24)}.tmp`;
  const gone = [`tmp/${nameOf(dead)}`, temporary(dead), `images/inbox/${temporary(dead)}`];
  gone.push(`profiles/work/${temporary(dead)}`, `tmp/svc-relay-voice-${dead}-abcdefgh-x/audio.wav`);
  const kept = [`tmp/${nameOf(living)}`, 'tmp/svc-relay-upload-of-the-agent.png', temporary(living)];
  for (const path of [...gone, ...kept]) await put(path);
  const there = async (paths: string[]) => {
    const found = await Promise.all(paths.map((path) => stat(join(relay.agentHome, path)).catch(() => null)));
    return paths.filter((_, at) => found[at] !== null);
  };
  await clock.advanceAsync(300_000);
  await expect.poll(() => there(gone)).toEqual([]);
  expect(await there(kept)).toEqual(kept);
});

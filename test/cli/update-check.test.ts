import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { agentHome, fakeRelay, type Reply, run } from '../support/cli.ts';

async function feed(reply: Reply | 'hang') {
  const { port, seen } = await fakeRelay(() => reply);
  const home = agentHome();
  const env = { SVC_HOME: home, HOME: home, RELAY_PORT: 'bad', RELAY_UPDATE_FEED_URL: `http://127.0.0.1:${port}/feed` };
  const check = (...words: string[]) =>
    run(['relay', 'update-check', ...words], { env, ownPackage: { version: '1.0.0', directory: null } });
  return { env, seen, check };
}

const releases = (...tags: string[]): Reply => ({ body: tags.map((tag_name) => ({ tag_name, draft: false })) });

describe('update-check (07 §5.3): always exit 0', () => {
  test('a newer release', async () => {
    const { seen, check } = await feed(releases('server-v1.2.0', 'server-v1.10.0-rc1', 'app-v9.0.0'));
    const { code, stdout, stderr } = await check('--json');
    expect([code, stderr]).toEqual([0, '']);
    expect(JSON.parse(stdout)).toEqual({
      current: '1.0.0',
      latest: '1.10.0',
      update_available: true,
      update_command: null,
    });
    expect(seen[0]?.headers.authorization).toBeUndefined();
    expect((await check()).stdout).toMatch(/^Update available: svc-relay 1\.0\.0 -> 1\.10\.0\nNext: install it /);
  });

  test('names a command that works for this installation (01 §8.3)', async () => {
    const commandIn = async (directory: string) => {
      const { env } = await feed(releases('server-v1.2.0'));
      return JSON.parse(
        (await run(['relay', 'update-check', '--json'], { env, ownPackage: { version: '1.0.0', directory } })).stdout,
      );
    };
    const global = await commandIn('/usr/lib/node_modules/svc-relay');
    expect(global.update_command).toBe('npm install -g svc-relay@1.2.0');
    const checkout = agentHome();
    expect((await commandIn(checkout)).update_command).toBeNull();
    await mkdir(join(checkout, '.git'));
    expect((await commandIn(checkout)).update_command).toBe('git pull && npm install');
  });

  test('no newer release', async () => {
    const { check } = await feed(releases('server-v1.0.0', 'server-v0.9.0'));
    const { code, stdout, stderr } = await check();
    expect([code, stderr]).toEqual([0, '']);
    expect(stdout).toBe('Up to date: svc-relay 1.0.0 (latest release 1.0.0)\n');
  });

  test.each([
    ['broken', { status: 500 } as Reply, 'answered 500'],
    ['no list', { body: { a: 1 } } as Reply, 'not a list'],
    ['slow', 'hang' as const, 'in time'],
  ])('the feed is %s', async (_name, reply, said) => {
    const { check } = await feed(reply);
    // A feed that answers gets the time that a busy machine may need.
    const timeout = ['--timeout', reply === 'hang' ? '0.3' : '30'];
    const { code, stdout, stderr } = await check('--json', ...timeout);
    expect([code, stderr]).toEqual([0, '']);
    expect(JSON.parse(stdout)).toEqual({
      current: '1.0.0',
      latest: null,
      update_available: false,
      update_command: null,
      error: expect.stringContaining(said),
    });
    const text = await check(...timeout);
    expect([text.code, text.stdout]).toEqual([0, '']);
    expect(text.stderr).toMatch(/^warning: cannot tell[\s\S]*RELAY_UPDATE_FEED_URL/);
  });

  test('without a feed, it asks to set one', async () => {
    const { code, stdout, stderr } = await run(['relay', 'update-check'], { env: { SVC_HOME: agentHome() } });
    expect([code, stdout]).toEqual([0, '']);
    expect(stderr).toMatch(/no release feed is configured\nSet RELAY_UPDATE_FEED_URL: /);
    const json = await run(['relay', 'update-check', '--json'], { env: { SVC_HOME: agentHome() } });
    expect(JSON.parse(json.stdout)).toMatchObject({ latest: null, error: 'no release feed is configured' });
  });

  test('an invalid number is a usage error', async () => {
    const { check } = await feed('hang');
    expect((await check('--timeout', '-1')).code).toBe(2);
    expect((await check('--timeout=-1')).stderr).toContain('--timeout: must be a number of seconds');
  });
});

import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { beforeEach, describe, expect, it, vi } from 'vitest';
import { defaultSettings } from '../../lib/companion/safety-settings.ts';
import { type BuiltTarget, cleanups, startBuiltTarget } from '../support/built-relay.ts';
import { agentHome } from '../support/cli.ts';
import { begin, paired, run } from '../support/companion-cli.ts';
import { TIMEOUT } from '../support/limits.ts';
import { bearer } from '../support/relay.ts';

const settingsOf = async (home: string) => JSON.parse(await readFile(join(home, 'companion/settings.json'), 'utf8'));
const json = async (home: string, ...words: string[]) => {
  const { code, stdout, stderr } = await run(['companion', ...words, '--json'], { home });
  expect([code, stderr]).toEqual([0, '']);
  return JSON.parse(stdout);
};

describe('svc companion trusted and blocklist', () => {
  it('list, add and remove under the keys of the specification, and name the next step', async () => {
    const home = agentHome();
    expect(await json(home, 'trusted')).toEqual({ bridge_trusted_destructive_verbs: [] });
    expect((await run(['companion', 'trusted'], { home })).stdout).toMatch(/asks before[\s\S]*\nNext: .*trusted add/);
    await run(['companion', 'trusted', 'add', 'Send_SMS', 'buy', 'buy'], { home });
    expect((await settingsOf(home)).safety).toEqual({ bridge_trusted_destructive_verbs: ['send_sms', 'buy'] });
    const shown = await run(['companion', 'trusted', 'remove', 'send_sms'], { home });
    expect(shown.stdout).toMatch(/^Trusted.*\n {2}buy\n.*blocklist.*\nNext: svc companion trusted remove buy/);

    expect(await json(home, 'blocklist')).toEqual({ blocklist: defaultSettings().blocklist });
    await run(['companion', 'blocklist', 'add', 'org.example.shop', 'org.example.shop'], { home });
    const { blocklist } = await json(home, 'blocklist', 'remove', 'com.venmo');
    expect([blocklist.length, blocklist.at(-1), blocklist.includes('com.venmo')]).toEqual([
      28,
      'org.example.shop',
      false,
    ]);
    expect(await json(home, 'blocklist', 'remove', ...blocklist)).toEqual({ blocklist: [] });
    // An emptied list stays empty (contract 03 §8.6).
    expect((await settingsOf(home)).safety.blocklist).toEqual([]);
    expect((await run(['companion', 'blocklist'], { home })).stdout).toMatch(/^No app is blocked/);
    expect((await json(home, 'blocklist', 'reset')).blocklist).toHaveLength(28);
    const { blocklist: blocked, ...status } = await json(home, 'status');
    expect([blocked.length, status.bridge_trusted_destructive_verbs]).toEqual([28, ['buy']]);
    expect((await run(['companion', 'status'], { home })).stdout).toMatch(
      /Trusted +buy\n +Blocked +28 apps\n +Triggers +off/,
    );
  });

  it.each([
    [['trusted', 'add'], 2, /missing <verbs>/],
    [['trusted', 'add', 'send_smss'], 2, /did you mean 'send_sms'/],
    [['trusted', 'forget', 'x'], 2, /unknown action/],
    [['trusted', 'list', 'x'], 2, /unexpected argument 'x'/],
    [['trusted', 'remove', 'buy'], 1, /'buy' is not trusted\nList .* svc companion trusted$/],
    [['blocklist', 'add', 'shop'], 2, /'shop' must be a package name such as org\.example\.app/],
    [['blocklist', 'add', `org.${'x'.repeat(300)}`], 2, /must be a package name/],
    [['blocklist', 'reset', 'x.y'], 2, /unexpected argument/],
    [['blocklist', 'remove', 'x.y'], 1, /x\.y is not on the blocklist\nList it with: svc companion blocklist$/],
  ])('%j exits with %i, an error and the next step, and changes nothing', async (words, code, error) => {
    const home = agentHome();
    const result = await run(['companion', ...words], { home });
    expect([result.code, result.stdout]).toEqual([code, '']);
    expect(result.stderr.trimEnd()).toMatch(error);
    if (code === 2) expect(result.stderr).toMatch(/--help' for help\.\n$/);
    expect((await run(['companion', 'trusted', '--json'], { home })).stdout).toContain('[]');
  });
});

describe('while svc companion run acts as the phone', () => {
  const pending = cleanups();
  let relay: BuiltTarget;
  beforeEach(async () => {
    relay = await startBuiltTarget();
    pending.push(() => relay.stop());
  });

  async function scene() {
    const home = await paired(relay.port);
    const { stdout } = await run(['pair', '--token', '--name', 'curl'], { env: { RELAY_PORT: String(relay.port) } });
    const call = (path: string, body: object) =>
      relay
        .fetch(path, { method: 'POST', headers: bearer(stdout.trim()), body: JSON.stringify(body) })
        .then(async (response) => ({ status: response.status, body: await response.json() }));
    const start = async () => {
      const companion = begin(['companion', 'run', '--json', '--master', 'on', '--grant', 'all'], { home });
      await companion.prints(/"state":"online"/);
      await vi.waitFor(async () => expect((await call('/setup', {})).status).toBe(200), {
        timeout: TIMEOUT,
      });
      return companion;
    };
    return { home, call, start };
  }
  const text = { to: '+15550101', body: 'hello' };

  it('trusts for good what the command added, and until the end what "always" allowed', async () => {
    const { home, call, start } = await scene();
    await run(['companion', 'trusted', 'add', 'send_sms'], { home });
    const first = await start();
    expect((await call('/send_sms', text)).status).toBe(200);
    const calling = call('/call', { number: '+15550101' });
    await first.prints(/"event":"confirm"/);
    first.type('{"allow":true,"dont_ask_again":true}\n');
    expect((await calling).status).toBe(200);
    expect((await call('/call', { number: '+15550101' })).status).toBe(200);
    expect(first.events('confirm')).toMatchObject([{ verb: 'call' }]);

    // The running phone holds its settings in memory.
    const refused = await run(['companion', 'trusted', 'remove', 'send_sms'], { home });
    expect([refused.code, refused.stderr]).toEqual([1, expect.stringMatching(/is running.*\n.*Stop it first.*\n$/)]);
    first.type('{"quit":true}\n');
    await first.ended;
    expect(await json(home, 'trusted')).toEqual({ bridge_trusted_destructive_verbs: ['send_sms'] });

    const second = await start();
    expect((await call('/send_sms', text)).status).toBe(200);
    const asked = call('/call', { number: '+15550101' });
    await second.prints(/"event":"confirm"/);
    second.type('{"allow":false}\n');
    expect((await asked).status).toBe(403);
  });

  it('lets the master toggle and the blocklist refuse whatever is trusted (contract 03 §8.3)', async () => {
    const { home, call, start } = await scene();
    await run(['companion', 'trusted', 'add', 'buy', 'send_sms'], { home });
    await run(['companion', 'blocklist', 'add', 'org.example.shop'], { home });
    const companion = await start();
    const blocked = { status: 403, body: { error: 'blocked package org.example.shop' } };
    expect(await call('/open_app', { package: 'org.example.shop' })).toMatchObject(blocked);
    expect((await call('/send_sms', text)).status).toBe(200);
    companion.type('{"master":false}\n');
    await vi.waitFor(() => expect(companion.events('settings').at(-1)).toMatchObject({ master: false }));
    expect(await call('/send_sms', text)).toMatchObject({ status: 403, body: { error_code: 'bridge_disabled' } });
    expect(companion.events('confirm')).toEqual([]);
  });
});

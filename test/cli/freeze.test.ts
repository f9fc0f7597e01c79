import { beforeEach, describe, expect, it } from 'vitest';
import { type BuiltTarget, cleanups, startBuiltTarget } from '../support/built-relay.ts';
import { fakeRelay } from '../support/cli.ts';
import { begin, run } from '../support/companion-cli.ts';
import { bearer, pair, post } from '../support/relay.ts';

/** Neither an agent nor a dashboard answers. */
const NOBODY = { SVC_API_URL: 'http://127.0.0.1:1', SVC_DASHBOARD_URL: 'http://127.0.0.1:1' };

const pending = cleanups();
let relay: BuiltTarget;
beforeEach(async () => {
  relay = await startBuiltTarget();
  pending.push(() => relay.stop());
});

const svc = (...words: string[]) => run(words, { env: { ...NOBODY, RELAY_PORT: String(relay.port) } });
const json = async (...words: string[]) => JSON.parse((await svc(...words, '--json')).stdout);
const FROZEN = { since: expect.any(Number), by: 'operator', reason: 'lost my phone' };

describe('svc freeze and unfreeze (contract 09 §3)', () => {
  it('freezes and unfreezes the relay, and says how to go on in the last line', async () => {
    const frozen = await svc('freeze', 'lost', 'my', 'phone');
    expect([frozen.code, frozen.stderr]).toEqual([0, '']);
    expect(frozen.stdout).toMatch(/^Frozen by operator for \d+ s: lost my phone\.\n.*\nsvc unfreeze ends it\.\n$/);
    expect(relay.relay.gate.state()).toMatchObject({ by: 'operator', reason: 'lost my phone' });
    expect(await json('freeze', 'another reason')).toEqual({ frozen: true, ...FROZEN });
    const thawed = await svc('unfreeze');
    expect(thawed).toMatchObject({ code: 0, stderr: '' });
    expect(thawed.stdout).toMatch(/^Not frozen: .*\nSee which are connected with: svc devices\n$/);
    expect(relay.relay.gate.state()).toBeUndefined();
    expect(await json('unfreeze')).toEqual({ frozen: false });
    expect((await svc('freeze')).stdout).toMatch(/^Frozen by operator for \d+ s\.\n/);
    expect((await svc('unfreeze', 'now')).code).toBe(2);
  });

  it('says that a freeze which could not be stored is in effect, and names the relay of --relay', async () => {
    const failing = await fakeRelay(() => ({
      status: 503,
      body: { ok: false, error: 'the relay is frozen, but not stored', applied: true },
    }));
    const { code, stderr } = await run(['freeze'], { env: { RELAY_PORT: String(failing.port) } });
    expect([code, stderr]).toEqual([1, expect.stringMatching(/^error: the relay is frozen, but .*\n.*svc status\n$/)]);
    const help = await run(['freeze', '--help']);
    for (const part of ['--relay', '--json', 'svc freeze "lost my phone"']) expect(help.stdout).toContain(part);
  });

  it('status, devices, doctor and pair --check say it in their first line, and in their JSON', async () => {
    await pair(relay, { device: { device_name: 'Pixel 9' } });
    for (const words of [['status'], ['devices'], ['relay', 'doctor']]) {
      expect((await svc(...words)).stdout, words.join(' ')).not.toMatch(/frozen/i);
      expect(await json(...words)).toMatchObject({ frozen: null });
    }
    await svc('freeze', 'lost my\u202e phone');
    for (const words of [['status'], ['devices'], ['relay', 'doctor']]) {
      expect((await svc(...words)).stdout, words.join(' ')).toMatch(
        /^Frozen by operator for \d+ s: lost my phone\. End it with: svc unfreeze\n/,
      );
      expect(await json(...words)).toMatchObject({ frozen: FROZEN });
    }
    const check = await svc('pair', '--check');
    expect(check.stdout).toMatch(/^ +\[WARN\] relay: .*frozen.*\n +End the freeze with: svc unfreeze\n/);
  });

  it('devices watch shows it as it begins and ends', async () => {
    const env = { RELAY_PORT: String(relay.port) };
    const lines = begin(['devices', 'watch'], { env });
    const script = begin(['devices', 'watch', '--json'], { env });
    const screen = begin(['devices', 'watch'], { env, tty: true });
    await lines.prints(/No device is paired/);
    await script.prints(/"event":"devices"/);
    await screen.prints(/Devices of/);
    await svc('freeze', 'wait');
    await lines.prints(/Frozen by operator for \d+ s: wait\n/);
    await script.prints(/"event":"freeze".*"frozen":true.*"reason":"wait"/);
    await screen.prints(/HFrozen by operator for \d+ s: wait\. End it with: svc unfreeze/);
    await svc('unfreeze');
    await lines.prints(/No longer frozen\.\n/);
    await script.prints(/"event":"freeze".*"frozen":false/);
  });

  it('§9: status shows who sent the last commands', async () => {
    const { token, prefix } = await pair(relay, { device: { device_name: 'codex' } });
    expect(await json('status')).toMatchObject({ commands: [] });
    await svc('freeze');
    expect((await relay.fetch('/screen', { headers: bearer(token) })).status).toBe(423);
    const { commands } = await json('status');
    const actor = { kind: 'session', name: 'codex', prefix };
    expect(commands).toMatchObject([{ method: 'GET', path: '/screen', decision: 'frozen', actor }]);
    expect((await svc('status')).stdout).toMatch(
      new RegExp(` {2}Last call +GET /screen by codex \\(session ${prefix}\\), \\d+ s ago: frozen\\n`),
    );
    expect((await svc('logs')).stdout).toMatch(/\[WARNING\] gate: frozen by operator/);

    const headers = bearer(token);
    expect((await relay.fetch('/tap', { ...post({ x: 1, y: 2 }), headers })).status).toBe(423);
    // Calls of the same millisecond have no order.
    const tapped = Date.now();
    await expect.poll(Date.now).toBeGreaterThan(tapped);
    expect((await relay.fetch('/desktop/desktop_terminal', { ...post({}), headers })).status).toBe(423);
    expect((await json('status')).commands).toMatchObject([
      { method: 'POST', path: '/desktop/desktop_terminal', device_name: null, decision: 'frozen', actor },
      { path: '/tap', actor },
      { path: '/screen', actor },
    ]);
    const { stdout } = await svc('logs');
    const line = (text: string) => new RegExp(`\\[INFO\\] ${text}: frozen - in \\d+ ms for session codex ${prefix}\\n`);
    expect(stdout).toMatch(line('bridge: GET /screen on no phone'));
    expect(stdout).toMatch(line('desktop: desktop_terminal on no desktop'));
    // Whoever tries again fills no log.
    expect(stdout).not.toMatch(line('bridge: POST /tap on no phone'));
  });
});

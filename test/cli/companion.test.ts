import { readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { beforeEach, describe, expect, it, vi } from 'vitest';
import type { CommandRow, SimulatedPhoneDeps } from '../../cli/companion/phone.ts';
import type { CommandContext } from '../../cli/output.ts';
import type { AnsweredCommand } from '../../lib/companion/link/commands.ts';
import type { Phone } from '../../lib/companion/phone.ts';
import type { PhoneAnswer, PhoneCommand } from '../../lib/companion/types.ts';
import { base64url, utf8ToBytes } from '../../lib/kit/bytes.ts';
import { type BuiltTarget, cleanups, startBuiltTarget } from '../support/built-relay.ts';
import { agentHome, fakeRelay } from '../support/cli.ts';
import { closedPort } from '../support/closed-port.ts';
import { begin, paired, payloadFor, run, type Setting } from '../support/companion-cli.ts';

/** A stand-in for the phone: it asks before `/call`. */
const createPhone = (({ settings, confirm }: Pick<SimulatedPhoneDeps, 'settings' | 'confirm'>) => {
  const phone = {
    async handle({ requestId, path }: PhoneCommand): Promise<PhoneAnswer> {
      if (!settings.get().masterEnabled && path !== '/ping') {
        return { status: 403, result: { error_code: 'bridge_disabled' }, blocked: true };
      }
      if (path !== '/call') return { status: 200, result: { ok: true } };
      const question = { requestId, verb: 'call', title: 'Call \u001b[31m555?', detail: 'Ann', timeoutMs: 20_000 };
      const decision = await confirm(question);
      const allowed = typeof decision === 'boolean' ? decision : decision.allowed;
      return allowed ? { status: 200, result: { decision } } : { status: 403, result: { error_code: 'user_denied' } };
    },
    status: () => ({ device: { name: 'mock' }, bridge: { master_enabled: settings.get().masterEnabled } }),
    onStatusChange: (listener: () => void) => settings.onChange(listener),
    close() {},
  } as unknown as Phone;
  const rowOf = ({ command, answer, durationMs }: AnsweredCommand): CommandRow => ({
    ...command,
    summary: 'summary',
    decision: answer.status < 400 ? 'executed' : 'refused',
    status: answer.status,
    durationMs,
  });
  const notifications = { onNotification: () => () => {}, post() {}, receiveSms() {}, appName: async () => '' };
  return { phone, trackRows: () => ({ rowOf, stop() {} }), screen: async () => [], ...notifications };
}) as unknown as NonNullable<CommandContext['createPhone']>;

/** Starts `svc companion run` with that phone. */
const runCompanion = (words: string[], setting: Setting) =>
  begin(['companion', 'run', ...words], { createPhone, ...setting });

const pending = cleanups();
let relay: BuiltTarget;
beforeEach(async () => {
  relay = await startBuiltTarget();
  pending.push(() => relay.stop());
});

const settingsOf = async (home: string) => JSON.parse(await readFile(join(home, 'companion/settings.json'), 'utf8'));
const bearer = (token: string) => ({ authorization: `Bearer ${token}` });

it('the name of svc companion pair survives run, which may give another (issue 26)', async () => {
  const home = agentHome();
  const { payload } = await payloadFor(relay.port);
  await run(['companion', 'pair', '-', '--name', 'Kitchen'], { home, input: payload });
  const names = async () => {
    const answer = await (
      await fetch(`http://127.0.0.1:${relay.port}/relay/devices`, { headers: { 'x-svc-operator': '1' } })
    ).json();
    return (answer as { devices: { device_name: string }[] }).devices.map(({ device_name: name }) => name);
  };
  expect(await names()).toEqual(['Kitchen']);
  for (const [words, expected] of [
    [[], 'Kitchen'],
    [['--name', 'Garden'], 'Garden'],
  ] as const) {
    const companion = runCompanion([...words, '--json'], { home });
    await companion.prints(/"state":"online"/);
    await expect.poll(names).toEqual([expected]);
    companion.stop();
    await companion.ended;
  }
});

describe('svc companion pair', () => {
  it('reads stdin, stores the session 0600, and prints the pairing and the next step but no credential', async () => {
    const home = agentHome();
    const { code, payload } = await payloadFor(relay.port);
    const result = await run(['companion', 'pair', '-', '--name', 'Test phone'], { home, input: `${payload}\n` });
    expect([result.code, result.stderr]).toEqual([0, '']);
    expect(result.stdout).toContain(`ws://127.0.0.1:${relay.port}/ws (version 1.0.0)`);
    expect(result.stdout).toContain('Test phone');
    expect(result.stdout).toMatch(/Next: .*svc companion run\n$/);
    const { pairing, device_id: deviceId } = await settingsOf(home);
    expect((await stat(join(home, 'companion/settings.json'))).mode & 0o777).toBe(0o600);
    for (const secret of [code, pairing.session_token, pairing.refresh_token]) {
      expect(result.stdout + relay.log.join('\n')).not.toContain(secret);
    }
    const rows = await (await relay.fetch('/sessions', { headers: bearer(pairing.session_token) })).json();
    expect(rows.sessions).toMatchObject([
      { device_name: 'Test phone', device_id: deviceId, client_surface: 'android', device_form_factor: 'phone' },
    ]);
  });

  it('finds the link in the output of svc pair or takes it as an argument; --json prints one document', async () => {
    for (const inText of [true, false]) {
      const { payload } = await payloadFor(relay.port);
      const link = `svc-relay://pair?payload=${base64url(utf8ToBytes(payload))}`;
      const home = agentHome();
      const words = inText ? ['companion', 'pair'] : ['companion', 'pair', link];
      const result = await run([...words, '--json'], { home, input: inText ? `Link\n  ${link}\n\nWarning: …\n` : '' });
      expect(result.code, result.stderr).toBe(0);
      expect(JSON.parse(result.stdout)).toMatchObject({
        paired: true,
        url: `ws://127.0.0.1:${relay.port}/ws`,
        server_version: '1.0.0',
        pin: null,
        settings: join(home, 'companion/settings.json'),
      });
    }
  });

  it('tries the preferred route first, and the next one when it does not answer', async () => {
    const dead = await closedPort();
    const { code } = await payloadFor(relay.port);
    const endpoints = [
      { role: 'lan', priority: 0, relay: { url: `ws://127.0.0.1:${dead}` } },
      { role: 'public', priority: 1, relay: { url: `ws://localhost:${relay.port}` } },
    ];
    const input = JSON.stringify({ svc: 3, relay: { url: `ws://127.0.0.1:${relay.port}`, code }, endpoints });
    const home = agentHome();
    const result = await run(['companion', 'pair', '-', '--prefer', 'LAN'], { home, input });
    expect(result.code, result.stderr).toBe(0);
    expect((await settingsOf(home)).pairing.last_good).toBe(`ws://localhost:${relay.port}/ws`);
  });

  it('exits with 1, an error and the next step', async () => {
    const dead = await closedPort();
    const refusing = await fakeRelay(() => ({ status: 429, body: {} }));
    const offer = (port: number) =>
      JSON.stringify({ svc: 1, relay: { url: `ws://127.0.0.1:${port}`, code: 'AAAAAA' } });
    const cases: [string, RegExp, RegExp][] = [
      ['nonsense', /neither/, /svc pair/],
      [JSON.stringify({ svc: 1, host: 'x' }), /API server only/, /svc pair/],
      [offer(relay.port), /refused: Invalid pairing code/, /ten minutes/],
      [offer(dead), /127\.0\.0\.1:\d+ \(direct\): nothing is listening there/, /svc relay start/],
      [offer(refusing.port), /too many failed attempts/, /five minutes/],
    ];
    for (const [input, error, next] of cases) {
      const result = await run(['companion', 'pair', '-'], { input });
      expect([result.code, result.stdout]).toEqual([1, '']);
      const lines = result.stderr.trimEnd().split('\n');
      expect(lines).toEqual([expect.stringMatching(/^error: /), expect.stringMatching(next)]);
      expect(lines[0]).toMatch(error);
      expect(result.stderr).not.toContain('AAAAAA');
    }
  });

  it('a failed pairing does not change the previous one', async () => {
    const home = await paired(relay.port);
    const before = await settingsOf(home);
    const input = JSON.stringify({ svc: 1, relay: { url: `ws://127.0.0.1:${relay.port}`, code: 'AAAAAA' } });
    expect((await run(['companion', 'pair', '-'], { home, input })).code).toBe(1);
    expect(await settingsOf(home)).toEqual(before);
  });

  it('exits with 2 on wrong usage', async () => {
    for (const [words, setting] of [
      [['pair'], { tty: true }],
      [['pair', '-', '--name', ' '], {}],
      [['pair', '-'], { input: 'x'.repeat(300_000) }],
      [['run', '--approve', 'sometimes'], {}],
      [['run', '--device', 'real'], {}],
      [['run', '--grant', 'everything'], {}],
      [['run', '--grant', 'device_info=1h'], {}],
      [['nonsense'], {}],
    ] as const) {
      const result = await run(['companion', ...words], setting);
      expect([result.code, result.stdout], words.join(' ')).toEqual([2, '']);
    }
  });
});

describe('svc companion status and unpair', () => {
  it('show what is stored without any credential, and forget it', async () => {
    const home = await paired(relay.port);
    const { pairing } = await settingsOf(home);
    const shown = await run(['companion', 'status'], { home });
    expect(shown.stdout).toMatch(/^Paired\n/);
    const json = await run(['companion', 'status', '--json'], { home });
    expect(JSON.parse(json.stdout)).toMatchObject({ paired: true, master: false, policy: 'bound', grants: {} });
    const gone = await run(['companion', 'unpair'], { home });
    expect(gone.stdout).toContain('The relay has ended the session.');
    const { status } = await relay.fetch('/sessions', { headers: bearer(pairing.session_token) });
    expect(status).toBe(401);
    for (const { stdout } of [shown, json, gone]) {
      expect(stdout).not.toContain(pairing.session_token);
      expect(stdout).not.toContain(pairing.refresh_token);
    }
    expect((await run(['companion', 'unpair'], { home })).stdout).toBe('There was no pairing.\n');
    expect((await run(['companion', 'status'], { home })).stdout).toMatch(
      /^Not paired\n[\s\S]*svc pair \| svc companion pair -/,
    );
    expect(JSON.stringify(await settingsOf(home))).not.toContain(pairing.session_token);
    const result = await run(['companion', 'run'], { home });
    expect([result.code, result.stderr]).toEqual([1, expect.stringContaining('not paired')]);
  });

  it('unpairs without the relay too, and names the session that stays', async () => {
    const home = await paired(relay.port);
    const { pairing } = await settingsOf(home);
    await relay.stop();
    const gone = await run(['companion', 'unpair'], { home });
    expect([gone.code, gone.stdout]).toEqual([
      0,
      expect.stringMatching(
        new RegExp(
          `The relay could not be told: .*\\n.*\\n {2}svc devices revoke ${pairing.session_token.slice(0, 8)}\\n$`,
        ),
      ),
    ]);
    expect((await settingsOf(home)).pairing).toBeNull();
  });

  it('set a damaged file aside with a warning', async () => {
    const home = await paired(relay.port);
    await writeFile(join(home, 'companion/settings.json'), '{');
    const result = await run(['companion', 'status'], { home });
    expect(result.stderr).toMatch(/^warning: .*corrupt-/);
    expect(result.code).toBe(0);
  });
});

/** A session for curl. */
async function toolToken(): Promise<string> {
  const result = await run(['pair', '--token'], { env: { RELAY_PORT: String(relay.port) } });
  expect(result.code, result.stderr).toBe(0);
  return result.stdout.trim();
}

describe('svc pair --token', () => {
  it('prints only a session token, valid for a day, with the requested grants', async () => {
    const env = { RELAY_PORT: String(relay.port) };
    const words = ['pair', '--token', '--name', 'curl', '--grants', 'bridge=1h'];
    const { code, stdout, stderr } = await run(words, { env });
    expect([code, stderr]).toEqual([0, '']);
    expect(stdout).toMatch(/^[0-9a-f-]{36}\n$/);
    const { sessions } = await (await relay.fetch('/sessions', { headers: bearer(stdout.trim()) })).json();
    expect(sessions).toMatchObject([{ device_name: 'curl', is_current: true, client_surface: 'unknown' }]);
    const [{ created_at: created, expires_at: expires, grants }] = sessions;
    expect(expires - created).toBeCloseTo(86_400, -1);
    expect(grants.bridge - created).toBeCloseTo(3600, -1);
  });

  it('gives no shell, file or other device unless it is named (11 §2)', async () => {
    const grantsOf = async (...words: string[]) => {
      const { stdout } = await run(['pair', '--token', ...words], { env: { RELAY_PORT: String(relay.port) } });
      const { sessions } = await (await relay.fetch('/sessions', { headers: bearer(stdout.trim()) })).json();
      return Object.keys(sessions[0].grants);
    };
    const withheld = ['terminal', 'tui', 'desktop', 'devices', 'files'];
    expect((await grantsOf()).filter((grant) => withheld.includes(grant))).toEqual([]);
    expect(await grantsOf()).toEqual(expect.arrayContaining(['bridge', 'chat', 'phone']));
    const without = await grantsOf('--without', 'chat', '--grants', 'files=1h');
    expect(without.filter((grant) => ['chat', ...withheld].includes(grant))).toEqual(['files']);
  });

  it('makes a session with --only these grants', async () => {
    const env = { RELAY_PORT: String(relay.port) };
    const { stdout } = await run(['pair', '--token', '--name', 'narrow', '--only', 'bridge,files'], { env });
    const { sessions } = await (await relay.fetch('/sessions', { headers: bearer(stdout.trim()) })).json();
    expect(sessions).toMatchObject([{ device_name: 'narrow', is_current: true }]);
    expect(Object.keys(sessions[0].grants).sort()).toEqual(['bridge', 'files']);
  });

  it.each([
    [['--token', '--register-code', 'ABC123'], 2, /--token excludes/],
    [['--token', '--no-relay'], 2, /--token excludes/],
    [['--name', 'x'], 2, /--name needs --token/],
    [['--token', '--ttl', 'soon'], 2, /--ttl/],
    [['--token'], 1, /no relay answers/],
  ] as const)('%j: exit %d', async (words, code, message) => {
    const result = await run(['pair', ...words]);
    expect([result.code, result.stdout]).toEqual([code, '']);
    expect(result.stderr).toMatch(message);
  });
});

/** Calls the phone through the relay. */
async function call(
  path: string,
  token: string,
  body?: object,
): Promise<{ status: number; json: Record<string, unknown> }> {
  const response = await relay.fetch(path, {
    method: body ? 'POST' : 'GET',
    headers: bearer(token),
    body: body && JSON.stringify(body),
  });
  return { status: response.status, json: await response.json() };
}

describe('svc companion run', () => {
  it('appears on the relay, answers, shows each command as a line, and disconnects when stopped', async () => {
    const home = await paired(relay.port);
    const token = await toolToken();
    const companion = runCompanion(['--name', 'Test phone'], { home });
    await companion.prints(/online: 127\.0\.0\.1:\d+ \(direct, no TLS\)/);
    const devices = await (await relay.fetch('/bridge/devices')).json();
    expect(devices).toMatchObject({ count: 1, devices: [{ device_name: 'Test phone' }] });
    expect((await call('/ping', token)).status).toBe(200);
    await companion.prints(/GET {2}\/ping +200 +executed +\d+ ms +summary/);
    expect((await call('/tap', token, { x: 1, y: 2 })).status).toBe(403);
    await companion.prints(/POST \/tap +403/);
    companion.stop();
    expect(await companion.ended).toMatchObject({ code: 0, stderr: '' });
    expect(companion.stdout).not.toContain('\u001b');
    expect((await (await relay.fetch('/bridge/devices')).json()).count).toBe(0);
  });

  it('denies without a terminal to ask on, and reports it', async () => {
    const home = await paired(relay.port);
    const token = await toolToken();
    const companion = runCompanion(['--master', 'on'], { home });
    await companion.prints(/online/);
    expect((await call('/call', token, { number: '555' })).status).toBe(403);
    await companion.prints(/no terminal to ask on/);
    expect((await settingsOf(home)).safety.masterEnabled).toBe(true);
  });

  it.each([
    ['never', 403],
    ['always', 200],
  ])('--approve %s answers %d without asking', async (approve, status) => {
    const home = await paired(relay.port);
    const token = await toolToken();
    const companion = runCompanion(['--json', '--master', 'on', '--approve', approve], { home });
    await companion.prints(/"state":"online"/);
    expect((await call('/call', token, { number: '555' })).status).toBe(status);
    expect(companion.events('confirm')).toEqual([]);
    expect(companion.events('confirmed')).toHaveLength(1);
  });

  it('--json writes events to stdout and reads answers and settings from stdin', async () => {
    const home = await paired(relay.port);
    const token = await toolToken();
    const companion = runCompanion(['--json'], { home });
    await companion.prints(/"state":"online"/);
    companion.type('{"master":true}\n{"grant":"screen_control=30m,device_info"}\nnonsense\n{"allow":true}\n');
    await companion.prints(/no such question/);
    expect(companion.events('settings').at(-1)).toMatchObject({
      master: true,
      policy: 'bound',
      grants: { device_info: null, screen_control: expect.any(Number) },
    });
    expect(companion.events('notice')).toHaveLength(2);
    for (const allow of [true, false]) {
      const seen = companion.events('confirm').length;
      const answer = call('/call', token, { number: '555' });
      await vi.waitFor(() => expect(companion.events('confirm')).toHaveLength(seen + 1));
      const { request_id: requestId } = companion.events('confirm').at(-1) ?? {};
      companion.type(`${JSON.stringify({ request_id: requestId, allow, dont_ask_again: true })}\n`);
      expect(await answer).toMatchObject(
        allow ? { status: 200, json: { decision: { allowed: true, dontAskAgain: true } } } : { status: 403 },
      );
    }
    await vi.waitFor(() => expect(companion.events('command')).toHaveLength(2));
    expect(companion.events('command')[1]).toMatchObject({
      method: 'POST',
      path: '/call',
      status: 403,
      ms: expect.any(Number),
    });
    companion.type('{"quit":true}\n');
    expect((await companion.ended).code).toBe(0);
    expect(companion.events('state').at(-1)).toMatchObject({ state: 'stopped' });
  });

  it('--json gives the relay files, each named in an event with its token or why not', async () => {
    const home = await paired(relay.port);
    const path = join(home, 'a photo.png');
    await writeFile(path, 'bytes');
    const companion = runCompanion(['--json'], { home });
    await companion.prints(/"state":"online"/);
    companion.type(`${JSON.stringify({ upload: path })}\n`);
    await expect.poll(() => companion.events('upload')).toMatchObject([{ path, token: expect.any(String) }]);
    const { media } = await (await relay.operator('/media/inspect')).json();
    const { token } = companion.events('upload')[0] ?? {};
    expect(media).toMatchObject([{ token, file_name: 'a photo.png', content_type: 'image/png', size: 5 }]);
    companion.type(`${JSON.stringify({ upload: join(home, 'none.png') })}\n`);
    await expect.poll(() => companion.events('upload')[1]).toMatchObject({ error: 'there is no such file' });
    await relay.stop();
    companion.type(`${JSON.stringify({ upload: path })}\n`);
    await expect.poll(() => companion.events('upload')[2]).toMatchObject({ path, error: expect.any(String) });
  });

  it('reads keys for master, grants and answers on a terminal, and restores it', async () => {
    const home = await paired(relay.port);
    const token = await toolToken();
    const companion = runCompanion([], { home, tty: true });
    await companion.prints(/online: [^|]*\| master off \| grants 0\/10/);
    expect(companion.raw).toEqual([true]);
    companion.type('m');
    await companion.prints(/master ON/);
    companion.type('1');
    await companion.prints(/screen_inspection: on for 30 min/);
    companion.type('1');
    await companion.prints(/screen_inspection: on\n/);
    companion.type('A');
    await companion.prints(/grants 10\/10/);
    companion.type('\u001b[A?');
    companion.type('N');
    await companion.prints(/0 {2}outbound_sharing +off/);
    companion.type('?');
    await companion.prints(/q +quit/);
    for (const [key, status] of [
      ['n', 403],
      ['y', 200],
      ['a', 200],
    ] as const) {
      const before = companion.stdout.length;
      const answer = call('/call', token, { number: '555' });
      await vi.waitFor(() => expect(companion.stdout.slice(before)).toMatch(/y allow {2}n deny.* \d+ s/));
      // Pasted text answers nothing, whether it arrives in one piece or in two.
      if (key === 'n')
        for (const text of ['\u001b[200~ya\u001b[201~', '\u001b[200~yA', 'a\u001b[201~']) companion.type(text);
      companion.type(key);
      expect((await answer).status).toBe(status);
    }
    // Foreign text cannot move the cursor.
    expect(companion.stdout).not.toContain('\u001b[31m');
    companion.type('q');
    expect((await companion.ended).code).toBe(0);
    expect(companion.raw).toEqual([true, false]);
    expect(companion.stdout.split('\u001b[?2004').map(([mode]) => mode)).toEqual([expect.anything(), 'h', 'l']);
    expect((await settingsOf(home)).safety.masterEnabled).toBe(true);
  });

  it('locks the settings while it runs, and ignores the lock of a killed process', async () => {
    const home = await paired(relay.port);
    const companion = runCompanion([], { home });
    await companion.prints(/online/);
    const { payload } = await payloadFor(relay.port);
    for (const words of [['run'], ['unpair'], ['pair', '-']]) {
      const result = await run(['companion', ...words], { home, input: payload });
      expect([result.code, result.stderr]).toEqual([
        1,
        expect.stringMatching(/is running with these settings[\s\S]*Stop it first/),
      ]);
    }
    expect((await run(['companion', 'status'], { home })).code).toBe(0);
    companion.stop();
    await companion.ended;
    for (const left of ['{"pid":999999999,"started":1}', 'null', '{"pid":', '']) {
      await writeFile(join(home, 'companion/settings.json.lock'), left);
      expect((await run(['companion', 'unpair'], { home })).code).toBe(0);
    }
  });

  it('ends when the reader of its output goes away', async () => {
    const home = await paired(relay.port);
    const companion = runCompanion(['--json'], { home });
    await companion.prints(/"state":"online"/);
    companion.breakPipe();
    expect((await companion.ended).code).toBe(0);
  });

  it('exits with 1 and the next step when the device is revoked, and unpairs', async () => {
    const home = await paired(relay.port);
    const companion = runCompanion([], { home });
    await companion.prints(/online/);
    const { pairing } = await settingsOf(home);
    const path = `/sessions/${pairing.session_token.slice(0, 8)}`;
    expect((await relay.fetch(path, { method: 'DELETE', headers: { 'x-svc-operator': '1' } })).status).toBe(200);
    const result = await companion.ended;
    expect([result.code, result.stderr]).toEqual([
      1,
      expect.stringMatching(
        /no longer knows this device: session ended on \d{4}-\d\d-\d\d: pair again\nPair with: svc pair/,
      ),
    ]);
    expect((await settingsOf(home)).pairing).toBeNull();
  });
});

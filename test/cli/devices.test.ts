import { beforeEach, describe, expect, it } from 'vitest';
import { type BuiltTarget, cleanups } from '../support/built-relay.ts';
import { agentHome, fakeRelay, run as runOnTty } from '../support/cli.ts';
import { closedPort } from '../support/closed-port.ts';
import { begin, run } from '../support/companion-cli.ts';
import { TIMEOUT } from '../support/limits.ts';
import { startRelayProcess } from '../support/process.ts';
import { pair } from '../support/relay.ts';
import { attach, hasProgram, pairTerminal, processesWith, startTerminalRelay } from '../support/terminal.ts';

const pending = cleanups();
let relay: BuiltTarget;
beforeEach(async () => {
  relay = await startTerminalRelay({ tmux: hasProgram('tmux') });
  pending.push(() => relay.stop());
});

const env = () => ({ RELAY_PORT: String(relay.port) });
const svcDevices = (...words: string[]) => run(['devices', ...words], { env: env() });
const phone = (device_name: string) => pair(relay, { device: { device_name, client_surface: 'android' } });
const names = (): string[] => relay.relay.sessions.list().map(({ device }) => device.name);

describe('svc devices (contract 09 §2)', () => {
  it('lists the paired devices', async () => {
    expect((await svcDevices()).stdout).toBe('No device is paired. Pair one with: svc pair\n');
    const { prefix } = await phone('Pixel 9');
    const lent = await pair(relay, {
      policy: { ttl_seconds: 0, without: ['bridge'], grants: { terminal: 7200 } },
      device: { device_name: 'Lent\u202e tablet\u001b[2J' },
    });
    for (const words of [[], ['list']]) {
      const { code, stdout } = await svcDevices(...words);
      expect(code).toBe(0);
      expect(stdout).toMatch(/^NAME +PLATFORM +STATE +ROUND TRIP +SESSION +ENDS +GRANTS\n/);
      expect(stdout).toMatch(
        new RegExp(
          `\\nPixel 9 +android +connected \\d+ s +(-|\\d+ ms) +${prefix} +in (30|29) d +chat, .*bridge [67] d`,
        ),
      );
      expect(stdout).toMatch(
        new RegExp(`\\nLent tablet\\[2J +unknown +connected \\d+ s +.* +${lent.prefix} +never +.*terminal [12] h`),
      );
      for (const hidden of ['\u001b', '\u202e']) expect(stdout).not.toContain(hidden);
    }
    const answer = JSON.parse((await svcDevices('--json')).stdout);
    expect(answer.devices.map((row: { token_prefix: string }) => row.token_prefix).sort()).toEqual(
      [prefix, lent.prefix].sort(),
    );
  });

  it('revokes one by name in any case, or by the prefix of its session', async () => {
    const first = await phone('Pixel 9');
    await phone('Tablet');
    const named = await svcDevices('revoke', 'pixel 9', '--yes');
    expect(named).toMatchObject({
      code: 0,
      stdout: `Revoked Pixel 9 (android, session ${first.prefix}).\n`,
      stderr: '',
    });
    expect(await first.client.closed()).toMatchObject({ code: 4401 });
    const third = await phone('Third');
    const { code, stdout } = await svcDevices('revoke', third.prefix.slice(0, 6), '--yes', '--json');
    expect([code, JSON.parse(stdout)]).toEqual([
      0,
      { ok: true, revoked: third.prefix, revoked_self: false, shells_ended: 0, keep_shells: false },
    ]);
    expect(names()).toEqual(['Tablet']);
  });

  it('renames, extends, reduces by whole grants, and lists what has ended (11 §2)', async () => {
    const { prefix, client } = await phone('Pixel 9');
    const renamed = await svcDevices('rename', 'pixel 9', 'Phone of Ada');
    expect(renamed).toMatchObject({
      code: 0,
      stdout: `Renamed Pixel 9 (android, session ${prefix}) to Phone of Ada.\n`,
    });
    expect(names()).toEqual(['Phone of Ada']);
    const reduced = await svcDevices('reduce', prefix, '--without', 'terminal,voice', '--ttl', '1h');
    expect(reduced.stdout).not.toMatch(/terminal|voice/);
    const extended = await svcDevices('extend', 'Phone of Ada', '--json');
    const { expires_at, grants } = JSON.parse(extended.stdout);
    expect(expires_at - Date.now() / 1000).toBeGreaterThan(29 * 86_400);
    expect(grants).not.toHaveProperty('terminal');
    expect((await svcDevices('extend', prefix, '--ttl', '1h')).stderr).toContain('would end earlier');
    expect((await svcDevices('extend', prefix, '--ttl', '90d')).stdout).toMatch(/Ends +in (90|89) d/);
    expect((await svcDevices('reduce', prefix, '--without', 'flying')).code).toBe(2);
    expect((await svcDevices('rename', prefix)).code).toBe(2);
    expect((await svcDevices('extend', prefix, '--without', 'chat')).code).toBe(2);

    await svcDevices('revoke', prefix, '--yes');
    expect(await client.closed()).toMatchObject({ code: 4401 });
    expect((await svcDevices('--ended')).stdout).toMatch(
      new RegExp(`^NAME .*\\nPhone of Ada +${prefix} +\\d{4}-\\d\\d-\\d\\d .* revoked by operator\\n$`),
    );
  });

  it('two devices of one name are told apart by route and last seen, and one that ends soon is named (11 §2)', async () => {
    const first = await phone('Pixel 9');
    const second = await phone('Pixel 9');
    second.client.terminate();
    await expect.poll(() => relay.relay.sockets.count()).toBe(1);
    const { code, stderr } = await svcDevices('extend', 'Pixel 9');
    expect(code).toBe(1);
    const text = stderr.replace(/\s+/g, ' ');
    expect(text).toMatch(new RegExp(`${first.prefix} \\(Pixel 9, connected over direct, seen \\d+ s ago\\)`));
    expect(text).toMatch(new RegExp(`${second.prefix} \\(Pixel 9, offline, seen \\d+ s ago\\)`));
    const [session] = relay.relay.sessions.find(first.prefix);
    if (session)
      Object.assign(session, { grantedAt: session.grantedAt - 25 * 86_400, expiresAt: session.grantedAt + 86_400 });
    expect((await svcDevices()).stdout).toContain('Extend it with: svc devices extend "Pixel 9"');
    const status = (...words: string[]) => run(['status', ...words], { env: env() });
    expect((await status()).stdout).toMatch(/Ends soon +Pixel 9, in \d+ h\n/);
    const { ending } = JSON.parse((await status('--json')).stdout);
    expect(ending).toMatchObject([{ name: 'Pixel 9', session: first.prefix }]);
  });

  it('asks on a terminal first, and without one needs --yes', async () => {
    const { prefix } = await phone('Pixel 9');
    for (const answer of ['n\n', '\n', 'yep\n', 'no\n']) {
      const asking = begin(['devices', 'revoke', 'Pixel 9'], { env: env(), tty: true });
      await asking.prints(/Revoke Pixel 9 \(android, session \w+\)\? Its shells end, with everything .*\[y\/N\] $/);
      asking.type(answer);
      expect((await asking.ended).code, answer).toBe(1);
      expect(asking.stdout).toBe('');
    }
    const closed = await run(['devices', 'revoke', 'Pixel 9'], { env: env(), tty: true });
    expect(closed.code, 'stdin ends').toBe(1);
    const script = await svcDevices('revoke', 'Pixel 9');
    expect(script.code).toBe(2);
    expect(script.stderr).toContain('--yes');
    expect(names()).toEqual(['Pixel 9']);
    const asking = begin(['devices', 'revoke', prefix, '--keep-shells'], { env: env(), tty: true });
    await asking.prints(/Its shells in tmux go on\. \[y\/N\] $/);
    asking.type('Y\n');
    expect((await asking.ended).code).toBe(0);
    expect(names()).toEqual([]);
  });

  it.each([[false], [true]])('ends the shells of the device; --keep-shells: %s', async (keeps) => {
    if (!hasProgram('tmux')) return void process.stderr.write('SKIPPED: no tmux here, no shell is kept\n');
    const device = await pairTerminal(relay);
    const shell = await attach(device.client, 'main');
    await shell.shows('ready>');
    const mark = crypto.randomUUID();
    shell.type(`MARK=${mark} setsid sleep 1000 >/dev/null 2>&1 &\r`);
    await expect.poll(() => processesWith('MARK', mark).length).toBe(1);
    pending.push(() => {
      for (const pid of processesWith('MARK', mark)) process.kill(pid);
    });
    expect((await svcDevices('revoke', device.prefix, '--yes', ...(keeps ? ['--keep-shells'] : []))).code).toBe(0);
    expect(processesWith('MARK', mark)).toHaveLength(keeps ? 1 : 0);
  });

  it('says how many shells a change has ended', async () => {
    const device = await pairTerminal(relay);
    await attach(device.client, 'one');
    await attach(device.client, 'two');
    const reduced = await svcDevices('reduce', device.prefix, '--grants', 'terminal=1s');
    expect([reduced.code, reduced.stdout.split('\n')[0]]).toEqual([
      0,
      expect.stringMatching(/^Reduced .*\. 2 shells ended\.$/),
    ]);
    const other = await pairTerminal(relay);
    await attach(other.client, 'three');
    const revoked = await svcDevices('revoke', other.prefix, '--yes');
    expect([revoked.code, revoked.stdout]).toEqual([0, expect.stringMatching(/^Revoked .*\. 1 shell ended\.\n$/)]);
  });

  it('says that shells may go on when the relay cannot end them', async () => {
    const { prefix } = await phone('Pixel 9');
    const { terminals } = relay.relay;
    const { endShells } = terminals;
    pending.push(() => Object.assign(terminals, { endShells }));
    Object.assign(terminals, { endShells: async () => ({ count: 0, isLeft: true }) });
    const { code, stdout, stderr } = await svcDevices('revoke', 'Pixel 9', '--yes');
    expect([code, stdout]).toEqual([1, '']);
    expect(stderr).toContain(`Revoked Pixel 9 (android, session ${prefix}), but its shells may go on`);
    expect(stderr).toContain('svc logs');
    expect(names()).toEqual([]);
  });

  it('says what is wrong, and what to do: exit 1 or 2', async () => {
    const [one, two] = [await phone('Pixel'), await phone('Pixel')];
    const several = await svcDevices('revoke', 'Pixel', '--yes');
    expect(several.code).toBe(1);
    for (const { prefix } of [one, two]) expect(several.stderr).toContain(prefix);
    const unknown = await svcDevices('revoke', 'Nokia\u202e', '--yes');
    expect([unknown.code, unknown.stderr]).toEqual([
      1,
      expect.stringMatching(/no paired device has the name or session 'Nokia'\n.*svc devices/),
    ]);
    for (const almost of ['Pix', 'Pixle']) {
      const { stderr } = await svcDevices('revoke', almost, '--yes');
      expect(stderr).toContain(`session '${almost}'; did you mean 'Pixel`);
    }
    // Too short to name a session, as on the wire.
    expect((await svcDevices('revoke', one.prefix.slice(0, 3), '--yes')).code).toBe(1);
    expect(names()).toHaveLength(2);
    for (const words of [
      ['revoke'],
      ['list', 'x'],
      ['dance'],
      ['--yes'],
      ['--ttl', '1d'],
      ['reduce'],
      ['reduce', 'x'],
      ['reduce', 'x', '--ttl', 'soon'],
      ['reduce', 'x', '--ttl', '1d', '--yes'],
      ['revoke', 'x', '--ttl', '1d'],
      ['watch', 'x'],
      ['list', '--keep-shells'],
      ['revoke', 'a', 'b'],
    ]) {
      expect((await svcDevices(...words)).code, words.join(' ')).toBe(2);
    }
    const nobody = await run(['devices'], { env: { RELAY_PORT: String(await closedPort()) } });
    expect([nobody.code, nobody.stderr]).toEqual([1, expect.stringMatching(/no relay answers.*\n.*svc relay start/)]);
    // What an older relay lets through does not reach the terminal, and JSON says the same in escapes.
    const devices = [{ token_prefix: 'aaaabbbb', device_name: 'Ni\u202ece\u200b\u001b[2J', grants: {} }];
    const older = await fakeRelay(() => ({ body: { devices } }));
    const shown = await run(['devices'], { env: { RELAY_PORT: String(older.port) } });
    expect(shown.stdout).toMatch(/\nNice\[2J +/);
    const json = await run(['devices', '--json'], { env: { RELAY_PORT: String(older.port) } });
    expect(json.stdout).toMatch(/^[\x20-\x7e]+\n$/);
    expect(JSON.parse(json.stdout)).toEqual({ devices, frozen: null });
    const odd = await fakeRelay(() => ({ body: { devices: [null, { token_prefix: 5 }] } }));
    expect((await run(['devices'], { env: { RELAY_PORT: String(odd.port) } })).code).toBe(0);
    const row = { device_name: 'Pixel', token_prefix: 'abcd1234', ended_at: 1e300, reason: 'expired' };
    const late = await fakeRelay(() => ({ body: { sessions: [row] } }));
    const ended = await run(['devices', '--ended'], { env: { RELAY_PORT: String(late.port) } });
    expect([ended.code, ended.stdout]).toEqual([0, expect.stringMatching(/Pixel +abcd1234 +\? +expired/)]);
  });

  it('reduces a session and its grants, and never extends them', async () => {
    const { prefix } = await phone('Pixel 9');
    const held = () => relay.relay.sessions.list()[0];
    const { code, stdout } = await svcDevices('reduce', 'pixel 9', '--ttl', '7d', '--grants', 'terminal=1h,voice=2h');
    expect(code).toBe(0);
    expect(stdout).toMatch(
      /^Reduced Pixel 9 \(android, session \w+\)\.\n {2}Ends {4}in [67] d\n {2}Grants {2}.*terminal (1 h|59 min).*\n$/,
    );
    expect(stdout).toMatch(/voice (2|1) h/);
    const voice = Object.entries(held()?.grants ?? {}).filter(([name]) => name.startsWith('voice:'));
    expect(voice.length).toBeGreaterThan(0);
    const before = JSON.stringify([held()?.expiresAt, held()?.grants]);
    for (const words of [
      ['--ttl', '30d'],
      ['--ttl', 'never'],
      ['--grants', 'terminal=2h'],
    ]) {
      const refused = await svcDevices('reduce', prefix, ...words);
      expect([refused.code, refused.stdout], words.join(' ')).toEqual([1, '']);
      expect(refused.stderr).toMatch(
        /can only be reduced; nothing was changed\n.*To give more: svc devices extend "Pixel 9"\n$/,
      );
    }
    const unknown = await svcDevices('reduce', prefix, '--grants', 'dance=1h');
    expect([unknown.code, unknown.stderr]).toEqual([2, expect.stringMatching(/no grant 'dance'; it has .*terminal/)]);
    expect(JSON.stringify([held()?.expiresAt, held()?.grants])).toBe(before);
    const json = await svcDevices('reduce', prefix, '--ttl', '1d', '--json');
    expect([json.code, JSON.parse(json.stdout)]).toMatchObject([0, { ok: true, token_prefix: prefix }]);
  });
});

/** Rows as a relay sends them, at fixed ages. */
const rows = (now: number) => {
  const row = (device_name: string, connections: object[], rest: object = {}) => ({
    token_prefix: device_name.slice(0, 4).padEnd(8, '0'),
    device_name,
    client_surface: 'android',
    last_seen: now - 7200,
    expires_at: null,
    grants: { chat: null, 'voice:tts': null, 'voice:stt': null, terminal: now + 3600 * 3 + 600, bridge: now - 1 },
    connections,
    ...rest,
  });
  const alive = { since: now - 720, proof_age_ms: 900, rtt_ms: 34.4, stale: false };
  return [
    row('Quick', [{ ...alive, proof_age_ms: 60_000, stale: true }, alive]),
    row('Silent', [{ ...alive, proof_age_ms: 50_000, stale: true }]),
    // Whatever else a relay says, nothing is connected without proof of life.
    row('Liar', [{ ...alive, proof_age_ms: 46_000 }]),
    row('Mute', [{ since: now }]),
    row('Gone', [], { device_platform: 'iOS' }),
  ];
};

describe('svc devices on a terminal (contract 09 §2)', () => {
  it.each([[200], [100], [80], [40]])('fits %s columns, and calls nothing connected without proof', async (columns) => {
    const now = Math.floor(Date.now() / 1000);
    const server = await fakeRelay(() => ({ body: { devices: rows(now) } }));
    const env = { RELAY_PORT: String(server.port), SVC_HOME: agentHome() };
    const { stdout } = await runOnTty(['devices'], { env: { ...env, NO_COLOR: '1' }, tty: true, columns });
    expect(stdout).not.toContain('\u001b');
    for (const text of stdout.trimEnd().split('\n')) expect(text.length, text).toBeLessThanOrEqual(columns);
    const flat = stdout.replace(/\s+/g, ' ');
    expect(flat.match(/\bconnected\b/g)).toHaveLength(1);
    expect(flat).toMatch(/Quick .*connected 12 min.*34 ms.*Silent .*stale 50 s.*Liar .*stale 46 s.*Mute .*stale \?/);
    expect(flat).toMatch(/Gone .*iOS.*offline 2 h/);
    expect(flat).toContain('chat, voice, terminal 3 h');
    expect(flat).not.toContain('bridge');
    const coloured = await runOnTty(['devices'], { env, tty: true, columns });
    expect(coloured.stdout).toContain('\u001b[32mconnected\u001b[39m');
    // biome-ignore lint/suspicious/noControlCharactersInRegex: colours
    expect(coloured.stdout.replace(/\u001b\[\d+m/g, '')).toBe(stdout);
  });
});

describe('svc devices watch', () => {
  it('prints a line for every change', async () => {
    const first = await phone('Pixel 9');
    const watching = begin(['devices', 'watch'], { env: env() });
    await watching.prints(/^\d\d:\d\d:\d\d {2}Pixel 9 \(android, session \w+\): connected \d+ s/);
    const second = await phone('Tablet');
    await watching.prints(/Tablet \(android, session \w+\): paired/);
    await watching.prints(/Tablet \(android, session \w+\): connected/);
    first.client.close();
    await watching.prints(/Pixel 9 .*: offline\n/);
    await svcDevices('reduce', 'Tablet', '--ttl', '1h');
    await watching.prints(/Tablet .*: reduced/);
    await svcDevices('revoke', second.prefix, '--yes');
    await watching.prints(/Tablet .*: revoked/);
    watching.stop();
    expect(await watching.ended).toMatchObject({ code: 0, stderr: '' });
  });

  it('redraws on a terminal within its size, and leaves it as it was', async () => {
    const device = await phone('Pixel 9');
    const watching = begin(['devices', 'watch'], { env: env(), tty: true });
    await watching.prints(/1 connected, 0 stale, 0 offline/);
    expect(watching.stdout.startsWith('\u001b[?1049h\u001b[?25l')).toBe(true);
    device.client.close();
    await watching.prints(/0 connected, 0 stale, 1 offline/);
    watching.stop();
    const { code, stdout } = await watching.ended;
    expect([code, stdout.endsWith('\u001b[?25h\u001b[?1049l')]).toEqual([0, true]);
  });

  it('survives a restart of the relay, and says so', async () => {
    const server = await startRelayProcess();
    const variables = { SVC_HOME: server.home, RELAY_PORT: String(server.port), RELAY_HOST: '127.0.0.1' };
    const watching = begin(['devices', 'watch', '--json'], { home: server.home, env: variables });
    await expect.poll(() => watching.events('devices').length, { timeout: TIMEOUT }).toBe(1);
    await server.kill();
    await expect.poll(() => watching.events('lost').length, { timeout: TIMEOUT }).toBe(1);
    await server.restart();
    await expect.poll(() => watching.events('back').length, { timeout: TIMEOUT }).toBe(1);
    const { stdout } = await run(['pair', '--token', '--name', 'Tool'], { env: variables });
    expect(stdout).not.toBe('');
    await expect.poll(() => watching.events('paired').length, { timeout: TIMEOUT }).toBe(1);
    watching.breakPipe();
    expect((await watching.ended).code).toBe(0);
  });

  it('is an error like any other where no relay answers, or it refuses', async () => {
    const nobody = await run(['devices', 'watch'], { env: { RELAY_PORT: String(await closedPort()) }, tty: true });
    expect(nobody).toMatchObject({
      code: 1,
      stdout: '',
      stderr: expect.stringMatching(/no relay answers[\s\S]*\n.*start/),
    });
    const strict = await fakeRelay(() => ({ status: 403, body: { error: 'no' } }));
    const refused = await run(['devices', 'watch'], { env: { RELAY_PORT: String(strict.port) }, tty: true });
    expect(refused).toMatchObject({ code: 1, stdout: '' });
  });
});

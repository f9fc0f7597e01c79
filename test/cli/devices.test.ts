import { beforeEach, describe, expect, it } from 'vitest';
import { type BuiltTarget, cleanups } from '../support/built-relay.ts';
import { fakeRelay } from '../support/cli.ts';
import { closedPort } from '../support/closed-port.ts';
import { begin, run } from '../support/companion-cli.ts';
import { pair } from '../support/relay.ts';
import { attach, hasProgram, pairTerminal, processesWith, startTerminalRelay } from '../support/terminal.ts';

const pending = cleanups();
let relay: BuiltTarget;
beforeEach(async () => {
  relay = await startTerminalRelay({ tmux: hasProgram('tmux') });
  pending.push(() => relay.stop());
});

const env = () => ({ RELAY_PORT: String(relay.port) });
const devices = (...words: string[]) => run(['devices', ...words], { env: env() });
const phone = (device_name: string) => pair(relay, { device: { device_name, client_surface: 'android' } });
const names = (): string[] => relay.relay.sessions.list().map(({ device }) => device.name);

describe('svc devices (contract 09 §2)', () => {
  it('lists the paired devices', async () => {
    expect((await devices()).stdout).toBe('No device is paired. Pair one with: svc pair\n');
    const { prefix } = await phone('Pixel 9');
    const lent = await pair(relay, {
      policy: { ttl_seconds: 0, without: ['bridge'], grants: { terminal: 7200 } },
      device: { device_name: 'Lent\u202e tablet\u001b[2J' },
    });
    for (const words of [[], ['list']]) {
      const { code, stdout } = await devices(...words);
      expect(code).toBe(0);
      expect(stdout).toMatch(/^NAME +KIND +SESSION +SEEN +ENDS +GRANTS\n/);
      expect(stdout).toMatch(
        new RegExp(`\\nPixel 9 +android +${prefix} +\\d s ago +in (30|29) d +chat, .*bridge [67] d`),
      );
      expect(stdout).toMatch(
        new RegExp(`\\nLent tablet\\[2J +unknown +${lent.prefix} +\\d s ago +never +.*terminal [12] h`),
      );
      for (const hidden of ['\u001b', '\u202e']) expect(stdout).not.toContain(hidden);
    }
    const answer = JSON.parse((await devices('--json')).stdout);
    expect(answer.sessions.map((row: { token_prefix: string }) => row.token_prefix).sort()).toEqual(
      [prefix, lent.prefix].sort(),
    );
  });

  it('revokes one by name in any case, or by the prefix of its session', async () => {
    const first = await phone('Pixel 9');
    await phone('Tablet');
    const named = await devices('revoke', 'pixel 9', '--yes');
    expect(named).toMatchObject({
      code: 0,
      stdout: `Revoked Pixel 9 (android, session ${first.prefix}).\n`,
      stderr: '',
    });
    expect(await first.client.closed()).toMatchObject({ code: 4401 });
    const third = await phone('Third');
    const { code, stdout } = await devices('revoke', third.prefix.slice(0, 6), '--yes', '--json');
    expect([code, JSON.parse(stdout)]).toEqual([
      0,
      { ok: true, revoked: third.prefix, revoked_self: false, keep_shells: false },
    ]);
    expect(names()).toEqual(['Tablet']);
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
    const script = await devices('revoke', 'Pixel 9');
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
    expect((await devices('revoke', device.prefix, '--yes', ...(keeps ? ['--keep-shells'] : []))).code).toBe(0);
    expect(processesWith('MARK', mark)).toHaveLength(keeps ? 1 : 0);
  });

  it('says what is wrong, and what to do: exit 1 or 2', async () => {
    const [one, two] = [await phone('Pixel'), await phone('Pixel')];
    const several = await devices('revoke', 'Pixel', '--yes');
    expect(several.code).toBe(1);
    for (const { prefix } of [one, two]) expect(several.stderr).toContain(prefix);
    const unknown = await devices('revoke', 'Nokia\u202e', '--yes');
    expect([unknown.code, unknown.stderr]).toEqual([
      1,
      expect.stringMatching(/no paired device has the name or session 'Nokia'\n.*svc devices/),
    ]);
    // Too short to name a session, as on the wire.
    expect((await devices('revoke', one.prefix.slice(0, 3), '--yes')).code).toBe(1);
    expect(names()).toHaveLength(2);
    for (const words of [
      ['revoke'],
      ['list', 'x'],
      ['dance'],
      ['--yes'],
      ['list', '--keep-shells'],
      ['revoke', 'a', 'b'],
    ]) {
      expect((await devices(...words)).code, words.join(' ')).toBe(2);
    }
    const nobody = await run(['devices'], { env: { RELAY_PORT: String(await closedPort()) } });
    expect([nobody.code, nobody.stderr]).toEqual([1, expect.stringMatching(/no relay answers.*\n.*svc relay start/)]);
    // What an older relay lets through does not reach the terminal, and JSON says the same in escapes.
    const sessions = [{ token_prefix: 'aaaabbbb', device_name: 'Ni\u202ece\u200b\u001b[2J', grants: {} }];
    const older = await fakeRelay(() => ({ body: { sessions } }));
    const shown = await run(['devices'], { env: { RELAY_PORT: String(older.port) } });
    expect(shown.stdout).toMatch(/\nNice\[2J +/);
    const json = await run(['devices', '--json'], { env: { RELAY_PORT: String(older.port) } });
    expect(json.stdout).toMatch(/^[\x20-\x7e]+\n$/);
    expect(JSON.parse(json.stdout)).toEqual({ sessions });
    const odd = await fakeRelay(() => ({ body: { sessions: [null, { token_prefix: 5 }] } }));
    expect((await run(['devices'], { env: { RELAY_PORT: String(odd.port) } })).code).toBe(0);
  });
});

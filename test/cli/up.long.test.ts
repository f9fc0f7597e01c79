import { appendFileSync, chmodSync, existsSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { MAX_LOG_FILE, OLD_LOG_FILES, openLogFile } from '../../cli/log-file.ts';
import { lockHolder } from '../../lib/host/node/relay-lock.ts';
import { unitText } from '../../lib/operator/service/unit.ts';
import { canBeNobody, NOBODY } from '../support/other-user.ts';
import { freePort, isPortFree, runSvc, startRelayProcess, temporaryHome } from '../support/process.ts';
import { homeWithRelay, RELAY_PROGRAM, stateOf, withSystemd } from '../support/user-systemd.ts';

describe('svc up, down and restart without systemd (contract 11 §1)', () => {
  it('run the relay in the background, on its port and with its flags, until down', async () => {
    const { home, port, svc } = await homeWithRelay();
    const up = await svc(['up', '--port', String(port)]);
    expect([up.code, up.stderr]).toEqual([0, '']);
    expect(up.stdout).toMatch(
      new RegExp(`^svc-relay [\\d.]+ is running\\n {2}Address +http://127\\.0\\.0\\.1:${port} `),
    );
    expect(up.stdout).toContain(`Log: ${home}/svc-relay/relay.log`);
    expect(up.stdout).toContain('Next: run svc pair and scan the code');
    const first = lockHolder(stateOf(home));
    // It answers other commands by its lock: their shell names no port.
    const status = JSON.parse((await svc(['status', '--json'])).stdout);
    expect(status.relay).toMatchObject({ ready: true, pid: first, address: `127.0.0.1:${port}` });
    expect(status.relay.build).toEqual(expect.objectContaining({ id: expect.stringMatching(/^[0-9a-f]{16}$/) }));
    const again = JSON.parse((await svc(['up', '--json'])).stdout);
    expect(again).toMatchObject({ ok: true, started: false, pid: first, port });

    const restart = JSON.parse((await svc(['restart', '--json'])).stdout);
    expect(restart).toMatchObject({ ok: true, started: true, by: 'process', port });
    expect(restart.pid).not.toBe(first);
    const log = () => readFileSync(join(home, 'svc-relay/relay.log'), 'utf8');
    await expect.poll(() => log().split('listens on').length).toBe(3);
    expect(statSync(join(home, 'svc-relay/relay.log')).mode & 0o777).toBe(0o600);

    const down = await svc(['down']);
    expect([down.code, down.stdout]).toEqual([0, `Stopped the relay (process ${restart.pid}).\n`]);
    expect(await isPortFree(port)).toBe(true);
    expect(existsSync(`${stateOf(home)}.lock`)).toBe(false);
    // Without a lock it asks the port of the settings, where this machine may have a relay of its own.
    expect((await svc(['down'], { RELAY_PORT: String(port) })).stdout).toBe('No relay is running.\n');
  });

  it('down counts a relay as stopped whose parent does not notice its end, such as PID 1 of a container', async () => {
    const { home, port, svc } = await homeWithRelay();
    // The shell becomes a parent that waits for no child.
    const within = ['/bin/sh', '-c', '"$0" "$@" >/dev/null 2>&1 & exec sleep 600'];
    await startRelayProcess({ home, port, within });
    const pid = lockHolder(stateOf(home));
    const down = await svc(['down', '--json']);
    expect(JSON.parse(down.stdout)).toEqual({ stopped: true, pid, by: 'signal' });
    expect(await isPortFree(port)).toBe(true);
  });

  it('up waits on the port of its flag for a relay that keeps its state in memory', async () => {
    const { port, svc } = await homeWithRelay();
    const other = await freePort();
    const memory = (words: string[], at: number) => svc(words, { RELAY_STATE_FILE: '', RELAY_PORT: String(at) });
    onTestFinished(async () => void (await memory(['down'], port)));
    const up = JSON.parse((await memory(['up', '--json', '--port', String(port)], other)).stdout);
    expect(up).toMatchObject({ ok: true, started: true, by: 'process', port });
    const again = JSON.parse((await memory(['up', '--json', '--port', String(port)], other)).stdout);
    expect(again).toMatchObject({ ok: true, started: false, port });
    const down = JSON.parse((await memory(['down', '--json'], port)).stdout);
    expect(down).toMatchObject({ stopped: true, by: 'signal' });
  });

  it('two at once start one relay', async () => {
    const { home, port, svc } = await homeWithRelay();
    const both = await Promise.all([1, 2].map(() => svc(['up', '--json', '--port', String(port)])));
    const answers = both.map(({ stdout }) => JSON.parse(stdout));
    expect(answers).toMatchObject([
      { ok: true, port },
      { ok: true, port },
    ]);
    const pid = lockHolder(stateOf(home));
    expect(answers.map((answer) => answer.pid)).toEqual([pid, pid]);
    await svc(['down']);
  });

  it('a killed relay leaves a lock that counts for nothing', async () => {
    const { home, port, svc } = await homeWithRelay();
    await svc(['up', '--port', String(port)]);
    const killed = lockHolder(stateOf(home)) as number;
    process.kill(killed, 'SIGKILL');
    await expect.poll(() => lockHolder(stateOf(home))).toBeUndefined();
    expect(existsSync(`${stateOf(home)}.lock`)).toBe(true);
    expect((await svc(['devices'], { RELAY_PORT: '1' })).stderr).toContain('127.0.0.1:1');
    const up = JSON.parse((await svc(['up', '--json', '--port', String(port)])).stdout);
    expect(up).toMatchObject({ ok: true, started: true, port });
    expect(up.pid).not.toBe(killed);
    await svc(['down']);
  });

  it('a relay that cannot start: exit 1 with the reason', async () => {
    const { home, svc } = await homeWithRelay();
    const other = await startRelayProcess();
    const up = await svc(['up', '--port', String(other.port)]);
    expect([up.code, up.stdout]).toEqual([1, '']);
    // Where the system tells, by which program.
    const error = new RegExp(
      `the relay did not start: port ${other.port} of 127\\.0\\.0\\.1 is in use(?: by node svc\\.js .*)?$`,
    );
    const next =
      'Stop the program that uses it, or choose another port with --port. ' +
      `Its log is ${home}/svc-relay/relay.log. To see it start: svc start`;
    const [said, ...rest] = up.stderr.split('\n');
    expect(said).toMatch(/^error: /);
    expect(said).toMatch(error);
    expect(rest).toEqual([next, '']);
    const json = JSON.parse((await svc(['up', '--json', '--port', String(other.port)])).stdout);
    expect(json).toEqual({ ok: false, error: expect.stringMatching(error), next });
  });

  it.runIf(canBeNobody)('another user can neither stop it nor start one in that home', async () => {
    const { home, port, svc } = await homeWithRelay();
    await svc(['up', '--port', String(port)]);
    chmodSync(home, 0o755);
    chmodSync(join(home, 'svc-relay'), 0o755);
    const as = (words: string[]) => runSvc(words, { home, uid: NOBODY, env: { PATH: dirname(process.execPath) } });
    const down = await as(['down']);
    expect([down.code, down.stdout]).toEqual([1, '']);
    expect(down.stderr).toMatch(/another user|this user can stop/);
    const up = await as(['up', '--port', String(await freePort())]);
    expect(up.stdout + up.stderr).not.toContain('started');
    expect(JSON.parse((await svc(['status', '--json'])).stdout)).toMatchObject({
      relay: { ready: true, address: `127.0.0.1:${port}` },
    });
    await svc(['down']);
  });
});

describe('svc up, down and restart with systemd (contract 11 §1)', () => {
  it('start the service of this home, and print what start prints', async () => {
    const { home, port, svc, asked } = await withSystemd();
    const up = await svc(['up']);
    expect([up.code, up.stderr]).toEqual([0, '']);
    expect(up.stdout).toContain(`http://127.0.0.1:${port} `);
    expect(up.stdout).toContain('as the service svc-relay.service');
    expect(asked()).toContain('--user start svc-relay.service');
    expect(lockHolder(stateOf(home))).toBe(Number(readFileSync(join(home, 'unit.pid'), 'utf8')));
    const flags = await svc(['up', '--port', '9000', '--json']);
    expect(JSON.parse(flags.stdout)).toMatchObject({ ok: true, started: false, port });
    await svc(['down']);
    await expect.poll(() => lockHolder(stateOf(home))).toBeUndefined();
    const wrong = JSON.parse((await svc(['up', '--port', '9000', '--json'])).stdout);
    expect(wrong).toMatchObject({ ok: false, error: expect.stringContaining('--port is not for the service') });
  });

  it('restart leaves a relay alone that the service would not start again', async () => {
    const { home, port, svc, refuses } = await withSystemd();
    const relay = await startRelayProcess({ home, port });
    const flags = JSON.parse((await svc(['restart', '--json'])).stdout);
    expect(lockHolder(stateOf(home))).toBe(relay.child.pid);
    expect(flags).toEqual({
      ok: false,
      error: `the relay (process ${relay.child.pid}) keeps running: it was started with --host, which is not for the service`,
      next: expect.stringContaining(`${home}/.env`),
    });

    await relay.kill();
    const bare = await startRelayProcess({ home, port, bare: true });
    refuses('show');
    const silent = JSON.parse((await svc(['restart', '--json'])).stdout);
    expect(silent).toMatchObject({ ok: false, error: expect.stringContaining('does not answer') });
    expect(lockHolder(stateOf(home))).toBe(bare.child.pid);
  });

  it('leave a service of another home alone', async () => {
    const { home, port, svc, asked } = await withSystemd();
    const unit = join(home, '.config/systemd/user/svc-relay.service');
    writeFileSync(unit, unitText({ node: process.execPath, script: RELAY_PROGRAM, agentHome: '/elsewhere' }));
    const up = JSON.parse((await svc(['up', '--json'])).stdout);
    expect(up).toMatchObject({ ok: true, by: 'process', port });
    expect(asked()).not.toContain('start svc-relay.service');
    await svc(['down']);
  });
});

it('the log file is rotated at 5 MB, and three old ones stay (contract 11 §1)', async () => {
  const path = join(await temporaryHome(), 'relay.log');
  const log = openLogFile(path);
  const half = 'x'.repeat(MAX_LOG_FILE / 2);
  for (let count = 0; count < 2 * (OLD_LOG_FILES + 3) + 1; count++) log.write(half);
  expect([1, 2, 3, 4].map((at) => existsSync(`${path}.${at}`))).toEqual([true, true, true, false]);
  expect(statSync(`${path}.1`).size).toBe(MAX_LOG_FILE);
  appendFileSync(path, 'kept');
  openLogFile(path).write('on');
  expect(readFileSync(path, 'utf8').endsWith('kepton')).toBe(true);
});

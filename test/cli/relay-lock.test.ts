import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { type RelayLock, readRelayLock, writeRelayLock } from '../../lib/host/node/relay-lock.ts';
import { openStateFile } from '../../storage/sqlite.ts';
import { agentHome, fakeRelay, run } from '../support/cli.ts';
import { closedPort } from '../support/closed-port.ts';
import { SIGNED_IN, startDashboard, TRANSPORT } from '../support/dashboard.ts';

/** A relay of this process: it holds the state of its home, and answers on a port of its own. */
async function heldRelay(change: Partial<RelayLock> = {}, home = agentHome(), user = home) {
  const relay = await fakeRelay(({ path }) =>
    path === '/health'
      ? { body: { status: 'ok', version: '1.0.0', readiness: { ready: true, state: 'ready' } } }
      : { body: { devices: [], allow_insecure_api_bearer: false, secure_link: {} } },
  );
  const stateFile = join(home, 'svc-relay', 'state.db');
  mkdirSync(join(home, 'svc-relay'), { recursive: true });
  const held = openStateFile(stateFile, () => {});
  let isHeld = true;
  const release = () => {
    if (isHeld) held.close?.();
    isHeld = false;
  };
  onTestFinished(release);
  const lock = {
    pid: process.pid,
    host: '0.0.0.0',
    port: relay.port,
    tls: false,
    version: '1.0.0',
    build: null,
    args: [],
  };
  const unlock = await writeRelayLock(
    { ...lock, state_file: stateFile, agent_home: home, ...change },
    join(user, '.svc-relay'),
  );
  const env = { HOME: user, SVC_HOME: home, RELAY_PORT: String(await closedPort()), SVC_API_URL: 'http://127.0.0.1:1' };
  return { ...relay, home, env, stateFile, unlock, release };
}

describe.runIf(process.platform === 'linux')('every command finds its relay (contract 11 §1)', () => {
  it('on the port of its lock, whatever RELAY_PORT says; a flag wins', async () => {
    const relay = await heldRelay();
    for (const words of [
      ['status', '--json'],
      ['devices'],
      ['console'],
      ['relay', 'insecure-api-key'],
      ['mcp', 'list'],
    ]) {
      const result = await run(words, { env: relay.env });
      expect([result.code, result.stderr], words.join(' ')).toEqual([0, '']);
    }
    expect((await run(['console'], { env: relay.env })).stdout).toContain(`http://127.0.0.1:${relay.port}/console/`);
    expect(JSON.parse((await run(['status', '--json'], { env: relay.env })).stdout)).toMatchObject({
      relay: { running: true, address: `127.0.0.1:${relay.port}`, pid: process.pid },
      outdated: false,
    });
    const flag = await run(['relay', 'insecure-api-key', '--port', relay.env.RELAY_PORT], { env: relay.env });
    expect([flag.code, flag.stderr]).toEqual([1, expect.stringContaining(`127.0.0.1:${relay.env.RELAY_PORT}`)]);
  });

  it('says of a relay that is older than the command that it is, in one line on stderr or one member of the JSON', async () => {
    const relay = await heldRelay({ version: '0.9.0', build: { id: 'a', commit: 'abc1234', built_at: 1 } });
    const line = 'warning: the relay (0.9.0 (abc1234)) is older than this command (1.0.0): svc restart\n';
    for (const words of [['devices'], ['console'], ['relay', 'insecure-api-key'], ['phone', 'list']]) {
      const { stdout, stderr } = await run(words, { env: relay.env });
      expect(
        stderr
          .split('\n')
          .filter((text) => text.includes('older'))
          .join('\n'),
        words.join(' '),
      ).toBe(line.trim());
      expect(stdout).not.toContain('older');
      const json = await run([...words, '--json'], { env: relay.env });
      expect(JSON.parse(json.stdout), words.join(' ')).toMatchObject({
        relay_outdated: { relay: '0.9.0 (abc1234)', command: '1.0.0', next: 'Restart it with: svc restart' },
      });
      expect(json.stderr).not.toContain('older');
    }
    const status = await run(['status'], { env: relay.env });
    expect([status.stdout, status.stderr]).toEqual([expect.stringContaining('abc1234'), '']);
    const elsewhere = await run(['devices'], { env: { ...relay.env, SVC_RELAY: 'http://127.0.0.1:1' } });
    expect(elsewhere.stderr).not.toContain('older');
  });

  it('so does the plugin of the dashboard, also when the relay starts later', async () => {
    const home = agentHome();
    const env = { RELAY_PORT: String(await closedPort()) };
    const dashboard = await startDashboard({ agentHome: home, env });
    const ask = async () => (await fetch(`${dashboard.url}${TRANSPORT}/health`, { headers: SIGNED_IN })).status;
    expect(await ask()).toBe(502);
    await heldRelay({}, home);
    await expect.poll(ask).toBe(200);
  });

  it('no longer by the lock of a relay that is gone, which was killed or never was', async () => {
    const relay = await heldRelay();
    relay.release();
    expect(readFileSync(`${relay.stateFile}.lock`, 'utf8')).toContain(String(relay.port));
    expect(readRelayLock(relay.stateFile)).toBeNull();
    const { code, stderr } = await run(['devices'], { env: relay.env });
    expect([code, stderr]).toEqual([1, expect.stringContaining(`127.0.0.1:${relay.env.RELAY_PORT}`)]);
    expect(stderr).toContain(`no relay holds ${relay.stateFile}`);
    for (const text of ['', '{', '[]', '{"pid":"1"}', `{"pid":${process.pid},"host":"x","port":70000}`]) {
      writeFileSync(`${relay.stateFile}.lock`, text);
      expect(readRelayLock(relay.stateFile), text).toBeNull();
    }
  });

  it('status --all lists every relay of the user and forgets those that are gone', async () => {
    const user = agentHome();
    const one = await heldRelay({}, agentHome(), user);
    const other = await heldRelay({ host: '127.0.0.1', tls: true }, agentHome(), user);
    const listed = async () => JSON.parse((await run(['status', '--all', '--json'], { env: one.env })).stdout);
    expect((await listed()).relays.map(({ port }: RelayLock) => port).sort()).toEqual([one.port, other.port].sort());
    const text = await run(['status', '--all'], { env: one.env });
    expect(text.stdout).toContain(`127.0.0.1:${other.port}, TLS`);
    expect(text.stdout).toContain(one.home);
    other.release();
    expect((await listed()).relays).toMatchObject([{ port: one.port }]);
    one.unlock();
    expect(await run(['status', '--all', '--json'], { env: one.env })).toMatchObject({ code: 1, stderr: '' });
  });
});

describe('svc use and SVC_RELAY (contract 11 §1)', () => {
  it('choose the relay of commands without --relay, until --here', async () => {
    const home = agentHome();
    const remote = await fakeRelay(({ path, headers }) =>
      path === '/health'
        ? { body: { status: 'ok', version: '1.0.0', readiness: { ready: true } } }
        : { body: { devices: [], seen: headers.authorization } },
    );
    const url = `http://localhost:${remote.port}`;
    const env = { HOME: home, SVC_HOME: home, RELAY_PORT: String(await closedPort()) };
    expect((await run(['use'], { env })).stdout).toContain('the relay of this machine');
    expect(await run(['use', url], { env })).toMatchObject({ code: 0, stderr: '' });
    expect((await run(['devices'], { env })).code).toBe(0);
    expect(remote.seen.at(-1)?.headers.authorization).toMatch(/^Bearer /);
    const named = JSON.parse((await run(['status', '--json'], { env })).stdout);
    expect(named).toMatchObject({ relay: { address: url }, agent: null });
    // What belongs to this machine stays there.
    expect((await run(['stop'], { env })).stdout).toContain('No relay is running');
    expect((await run(['pair', '--mode', 'lan'], { env })).code).toBe(2);

    expect(await run(['use', '--here'], { env })).toMatchObject({ code: 0 });
    expect((await run(['devices'], { env })).code).toBe(1);
    expect((await run(['devices'], { env: { ...env, SVC_RELAY: url } })).code).toBe(0);
    const gone = await run(['devices'], { env: { ...env, SVC_RELAY: 'http://localhost:1' } });
    expect([gone.code, gone.stderr]).toEqual([1, expect.stringContaining('SVC_RELAY names it')]);
  });

  it.each(['ftp://x', 'http://relay.example', 'https://relay.example/path'])('refuse %s', async (url) => {
    const home = agentHome();
    const env = { HOME: home, SVC_HOME: home };
    expect((await run(['use', url], { env })).code).toBe(2);
    const { code, stderr } = await run(['devices'], { env: { ...env, SVC_RELAY: url } });
    expect([code, stderr]).toEqual([2, expect.stringContaining('SVC_RELAY')]);
    expect((await run(['use', '--here', url], { env })).code).toBe(2);
  });
});

import { describe, expect, it } from 'vitest';
import { portHolder } from '../../lib/host/node/port-holder.ts';
import { agentHome, fakeRelay, run } from '../support/cli.ts';
import { closedPort } from '../support/closed-port.ts';
import { begin, paired } from '../support/companion-cli.ts';
import { TIMEOUT } from '../support/limits.ts';
import { isPortFree, type RelayProcess, startRelayProcess } from '../support/process.ts';

/** Nothing of a developer's machine: neither an agent nor a dashboard answers. */
const NOBODY = { SVC_API_URL: 'http://127.0.0.1:1', SVC_DASHBOARD_URL: 'http://127.0.0.1:1' };
const envOf = ({ home, port }: Pick<RelayProcess, 'home' | 'port'>) => ({
  ...NOBODY,
  HOME: home,
  SVC_HOME: home,
  RELAY_PORT: String(port),
  RELAY_HOST: '127.0.0.1',
});

describe('svc status, logs and stop (contract 09 §2)', () => {
  it('follow the life of a relay', async () => {
    const relay = await startRelayProcess();
    const env = envOf(relay);
    const fresh = await run(['status'], { env });
    expect([fresh.code, fresh.stderr]).toEqual([0, '']);
    expect(fresh.stdout).toMatch(
      new RegExp(`^ {2}Relay +running, version [\\d.]+( \\([\\w-]+\\))?, up \\d+ s, process ${relay.child.pid}\\n`),
    );
    expect(fresh.stdout).toMatch(/Agent +http:\/\/127\.0\.0\.1:1 does not answer: connection refused\n/);
    expect(fresh.stdout).toMatch(
      /Devices +none is paired\n.*Queue +empty\n.*Service .*\nPair a phone with: svc pair\n$/s,
    );
    await paired(relay.port);
    for (const columns of [80, 40]) {
      const narrow = await run(['status'], { env: { ...env, NO_COLOR: '1' }, tty: true, columns });
      expect(narrow.stdout).not.toContain('\u001b');
      const words = narrow.stdout.split('\n').filter((text) => text.length > columns);
      // A path or URL is not broken.
      for (const text of words) expect(text.trim().split(/\s+/).length, text).toBeLessThanOrEqual(2);
    }
    const json = JSON.parse((await run(['status', '--json'], { env })).stdout);
    expect(json).toMatchObject({
      ok: true,
      relay: { running: true, ready: true, pid: relay.child.pid, tls: false, error: null },
      agent: { reachable: false },
      devices: { connected: 0, stale: 0, offline: 1 },
      queued: 0,
    });
    expect(await portHolder(relay.port)).toMatchObject({ pid: relay.child.pid, program: 'node svc.js' });

    const logs = await run(['logs', '-n', '500'], { env });
    expect(logs.stdout).toMatch(/^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \[(WARNING|INFO)\] relay: /);
    expect(logs.stdout).toMatch(/\[INFO\] relay: svc-relay [\d.]+ listens on /);
    const one = JSON.parse((await run(['logs', '-n', '1', '--level', 'info', '--json'], { env })).stdout);
    expect(one.lines).toMatchObject([{ level: 'INFO' }]);
    // Nothing warns about what nobody asked for (contract 11 §5).
    const none = JSON.parse((await run(['logs', '--level', 'warning', '--json'], { env })).stdout);
    expect(none.lines).toEqual([]);
    const following = begin(['logs', '-f', '-n', '1'], { home: relay.home, env });
    await following.prints(/\[\w+\] /);
    const before = following.stdout.split('listens on').length;
    await relay.restart();
    await following.prints(/trying again/);
    await expect.poll(() => following.stdout.split('listens on').length, { timeout: TIMEOUT }).toBe(before + 1);
    following.stop();
    expect((await following.ended).code).toBe(0);

    const stopped = await run(['stop'], { env });
    expect(stopped).toMatchObject({ code: 0, stdout: `Stopped the relay (process ${relay.child.pid}).\n`, stderr: '' });
    expect(await relay.child.ended).toMatchObject({ code: 0 });
    expect(await isPortFree(relay.port)).toBe(true);
    expect(await run(['stop'], { env })).toMatchObject({ code: 0, stdout: 'No relay is running.\n' });
    const down = await run(['status'], { env });
    expect([down.code, down.stderr]).toEqual([1, '']);
    expect(down.stdout).toMatch(/^ {2}Relay +not running\n.*\nStart it with 'svc up'.*\n$/s);
    expect(JSON.parse((await run(['status', '--json'], { env })).stdout)).toMatchObject({
      ok: false,
      relay: { running: false, pid: null },
      devices: null,
    });
  });

  it('stop finds a relay without a state file by its port', async () => {
    const relay = await startRelayProcess({ env: { RELAY_STATE_FILE: '' } });
    const { code, stdout } = await run(['stop', '--json'], { env: { ...envOf(relay), RELAY_STATE_FILE: '' } });
    expect([code, JSON.parse(stdout)]).toEqual([0, { stopped: true, pid: relay.child.pid, by: 'signal' }]);
  });

  it('say what is wrong and what to do', async () => {
    const home = agentHome();
    const nobody = { ...NOBODY, SVC_HOME: home, HOME: home, RELAY_PORT: String(await closedPort()) };
    const logs = await run(['logs', '-f'], { env: nobody });
    expect([logs.code, logs.stdout]).toEqual([1, '']);
    expect(logs.stderr).toMatch(/^error: no relay answers.*\n.*svc relay start.*journalctl.*\n$/);
    for (const words of [
      ['logs', '-n', '501'],
      ['logs', '--level', 'loud'],
      ['stop', 'x'],
      ['status', 'x'],
    ]) {
      expect((await run(words, { env: nobody })).code, words.join(' ')).toBe(2);
    }
    const other = await fakeRelay(() => ({ body: { hello: 'there' } }));
    const env = { ...nobody, RELAY_PORT: String(other.port) };
    const stop = await run(['stop'], { env });
    expect([stop.code, stop.stderr]).toEqual([1, expect.stringMatching(/no relay on this state.*\n.*svc status/)]);
    const status = await run(['status'], { env });
    expect([status.code, status.stdout]).toEqual([1, expect.stringContaining('not that of a relay')]);
  });
});

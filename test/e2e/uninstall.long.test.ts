import { existsSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { lockHolder } from '../../lib/host/node/relay-lock.ts';
import { freePort, isPortFree, runSvc, startRelayProcess, temporaryHome } from '../support/process.ts';
import { canGroup, stateOf, withSystemd } from '../support/user-systemd.ts';

/** No systemd of this machine has a say. */
const PATH = { PATH: dirname(process.execPath), RELAY_HOST: '127.0.0.1' };

it('svc relay uninstall stops a running relay first, and the next one starts empty (11 §3)', async () => {
  const home = await temporaryHome();
  const port = await freePort();
  const svc = (...words: string[]) => runSvc(words, { home, env: PATH });
  expect((await svc('up', '--port', String(port))).code).toBe(0);
  const pid = lockHolder(join(home, 'svc-relay/state.db'));
  expect((await svc('mcp', 'pair', '--yes')).code).toBe(0);
  await writeFile(join(home, '.env'), 'RELAY_LOG_LEVEL=INFO\n');
  const done = await svc('relay', 'uninstall', '--yes', '--json');
  expect([done.code, done.stderr]).toEqual([0, '']);
  expect(JSON.parse(done.stdout)).toMatchObject({ ok: true, stopped: pid, failed: [] });
  expect([existsSync(join(home, 'svc-relay')), existsSync(join(home, '.env')), await isPortFree(port)]).toEqual([
    false,
    true,
    true,
  ]);
  const next = await startRelayProcess({ home, port, env: PATH });
  expect((await next.ask('/sessions', { headers: { 'x-svc-operator': '1' } })).json.sessions).toEqual([]);
});

describe('svc relay uninstall with a service of systemd (11 §3)', () => {
  it.runIf(canGroup)('stops the service that runs, through systemd, and takes its unit away', async () => {
    const { home, port, unit, svc, asked } = await withSystemd({ grouped: true });
    expect((await svc(['up'])).code).toBe(0);
    const pid = lockHolder(stateOf(home));
    const done = await svc(['relay', 'uninstall', '--yes', '--json']);
    expect([done.code, done.stderr]).toEqual([0, '']);
    expect(JSON.parse(done.stdout)).toMatchObject({ ok: true, stopped: pid, service: true, failed: [] });
    expect(JSON.parse(done.stdout).removed).toEqual(expect.arrayContaining([unit, join(home, 'svc-relay')]));
    const changes = asked()
      .split('\n')
      .filter((row) => !row.includes(' show ') && !row.includes('--user start'));
    expect(changes.filter((row) => row !== '')).toEqual([
      '--user stop svc-relay.service',
      '--user disable --now svc-relay.service',
      '--user daemon-reload',
    ]);
    expect([existsSync(unit), existsSync(join(home, 'svc-relay')), await isPortFree(port)]).toEqual([
      false,
      false,
      true,
    ]);
  });

  it.runIf(canGroup)('removes nothing while systemd does not stop it', async () => {
    const { home, unit, svc, refuses } = await withSystemd({ grouped: true });
    await svc(['up']);
    const pid = lockHolder(stateOf(home));
    refuses('stop');
    const failed = await svc(['relay', 'uninstall', '--yes', '--json']);
    expect([failed.code, JSON.parse(failed.stdout)]).toEqual([
      1,
      {
        ok: false,
        error: 'systemctl --user stop svc-relay.service failed',
        next: expect.stringContaining('systemctl --user status svc-relay.service'),
      },
    ]);
    expect([existsSync(unit), lockHolder(stateOf(home))]).toEqual([true, pid]);
  });

  it('removes nothing else while systemd keeps the service: it would start a relay anew', async () => {
    const { home, unit, svc, refuses } = await withSystemd();
    await svc(['up']);
    refuses('disable');
    const failed = await svc(['relay', 'uninstall', '--yes']);
    expect([failed.code, failed.stdout]).toEqual([1, '']);
    expect(failed.stderr.replace(/\s+/g, ' ')).toMatch(
      /could not be removed: systemctl --user disable --now svc-relay\.service failed\. Nothing was removed; the relay is stopped/,
    );
    expect([existsSync(unit), existsSync(stateOf(home)), existsSync(join(home, '.env'))]).toEqual([true, true, true]);
    refuses('');
    const up = await svc(['up', '--json']);
    expect(JSON.parse(up.stdout)).toMatchObject({ ok: true, by: 'systemd' });
    const done = await svc(['relay', 'uninstall', '--yes']);
    expect([done.code, done.stdout]).toEqual([
      0,
      expect.stringMatching(/Stopped the relay \(process \d+\)\.\s+Removed the service svc-relay\.service\./),
    ]);
    expect(existsSync(stateOf(home))).toBe(false);
  });
});

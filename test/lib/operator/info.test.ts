import { mkdir, symlink, utimes } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { readConfig } from '../../../lib/config.ts';
import { capabilities } from '../../../lib/domains.ts';
import type { HostFiles } from '../../../lib/host/index.ts';
import { readEnablement } from '../../../lib/operator/enablement.ts';
import { createRelayInfo } from '../../../lib/operator/info.ts';
import { createTestClock } from '../../support/clock.ts';
import { createTestHost } from '../../support/host.ts';
import { createTestLog } from '../../support/log.ts';
import { temporaryDirectory } from '../../support/temp.ts';

const configOf = (agentHome: string) => readConfig({}, { home: agentHome, agentHome }).config;
const ENABLED = 'plugins:\n  enabled: [other, svc-relay]\n';

describe('capabilities (07 §3.1)', () => {
  it('announces nothing at the edge that needs a host, in order', () => {
    const all = capabilities({ hasHost: true });
    const edge = capabilities({ hasHost: false });
    for (const names of [all, edge]) expect(names).toEqual([...new Set(names)].sort());
    expect(all).toEqual(expect.arrayContaining(edge));
    expect(edge).toEqual(expect.arrayContaining(['chat', 'notifications', 'pairing', 'sessions']));
    for (const name of ['clipboard', 'profiles', 'terminal']) {
      expect([name, all.includes(name), edge.includes(name)]).toEqual([name, true, false]);
    }
  });
});

describe('enablement (07 §5.5)', () => {
  it('lists the root, then profiles in order, with the state of each', async () => {
    const home = await temporaryDirectory({
      'config.yaml': ENABLED,
      'profiles/b/config.yaml': 'plugins:\n  disabled:\n    - svc-relay\n',
      'profiles/a/config.yaml': 'plugins:\n  enabled: [svc-relay]\n  disabled: [svc-relay]\n',
      'profiles/c/config.yaml': '# nothing\n',
      'profiles/d/config.yaml': 'plugins:\n  enabled: svc-relay\n',
      'profiles/e/config.yaml': '- a list\n',
      'profiles/f/config.yaml': 'plugins: [\n',
      'profiles/g/SOUL.md': 'no config',
      'profiles/.hidden/config.yaml': ENABLED,
      'profiles/file': 'no directory',
    });
    const rows = await readEnablement(createTestHost({ agentHome: home }), configOf(home));
    expect(rows.map(({ profile, state, error }) => [profile, state, error !== undefined])).toEqual([
      ['(default)', 'enabled', false],
      ['a', 'enabled', false],
      ['b', 'disabled', false],
      ['c', 'absent', false],
      ['d', 'absent', false],
      ['e', 'absent', true],
      ['f', 'absent', true],
    ]);
    expect(rows[1]?.path).toBe(join(home, 'profiles/a/config.yaml'));
  });

  it('follows links only inside of profiles/', async () => {
    const elsewhere = await temporaryDirectory({ 'config.yaml': ENABLED });
    const home = await temporaryDirectory({ 'profiles/real/config.yaml': ENABLED });
    await symlink(elsewhere, join(home, 'profiles/outside'));
    await symlink(join(home, 'profiles/real'), join(home, 'profiles/inside'));
    const rows = await readEnablement(createTestHost({ agentHome: home }), configOf(home));
    expect(rows.map(({ profile }) => profile)).toEqual(['inside', 'real']);
  });

  it('refuses alias bombs and oversized files', async () => {
    const bomb = `a: &a [x,x,x,x,x,x,x,x,x]\n${[...'bcdefghi'].map((name, index) => `${name}: &${name} [${Array(9).fill(`*${'abcdefgh'[index]}`)}]\n`).join('')}`;
    const home = await temporaryDirectory({
      'config.yaml': bomb,
      'profiles/big/config.yaml': `${ENABLED}# ${'x'.repeat(1024 * 1024)}`,
    });
    const rows = await readEnablement(createTestHost({ agentHome: home }), configOf(home));
    expect(rows.map(({ state, error }) => [state, error !== undefined])).toEqual([
      ['absent', true],
      ['absent', true],
    ]);
  });
});

describe('relay info (01 §8.1)', () => {
  it('knows nothing without a host', async () => {
    const info = createRelayInfo({ config: configOf('/nowhere'), clock: createTestClock(), log: createTestLog() });
    expect(await info.agent()).toEqual({
      profiles: [],
      gateway_heartbeat: { status: 'missing', supported: false },
      gateway_prior_exit: { prior_exit: 'unknown' },
    });
  });

  it('reads the agent home and reveals no pid, path or time', async () => {
    const clock = createTestClock();
    const home = await temporaryDirectory({
      'config.yaml': ENABLED,
      'gateway.pid': '{"pid":48151,"start_time":62342}',
      'state/gateway.heartbeat': JSON.stringify({
        pid: 48151,
        start_time: 62342,
        updated_at: new Date(clock.now() - 5000).toISOString(),
      }),
      'logs/gateway-exit-diag.log': `${'x'.repeat(300 * 1024)}\n{"tag":"atexit.hook","pid":108}\n{"tag":"gateway.start","pid":48151}\n`,
    });
    const seen = (clock.now() - 7000) / 1000;
    await utimes(join(home, 'state/gateway.heartbeat'), seen, seen);
    const info = createRelayInfo({
      host: createTestHost({ agentHome: home }),
      config: configOf(home),
      clock,
      log: createTestLog(),
    });
    const agent = await info.agent();
    expect(agent).toEqual({
      profiles: [{ name: '(default)', relay_state: 'enabled' }],
      gateway_heartbeat: { status: 'fresh', supported: true, age_seconds: 7 },
      gateway_prior_exit: { prior_exit: 'clean' },
    });
    expect(JSON.stringify(agent)).not.toMatch(new RegExp(`48151|62342|108|${tmpdir()}`));
  });

  it('tolerates unreadable files', async () => {
    const home = await temporaryDirectory();
    for (const path of ['config.yaml', 'state/gateway.heartbeat', 'logs/gateway-exit-diag.log']) {
      await mkdir(join(home, path), { recursive: true });
    }
    const info = createRelayInfo({
      host: createTestHost({ agentHome: home }),
      config: configOf(home),
      clock: createTestClock(),
      log: createTestLog(),
    });
    expect(await info.agent()).toEqual({
      profiles: [{ name: '(default)', relay_state: 'absent' }],
      gateway_heartbeat: { status: 'malformed', supported: true },
      gateway_prior_exit: { prior_exit: 'unknown' },
    });
  });

  it('reads once for concurrent callers, and again for the next one', async () => {
    const home = await temporaryDirectory({ 'config.yaml': '{}' });
    let reads = 0;
    const plain = createTestHost({ agentHome: home });
    const list: HostFiles['list'] = (path) => {
      reads++;
      return plain.files.list(path);
    };
    const host = { ...plain, files: { ...plain.files, list } };
    const info = createRelayInfo({ host, config: configOf(home), clock: createTestClock(), log: createTestLog() });
    await Promise.all([info.agent(), info.agent()]);
    expect(reads).toBe(1);
    await info.agent();
    expect(reads).toBe(2);
  });

  it('counts uptime from the creation of the relay', () => {
    const clock = createTestClock();
    const info = createRelayInfo({ config: configOf('/nowhere'), clock, log: createTestLog() });
    clock.advance(5_900);
    expect(info.uptimeSeconds()).toBe(5);
  });
});

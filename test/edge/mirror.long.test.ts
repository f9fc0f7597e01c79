import { describe, expect, it, onTestFinished } from 'vitest';
import { run } from '../support/cli.ts';
import { type EdgeRuntime, startEdgeRuntime } from '../support/edge-runtime.ts';
import { type FlakyProxy, startFlakyProxy } from '../support/flaky-proxy.ts';
import { type RelayProcess, startRelayProcess, temporaryHome } from '../support/process.ts';

interface Row {
  device_name: string;
  token_prefix: string;
  expires_at: number | null;
  grants: Record<string, number | null>;
}

/** A home in a process of its own, the edge in its runtime, and a network between them that fails. */
describe('home and its mirror at the edge (contract 12 §1, §2)', () => {
  let runtime: EdgeRuntime;
  let home: RelayProcess;
  let proxy: FlakyProxy;
  let edge: string;
  let env: Record<string, string>;

  async function start(): Promise<void> {
    const agentHome = await temporaryHome();
    env = { SVC_HOME: agentHome, HOME: agentHome };
    const { stdout: key } = await run(['relay', 'operator-token', '--public-key'], { env });
    runtime = await startEdgeRuntime({ RELAY_OPERATOR_PUBLIC_KEY: key.trim(), RELAY_HOSTS: '' });
    onTestFinished(() => runtime.stop());
    proxy = await startFlakyProxy({
      port: Number(new URL(runtime.origin('127.0.0.1')).port),
      seed: 1,
      faults: ['none'],
    });
    onTestFinished(() => proxy.close());
    edge = `http://127.0.0.1:${proxy.port}`;
    home = await startRelayProcess({ home: agentHome });
    env.RELAY_PORT = String(home.port);
  }

  const svc = (...words: string[]) => run(words, { env });
  const json = async (...words: string[]) => JSON.parse((await svc(...words, '--json')).stdout);
  const atHome = async (): Promise<Row[]> => (await json('devices')).devices;
  const atEdge = async (): Promise<Row[]> => (await json('devices', '--relay', edge)).devices;
  const policies = (rows: Row[]) =>
    Object.fromEntries(rows.map(({ device_name, expires_at, grants }) => [device_name, { expires_at, grants }]));
  const inStep = () =>
    expect
      .poll(async () => {
        const { link, waiting } = await json('relay', 'mirror', 'status');
        return [link, waiting];
      })
      .toEqual(['up', { out: 0, in: 0 }]);
  const same = async () => expect.poll(async () => policies(await atEdge())).toEqual(policies(await atHome()));

  async function pair(name: string): Promise<string> {
    const { stdout, stderr } = await svc('pair', '--token', '--name', name);
    expect(stderr).toBe('');
    return stdout.trim();
  }
  const statusOf = async (url: string, token: string) =>
    (await fetch(`${url}/sessions`, { headers: { authorization: `Bearer ${token}` } })).status;

  it('pairs once, and a revocation on either side is in force on both', async () => {
    await start();
    const token = await pair('phone');
    const enabled = await svc('relay', 'mirror', 'enable', '--relay', edge);
    expect([enabled.code, enabled.stderr]).toEqual([0, '']);
    expect(enabled.stdout).toContain('See the link with: svc relay mirror status\n');
    await inStep();
    await same();
    expect(policies(await atEdge())).toHaveProperty('phone');
    // Home's token is worthless at the edge.
    expect([await statusOf(home.url, token), await statusOf(edge, token)]).toEqual([200, 401]);

    const tablet = await pair('tablet');
    await same();
    const began = Date.now();
    const revoked = await json('devices', 'revoke', 'phone', '--yes');
    expect(revoked).toMatchObject({ ok: true, edge: 'confirmed' });
    expect(policies(await atEdge())).not.toHaveProperty('phone');
    expect(Date.now() - began).toBeLessThan(5_000);

    const there = await json('devices', 'revoke', 'tablet', '--yes', '--relay', edge);
    expect(there).toMatchObject({ ok: true });
    await expect.poll(() => statusOf(home.url, tablet)).toBe(401);
    const { sessions } = (await home.ask('/sessions/ended')).json;
    expect(sessions.map((row: { device_name: string; reason: string }) => [row.device_name, row.reason])).toEqual([
      ['tablet', 'revoked by the edge'],
      ['phone', 'revoked by operator'],
    ]);
    expect((await svc('status')).stdout).toMatch(/Mirror +home: up · edge: in step\n/);
    expect((await svc('status', '--relay', edge)).stdout).toMatch(/Mirror +home: up\n/);
  });

  it('with the link down, the command calls the edge itself; what waits arrives later', async () => {
    await start();
    const [, laptop] = [await pair('phone'), await pair('laptop')];
    await svc('relay', 'mirror', 'enable', '--relay', edge);
    await inStep();
    const [row] = (await atEdge()).filter(({ device_name }) => device_name === 'laptop');
    // The link alone: calls still pass.
    proxy.strike('reset');
    await expect.poll(async () => (await json('relay', 'mirror', 'status')).link).toBe('down');
    expect(await json('devices', 'revoke', 'phone', '--yes')).toMatchObject({ edge: 'confirmed' });
    expect(policies(await atEdge())).not.toHaveProperty('phone');
    await home.kill();
    expect((await svc('devices', 'revoke', row?.token_prefix ?? '', '--yes', '--relay', edge)).code).toBe(0);
    expect((await svc('status', '--relay', edge)).stdout).toMatch(
      /Mirror +home off since \d\d:\d\d · 2 wait at the edge/,
    );
    await home.restart();
    await expect.poll(() => statusOf(home.url, laptop)).toBe(401);
    await inStep();
    expect(await atHome()).toEqual([]);
  });

  it('agrees after each side was killed between any two changes, over a network that fails', async () => {
    await start();
    await svc('relay', 'mirror', 'enable', '--relay', edge);
    const faults = ['reset', 'cut', 'half-open', 'none'] as const;
    for (let round = 0; round < 5; round++) {
      const name = `device-${round}`;
      await pair(name);
      if (round > 0) await json('devices', 'reduce', `device-${round - 1}`, '--ttl', `${round}d`);
      proxy.strike(faults[round % faults.length] ?? 'none');
      if (round % 2 === 0) await home.restart();
      else {
        await runtime.restart();
        await proxy.close();
        proxy = await startFlakyProxy({
          port: Number(new URL(runtime.origin('127.0.0.1')).port),
          seed: round,
          faults: ['none'],
          listen: Number(new URL(edge).port),
        });
      }
      if (round > 1) await svc('devices', 'revoke', `device-${round - 2}`, '--yes');
    }
    await inStep();
    await same();
    expect(Object.keys(policies(await atHome())).sort()).toEqual(['device-3', 'device-4']);
  }, 180_000);

  it('is disabled on both sides, and another home is refused', async () => {
    await start();
    await pair('phone');
    await svc('relay', 'mirror', 'enable', '--relay', edge);
    await inStep();
    const other = await startRelayProcess();
    const { key } = (await other.ask('/relay/mirror')).json;
    const token = (await json('relay', 'operator-token', '--relay', edge)).token;
    const refused = await fetch(`${edge}/relay/mirror`, {
      method: 'POST',
      headers: { authorization: `Bearer ${token}` },
      body: JSON.stringify({ key }),
    });
    expect(refused.status).toBe(409);
    expect(await json('relay', 'mirror', 'disable')).toMatchObject({ enabled: false, edge: 'confirmed' });
    expect(await atEdge()).toEqual([]);
    expect((await atHome()).length).toBe(1);
    expect((await svc('relay', 'mirror', 'status')).stdout).toMatch(
      /^This relay is not mirrored\.\nBegin with: svc relay mirror enable --relay https:/,
    );
    // The phone is mirrored again when it is enabled again.
    await svc('relay', 'mirror', 'enable', '--relay', edge);
    await inStep();
    await same();
    expect(policies(await atEdge())).toHaveProperty('phone');
  });
});

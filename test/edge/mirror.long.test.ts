import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { run } from '../support/cli.ts';
import { connect, type Frame } from '../support/client.ts';
import { begin } from '../support/companion-cli.ts';
import { startWatch } from '../support/cpu.ts';
import { type EdgeRuntime, startEdgeRuntime } from '../support/edge-runtime.ts';
import { type FlakyProxy, startFlakyProxy } from '../support/flaky-proxy.ts';
import { connectMcp, textOf } from '../support/mcp.ts';
import { type RelayProcess, startRelayProcess, temporaryHome } from '../support/process.ts';

interface Row {
  device_id: string;
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
  const same = () => vi.waitFor(async () => expect(policies(await atEdge())).toEqual(policies(await atHome())));
  /** Waits until the edge has seen that home is gone. */
  const isGone = () =>
    expect.poll(async () => (await svc('status', '--relay', edge)).stdout).toMatch(/Mirror +home off since/);

  async function pair(name: string): Promise<string> {
    const { stdout, stderr } = await svc('pair', '--token', '--name', name);
    expect(stderr).toBe('');
    return stdout.trim();
  }
  const statusOf = async (url: string, token: string) =>
    (await fetch(`${url}/sessions`, { headers: { authorization: `Bearer ${token}`, connection: 'close' } })).status;

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

    // A freeze on either side is in force on both, and ended on both.
    const frozen = () => Promise.all([json('status'), json('status', '--relay', edge)]);
    const isFrozen = async () => (await frozen()).map((status) => status.frozen?.by ?? null);
    expect((await svc('freeze')).code).toBe(0);
    await expect.poll(isFrozen).toEqual(['operator', 'operator']);
    expect((await svc('unfreeze', '--relay', edge)).code).toBe(0);
    await expect.poll(isFrozen).toEqual([null, null]);

    const tablet = await pair('tablet');
    await same();
    const passed = startWatch();
    const revoked = await json('devices', 'revoke', 'phone', '--yes');
    expect(revoked).toMatchObject({ ok: true, edge: 'confirmed' });
    expect(policies(await atEdge())).not.toHaveProperty('phone');
    expect(passed()).toBeLessThan(5_000);

    const there = await json('devices', 'revoke', 'tablet', '--yes', '--relay', edge);
    expect(there).toMatchObject({ ok: true });
    await expect.poll(() => statusOf(home.url, tablet)).toBe(401);
    const { sessions } = (await home.ask('/sessions/ended')).json;
    expect(sessions.map((row: { device_name: string; reason: string }) => [row.device_name, row.reason])).toEqual([
      ['tablet', 'revoked by the edge'],
      ['phone', 'revoked by operator'],
    ]);
    await expect.poll(async () => (await svc('status')).stdout).toMatch(/Mirror +home: up · edge: in step\n/);
    expect((await svc('status', '--relay', edge)).stdout).toMatch(/Mirror +home: up\n/);
  });

  it('with the link down, the command calls the edge itself; what waits arrives later', async () => {
    await start();
    const [, laptop] = [await pair('phone'), await pair('laptop')];
    await svc('relay', 'mirror', 'enable', '--relay', edge);
    await inStep();
    const [row] = (await atEdge()).filter(({ device_name }) => device_name === 'laptop');
    // The link alone, and each one that follows: calls on connections of their own still pass.
    proxy.refuse('/v1/home');
    proxy.strike('reset');
    await expect.poll(async () => (await json('relay', 'mirror', 'status')).link).toBe('down');
    expect(await json('devices', 'revoke', 'phone', '--yes')).toMatchObject({ edge: 'confirmed' });
    expect(policies(await atEdge())).not.toHaveProperty('phone');
    await home.kill();
    expect((await svc('devices', 'revoke', row?.token_prefix ?? '', '--yes', '--relay', edge)).code).toBe(0);
    await expect
      .poll(async () => (await svc('status', '--relay', edge)).stdout)
      .toMatch(/Mirror +home off since \d\d:\d\d · 2 wait at the edge/);
    proxy.refuse(undefined);
    await home.restart();
    await expect.poll(() => statusOf(home.url, laptop)).toBe(401);
    await inStep();
    await expect.poll(atHome).toEqual([]);
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
  }, 300_000);

  it('gives a device credentials of the edge, which outlive home, a refresh there, and a kill of each side', async () => {
    await start();
    const token = await pair('phone');
    const connected = await connect(`${home.url.replace('http', 'ws')}/ws`);
    connected.send('system', 'auth', { session_token: await pair('tablet') });
    await connected.next({ type: 'auth.ok' });
    await svc('relay', 'mirror', 'enable', '--relay', edge);
    await inStep();
    const url = `${edge.replace('http', 'ws')}/ws`;
    const isMailbox = ({ type, payload }: Frame) => type === 'routes.updated' && payload.mailbox !== undefined;
    await expect
      .poll(() => connected.frames.find(isMailbox)?.payload)
      .toMatchObject({
        endpoints: expect.arrayContaining([expect.objectContaining({ role: 'mailbox', mailbox: { url } })]),
        mailbox: { url },
      });
    const [{ device_id: id } = { device_id: '' }] = (await atHome()).filter(
      ({ device_name }) => device_name === 'phone',
    );
    const signIn = async (url: string, credentials: Record<string, unknown>, type = 'auth.ok') => {
      const client = await connect(`${url.replace('http', 'ws')}/ws`);
      const payload = { device_id: id, device_name: 'phone', ...credentials };
      client.send('system', 'auth', payload);
      const answer = await client.next({ channel: 'system', type });
      return { client, answer };
    };
    // The first connection after it was confirmed brings them.
    const first = await signIn(home.url, { session_token: token });
    const { mailbox, refresh_token } = first.answer.payload;
    expect(mailbox).toMatchObject({ url });
    await expect
      .poll(async () => (await signIn(home.url, { session_token: token })).answer.payload.mailbox)
      .toBeUndefined();
    const again = await signIn(home.url, { session_token: token });

    // A device that has lost them asks.
    again.client.send('system', 'mailbox.get', {}, 'q1');
    const fresh = await again.client.next({ id: 'q1' });
    expect(fresh.type).toBe('mailbox');
    const { session_token: own, refresh_token: refresh } = fresh.payload.mailbox as Record<string, string>;
    expect(await statusOf(edge, own ?? '')).toBe(200);
    // What one side has is worthless at the other, and ends nothing there.
    expect([await statusOf(home.url, own ?? ''), await statusOf(edge, token)]).toEqual([401, 401]);
    await signIn(edge, { session_token: token, refresh_token }, 'auth.fail');
    await signIn(home.url, { session_token: own, refresh_token: refresh }, 'auth.fail');

    await home.kill();
    const there = await signIn(edge, { session_token: own, refresh_token: refresh });
    expect(there.answer.payload).not.toHaveProperty('mailbox');
    const refreshed = await signIn(edge, { session_token: 'gone', refresh_token: refresh });
    const { session_token: next } = refreshed.answer.payload as Record<string, string>;
    await runtime.restart();
    await proxy.close();
    proxy = await startFlakyProxy({
      port: Number(new URL(runtime.origin('127.0.0.1')).port),
      seed: 2,
      faults: ['none'],
      listen: Number(new URL(edge).port),
    });
    expect(await statusOf(edge, next ?? '')).toBe(200);
    await home.restart();
    await inStep();
    expect(await statusOf(edge, next ?? '')).toBe(200);
    expect(await statusOf(home.url, token)).toBe(200);

    // Ended at the edge, it is over on both.
    expect((await svc('devices', 'revoke', 'phone', '--yes', '--relay', edge)).code).toBe(0);
    await expect.poll(() => statusOf(home.url, token)).toBe(401);
    expect(await statusOf(edge, next ?? '')).toBe(401);
  }, 300_000);

  it("serves a companion while home is off, says since when, refuses what is home's, and gives it back", async () => {
    await start();
    await svc('relay', 'mirror', 'enable', '--relay', edge);
    await inStep();
    const { pairing_url: link } = await json('pair');
    expect(
      (
        await begin(['companion', 'pair', '-', '--name', 'phone'], { home: env.SVC_HOME, env, input: `${link}\n` })
          .ended
      ).code,
    ).toBe(0);
    const companion = begin(['companion', 'run', '--json', '--messages', 'on'], { home: env.SVC_HOME, env });
    const status = () => json('companion', 'status');
    await expect
      .poll(async () => (await status()).routes.map((row: { route: string }) => row.route))
      .toContain('mailbox');
    expect((await status()).route).not.toBe('mailbox');

    const before = Math.floor(Date.now() / 1000);
    await home.kill();
    await expect.poll(async () => (await status()).home_off_since).toBeGreaterThanOrEqual(before);
    await expect.poll(async () => (await status()).route).toBe('mailbox');
    expect((await svc('companion', 'status')).stdout).toMatch(
      /Route +mailbox 127\.0\.0\.1:\d+ \(in use\)\n +Home +off since 20/,
    );

    // What belongs to home is refused, with since when.
    const settings = JSON.parse(await readFile(join(env.SVC_HOME ?? '', 'companion/settings.json'), 'utf8'));
    const { session_token: own } = settings.pairing.mailbox;
    const headers = { authorization: `Bearer ${own}` };
    const advice = 'try again when home is back; messages, replies and uploads are taken here meanwhile';
    const offSince = /^home is off since \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;
    // An attachment by the agent is a file of home.
    const attachment = `/media/${'A'.repeat(22)}`;
    for (const path of ['/chat/history?session_id=s1', '/ping', '/api/profiles/default/soul', attachment]) {
      const response = await fetch(`${edge}${path}`, { headers });
      const { since, ...answer } = await response.json();
      expect([path, response.status, answer]).toEqual([
        path,
        503,
        {
          ok: false,
          error: expect.stringMatching(offSince),
          error_code: 'home_offline',
          advice,
        },
      ]);
      expect(since).toBe((await status()).home_off_since);
    }
    const client = await connect(`${edge.replace('http', 'ws')}/ws`);
    client.send('system', 'auth', { session_token: own });
    await client.next({ type: 'home.offline' });
    for (const channel of ['bridge', 'terminal', 'tui', 'chat', 'desktop']) {
      client.send(channel, `${channel}.something`, {}, channel);
      const { payload } = await client.next({ id: channel });
      expect(payload).toMatchObject({ error_code: 'home_offline', channel, advice });
      expect(payload.message).toMatch(offSince);
    }
    const agent = await connectMcp({ url: edge }, own);
    const refused = await agent.client.callTool({ name: 'android_ping', arguments: {} });
    await agent.close();
    expect([refused.isError, JSON.parse(textOf(refused))]).toEqual([
      true,
      {
        refusal: 'home is off',
        error: expect.stringMatching(offSince),
        error_code: 'home_offline',
        since: (await status()).home_off_since,
        retry: true,
        advice: expect.stringContaining('when the home relay is back'),
      },
    ]);
    // The person at the companion is told in its words.
    const notices = companion.events('notice').map(({ message }) => String(message));
    expect(notices).toContainEqual(
      expect.stringMatching(/^home is off since .*: until it is back, messages wait at the edge and agents cannot/),
    );
    // What the mailbox is for is served.
    expect((await fetch(`${edge}/phone/threads`, { headers })).status).toBe(200);

    await home.restart();
    await client.next({ type: 'home.online' });
    await expect.poll(async () => (await status()).route).not.toBe('mailbox');
    await expect.poll(status).toMatchObject({ home_off_since: null });
    expect((await (await fetch(`${edge}/chat/history`, { headers })).json()).error_code).toBe('home_only');
    companion.stop();
    await companion.ended;
  }, 300_000);

  it.each([
    ['by a code that home has made for the edge', 'home'],
    ['by a code that the edge has made while home is off', 'edge'],
  ])(
    'a companion that pairs at the edge %s comes home by itself (12 §2, §3)',
    async (_name, by) => {
      await start();
      await svc('relay', 'mirror', 'enable', '--relay', edge);
      await inStep();
      if (by === 'edge') {
        await home.kill();
        await isGone();
      }
      const via = by === 'edge' ? ['--relay', edge] : ['--ttl', '7d', '--without', 'terminal'];
      const { pairing_url: link } = await json('pair', '--via', 'edge', ...via);
      const payload = JSON.parse(Buffer.from(String(link).split('payload=')[1] ?? '', 'base64url').toString());
      expect(new URL(payload.relay.url).host).toBe(new URL(edge).host);
      if (by === 'home') {
        // Raced at both, only its redeemer takes it.
        const racer = await connect(`${home.url.replace('http', 'ws')}/ws`);
        racer.send('system', 'auth', { pairing_code: payload.relay.code, pairing_secret: payload.relay.secret });
        await racer.next({ type: 'auth.fail' });
        await home.kill();
        await isGone();
      }
      const paired = begin(['companion', 'pair', '-', '--name', 'phone'], {
        home: env.SVC_HOME,
        env,
        input: `${link}\n`,
      });
      expect(await paired.ended).toMatchObject({ code: 0 });
      const companion = begin(['companion', 'run', '--json'], { home: env.SVC_HOME, env });
      const status = () => json('companion', 'status');
      await expect.poll(async () => (await atEdge()).map(({ device_name }) => device_name)).toEqual(['phone']);
      const settings = async () =>
        JSON.parse(await readFile(join(env.SVC_HOME ?? '', 'companion/settings.json'), 'utf8')).pairing;
      const there = (await settings()).session_token;
      // What home alone serves is refused as to any device of home.
      const bearer = { authorization: `Bearer ${there}` };
      expect((await (await fetch(`${edge}/ping`, { headers: bearer })).json()).error_code).toBe('home_offline');

      await home.restart();
      await expect.poll(async () => (await settings()).mailbox?.session_token).toBe(there);
      await expect.poll(async () => (await status()).route).toMatch(/^(lan|direct)$/);
      await inStep();
      await same();
      const [row] = await atHome();
      expect(row?.device_name).toBe('phone');
      // Who has made the code decides: home goes by its own words, and trusts the edge with messages alone.
      if (by === 'edge') {
        expect(Object.keys(row?.grants ?? {})).toEqual(['phone']);
        // Both people who could wonder are told, with the next step.
        const next = 'to let agents control this phone, pair it again with: svc pair';
        const notices = () => companion.events('notice').map(({ message }) => message);
        await expect.poll(notices).toContain(`this phone is paired without the bridge grant: ${next}`);
        expect((await svc('companion', 'status')).stdout).toMatch(new RegExp(`Bridge +not granted: ${next}\n`));
        const { json: bridge } = await home.ask('/bridge/status', { headers: { 'x-svc-operator': '1' } });
        expect(bridge.advice).toBe('"phone" is paired without the bridge grant; pair it again with: svc pair');
      } else expect(row?.grants).not.toHaveProperty('terminal');
      if (by === 'home') expect(row?.grants).toHaveProperty('chat');
      // It is shown as any other device.
      if (by === 'home') {
        await expect
          .poll(async () => (await home.ask('/bridge/devices')).json)
          .toMatchObject({ count: 1, devices: [{ phone_connected: true, device_name: 'phone' }] });
      }
      const own = (await settings()).session_token;
      expect([await statusOf(home.url, there), await statusOf(edge, own)]).toEqual([401, 401]);

      // Home is killed again: the edge is the mailbox of this device now.
      await home.kill();
      await expect.poll(async () => (await status()).route).toBe('mailbox');
      await home.restart();
      await expect.poll(async () => (await status()).route).not.toBe('mailbox');
      // A revocation is in force on both.
      expect((await svc('devices', 'revoke', 'phone', '--yes')).code).toBe(0);
      await expect.poll(atEdge).toEqual([]);
      companion.stop();
      await companion.ended;
    },
    300_000,
  );

  it('refuses a code for the edge without a mirror, and while that cannot be reached', async () => {
    await start();
    const without = await svc('pair', '--via', 'edge', '--json');
    expect([without.code, JSON.parse(without.stdout).error]).toEqual([
      1,
      'the relay refused to make a pairing code: this relay has no mirror at the edge where the code could be redeemed (HTTP 409)',
    ]);
    expect(JSON.parse(without.stdout).next).toContain('svc relay mirror enable --relay');
    await svc('relay', 'mirror', 'enable', '--relay', edge);
    await inStep();
    await proxy.close();
    await expect.poll(async () => (await json('relay', 'mirror', 'status')).link).toBe('down');
    const down = await svc('pair', '--via', 'edge', '--json');
    expect([down.code, JSON.parse(down.stdout).error]).toEqual([1, expect.stringContaining('cannot be reached now')]);
    // Nobody knows what waits there.
    const kept = await svc('relay', 'mirror', 'disable');
    expect([kept.code, kept.stderr]).toEqual([
      1,
      expect.stringMatching(/does not answer.*nothing was changed\n.*--force/s),
    ]);
    expect((await json('relay', 'mirror', 'status')).enabled).toBe(true);
    const twice = await svc('pair', '--via', 'edge', '--check');
    expect([twice.code, twice.stderr]).toEqual([2, expect.stringContaining('--via excludes')]);
    const forced = await svc('relay', 'mirror', 'disable', '--force', '--json');
    expect([forced.code, JSON.parse(forced.stdout)]).toEqual([
      1,
      expect.objectContaining({ enabled: false, edge: 'pending', left: null }),
    ]);
  });

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
    // Waiting messages come home first.
    await home.ask('/phone/message', {
      method: 'POST',
      body: { text: 'hello', message_id: 'm1' },
      headers: { 'x-svc-operator': '1' },
    });
    await inStep();
    const held = async () => {
      const answer = await fetch(`${edge}/relay/mirror`, { headers: { authorization: `Bearer ${token}` } });
      return ((await answer.json()) as { messages: number }).messages;
    };
    await expect.poll(held).toBe(1);
    expect(await json('relay', 'mirror', 'disable')).toMatchObject({ enabled: false, edge: 'confirmed', left: 0 });
    expect(await held()).toBe(0);
    const outbound = (await home.ask('/phone/outbound', { headers: { 'x-svc-operator': '1' } })).json;
    expect(JSON.stringify(outbound)).toContain('m1');
    expect(await atEdge()).toEqual([]);
    expect((await svc('relay', 'mirror', 'status', '--force')).code).toBe(2);
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

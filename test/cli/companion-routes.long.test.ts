import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it, type TestContext, vi } from 'vitest';
import { newId, newToken } from '../../lib/reach/ids.ts';
import { cleanups, startBuiltTarget } from '../support/built-relay.ts';
import { agentHome } from '../support/cli.ts';
import { closedPort } from '../support/closed-port.ts';
import { begin, RUN_UNATTENDED, run } from '../support/companion-cli.ts';
import { startFakeBroker } from '../support/fake-broker.ts';
import { startPinnedFront } from '../support/pinned-front.ts';
import { bearer, pair as pairTool, randomCode } from '../support/relay.ts';

const pending = cleanups();
const later = () => Math.floor(Date.now() / 1000) + 600;

/** A relay behind a pinned origin and a broker, and the candidates of a pairing link for both. */
async function setup(context: TestContext) {
  const relay = await startBuiltTarget();
  pending.push(relay.stop);
  const hostId = newId();
  const credential = { kind: 'broker_route', host_id: hostId, credential_id: newId(), token: newToken() };
  const front = await startPinnedFront(context, {
    port: relay.port,
    credential: () => ({ ...credential, broker_url: broker.url, expires_at: later() }),
  });
  const broker = await startFakeBroker(context, { port: front.port });
  const bootstrap = newToken();
  const gone = await closedPort();

  /** A pairing link. Away from home, its direct addresses lead nowhere. */
  async function link(options: { away?: boolean; candidates?: object[] } = {}) {
    const code = randomCode();
    await relay.operator('/pairing/register', { method: 'POST', body: JSON.stringify({ code }) });
    const proxy = front.proxy('127.0.0.1', options.away ? gone : front.port);
    const candidates = options.candidates ?? [
      { role: 'plugin_proxy', priority: 0, recommended: true, security: 'pinned_tls', proxy },
      {
        role: 'outbound_broker',
        priority: 1,
        recommended: false,
        experimental: true,
        security: 'e2ee_pinned_tls',
        broker: {
          protocol_version: 1,
          url: broker.url,
          host_id: hostId,
          credential_kind: 'bootstrap',
          token: bootstrap,
          expires_at: later(),
        },
        proxy,
      },
    ];
    const url = `ws://127.0.0.1:${gone}`;
    return JSON.stringify({ svc: 3, relay: { url, code }, endpoints: candidates });
  }

  const env = { NODE_EXTRA_CA_CERTS: broker.ca };
  const home = agentHome();
  const stored = async () => JSON.parse(await readFile(join(home, 'companion', 'settings.json'), 'utf8')).pairing;
  const companion = (argv: string[], input?: string) => run(['companion', ...argv], { home, env, input });
  return { relay, front, broker, link, companion, stored, env, home, credential, bootstrap };
}

describe('svc companion over pinned routes', () => {
  it('pairs over Secure Link, says so, and keeps the access to Reach', async (context) => {
    const { link, companion, stored, credential, broker, front } = await setup(context);
    const paired = await companion(['pair', '-', '--json'], await link());
    expect(paired.stderr).toBe('');
    expect(JSON.parse(paired.stdout)).toMatchObject({ paired: true, route: 'secure_link', pin: front.identity.pin });
    expect((await stored()).route_credential).toMatchObject({ token: credential.token, broker_url: broker.url });
    expect((await stored()).tofu_pins).toEqual({});
    const { stdout } = await companion(['status']);
    expect(stdout).toMatch(new RegExp(`Route +Secure Link 127\\.0\\.0\\.1:${front.port} \\(last used\\)`));
    expect(stdout).toMatch(/Routes .*Secure Link .*, direct .*, Reach through localhost:\d+/);
    const json = await companion(['status', '--json']);
    expect(JSON.parse(json.stdout)).toMatchObject({ running: false, route: 'secure_link', pins: {} });
    for (const secret of [credential.token, (await stored()).session_token]) {
      expect(stdout + json.stdout + paired.stdout).not.toContain(secret);
    }
    expect(broker.registered).toEqual([]);
  });

  it('pairs and runs over Reach when nothing else works: commands, messages, media', {
    timeout: 300_000,
  }, async (context) => {
    const { relay, link, companion, broker, env, home, credential, bootstrap, front } = await setup(context);
    const payload = await link({ away: true });
    const paired = await companion(['pair', '-'], payload);
    expect(paired.stderr).toBe('');
    expect(paired.stdout).toMatch(/Route +Reach through localhost/);
    expect(broker.registered.map(({ credential_kind, token }) => [credential_kind, token])).toEqual([
      ['bootstrap', bootstrap],
    ]);

    const phone = begin(['companion', ...RUN_UNATTENDED], { home, env });
    await phone.prints(/"state":"online"/);
    expect(phone.events('state').at(-1)).toMatchObject({ state: 'online', route: 'reach', broker: broker.url });
    expect(broker.registered.at(-1)).toMatchObject({ credential_kind: 'route', token: credential.token });
    const status = await companion(['status', '--json']);
    expect(JSON.parse(status.stdout)).toMatchObject({ running: true, route: 'reach' });

    const { token } = await pairTool(relay);
    const tool = (path: string) => relay.fetch(path, { headers: bearer(token) });
    await vi.waitFor(async () => expect((await tool('/screen')).status).toBe(200));
    const screenshot = await (await tool('/screenshot')).json();
    // The picture took a tunnel of its own, with the same key at its end.
    expect(screenshot).toMatchObject({ media: expect.stringMatching(/^MEDIA:/) });
    expect(front.paths).toContain('POST /relay/media/upload');
    await relay.fetch('/phone/message', {
      method: 'POST',
      headers: bearer(token),
      body: JSON.stringify({ text: 'Dinner is ready' }),
    });
    await phone.prints(/"event":"message".*Dinner is ready/);

    // Every part may fail: the tunnel, the broker's word, the relay's front.
    const online = () => phone.events('state').filter(({ state }) => state === 'online').length;
    broker.drop();
    await vi.waitFor(() => expect(online()).toBe(2));
    await front.stop();
    await vi.waitFor(() => expect(phone.events('state').at(-1)).toMatchObject({ state: 'waiting' }));
    await front.restart();
    await vi.waitFor(() => expect(online()).toBe(3));
    expect((await tool('/screen')).status).toBe(200);
    expect(broker.problems).toEqual([]);
    phone.stop();
    await phone.ended;
    await vi.waitFor(() => expect(broker.tunnels).toBe(0));
  });

  it('names a route that the link spoils, and every failure', async (context) => {
    const { link, companion, front, broker } = await setup(context);
    const bad = { role: 'plugin_proxy', priority: 0, proxy: { ...front.proxy(), cert_der: undefined } };
    const spoilt = await companion(['pair', '-'], await link({ candidates: [bad] }));
    expect(spoilt.code).toBe(1);
    expect(spoilt.stderr).toMatch(/the route 'plugin_proxy' of this link is left out: its proxy\.cert_der/);
    broker.behave((client) => client.send('{"type":"error","protocol_version":1,"code":"host_offline"}'));
    const offline = await companion(['pair', '-'], await link({ away: true }));
    expect(offline.code).toBe(1);
    expect(offline.stderr).toMatch(/\(Secure Link\): nothing is listening there/);
    expect(offline.stderr).toMatch(/\(Reach\): the relay is not connected to the broker \(host_offline\)/);
  });
});

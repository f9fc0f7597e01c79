import { readFile } from 'node:fs/promises';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it, onTestFinished, type TestContext, vi } from 'vitest';
import { parsePairing } from '../../lib/companion/link/pairing-url.ts';
import { routeTo } from '../../lib/companion/link/reach.ts';
import { createDial } from '../../lib/host/node/dial.ts';
import { createPinnedConnector } from '../../lib/host/node/pinned.ts';
import { createTrust } from '../../lib/host/node/trust.ts';
import type { Frame } from '../support/client.ts';
import { TIMEOUT } from '../support/limits.ts';
import { freePort, launch, runSvc, temporaryHome } from '../support/process.ts';
import { startReachStack } from '../support/reach-stack.ts';

const PROGRAM = fileURLToPath(new URL('../../dist/cli/svc.js', import.meta.url));
const UNTIL = { timeout: TIMEOUT, interval: 50 };

/** The home network: a TCP proxy before Secure Link, which a phone that has left does not reach. */
async function homeNetwork(target: number) {
  const sockets = new Set<Socket>();
  const port = await freePort();
  let server: Server;
  const open = () =>
    new Promise<void>((resolve) => {
      server = createServer((inner) => {
        const outer = connect(target, '127.0.0.1');
        for (const [one, other] of [
          [inner, outer],
          [outer, inner],
        ] as const) {
          sockets.add(one);
          one.on('error', () => {});
          one.on('close', () => {
            sockets.delete(one);
            other.destroy();
          });
        }
        inner.pipe(outer).pipe(inner);
      }).listen(port, '127.0.0.1', resolve);
    });
  const close = () => {
    for (const socket of sockets) socket.destroy();
    return new Promise<void>((resolve) => server.close(() => resolve()));
  };
  await open();
  onTestFinished(() => close());
  return { port, open, close };
}

/** Broker and relay processes, and companions at home or away. */
async function setup(context: TestContext, env: Record<string, string> = {}) {
  const stack = await startReachStack(context, env);
  const network = await homeNetwork(stack.linkPort);
  const home = await temporaryHome();
  const companionEnv = { NODE_EXTRA_CA_CERTS: stack.broker.ca };

  /** Output of `svc pair` with Secure Link behind the home network and no plain address that works. */
  async function payload(change: (endpoints: Record<string, unknown>[]) => unknown[] = (all) => all): Promise<string> {
    const { json } = await stack.relay.ask('/pairing/mint', { method: 'POST', body: {} });
    const minted = JSON.parse(json.qr_payload);
    expect(minted.endpoints.map(({ role }: { role: string }) => role)).toEqual(['plugin_proxy', 'outbound_broker']);
    for (const { proxy } of minted.endpoints) proxy.url = `https://127.0.0.1:${network.port}`;
    minted.relay.url = 'ws://127.0.0.1:1';
    return JSON.stringify({ ...minted, endpoints: change(minted.endpoints) });
  }

  const svc = (...words: string[]) => runSvc(['companion', ...words], { home, env: companionEnv });
  const start = (...words: string[]) =>
    launch(process.execPath, [PROGRAM, 'companion', 'run', '--json', ...words], {
      PATH: process.env.PATH ?? '',
      HOME: home,
      SVC_HOME: home,
      ...companionEnv,
    });
  const stored = async () => JSON.parse(await readFile(join(home, 'companion', 'settings.json'), 'utf8')).pairing;
  return { stack, network, payload, svc, start, stored };
}

/** The link states that a companion has printed. */
const statesOf = ({ stdout }: { stdout: string }): { state: string; route?: string }[] =>
  stdout
    .split('\n')
    .slice(0, -1)
    .map((line) => JSON.parse(line))
    .filter(({ event }) => event === 'state');

it('08 §6, §7.9: leaves home and returns, while broker and relay are killed', { timeout: 300_000 }, async (context) => {
  const { stack, network, payload, svc, start, stored } = await setup(context);
  const { relay, broker, host } = stack;
  const paired = await svc('pair', await payload(), '--json');
  expect(paired.stderr).toBe('');
  expect(JSON.parse(paired.stdout)).toMatchObject({ route: 'secure_link' });
  const credential = (await stored()).route_credential;
  expect(credential).toMatchObject({ broker_url: `${broker.url}/v1/connect`, host_id: host.id });

  const tool = await relay.offer({ pairing_code: (await stack.mint()).code, device_id: 'tool' });
  const authorization = `Bearer ${tool.frame.payload.session_token}`;
  const screen = () => relay.ask('/screen', { headers: { authorization } });
  const works = () => vi.waitFor(async () => expect((await screen()).status).toBe(200), UNTIL);
  let phone = start('--master', 'on', '--grant', 'all', '--messages', 'on', '--approve', 'always');
  const online = (route: string, times = 1) =>
    vi.waitFor(() => {
      const routes = statesOf(phone).filter(({ state }) => state === 'online');
      expect([routes.length >= times, routes.at(-1)?.route], phone.stdout.slice(-2000)).toEqual([true, route]);
    }, UNTIL);
  await online('secure_link');
  await works();

  await network.close();
  await online('reach', 2);
  await works();
  const status = await svc('status', '--json');
  expect(JSON.parse(status.stdout)).toMatchObject({ running: true, route: 'reach' });
  const said = await relay.ask('/phone/message', {
    method: 'POST',
    headers: { authorization },
    body: { text: 'Dinner is ready' },
  });
  expect(said.status).toBe(200);
  await phone.prints(/"event":"message".*Dinner is ready/);

  await broker.kill();
  await vi.waitFor(() => expect(statesOf(phone).at(-1)?.state).not.toBe('online'), UNTIL);
  await broker.begin();
  await online('reach', 3);
  await works();

  await relay.restart();
  await online('reach', 4);
  await works();

  // Killed, and started again at home.
  await phone.kill();
  await network.open();
  phone = start();
  await online('secure_link');
  // Revoked while only Reach works, it is told so and ends, and its access to the broker with it.
  await network.close();
  await online('reach', 2);
  const prefix = (await stored()).session_token.slice(0, 8);
  const { status: revoked } = await relay.ask(`/sessions/${prefix}`, { method: 'DELETE', headers: { authorization } });
  expect(revoked).toBe(200);
  expect((await phone.ended).code).toBe(1);
  expect(statesOf(phone).slice(-2)).toMatchObject([{ state: 'unpaired' }, { state: 'stopped' }]);
  expect(phone.stdout + phone.stderr).toContain('session revoked');
  for (const secret of [credential.token, host.token]) {
    expect(relay.output + broker.child.stderr + phone.stdout + phone.stderr).not.toContain(secret);
  }
});

it('08 §7.9: a device behind a NAT pairs over Reach alone, and runs a shell', { timeout: 300_000 }, async (context) => {
  const shell = { RELAY_TERMINAL_SHELL: '/bin/sh', RELAY_TERMINAL_TMUX: '0' };
  const { stack, network, payload, svc, stored } = await setup(context, shell);
  await network.close();
  const paired = await svc('pair', await payload());
  expect(paired.stderr).toBe('');
  expect(paired.stdout).toMatch(/Route +Reach through localhost:\d+/);
  expect((await stored()).route_credential.host_id).toBe(stack.host.id);

  // A device with a link whose pin was altered sends nothing.
  const pin = `sha256/${'A'.repeat(43)}=`;
  const altered = await payload((endpoints) =>
    endpoints.map((endpoint) => ({ ...endpoint, proxy: { ...(endpoint.proxy as object), pin_sha256: pin } })),
  );
  const other = await runSvc(['companion', 'pair', altered], { env: { NODE_EXTRA_CA_CERTS: stack.broker.ca } });
  expect([other.code, other.stderr]).toEqual([1, expect.stringMatching(/contradicts itself: the key/)]);

  const { code, endpoints } = parsePairing(await payload());
  const endpoint = endpoints.find(({ broker }) => broker);
  if (!endpoint) throw new Error('the payload has no Reach candidate');
  const trust = createTrust([await readFile(stack.broker.ca, 'utf8')]);
  const frames: Frame[] = [];
  const socket = createDial(createPinnedConnector({ trust }))(
    endpoint.url,
    {
      open: () => send('system', 'auth', { pairing_code: code, device_id: 'shell' }),
      message: (text) => frames.push(JSON.parse(text)),
      alive() {},
      close() {},
    },
    routeTo(endpoint, null, Date.now() / 1000),
  );
  onTestFinished(() => socket.terminate());
  const send = (channel: string, type: string, body: object) =>
    socket.send(JSON.stringify({ channel, type, id: crypto.randomUUID(), payload: body }));
  const until = (type: string) => vi.waitFor(() => expect(frames.map((frame) => frame.type)).toContain(type), UNTIL);
  await until('auth.ok');
  send('terminal', 'terminal.attach', { session_name: 'away', cols: 80, rows: 24 });
  await until('terminal.attached');
  send('terminal', 'terminal.input', { session_name: 'away', data: 'echo over-$((40 + 2))-reach\n' });
  await vi.waitFor(() => {
    const output = frames
      .filter(({ type }) => type === 'terminal.output')
      .map(({ payload }) => JSON.stringify(payload));
    expect(output.join('')).toContain('over-42-reach');
  }, UNTIL);
});

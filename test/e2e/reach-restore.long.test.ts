import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, it, type TestContext, vi } from 'vitest';
import { newId, newToken } from '../../lib/reach/ids.ts';
import { TIMEOUT } from '../support/limits.ts';
import { freePort, type RelayProcess, runSvc, startRelayProcess, temporaryHome } from '../support/process.ts';
import { authenticateThrough, type ReachRoute, reachRouteOf, withCredential } from '../support/reach-client.ts';
import { startBrokerProcess } from '../support/reach-stack.ts';

/** A relay that is connected to a broker by the settings in its home, a phone behind it, and a backup of that home. */
async function backedUp(context: TestContext) {
  const host = { id: newId(), token: newToken() };
  const broker = await startBrokerProcess(context, host);
  const home = await temporaryHome();
  await mkdir(join(home, 'relay-secure-link'), { mode: 0o700 });
  await writeFile(join(home, 'relay-secure-link/host-id'), `${host.id}\n`, { mode: 0o600 });
  const settings = [
    'RELAY_SECURE_LINK_ENABLED=1',
    'RELAY_SECURE_LINK_HOST=127.0.0.1',
    `RELAY_SECURE_LINK_PORT=${await freePort()}`,
    'RELAY_EXPERIMENTAL_REACH_ENABLED=1',
    `RELAY_SECURE_LINK_BROKER_URL=${broker.url}`,
    `RELAY_SECURE_LINK_BROKER_HOST_TOKEN=${host.token}`,
  ];
  await writeFile(join(home, '.env'), settings.join('\n'), { mode: 0o600 });
  await writeFile(join(home, 'pw'), 'correct horse battery\n');
  // The authority of the test's broker is no part of a relay.
  const env = { NODE_EXTRA_CA_CERTS: broker.ca, PATH: process.env.PATH ?? '' };
  const relay = await startRelayProcess({ home, env });
  await until(relay, 'connected');
  const { json } = await relay.ask('/pairing/mint', { method: 'POST', body: {} });
  const bootstrap = reachRouteOf(json.qr_payload, await readFile(broker.ca));
  const { frame, socket } = await authenticateThrough(bootstrap, { pairing_code: json.code, device_id: 'phone' });
  socket.close();
  const phone = {
    token: frame.payload.session_token as string,
    route: withCredential(bootstrap, frame.payload.route_credential as Record<string, unknown>),
  };
  const file = join(home, 'relay.svc');
  const pw = ['--passphrase-file', join(home, 'pw')];
  expect((await runSvc(['backup', file, ...pw], { home })).code).toBe(0);
  const other = await temporaryHome();
  const restored = await runSvc(['restore', file, ...pw], { home: other });
  expect([restored.code, restored.stderr]).toEqual([0, '']);
  return { relay, other, env, phone };
}

/** `secure_link.reach` of the relay, once it is in this state. */
const until = (relay: RelayProcess, state: string): Promise<Record<string, unknown>> =>
  vi.waitFor(
    async () => {
      const { reach } = (await relay.ask('/health')).json.secure_link;
      if (reach.state !== state) throw new Error(`${reach.state}, not ${state}: ${reach.last_error}`);
      return reach;
    },
    { timeout: TIMEOUT, interval: 50 },
  );

/** The phone comes by the broker, with what it had before the backup: the process that answers it. */
async function reaches({ token, route }: { token: string; route: ReachRoute }, relay: RelayProcess): Promise<void> {
  const { frame, socket } = await authenticateThrough(route, { session_token: token, device_id: 'phone' });
  expect(frame.type).toBe('auth.ok');
  const rows = async () =>
    (await relay.ask('/relay/devices')).json.devices as { device_id: string; connections: unknown[] }[];
  // Its connection before this one may still be ending.
  await expect
    .poll(async () => (await rows()).find(({ device_id }) => device_id === 'phone')?.connections)
    .toHaveLength(1);
  socket.close();
}

it('a restored relay is at the broker what the old one was, when that is gone (11 §3)', async (context) => {
  const { relay, other, env, phone } = await backedUp(context);
  await reaches(phone, relay);
  const before = await until(relay, 'connected');
  await relay.kill('SIGTERM');
  const restored = await startRelayProcess({ home: other, env });
  const after = await until(restored, 'connected');
  expect([after.host_id, after.broker_url]).toEqual([before.host_id, before.broker_url]);
  await reaches(phone, restored);
});

it('while the old one runs, the broker stays with it, and the restored one says why (11 §3)', async (context) => {
  const { relay, other, env, phone } = await backedUp(context);
  const settings = await readFile(join(other, '.env'), 'utf8');
  const port = `RELAY_SECURE_LINK_PORT=${await freePort()}`;
  await writeFile(join(other, '.env'), settings.replace(/RELAY_SECURE_LINK_PORT=\d+/, port));
  const restored = await startRelayProcess({ home: other, env });
  expect(await until(restored, 'backoff')).toMatchObject({ connected: false, last_error: 'host_busy' });
  const advice = 'Another relay seems to run with the credentials of this one';
  await restored.child.prints(new RegExp(`WARNING.*host_busy.*${advice}`));
  const status = await runSvc(['reach', 'status', '--port', String(restored.port)], { home: other });
  expect([status.code, status.stderr]).toEqual([1, expect.stringContaining(advice)]);
  const doctor = await runSvc(['relay', 'doctor', '--timeout', '10'], { home: other, env });
  expect(doctor.stdout.replace(/\s+/g, ' ')).toContain(advice);
  await until(relay, 'connected');
  await reaches(phone, relay);

  // It comes by itself once the old one is gone.
  await relay.kill('SIGTERM');
  await until(restored, 'connected');
  await reaches(phone, restored);
});

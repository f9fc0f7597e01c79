import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it, vi } from 'vitest';
import { newId, newToken } from '../../lib/reach/ids.ts';
import { RUN_UNATTENDED } from '../support/companion-cli.ts';
import { TIMEOUT } from '../support/limits.ts';
import { createNamespace } from '../support/network-namespace.ts';
import { temporaryHome } from '../support/process.ts';
import { startBrokerProcess, startReachRelay } from '../support/reach-stack.ts';

const PROGRAM = fileURLToPath(new URL('../../dist/cli/svc.js', import.meta.url));
/** Prints `open`, or the code of the error. */
const CONNECT = `require('net').connect(+process.argv[2], process.argv[1])
  .on('connect', function () { console.log('open'); this.destroy(); }).on('error', (e) => console.log(e.code))`;

it('08 §7.9: a companion in a network from which only the broker can be reached pairs, and is used', {
  timeout: 300_000,
}, async (context) => {
  const network = await createNamespace(context);
  const host = { id: newId(), token: newToken() };
  const broker = await startBrokerProcess(context, host, '0.0.0.0');
  const stack = await startReachRelay({ brokerUrl: broker.url, host, ca: broker.ca });
  const { relay } = stack;
  await stack.until('connected');

  const reaches = async (port: number) => {
    const child = network.launch(['-e', CONNECT, network.gateway, String(port)], {});
    await child.ended;
    return child.stdout.trim();
  };
  expect(await reaches(broker.port)).toBe('open');
  for (const port of [relay.port, stack.linkPort]) expect(await reaches(port)).toBe('ECONNREFUSED');

  const home = await temporaryHome();
  const env = { HOME: home, SVC_HOME: home, NODE_EXTRA_CA_CERTS: broker.ca };
  const companion = (...words: string[]) => network.launch([PROGRAM, 'companion', ...words], env);
  const { json } = await relay.ask('/pairing/mint', { method: 'POST', body: {} });
  const pairing = companion('pair', json.qr_payload, '--json');
  expect(await pairing.ended, pairing.stderr).toMatchObject({ code: 0 });
  expect(JSON.parse(pairing.stdout)).toMatchObject({ route: 'reach' });
  const { pairing: stored } = JSON.parse(await readFile(join(home, 'companion', 'settings.json'), 'utf8'));
  expect(stored.route_credential).toMatchObject({ broker_url: `${broker.url}/v1/connect`, host_id: host.id });

  const phone = companion(...RUN_UNATTENDED);
  await phone.prints(/"state":"online"/);
  const tool = await relay.offer({ pairing_code: (await stack.mint()).code, device_id: 'tool' });
  const headers = { authorization: `Bearer ${tool.frame.payload.session_token}` };
  await vi.waitFor(async () => expect((await relay.ask('/screen', { headers })).status).toBe(200), {
    timeout: TIMEOUT,
    interval: 50,
  });
  const message = { method: 'POST', headers, body: { text: 'Dinner is ready' } };
  expect((await relay.ask('/phone/message', message)).status).toBe(200);
  await phone.prints(/"event":"message".*Dinner is ready/);
  await expect.poll(stack.reach).toMatchObject({ state: 'connected', active_streams: 1 });
});

import { join } from 'node:path';
import { expect, it, type TestContext } from 'vitest';
import { mountDisk } from '../support/disk.ts';
import { TIMEOUT } from '../support/limits.ts';
import { type RelayProcess, runSvc, startRelayProcess, temporaryHome } from '../support/process.ts';
import { randomCode } from '../support/relay.ts';

const REFUSED = { type: 'auth.fail', payload: { reason: 'could not be stored: try again later' } };
const QUIET = { SVC_API_URL: 'http://127.0.0.1:1', SVC_DASHBOARD_URL: 'http://127.0.0.1:1' };

/** A relay whose state is on a disk of its own, with a paired device. */
async function relayOn(context: TestContext, kind: 'tmpfs' | 'ext4') {
  const home = await temporaryHome();
  const disk = await mountDisk(context, join(home, 'svc-relay'), kind);
  const relay = await startRelayProcess({ home, within: disk.within, env: QUIET });
  const device = await pairDevice(relay);
  const svc = async (...words: string[]) => {
    const { code, stdout, stderr } = await runSvc(words, { home, within: disk.within, env: QUIET });
    return { code, stdout, stderr, json: words.includes('--json') ? JSON.parse(stdout) : undefined };
  };
  return { disk, relay, device, svc };
}

/** A new pairing code. It waits in memory: the session that it makes is what has to be stored. */
async function register(relay: RelayProcess): Promise<string> {
  const code = randomCode();
  expect((await relay.ask('/pairing/register', { method: 'POST', body: { code } })).status).toBe(200);
  return code;
}

async function offer(relay: RelayProcess, credentials: Record<string, string>) {
  const { frame, socket } = await relay.offer({ device_name: 'Phone', ...credentials });
  socket.terminate();
  return frame;
}

async function pairDevice(relay: RelayProcess): Promise<{ device_id: string; session_token: string }> {
  const device_id = crypto.randomUUID();
  const code = await register(relay);
  const { type, payload } = await offer(relay, { pairing_code: code, device_id });
  expect(type).toBe('auth.ok');
  return { device_id, session_token: payload.session_token as string };
}

it('01 §6.7, 11 §5: a full disk refuses new devices, keeps the paired ones, and is named; with room again all works', async (context) => {
  const { disk, relay, device, svc } = await relayOn(context, 'tmpfs');
  const code = await register(relay);
  const newcomer = { pairing_code: code, device_id: 'newcomer' };
  expect((await svc('status', '--json')).json).toMatchObject({ ok: true, disk: null, relay: { failing_stores: [] } });

  await disk.fill();
  expect(await offer(relay, newcomer)).toMatchObject(REFUSED);
  const pair = await svc('pair', '--json', '--no-wait');
  expect([pair.code, pair.json.problems[0]]).toEqual([
    0,
    {
      text: expect.stringMatching(
        /^the relay may refuse the device, because it cannot store it: 0 MB free for the state/,
      ),
      next: expect.stringContaining('df -h'),
    },
  ]);
  expect((await svc('pair', '--no-wait')).stdout).toMatch(/^The relay may refuse the device/);
  const send = await svc('phone', 'send', 'Dinner is ready', '--json');
  expect([send.code, send.json.ok]).toEqual([1, false]);
  expect((await svc('status')).stdout).toMatch(/^ {2}Disk +0 MB free for the state/m);
  expect((await svc('status', '--json')).json.disk).toMatchObject({ status: 'error' });
  expect((await svc('doctor')).stdout).toMatch(/\[ERROR\] relay-disk: /);
  // The paired device goes on.
  expect(await offer(relay, device)).toMatchObject({ type: 'auth.ok' });
  expect(relay.child.running()).toBe(true);

  await disk.free();
  // The code was not used up.
  await expect.poll(() => offer(relay, newcomer), { timeout: TIMEOUT }).toMatchObject({ type: 'auth.ok' });
  await expect
    .poll(async () => (await svc('status', '--json')).json, { timeout: TIMEOUT })
    .toMatchObject({ ok: true, disk: null, relay: { failing_stores: [] }, devices: { offline: 2 } });
  expect(relay.output).not.toMatch(/unhandled|\n\s+at /i);
});

it('11 §5: a disk that becomes read-only under the relay is named, and the paired devices go on', async (context) => {
  const { disk, relay, device, svc } = await relayOn(context, 'ext4');
  expect((await svc('status', '--json')).json).toMatchObject({ ok: true, disk: null });
  await disk.fail();
  expect(await offer(relay, { pairing_code: await register(relay), device_id: 'newcomer' })).toMatchObject(REFUSED);
  const { disk: problem } = (await svc('status', '--json')).json;
  expect(problem).toMatchObject({ status: 'error', problem: expect.stringMatching(/read-only/) });
  expect((await svc('status')).stdout).toContain('read-only');
  expect((await svc('doctor')).stdout).toMatch(/\[ERROR\] relay-disk: .*read-only/s);
  expect(await offer(relay, device)).toMatchObject({ type: 'auth.ok' });
  expect(relay.child.running()).toBe(true);
  expect(relay.output).not.toMatch(/unhandled|\n\s+at /i);
});

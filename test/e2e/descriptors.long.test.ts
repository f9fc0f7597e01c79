import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { readdir, stat, symlink } from 'node:fs/promises';
import { Agent, request } from 'node:http';
import { connect, type Socket } from 'node:net';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, it, onTestFinished } from 'vitest';
import { offer, startRelayProcess, temporaryHome } from '../support/process.ts';
import { writeFiles } from '../support/temp.ts';

/** Connections that a stranger opens to each address: more than the relay has descriptors for. */
const IDLE = 300;

/** Requests over one connection, since a new one could not be accepted. */
function createAsk(relay: { url: string }) {
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  onTestFinished(() => agent.destroy());
  return (path: string, headers: Record<string, string>, method = 'GET') =>
    new Promise<{ status: number; text: string }>((resolve, reject) => {
      const sent = request(`${relay.url}${path}`, { agent, headers, method }, (response) => {
        let text = '';
        response.setEncoding('utf8').on('data', (part: string) => {
          text += part;
        });
        response.on('end', () => resolve({ status: response.statusCode ?? 0, text }));
      });
      sent.on('error', reject).end();
    });
}

/** Opens idle connections to both loopback addresses, until the relay takes no more. */
async function exhaust({ port }: { port: number }): Promise<void> {
  for (const host of ['127.0.0.1', '::1']) {
    const opened: Socket[] = [];
    onTestFinished(() => {
      for (const connection of opened) connection.destroy();
    });
    for (let count = 0; count < IDLE; count++) {
      const connection = connect({ host, port });
      connection.on('error', () => {});
      opened.push(connection);
      await Promise.race([once(connection, 'connect'), once(connection, 'close')]);
    }
    // Those that the relay could not take are closed by it.
    await expect.poll(() => opened.some((connection) => connection.destroyed || connection.readableEnded)).toBe(true);
  }
}

it('strangers cannot take the descriptors that the relay needs itself', async () => {
  const home = await temporaryHome();
  const relay = await startRelayProcess({ home, descriptors: 256 });
  const ask = createAsk(relay);
  const asTool = { 'x-svc-operator': '1' };
  expect((await ask('/health', asTool)).status).toBe(200);
  await exhaust(relay);
  // It loads modules and reads files, for the first time.
  const { status, text } = await ask('/relay/doctor', asTool, 'POST');
  expect(text).toContain('"checks"');
  expect(status).toBe(200);
  expect(relay.child.stderr).toMatch(/a listener has (64|128) connections, its maximum/);
});

it('a relay without descriptors serves nothing from the deny list, then or later (contract 04 §2.1)', async () => {
  const home = await temporaryHome();
  await writeFiles(home, { 'vault/id_rsa': 'SECRET-TEXT', 'film.txt': 'film' });
  await symlink(join(home, 'vault'), join(home, '.ssh'));
  const relay = await startRelayProcess({ home, env: { RELAY_PAIRING_CODE: 'ABC123' } });
  const { frame, socket } = await offer(`${relay.url.replace(/^http/, 'ws')}/ws`, {
    pairing_code: 'ABC123',
    device_id: 'phone',
    device_name: 'Phone',
  });
  onTestFinished(() => socket.terminate());
  const token = String(frame.payload.session_token);

  const ask = createAsk(relay);
  const device = { authorization: `Bearer ${token}` };
  const byPath = (name: string) => ask(`/media/by-path?path=${encodeURIComponent(join(home, name))}`, device);
  expect((await ask('/health', device)).status).toBe(200);
  // From then on, what the relay reads of these directories is remembered.
  await expect.poll(async () => Date.now() - (await stat(home)).ctimeMs).toBeGreaterThan(2_500);

  const used = new Set(await readdir(`/proc/${relay.child.pid}/fd`));
  let firstFree = 0;
  while (used.has(String(firstFree))) firstFree++;
  const allow = (descriptors: number) =>
    promisify(execFile)('prlimit', ['--pid', String(relay.child.pid), `--nofile=${descriptors}:`]);
  const statuses: number[] = [];
  for (let free = 0; free < 20; free++) {
    await allow(firstFree + free);
    const { status, text } = await byPath('vault/id_rsa');
    expect({ free, leaks: text.includes('SECRET-TEXT'), status }).toMatchObject({ free, leaks: false });
    expect([403, 503]).toContain(status);
    statuses.push(status);
  }
  // Otherwise it has never lacked one.
  expect(statuses).toContain(503);
  await allow(1024);
  await expect.poll(async () => (await byPath('film.txt')).status).toBe(200);
  const { status, text } = await byPath('vault/id_rsa');
  expect(text).not.toContain('SECRET-TEXT');
  expect(status).toBe(403);
});

import { once } from 'node:events';
import { stat, symlink } from 'node:fs/promises';
import { Agent, request } from 'node:http';
import { connect, type Socket } from 'node:net';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { offer, startRelayProcess, temporaryHome } from '../support/process.ts';
import { writeFiles } from '../support/temp.ts';

/** Connections that a stranger holds open: more than the relay has descriptors for. */
const IDLE = 250;

it('a relay without descriptors serves nothing from the deny list, then or later (contract 04 §2.1)', async () => {
  const home = await temporaryHome();
  await writeFiles(home, { 'vault/id_rsa': 'SECRET-TEXT', 'film.txt': 'film' });
  await symlink(join(home, 'vault'), join(home, '.ssh'));
  const relay = await startRelayProcess({ home, descriptors: 100, env: { RELAY_PAIRING_CODE: 'ABC123' } });
  const { frame, socket } = await offer(`${relay.url.replace(/^http/, 'ws')}/ws`, {
    pairing_code: 'ABC123',
    device_id: 'phone',
    device_name: 'Phone',
  });
  onTestFinished(() => socket.terminate());
  const token = String(frame.payload.session_token);

  // One connection for all that is asked: a new one could not be accepted.
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  onTestFinished(() => agent.destroy());
  const ask = (path: string) =>
    new Promise<{ status: number; text: string }>((resolve, reject) => {
      const options = { agent, headers: { authorization: `Bearer ${token}` } };
      const sent = request(`${relay.url}${path}`, options, (response) => {
        let text = '';
        response.setEncoding('utf8').on('data', (part: string) => {
          text += part;
        });
        response.on('end', () => resolve({ status: response.statusCode ?? 0, text }));
      });
      sent.on('error', reject).end();
    });
  const byPath = (name: string) => ask(`/media/by-path?path=${encodeURIComponent(join(home, name))}`);
  expect((await ask('/health')).status).toBe(200);
  // From then on, what the relay reads of these directories is remembered.
  await expect.poll(async () => Date.now() - (await stat(home)).ctimeMs).toBeGreaterThan(2_500);

  const idle: Socket[] = [];
  onTestFinished(() => {
    for (const connection of idle) connection.destroy();
  });
  for (let count = 0; count < IDLE; count++) {
    const connection = connect({ host: '127.0.0.1', port: relay.port });
    connection.on('error', () => {});
    idle.push(connection);
    await Promise.race([once(connection, 'connect'), once(connection, 'close')]);
  }
  // Those that the relay could not take are closed by it.
  await expect.poll(() => idle.some((connection) => connection.destroyed || connection.readableEnded)).toBe(true);

  for (let free = 0; free < 20; free++) {
    const { status, text } = await byPath('vault/id_rsa');
    expect({ free, leaks: text.includes('SECRET-TEXT'), status }).toMatchObject({ free, leaks: false });
    expect([403, 503]).toContain(status);
    idle.shift()?.destroy();
  }
  for (const connection of idle) connection.destroy();
  await expect.poll(async () => (await byPath('film.txt')).status).toBe(200);
  const { status, text } = await byPath('vault/id_rsa');
  expect(text).not.toContain('SECRET-TEXT');
  expect(status).toBe(403);
});

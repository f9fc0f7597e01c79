import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { WebSocket } from 'ws';
import { closing, launch } from '../support/process.ts';
import { authenticateThrough, openTunnel, type ReachRoute, withCredential } from '../support/reach-client.ts';
import { startReachStack } from '../support/reach-stack.ts';

const PROGRAM = fileURLToPath(new URL('../../dist/cli/svc.js', import.meta.url));

/** Pings of 131 bytes on the wire that come before authentication, in a stream of their own. */
async function pingBeforeAuth(route: ReachRoute, count: number) {
  const tls = await openTunnel(route);
  const socket = new WebSocket(`ws://${new URL(route.origin).host}/relay/ws`, { createConnection: () => tls });
  socket.on('error', () => {});
  const closed = new Promise<'closed'>((resolve) => socket.once('close', () => resolve('closed')));
  await new Promise((resolve) => socket.once('open', resolve));
  const answered = new Promise<'answered'>((resolve) => {
    socket.on('pong', (data) => String(data) === 'last' && resolve('answered'));
  });
  for (let sent = 0; sent < count; sent++) socket.ping(Buffer.alloc(125));
  socket.ping('last');
  const outcome = await Promise.race([answered, closed]);
  socket.terminate();
  return outcome;
}

describe('contract 08 §4.5, §9: limits and end of what comes through the broker', () => {
  it('fits a QR code, shows its status, counts bytes and failures in a stream, and closes sockets with 1001 before it', async (context) => {
    const { relay, broker, mint, reach } = await startReachStack(context);
    const { code, route: bootstrap } = await mint();
    const paired = await authenticateThrough(bootstrap, { pairing_code: code, device_id: 'phone' });
    expect(paired.frame.type).toBe('auth.ok');
    const route = withCredential(bootstrap, paired.frame.payload.route_credential as Record<string, unknown>);

    // Level L of the largest QR code holds 2,953 bytes; longer names of broker and host have to fit too (§2.2).
    const { json: full } = await relay.ask('/pairing/mint', {
      method: 'POST',
      body: {
        host: '192.168.100.200',
        port: 8642,
        tls: false,
        api_key: `sk-${'k'.repeat(61)}`,
        dashboard_url: 'https://dashboard.example.com',
      },
    });
    const { key, dashboard_url, endpoints } = JSON.parse(full.qr_payload);
    expect([key.length, dashboard_url]).toEqual([64, 'https://dashboard.example.com']);
    expect(endpoints.map(({ role }: { role: string }) => role)).toEqual(['plugin_proxy', 'outbound_broker']);
    expect(full.qr_payload).not.toContain('"services"');
    expect(Buffer.byteLength(full.qr_payload)).toBeLessThan(2_953 - 200);

    const status = async (...flags: string[]) => {
      const env = { HOME: relay.home, SVC_HOME: relay.home, NODE_EXTRA_CA_CERTS: broker.ca };
      const child = launch(process.execPath, [PROGRAM, 'reach', 'status', ...flags], env);
      const { code: exit } = await child.ended;
      return { exit, text: child.stdout };
    };
    const [own, json, remote] = await Promise.all([
      status('--port', String(relay.port)),
      status('--port', String(relay.port), '--json'),
      status('--broker', broker.url),
    ]);
    expect(own).toMatchObject({ exit: 0, text: expect.stringMatching(/is connected to its broker[\s\S]*Streams\s+1/) });
    expect([json.exit, JSON.parse(json.text)]).toMatchObject([0, { state: 'connected', broker_url: broker.url }]);
    expect(remote).toMatchObject({ exit: 0, text: expect.stringMatching(/Hosts online\s+1\s+Streams\s+1/) });

    // Less than 64 KiB may come before authentication, and no more: counted on the wire inside TLS.
    expect(await pingBeforeAuth(route, 400)).toBe('answered');
    expect(await pingBeforeAuth(route, 2_000)).toBe('closed');

    let refused = '';
    // The broker may still count streams that have just ended, and refuses a further one until it has heard of their end.
    for (let attempt = 0; attempt < 200 && refused === ''; attempt++) {
      const wrong = authenticateThrough(route, { pairing_code: `WRONG${attempt % 10}` });
      refused = await wrong.then(
        ({ frame, socket }) => {
          expect(frame.type).toBe('auth.fail');
          socket.terminate();
          return '';
        },
        (error) => (String(error).includes('host_busy') ? '' : String(error)),
      );
    }
    expect(refused).toMatch(/429/);
    // Neither peers on TCP nor programs of the host share that block.
    const direct = await relay.offer({ pairing_code: (await mint()).code, device_id: 'lan' });
    expect(direct.frame.type).toBe('auth.ok');
    expect(await reach()).toMatchObject({ connected: true });

    const end = closing(paired.socket);
    relay.child.signal('SIGTERM');
    const first = await Promise.race([end, delay(30_000, undefined, { ref: false })]);
    expect(first).toMatchObject({ code: 1001 });
    expect(await relay.child.ended).toMatchObject({ code: 0 });
  });
});

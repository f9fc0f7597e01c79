import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { type AddressInfo, createServer } from 'node:net';
import fc from 'fast-check';
import { describe, expect, it, onTestFinished } from 'vitest';
import type { Host } from '../../../lib/host/index.ts';
import { isGatewayRunning, parsePidFile } from '../../../lib/profiles/liveness.ts';
import { createTestHost } from '../../support/host.ts';

const host = createTestHost({ agentHome: '/nowhere' });

/** A real process whose command line contains `word`. */
async function processNamed(word: string) {
  const child = spawn(process.execPath, ['-e', 'console.log(1); setInterval(() => {}, 1000)', word], {
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  onTestFinished(() => void child.kill());
  await once(child.stdout, 'data');
  const pid = child.pid ?? 0;
  return { pid, start: (await host.processes.facts(pid))?.startTime ?? 0, child };
}

async function listener(address = '127.0.0.1') {
  const server = createServer((socket) => socket.destroy()).listen(0, address);
  await once(server, 'listening');
  onTestFinished(() => void server.close());
  return { port: (server.address() as AddressInfo).port, server };
}

describe('parsePidFile (contract 07 §1.3)', () => {
  it('reads JSON and a bare integer', () => {
    expect(parsePidFile(' 42\n')).toEqual({ pid: 42, startTime: null });
    expect(parsePidFile('{"pid":42,"start_time":7,"argv":[]}')).toEqual({ pid: 42, startTime: 7 });
    expect(parsePidFile('{"pid":42,"start_time":"7"}')).toEqual({ pid: 42, startTime: 7 });
    expect(parsePidFile('{"pid":42,"start_time":null}')).toEqual({ pid: 42, startTime: null });
    expect(parsePidFile('{"pid":42,"start_time":"soon"}')).toEqual({ pid: 42, startTime: Number.NaN });
  });

  it('refuses everything else', () => {
    for (const text of [
      '',
      'x',
      '0',
      '-1',
      '1.5',
      '"42"',
      'null',
      '[42]',
      '{}',
      '{"pid":"42"}',
      '{"pid":-42}',
      '{"pid":',
    ]) {
      expect(parsePidFile(text)).toBeNull();
    }
    fc.assert(fc.property(fc.oneof(fc.string(), fc.json()), (text) => void parsePidFile(text)));
  });
});

describe('isGatewayRunning', () => {
  it('requires a live process whose command matches', async () => {
    const gateway = await processNamed('my-GateWay');
    const service = await processNamed('svc');
    const other = await processNamed('editor');
    expect(await isGatewayRunning(host, String(gateway.pid), null)).toBe(true);
    expect(await isGatewayRunning(host, JSON.stringify({ pid: service.pid }), null)).toBe(true);
    expect(await isGatewayRunning(host, String(other.pid), null)).toBe(false);
    gateway.child.kill('SIGKILL');
    await once(gateway.child, 'exit');
    expect(await isGatewayRunning(host, String(gateway.pid), null)).toBe(false);
  });

  it('compares the start time, so that a reused pid does not count', async () => {
    const { pid, start } = await processNamed('gateway');
    expect(await isGatewayRunning(host, JSON.stringify({ pid, start_time: start }), null)).toBe(true);
    expect(await isGatewayRunning(host, JSON.stringify({ pid, start_time: String(start) }), null)).toBe(true);
    expect(await isGatewayRunning(host, JSON.stringify({ pid, start_time: start + 1 }), null)).toBe(false);
    expect(await isGatewayRunning(host, JSON.stringify({ pid, start_time: 'x' }), null)).toBe(false);
  });

  it('trusts the pid where there is no /proc', async () => {
    const bare: Host = {
      ...host,
      processes: { ...host.processes, facts: async () => null, endAll: async () => ({ ended: 0, left: 0 }) },
    };
    expect(await isGatewayRunning(bare, String(process.pid), null)).toBe(true);
    const looks = [true, false];
    const gone: Host = {
      ...host,
      processes: {
        own: 1,
        exists: () => looks.shift() ?? false,
        facts: async () => null,
        endAll: async () => ({ ended: 0, left: 0 }),
      },
    };
    expect(await isGatewayRunning(gone, '42', null)).toBe(false);
  });

  it('falls back to the port of the API server', async () => {
    const { port, server } = await listener();
    for (const name of ['127.0.0.1', 'localhost', '0.0.0.0', '[::]']) {
      await expect.poll(() => isGatewayRunning(host, null, `http://${name}:${port}`)).toBe(true);
    }
    await expect.poll(() => isGatewayRunning(host, 'not a pid', `http://127.0.0.1:${port}`)).toBe(true);
    server.close();
    await once(server, 'close');
    expect(await isGatewayRunning(host, null, `http://127.0.0.1:${port}`)).toBe(false);
    expect(await isGatewayRunning(host, null, null)).toBe(false);
  });

  it('dials the default port of a scheme, for 250 ms', async () => {
    const dialled: unknown[] = [];
    const network = { ...host.network, canConnect: async (...call: unknown[]) => dialled.push(call) > 0 };
    for (const url of ['http://box:80', 'https://box:443', 'http://[fd00::1]:8642']) {
      await isGatewayRunning({ ...host, network }, null, url);
    }
    expect(dialled).toEqual([
      ['box', 80, 250],
      ['box', 443, 250],
      ['fd00::1', 8642, 250],
    ]);
  });
});

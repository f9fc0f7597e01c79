import { once } from 'node:events';
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { type AddressInfo, createServer, isIPv4 } from 'node:net';
import { networkInterfaces, tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { createNetwork } from '../../../../lib/host/node/network.ts';
import { readTailnet } from '../../../../lib/host/node/tailnet.ts';
import { TIMED, TIMEOUT } from '../../../support/limits.ts';

const network = createNetwork();

describe('lanAddress', () => {
  it('is a non-loopback address of this machine, or null', async () => {
    const own = Object.values(networkInterfaces()).flatMap((addresses) => addresses ?? []);
    const address = await network.lanAddress();
    if (address === null) expect(own.filter(({ family, internal }) => family === 'IPv4' && !internal)).toEqual([]);
    else {
      expect(isIPv4(address)).toBe(true);
      expect(own.map((entry) => entry.address)).toContain(address);
      expect(address).not.toMatch(/^127\./);
    }
  });
});

describe('canConnect', () => {
  it('distinguishes an open port from a closed one', async () => {
    const server = createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    expect(await network.canConnect('127.0.0.1', port, TIMEOUT)).toBe(true);
    server.close();
    await once(server, 'close');
    expect(await network.canConnect('127.0.0.1', port, TIMEOUT)).toBe(false);
  });

  it('is false for invalid addresses and ports, and without an answer in time', async () => {
    expect(await network.canConnect('no such host', 80, TIMEOUT)).toBe(false);
    for (const port of [0, -1, 65536, Number.NaN])
      expect(await network.canConnect('127.0.0.1', port, TIMEOUT)).toBe(false);
    expect(await network.canConnect('192.0.2.1', 81, 50)).toBe(false);
  });
});

const STATUS = {
  BackendState: 'Running',
  Self: { DNSName: 'Box.tail1234.ts.net.', TailscaleIPs: ['fd7a:115c::1', '100.101.102.103'] },
};
const web = (port: number, proxy: string) => ({
  [`box.tail1234.ts.net:${port}`]: { Handlers: { '/': { Proxy: proxy } } },
});
const read = (status: unknown, serve: unknown) => readTailnet(JSON.stringify(status), JSON.stringify(serve));

describe('readTailnet', () => {
  it('reads the 100.x address and the name without its final dot', () => {
    const expected = { address: '100.101.102.103', name: 'box.tail1234.ts.net', servedPorts: [], funnelPorts: [] };
    expect(read(STATUS, {})).toEqual(expected);
    expect(read(STATUS, null)).toEqual(expected);
    expect(readTailnet(JSON.stringify(STATUS), '')).toEqual(expected);
  });

  it('is null while the tailnet is down, and without address and name', () => {
    expect(read({ ...STATUS, BackendState: 'Stopped' }, {})).toBeNull();
    expect(read({ Self: {} }, {})).toBeNull();
    expect(read({ Self: { DNSName: 'box.example.org.', TailscaleIPs: ['10.0.0.1'] } }, {})).toBeNull();
  });

  it('counts a port as served when TLS at the same port forwards to it', () => {
    const serve = {
      TCP: {
        443: { HTTPS: true },
        8642: { HTTPS: true },
        8767: { TerminateTLS: 'box.tail1234.ts.net', TCPForward: '127.0.0.1:8767' },
        8000: { HTTP: true },
        8001: { HTTPS: true },
        8002: { TCPForward: '127.0.0.1:8002' },
        8003: { HTTPS: true },
      },
      Web: {
        ...web(443, 'http://127.0.0.1:9999'),
        ...web(8642, 'http://localhost:8642'),
        ...web(8000, 'http://127.0.0.1:8000'),
        ...web(8001, 'http://10.0.0.5:8001'),
      },
    };
    expect(read(STATUS, serve)?.servedPorts).toEqual([8003, 8642, 8767]);
  });

  it('finds the port behind a funnel at 443, even of a foreground serve', () => {
    const config = {
      TCP: { 443: { HTTPS: true }, 8443: { HTTPS: true } },
      Web: { ...web(443, 'http://127.0.0.1:8767'), ...web(8443, 'http://127.0.0.1:8642') },
      AllowFunnel: { 'box.tail1234.ts.net:443': true, 'box.tail1234.ts.net:8443': true },
    };
    expect(read(STATUS, config)?.funnelPorts).toEqual([8767]);
    expect(read(STATUS, { Foreground: { session: config } })?.funnelPorts).toEqual([8767]);
    expect(read(STATUS, { ...config, AllowFunnel: { 'box.tail1234.ts.net:443': false } })?.funnelPorts).toEqual([]);
  });

  it('accepts any JSON and any text', () => {
    fc.assert(fc.property(fc.json(), fc.json(), (status, serve) => void readTailnet(status, serve)));
    fc.assert(
      fc.property(fc.jsonValue(), fc.jsonValue(), fc.jsonValue(), (tcp, sites, funnel) => {
        expect(read(STATUS, { TCP: { 443: tcp }, Web: sites, AllowFunnel: funnel, Foreground: tcp })).not.toBeNull();
      }),
    );
    expect(readTailnet('not JSON', '{}')).toBeNull();
  });
});

describe('tailnet', () => {
  let directory: string;
  beforeEach(async () => {
    directory = await mkdtemp(join(tmpdir(), 'relay-tailnet-'));
  });
  afterEach(async () => {
    vi.unstubAllEnvs();
    await rm(directory, { recursive: true, force: true });
  });
  const install = async (script: string) => {
    await writeFile(`${directory}/tailscale`, `#!/bin/sh\n${script}\n`);
    await chmod(`${directory}/tailscale`, 0o755);
    vi.stubEnv('PATH', directory + delimiter + process.env.PATH);
  };

  it('queries the CLI', async () => {
    const serve = { TCP: { 8767: { HTTPS: true } }, Web: web(8767, 'http://127.0.0.1:8767') };
    await install(
      `case "$*" in 'status --json') echo '${JSON.stringify(STATUS)}';; ` +
        `'serve status --json') echo '${JSON.stringify(serve)}';; *) exit 1;; esac`,
    );
    expect(await network.tailnet()).toEqual({
      address: '100.101.102.103',
      name: 'box.tail1234.ts.net',
      servedPorts: [8767],
      funnelPorts: [],
    });
  });

  it('is null without the CLI, and when it fails or prints something else', async () => {
    vi.stubEnv('PATH', directory);
    expect(await network.tailnet()).toBeNull();
    vi.unstubAllEnvs();
    await install('exit 1');
    expect(await network.tailnet()).toBeNull();
    vi.unstubAllEnvs();
    await install('echo Logged out.');
    expect(await network.tailnet()).toBeNull();
  });

  it('gives up after 5 seconds, even if a child of the CLI keeps running', TIMED, async () => {
    await install('sleep 60');
    const began = performance.now();
    expect(await network.tailnet()).toBeNull();
    expect(performance.now() - began).toBeLessThan(9000);
  });
});

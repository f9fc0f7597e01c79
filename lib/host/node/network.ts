import { execFile } from 'node:child_process';
import { createSocket } from 'node:dgram';
import { lookup } from 'node:dns/promises';
import { connect, createServer, isIP, isIPv4 } from 'node:net';
import { networkInterfaces } from 'node:os';
import { plainAddress } from '../../kit/addresses.ts';
import { systemClock } from '../../kit/clock.ts';
import { withTimeout } from '../../kit/timeouts.ts';
import { errnoOf } from '../errors.ts';
import type { HostNetwork } from '../index.ts';
import { readTailnet } from './tailnet.ts';

/** A documentation address (RFC 5737): routed like a public one, and unused in case a packet is ever sent. */
const SOMEWHERE_PUBLIC = '192.0.2.1';
const MAX_RESOLVED = 16;
/** Error codes of a lookup that found no address. */
const NO_ADDRESS = new Set(['ENOTFOUND', 'ENODATA']);
const CLI_TIMEOUT_MS = 5000;
/** `status` lists every machine of the tailnet. */
const MAX_CLI_OUTPUT = 16 * 1024 * 1024;

/** The network of this machine. Only `resolve` rejects. */
export function createNetwork(): HostNetwork {
  return {
    // Contract 01 §5.3, LAN address.
    lanAddress: async () => (await routedAddress()) ?? interfaceAddress(),
    async tailnet() {
      const [status, serve] = await Promise.all([
        output('tailscale', ['status', '--json']),
        output('tailscale', ['serve', 'status', '--json']),
      ]);
      return status === null || serve === null ? null : readTailnet(status, serve);
    },
    canConnect,
    addresses: () => interfaceAddresses().map(({ address }) => plainAddress(address)),
    resolve: resolveHost,
    canListen,
  };
}

/** Local address of the route to a public one. Connecting a UDP socket selects a route and sends nothing. */
function routedAddress(): Promise<string | null> {
  return new Promise((resolve) => {
    const socket = createSocket('udp4');
    const end = (address: string | null) => {
      socket.close();
      resolve(address);
    };
    socket.once('error', () => end(null));
    // Missing in the types: without a route, the callback gets the error and no event is emitted.
    socket.connect(9, SOMEWHERE_PUBLIC, (error?: Error) => {
      if (error) return end(null);
      const { address } = socket.address();
      end(isIPv4(address) && !/^(?:127|0)\./.test(address) ? address : null);
    });
  });
}

const interfaceAddresses = () => Object.values(networkInterfaces()).flatMap((addresses) => addresses ?? []);

const interfaceAddress = (): string | null =>
  interfaceAddresses().find(({ family, internal }) => family === 'IPv4' && !internal)?.address ?? null;

/** Output of a command; null if it is missing, fails or takes too long. */
function output(command: string, args: string[]): Promise<string | null> {
  return new Promise((resolve) => {
    const options = { timeout: CLI_TIMEOUT_MS, killSignal: 'SIGKILL', maxBuffer: MAX_CLI_OUTPUT } as const;
    execFile(command, args, options, (error, stdout) => resolve(error ? null : stdout));
  });
}

function canConnect(host: string, port: number, timeout: number): Promise<boolean> {
  if (!Number.isInteger(port) || port < 1 || port > 65535) return Promise.resolve(false);
  return new Promise((resolve) => {
    const socket = connect({ host, port });
    const end = (connected: boolean) => {
      clearTimeout(timer);
      socket.destroy();
      resolve(connected);
    };
    const timer = setTimeout(() => end(false), timeout);
    // `on`: a socket that tries several addresses may report more than one error when it is destroyed.
    socket.on('error', () => end(false));
    socket.once('connect', () => end(true));
  });
}

async function resolveHost(host: string, timeout: number): Promise<string[]> {
  if (isIP(host)) return [host];
  const found = lookup(host, { all: true }).catch((error) => {
    if (NO_ADDRESS.has(errnoOf(error))) return [];
    throw error;
  });
  // A lookup cannot be cancelled; the result of a late one is ignored.
  const addresses = await withTimeout({ clock: systemClock, timeout }, found, () => {
    throw new Error(`${host} was not resolved within ${timeout} ms`);
  });
  return addresses.slice(0, MAX_RESOLVED).map(({ address }) => plainAddress(address));
}

function canListen(address: string, port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const server = createServer((socket) => socket.destroy());
    server.once('error', () => resolve(false));
    server.listen({ host: address, port, exclusive: true, backlog: 1 }, () => server.close(() => resolve(true)));
  });
}

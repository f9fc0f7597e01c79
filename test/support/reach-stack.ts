import { chmod, mkdir, readFile, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { onTestFinished, type TestContext, vi } from 'vitest';
import { digestOf } from '../../lib/kit/sha256.ts';
import { newId, newToken } from '../../lib/reach/ids.ts';
import { privateAuthority } from './certificate.ts';
import { TIMEOUT } from './limits.ts';
import { type Child, freePort, launch, startRelayProcess, temporaryHome } from './process.ts';
import { drain, reachRouteOf } from './reach-client.ts';

const PROGRAM = fileURLToPath(new URL('../../dist/cli/svc.js', import.meta.url));

/** An API server that sends `?bytes=` bytes, and tells how many it was sent. Closed after the test. */
export async function startBulkApi(): Promise<number> {
  const chunk = Buffer.alloc(64 * 1024, 'x');
  const server = createServer(async (request, response) => {
    if (request.method === 'POST') {
      response.end(String(await drain(request)));
      return;
    }
    let left = Number(new URL(request.url ?? '/', 'http://x').searchParams.get('bytes') ?? 2);
    response.setHeader('content-length', left);
    const write = () => {
      while (left > 0) {
        const part = chunk.subarray(0, Math.min(left, chunk.length));
        left -= part.length;
        if (!response.write(part)) return;
      }
      response.end();
    };
    response.on('drain', write);
    write();
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return (server.address() as AddressInfo).port;
}

/** A broker process for one host, with TLS of a private authority; killed after the test. */
export async function startBrokerProcess(
  context: TestContext,
  host: { id: string; token: string },
  listen = '127.0.0.1',
) {
  const home = await temporaryHome();
  const port = await freePort();
  const { ca, cert, key } = await privateAuthority(context, home);
  const credentials = join(home, 'hosts.json');
  const hosts = { [host.id]: { host_token_sha256: digestOf(host.token) } };
  await writeFile(credentials, JSON.stringify({ hosts }), { mode: 0o600 });
  const lives: Child[] = [];
  const begin = async () => {
    const address = ['--listen', listen, '--port', String(port)];
    const flags = ['--credentials', credentials, ...address, '--tls-cert', cert, '--tls-key', key];
    const child = launch(process.execPath, [PROGRAM, 'reach', 'start', ...flags], { HOME: home, SVC_HOME: home });
    lives.push(child);
    await child.prints(/is running/);
  };
  await begin();
  return {
    url: `wss://localhost:${port}`,
    port,
    ca,
    begin,
    get child() {
      return lives.at(-1) as Child;
    },
    kill: () => lives.at(-1)?.kill('SIGKILL'),
  };
}

export interface ReachRelayOptions {
  brokerUrl: string;
  host: { id: string; token: string };
  /** File of the broker's authority. */
  ca: string;
  env?: Record<string, string>;
}

/** `secure_link.reach` of the relay's health. */
export type ReachState = Record<string, unknown> & { state: string; last_error: string | null };

/** A relay process with Secure Link on loopback and Reach, whose host id was placed before. */
export async function startReachRelay({ brokerUrl, host, ca, env }: ReachRelayOptions) {
  const home = await temporaryHome();
  const hostIdFile = join(home, 'relay-secure-link/host-id');
  await mkdir(join(home, 'relay-secure-link'));
  await writeFile(hostIdFile, `${host.id}\n`);
  await chmod(hostIdFile, 0o644);
  await chmod(join(home, 'relay-secure-link'), 0o755);
  const linkPort = await freePort();
  const relay = await startRelayProcess({
    home,
    env: {
      RELAY_SECURE_LINK_ENABLED: '1',
      RELAY_SECURE_LINK_HOST: '127.0.0.1',
      RELAY_SECURE_LINK_PORT: String(linkPort),
      RELAY_EXPERIMENTAL_REACH_ENABLED: '1',
      RELAY_SECURE_LINK_BROKER_URL: brokerUrl,
      RELAY_SECURE_LINK_BROKER_HOST_TOKEN: host.token,
      NODE_EXTRA_CA_CERTS: ca,
      RELAY_LOG_LEVEL: 'DEBUG',
      ...env,
    },
  });
  const reach = async (): Promise<ReachState> => (await relay.ask('/health')).json.secure_link.reach;
  return {
    relay,
    linkPort,
    hostIdFile,
    reach,
    /** Waits for a state; returns everything about it. */
    until: (state: string): Promise<ReachState> =>
      vi.waitFor(
        async () => {
          const found = await reach();
          if (found.state !== state) throw new Error(`${found.state}, not ${state}: ${found.last_error}`);
          return found;
        },
        { timeout: TIMEOUT, interval: 50 },
      ),
    /** A new pairing code, and its Reach route. */
    async mint() {
      const { json } = await relay.ask('/pairing/mint', { method: 'POST', body: {} });
      return { code: json.code as string, route: reachRouteOf(json.qr_payload, await readFile(ca)) };
    },
  };
}

/** Broker and relay processes, connected, before an API server. */
export async function startReachStack(context: TestContext, env: Record<string, string> = {}) {
  const host = { id: newId(), token: newToken() };
  const [broker, apiPort] = [await startBrokerProcess(context, host), await startBulkApi()];
  const stack = await startReachRelay({
    brokerUrl: broker.url,
    host,
    ca: broker.ca,
    env: { RELAY_WEBAPI_URL: `http://127.0.0.1:${apiPort}`, ...env },
  });
  await stack.until('connected');
  return { ...stack, broker, host };
}

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { onTestFinished } from 'vitest';
import type { ProgramName } from '../../cli/commands.ts';
import { main } from '../../cli/main.ts';
import { type OwnPackage, ownPackage } from '../../cli/own-package.ts';
import type { Host, Tailnet } from '../../lib/host/index.ts';
import { createNetwork } from '../../lib/host/node/network.ts';
import { createTestHost } from './host.ts';

export interface Result {
  code: number;
  stdout: string;
  stderr: string;
}

export interface Setting {
  program?: ProgramName;
  env?: Record<string, string>;
  tty?: boolean;
  /** Width of the terminal. */
  columns?: number;
  /** Height of the terminal. */
  rows?: number;
  /** Whether nothing answers on any address; by default nothing on 127.0.0.1. */
  agentDown?: boolean;
  lanAddress?: string | null;
  tailnet?: Tailnet | null;
  /** Whether only `npx svc` finds the program. */
  isRunByNpm?: boolean;
  /** Whether the relay's port is taken. */
  portTaken?: boolean;
  /** Changes the host before the command gets it. */
  withHost?(host: Host): Host;
  /** The installation, by default this checkout. */
  ownPackage?: OwnPackage;
}

/** Creates an agent home with an optional `.env`. Removed after the test. */
export function agentHome(envFile?: string): string {
  const path = mkdtempSync(join(tmpdir(), 'svc-cli-'));
  onTestFinished(() => rmSync(path, { recursive: true, force: true }));
  if (envFile !== undefined) writeFileSync(join(path, '.env'), envFile);
  return path;
}

/** Runs one command line through `main` in this process, with a faked network. */
export async function run(argv: string[], setting: Setting = {}): Promise<Result> {
  const written = { stdout: '', stderr: '' };
  const writer = (name: 'stdout' | 'stderr') => ({
    write: (text: string) => {
      written[name] += text;
    },
    isTTY: setting.tty === true,
    columns: setting.columns,
    rows: setting.rows,
  });
  const { lanAddress = '192.168.1.20', tailnet = null } = setting;
  const code = await main(argv, setting.program ?? 'svc', {
    stdout: writer('stdout'),
    stderr: writer('stderr'),
    ownPackage: setting.ownPackage ?? ownPackage(),
    isRunByNpm: setting.isRunByNpm,
    env: setting.env ?? { SVC_HOME: agentHome(), RELAY_PORT: '1' },
    createHost: (home) =>
      (setting.withHost ?? ((host: Host) => host))({
        ...createTestHost({ agentHome: home, env: { ...process.env, ...setting.env } }),
        network: {
          ...createNetwork(),
          lanAddress: async () => lanAddress,
          tailnet: async () => tailnet,
          canConnect: async (host) => setting.portTaken ?? !(setting.agentDown ?? host === '127.0.0.1'),
        },
      }),
  });
  return { code, ...written };
}

export interface Seen {
  method: string;
  path: string;
  headers: IncomingMessage['headers'];
  body: Record<string, unknown> | undefined;
}

export interface Reply {
  status?: number;
  /** Sent as JSON, except for a string, which is sent unchanged. */
  body?: unknown;
}

/** A small real HTTP server on loopback. Responds with `answer` and records the requests. */
export async function fakeRelay(answer: (seen: Seen) => Reply | 'hang') {
  const seen: Seen[] = [];
  const server = createServer(async (request, response) => {
    let text = '';
    for await (const part of request) text += part;
    const asked: Seen = {
      method: request.method ?? '',
      path: request.url ?? '',
      headers: request.headers,
      body: text === '' ? undefined : JSON.parse(text),
    };
    seen.push(asked);
    const reply = answer(asked);
    if (reply === 'hang') return;
    response.writeHead(reply.status ?? 200, { 'content-type': 'application/json' });
    response.end(typeof reply.body === 'string' ? reply.body : JSON.stringify(reply.body ?? {}));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return { port: (server.address() as AddressInfo).port, seen };
}

import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { onTestFinished } from 'vitest';
import type { OwnPackage } from '../../cli/own-package.ts';
import { agentHome, fakeRelay, type Reply, type Seen } from './cli.ts';

/** Responses by `METHOD path`. */
export type Answers = Record<string, Reply | 'hang'>;

const serve = (answers: Answers) =>
  fakeRelay(({ method, path }) => answers[`${method} ${path}`] ?? { status: 404, body: { error: 'not found' } });

const API: Answers = {
  'GET /v1/capabilities': { body: { object: 'capabilities' } },
  'GET /v1/toolsets': { status: 401 },
};

const DASHBOARD: Answers = {
  'GET /api/status': { body: { version: '3.1', components: { gateway: 'ok', cron: { status: 'Ready' } } } },
  'HEAD /api/audio/transcribe': { status: 405 },
  'POST /api/auth/ws-ticket': { status: 401 },
  'HEAD /api/sessions/prune': { status: 405 },
};

const RELAY: Answers = {
  'GET /relay/info': { body: { version: '1.0.0', health: 'ok' } },
  'GET /relay/devices': { body: { devices: [] } },
  'GET /push/status': { body: { subscriptions: 0, contact: null, services: [] } },
  'GET /sessions': { status: 401, body: { error: 'no bearer; a tool sends X-Svc-Operator: 1' } },
  'GET /desktop/health': { status: 401, body: { error: 'no bearer; a tool sends DESKTOP_RELAY_TOKEN' } },
};

const FILES: Record<string, string> = {
  'plugin.yaml': 'name: svc-relay\nentry: dist/cli/svc-relay.js\n',
  'dist/cli/svc-relay.js': '',
  'dist/cli/compat/index.js': 'export const register = () => {};\n',
  'dashboard/manifest.json': '{}',
  'bin/tmux': '',
};

export interface Broken {
  api?: Answers;
  dashboard?: Answers;
  relay?: Answers;
  /** Files of the installation. An empty text removes one. */
  files?: Record<string, string>;
}

/** An agent, a relay and its installation, healthy except for the given faults. Real servers on loopback. */
export async function fakeStack(broken: Broken = {}) {
  const [api, dashboard, relay] = await Promise.all([
    serve({ ...API, ...broken.api }),
    serve({ ...DASHBOARD, ...broken.dashboard }),
    serve({ ...RELAY, ...broken.relay }),
  ]);
  const directory = await mkdtemp(join(tmpdir(), 'svc-relay-package-'));
  onTestFinished(() => rm(directory, { recursive: true, force: true }));
  for (const [name, text] of Object.entries({ ...FILES, ...broken.files })) {
    if (text === '' && broken.files?.[name] === '') continue;
    await mkdir(dirname(join(directory, name)), { recursive: true });
    await writeFile(join(directory, name), text, { mode: name.startsWith('bin/') ? 0o755 : 0o644 });
  }
  const env: Record<string, string> = {
    SVC_HOME: agentHome(),
    HOME: agentHome(),
    PATH: join(directory, 'bin'),
    SVC_API_URL: `http://127.0.0.1:${api.port}`,
    SVC_DASHBOARD_URL: `http://127.0.0.1:${dashboard.port}/`,
    RELAY_PORT: String(relay.port),
  };
  const ownPackage: OwnPackage = { version: '1.0.0', directory };
  const seen = (): Seen[] => [...api.seen, ...dashboard.seen, ...relay.seen];
  return { env, ownPackage, directory, seen, home: env.SVC_HOME as string };
}

import { spawn } from 'node:child_process';
import { closeSync, openSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { Command } from 'cac';
import type { Config } from '../lib/config.ts';
import { describeError } from '../lib/errors.ts';
import { makeDirectory } from '../lib/host/node/files.ts';
import { readRelayLock } from '../lib/host/node/relay-lock.ts';
import { isLoopbackName, isWildcard, urlHost } from '../lib/kit/addresses.ts';
import { asObject } from '../lib/kit/json.ts';
import { startService, unitServes } from '../lib/operator/service/service.ts';
import { UNIT } from '../lib/operator/service/unit.ts';
import { type Environment, loadConfig } from './environment.ts';
import { asHost, asPort, flag, type Options, option } from './options.ts';
import {
  type CommandContext,
  CommandError,
  createStyle,
  printable,
  printJson,
  sentence,
  UsageError,
} from './output.ts';
import { pause } from './pause.ts';
import { callRelay, isSuccess, localRelay } from './relay-client.ts';
import { relayProcess } from './relay-process.ts';
import { serviceDeps } from './service.ts';
import { printRunning } from './start.ts';

/** Milliseconds until the relay has to be ready; reading a large state takes seconds. */
const TIMEOUT = 30_000;
const POLL = 50;
const ANSWER_TIMEOUT = 2000;
/** Lines of the log that explain why a relay did not start, beginning with its error. */
const LAST_LINES = 5;
const ERROR = 'error: ';
const MAX_TAIL = 16 * 1024;

/** `svc up`: starts the relay in the background, and waits until it is ready (contract 11 §1). */
export function define(command: Command): void {
  command
    .option('--host <address>', 'address to listen on (not for a service)')
    .option('--port <n>', 'port to listen on (not for a service)')
    .option('--json', 'print one JSON document')
    .example((name) => `${name} up`)
    .example((name) => `${name} up --port 9000`)
    .action(run);
}

async function run(options: Options, context: CommandContext): Promise<void> {
  const host = option(options, '--host', asHost);
  const port = option(options, '--port', asPort);
  const args = [
    ...(host === undefined ? [] : ['--host', host]),
    ...(port === undefined ? [] : ['--port', String(port)]),
  ];
  const at = { ...(host !== undefined && { host }), ...(port !== undefined && { port }) };
  await bringUp(args, flag(options, '--json'), context, at);
}

/**
 * Starts the relay unless one runs, waits until it is ready, and prints its addresses. `args` are flags of `svc start`, and
 * `at` is where they have it listen: without a state file, it is found by its port alone.
 */
export async function bringUp(
  args: string[],
  isJson: boolean,
  context: CommandContext,
  at: Partial<Pick<Config, 'host' | 'port'>> = {},
): Promise<void> {
  const environment = loadConfig(context.env);
  const config = { ...environment.config, ...at };
  const before = await relayProcess(config);
  const by = before ? null : await launch(args, environment, config, context);
  const running = await untilReady(config, by);
  if (isJson) {
    printJson(context.stdout, {
      ok: true,
      started: by !== null,
      by: by?.name ?? null,
      log: by?.log ?? null,
      ...running,
    });
    return;
  }
  const { bold } = createStyle(context.stdout, context.env);
  const version = running.version ?? context.ownPackage.version;
  const { network } = await context.createHost(config.agentHome);
  const lan = isWildcard(running.host) ? await network.lanAddress() : null;
  const loopback = isWildcard(running.host) || isLoopbackName(running.host) ? [localRelay(config).host] : [];
  const hosts = [...(lan === null ? [] : [lan]), ...(isWildcard(running.host) ? [] : [running.host]), ...loopback];
  const urls = [...new Set(hosts)].map((at) => `${running.tls ? 'https' : 'http'}://${urlHost(at)}:${running.port}`);
  printRunning({ version, urls, stateFile: config.stateFile }, '', context);
  if (by?.log) sentence(context.stdout, `Log: ${printable(by.log)}`);
  const how =
    by === null
      ? 'It was running already.'
      : `It runs in the background${by.name === 'systemd' ? `, as the service ${UNIT}` : ''}.`;
  sentence(context.stdout, `${how} Stop it with: ${bold('svc down')}`);
}

interface Launched {
  name: 'systemd' | 'process';
  log: string | null;
  /** Why a process has ended, once it has. */
  ended(): string | null;
}

async function launch(
  args: string[],
  environment: Environment,
  config: Config,
  context: CommandContext,
): Promise<Launched> {
  const deps = await serviceDeps(environment, context, config.port);
  if (await unitServes(deps)) {
    if (args.length > 0) {
      throw new UsageError(
        `${args[0]} is not for the service: put RELAY_HOST and RELAY_PORT into ${deps.unit.agentHome}/.env`,
      );
    }
    await startService(deps);
    return { name: 'systemd', log: null, ended: () => null };
  }
  const { script } = deps.unit;
  const found = await deps.host.files.stat(script).catch((error) => {
    throw new CommandError(`cannot read ${script}: ${describeError(error)}`, 'Check its permissions.');
  });
  if (found?.kind !== 'file') {
    throw new CommandError(`there is no ${script} to run`, 'In a source tree, run: npm run build');
  }
  const folder = config.stateFile === null ? join(config.agentHome, 'svc-relay') : dirname(config.stateFile);
  await makeDirectory(folder);
  const log = join(folder, 'relay.log');
  const output = openSync(log, 'a', 0o600);
  try {
    const child = spawn(process.execPath, [script, 'start', '--log-file', log, ...args], {
      detached: true,
      stdio: ['ignore', output, output],
      env: context.env,
    });
    let why: string | null = null;
    child.on('error', ({ message }) => {
      why = message;
    });
    child.on('exit', (code, signal) => {
      why = `it ended with ${signal ?? `exit code ${code}`}`;
    });
    child.unref();
    return { name: 'process', log, ended: () => why };
  } finally {
    closeSync(output);
  }
}

interface Running {
  pid: number | null;
  host: string;
  port: number;
  tls: boolean;
  version: string | null;
}

/** @throws CommandError if the relay ends, or is not ready in time. */
async function untilReady(config: Config, launched: Launched | null): Promise<Running> {
  const deadline = performance.now() + TIMEOUT;
  for (;;) {
    const lock = config.stateFile === null ? null : readRelayLock(config.stateFile);
    // Without a state file there is no lock, so the configured port has to suffice.
    if (lock || config.stateFile === null) {
      const address = localRelay(config);
      const call = { method: 'GET', path: '/health', timeout: ANSWER_TIMEOUT } as const;
      const answer = await callRelay(address, call).catch(() => null);
      const body = asObject(answer?.body);
      if (answer && isSuccess(answer) && asObject(body?.readiness)?.ready === true) {
        const { host, port } = lock ?? config;
        return { pid: lock?.pid ?? null, host, port, tls: answer.address.tls, version: String(body?.version) };
      }
    }
    const why = launched?.ended() ?? null;
    // Another svc up may have been faster, and its relay holds the state.
    if (why !== null && (await relayProcess(config)) === null) {
      const [said, ...advice] = await complaintOf(launched?.log ?? null);
      throw new CommandError(`the relay did not start: ${said ?? why}`, [...advice, nextAfter(launched)].join(' '));
    }
    if (performance.now() > deadline) {
      throw new CommandError(`the relay was not ready within ${TIMEOUT / 1000} s`, nextAfter(launched));
    }
    await pause(POLL);
  }
}

const nextAfter = (launched: Launched | null): string => {
  if (launched?.name === 'systemd') return `Find out why with: journalctl --user -u ${UNIT} -n 20`;
  return launched?.log
    ? `Its log is ${printable(launched.log)}. To see it start: svc start`
    : 'See how it is with: svc status';
};

/** Finds the error that ended a relay, and its advice, at the end of the log. Returns an empty list if the log has no error. */
async function complaintOf(log: string | null): Promise<string[]> {
  if (log === null) return [];
  const { createFiles } = await import('../lib/host/node/files.ts');
  const text = await createFiles()
    .readTail(log, MAX_TAIL)
    .catch(() => null);
  const lines = (text ?? '').trimEnd().split('\n').slice(-LAST_LINES).map(printable);
  const at = lines.findLastIndex((text) => text.startsWith(ERROR));
  return at < 0 ? [] : [(lines[at] as string).slice(ERROR.length), ...lines.slice(at + 1)];
}

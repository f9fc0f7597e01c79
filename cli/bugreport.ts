import { readFile } from 'node:fs/promises';
import { homedir, release } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import type { Command } from 'cac';
import { createTarGzip } from 'nanotar';
import { type Config, readConfig } from '../lib/config.ts';
import { describeError } from '../lib/errors.ts';
import { unlessMissing } from '../lib/host/errors.ts';
import type { Host } from '../lib/host/index.ts';
import { readRelayLock } from '../lib/host/node/relay-lock.ts';
import { attempt } from '../lib/kit/attempt.ts';
import { isTime } from '../lib/kit/clock.ts';
import { asObject } from '../lib/kit/json.ts';
import { reportOf } from '../lib/operator/doctor/report.ts';
import { serviceStatus } from '../lib/operator/service/service.ts';
import { createRedact, readSecrets, settingsOf } from './bugreport/secrets.ts';
import { examine } from './doctor.ts';
import { type Environment, loadEnvironment } from './environment.ts';
import { newFile } from './new-file.ts';
import { flag, type Options } from './options.ts';
import { type CommandContext, createStyle, printAligned, printable, printJson, sentence } from './output.ts';
import { callRelay, isSuccess, localRelay, relayPort } from './relay-client.ts';
import { serviceDeps } from './service.ts';
import { stamp } from './times.ts';

const LOG_LINES = 500;
/** Bytes of the log file, where no relay answers. */
const MAX_TAIL = 256 * 1024;
const TIMEOUT = 5000;

/** `svc bugreport [file]`: what somebody who helps needs to know, without secrets (contract 11 §3). */
export function define(command: Command): void {
  command
    .option('--force', 'replace the file if there is one')
    .option('--json', 'print one JSON document')
    .example((name) => `${name} bugreport`)
    .example((name) => `${name} bugreport report.tar.gz --json`)
    .action(run);
}

interface Part {
  name: string;
  /** Describes the content to people. */
  what: string;
  text: string;
}

async function run(file: string | undefined, options: Options, context: CommandContext): Promise<void> {
  const path = resolve(file ?? `svc-bugreport-${stamp().slice(0, 13)}.tar.gz`);
  const create = await newFile(path, flag(options, '--force'));
  const environment = loadEnvironment(context.env);
  const host = await context.createHost(environment.directories.agentHome);
  const parts = await collect(environment, host, context);
  const archive = await createTarGzip(
    parts.map(({ name, text }) => ({ name: `svc-bugreport/${name}`, data: text, attrs: { mode: '600' } })),
  );
  await create(async (put) => {
    await put(archive);
  });
  const bytes = archive.length;
  if (flag(options, '--json')) {
    const files = parts.map(({ name, what, text }) => ({ name, what, bytes: Buffer.byteLength(text) }));
    printJson(context.stdout, { ok: true, file: path, bytes, files });
    return;
  }
  const { bold } = createStyle(context.stdout, context.env);
  sentence(context.stdout, `The report is ${printable(path)} (${Math.ceil(bytes / 1024)} KB), with:`);
  const rows = parts.map(({ name, what, text }): [string, string] => [
    name,
    `${what} (${Math.ceil(Buffer.byteLength(text) / 1024)} KB)`,
  ]);
  printAligned(context.stdout, rows);
  sentence(
    context.stdout,
    'Keys, tokens, codes, passwords and messages are not in it. It does name devices, addresses and folders: read it before you send it.',
  );
  sentence(context.stdout, `Next: ${bold(`tar xzf ${printable(path)} -O | less`)}`);
}

async function collect(environment: Environment, host: Host, context: CommandContext): Promise<Part[]> {
  const { env, directories } = environment;
  // An invalid variable may be the reason for the report.
  const config = attempt(() => readConfig(env, directories).config);
  const usual = readConfig({}, directories).config;
  const redact = createRedact(
    await readSecrets(config ?? usual, { ...context.env, ...env }, host.files),
    directories.home || homedir(),
  );
  const json = (value: unknown) => `${JSON.stringify(value, null, 2)}\n`;
  const [doctor, versions, log] = await Promise.all([
    // The relay of this machine, even where svc use has chosen another one.
    examine({ relayPort: String(relayPort(environment, context)) }, context).then(
      (diagnosis) => json(reportOf(diagnosis)),
      (error) => `${describeError(error)}\n`,
    ),
    versionsOf(config ?? usual, environment, host, context),
    logOf(config ?? usual, host),
  ]);
  const settings = { file_loaded: environment.fileLoaded, variables: settingsOf(env) };
  const problem = config ? {} : { error: messageOf(() => readConfig(env, directories)) };
  const parts: Part[] = [
    { name: 'doctor.json', what: 'findings of svc doctor', text: doctor },
    {
      name: 'versions.json',
      what: 'versions of svc-relay, Node and system, and how the relay runs',
      text: json(versions),
    },
    {
      name: 'configuration.json',
      what: 'variables that are set, without values that could be secret',
      text: json({ ...settings, ...problem }),
    },
    { name: 'log.txt', what: log.what, text: log.text },
  ];
  const clean = parts.map((part) => ({ ...part, text: redact(part.text) }));
  const readme = clean.map(({ name, what }) => `${name}: ${what}\n`).join('');
  return [
    {
      name: 'README.txt',
      what: 'this list',
      text: `A report of svc-relay. [hidden] stands for what was taken out.\n\n${readme}`,
    },
    ...clean,
  ];
}

async function versionsOf(config: Config, environment: Environment, host: Host, context: CommandContext) {
  const { ownPackage } = context;
  const lock = config.stateFile === null ? null : readRelayLock(config.stateFile);
  const service = await serviceDeps(environment, context, config.port)
    .then(serviceStatus)
    .catch((error) => describeError(error));
  const system = await readFile('/etc/os-release', 'utf8').catch(() => '');
  return {
    svc_relay: { version: ownPackage.version, build: ownPackage.build ?? null, directory: ownPackage.directory },
    relay: lock && {
      version: lock.version,
      build: lock.build,
      host: lock.host,
      port: lock.port,
      tls: lock.tls,
      flags: lock.args,
    },
    node: { version: process.version, libraries: process.versions },
    system: {
      platform: process.platform,
      arch: process.arch,
      release: release(),
      name: /^PRETTY_NAME="?([^"\n]*)/m.exec(system)?.[1] ?? null,
    },
    service,
    terminal: { tmux: (await host.children.find('tmux')) !== null },
  };
}

/** The last lines of the running relay, else of its log file. */
async function logOf(config: Config, host: Host): Promise<{ what: string; text: string }> {
  const call = {
    method: 'GET',
    path: `/relay/log?limit=${LOG_LINES}`,
    timeout: TIMEOUT,
    maxAnswer: 8 * 1024 * 1024,
  } as const;
  const answer = await callRelay(localRelay(config), call).catch(() => null);
  const lines = answer && isSuccess(answer) ? asObject(answer.body)?.lines : undefined;
  if (Array.isArray(lines)) {
    const rows = lines.map(asObject).map((row) => {
      const { ts, level, name, text } = row ?? {};
      return `${isTime(ts, 1000) ? new Date(ts * 1000).toISOString() : '?'} [${level}] ${name}: ${text}`;
    });
    return { what: `the last ${rows.length} lines of the running relay's log`, text: `${rows.join('\n')}\n` };
  }
  const folder = config.stateFile === null ? join(config.agentHome, 'svc-relay') : dirname(config.stateFile);
  try {
    const tail = await unlessMissing(host.files.readTail(join(folder, 'relay.log'), MAX_TAIL));
    return tail === null
      ? { what: 'no log: no relay answers, and none has run in the background', text: '' }
      : { what: 'the end of the log file; no relay answers', text: tail };
  } catch (error) {
    return { what: `no log: no relay answers, and its file cannot be read: ${describeError(error)}`, text: '' };
  }
}

function messageOf(work: () => unknown): string {
  try {
    work();
    return '';
  } catch (error) {
    return describeError(error);
  }
}

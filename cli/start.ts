import { constants } from 'node:fs';
import { access } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { Command } from 'cac';
import { type Config, changedVariables, readConfig } from '../lib/config.ts';
import { describeError, RelayError } from '../lib/errors.ts';
import { errnoOf } from '../lib/host/errors.ts';
import { MIN_DESCRIPTORS } from '../lib/host/machine.ts';
import { createMachine } from '../lib/host/node/machine.ts';
import { lockHolder, writeRelayLock } from '../lib/host/node/relay-lock.ts';
import { isPublicAddress, isWildcard, urlHost } from '../lib/kit/addresses.ts';
import { createLog, type Log } from '../lib/log.ts';
import { loadEnvironment } from './environment.ts';
import { openLogFile } from './log-file.ts';
import { misspeltVariables } from './misspelt.ts';
import { openInBrowser } from './open-in-browser.ts';
import { asHost, asHttpUrl, asPort, asText, flag, negated, type Options, option } from './options.ts';
import {
  aligned,
  type CommandContext,
  CommandError,
  createStyle,
  line,
  printable,
  printWarning,
  RAISE_LIMIT,
  sentence,
  UsageError,
  type Writer,
  withNextStep,
} from './output.ts';
import { copyOfInstallation } from './own-copy.ts';
import { terminalQr } from './pair/qr.ts';
import { DEFAULT_PORT } from './relay-client.ts';
import type { NodeRelay, NodeRelayOptions } from './runtime/node/relay.ts';

type Variables = Record<string, string | undefined>;

/** Milliseconds after which an orderly stop is cut short. */
const STOP_LIMIT = 4_500;
/** Milliseconds for which log lines are collected. One write per line would cost a tenth of a socket's CPU time. */
const LOG_DELAY = 20;

/** `svc relay start` (contract 01 §9.2, 07 §5.1). */
export function define(command: Command): void {
  command
    .option('--host <address>', 'address to listen on (default 0.0.0.0)')
    .option('--port <n>', `port to listen on (default ${DEFAULT_PORT})`)
    .option('--no-ssl', 'serve plain http and ws even with a certificate configured')
    .option('--shell <path>', 'absolute path of the shell for terminal sessions')
    .option('--webapi-url <url>', "the agent's API server (default http://127.0.0.1:8642)")
    .option('--log-level <level>', 'DEBUG, INFO, WARNING or ERROR (default INFO)')
    .option('--config <path>', 'agent configuration file (default <agent home>/config.yaml)')
    .option('--allow-insecure-api-key', 'accept the API key for voice over plain http (development only)')
    .option('--allow-insecure-api-bearer', 'alias of --allow-insecure-api-key')
    .option('--pairing-code <code>', 'register this pairing code (6 of A-Z 0-9) at start')
    .option('--secure-link', 'serve relay, API server and dashboard at one pinned HTTPS origin')
    .option('--no-secure-link', 'do not, whatever the configuration says')
    .option('--secure-link-host <address>', 'address of Secure Link (default 0.0.0.0)')
    .option('--secure-link-port <n>', 'port of Secure Link (default 9443)')
    .option('--log-file <path>', 'write the log to this file, rotated at 5 MB, instead of to stderr')
    .option('--open', 'open the address in a browser of this machine')
    .option('--qr', 'print the address as a QR code')
    .example((name) => `${name} start`)
    .example((name) => `${name} start --host 127.0.0.1 --port 9000 --log-level DEBUG`)
    .example((name) => `RELAY_SSL_CERT=cert.pem RELAY_SSL_KEY=key.pem ${name} start`)
    .action(run);
}

/** Runs the relay until a signal stops it. */
async function run(options: Options, context: CommandContext): Promise<number | void> {
  const descriptors = await checkDescriptors();
  const flags = variablesOf(options);
  const { env: environment, directories } = loadEnvironment(context.env);
  const env = { ...environment, ...defined(flags) };
  const { config, warnings } = readConfig(env, directories);
  const copy = await ownCopy(config, context);
  // The program in the copy reads the same command line, and sets the exit code.
  if (copy !== null) {
    await import(copy);
    return Number(process.exitCode ?? 0);
  }
  const logFile = option(options, '--log-file', asText);
  const output = batched(logFile === undefined ? context.stderr : openLogFile(logFile));
  const log = createLog(config.logLevel, output.write);
  for (const warning of [...warnings, ...misspeltVariables(env)]) log.warn(warning);
  // From here on, children and libraries see the same variables as the relay.
  Object.assign(process.env, defined(env));

  const noTls = negated(options, '--ssl');
  const configured = config.sslCert !== undefined && config.sslKey !== undefined;
  if ((config.sslCert === undefined) !== (config.sslKey === undefined)) {
    log.warn('RELAY_SSL_CERT and RELAY_SSL_KEY must be set together: serving without TLS');
  }
  const changed = changedVariables(env);
  if (changed.length > 0) log.info(`settings from the environment or flags: ${changed.join(', ')}`);

  // An error comes last, after everything that was logged before it.
  const running = await launch(config, log, { version: context.ownPackage.version, noTls, descriptors }).catch(
    (error) => {
      output.flush();
      throw error;
    },
  );
  // Signals first, since the relay already answers while its addresses are looked up.
  const ended = stopped(running, log);
  const unlock = await announceLock(running, argsOf(options), context, log);
  await Promise.all([ended.finally(unlock), showAddresses()]);

  async function showAddresses(): Promise<void> {
    const addresses = await announce(running, context, log);
    if (!configured && !noTls) {
      const text = 'serving without TLS: fine on a trusted network or VPN; else set RELAY_SSL_CERT and RELAY_SSL_KEY';
      // The operator named a public address explicitly.
      if (isPublicAddress(config.host)) log.warn(text);
      else log.info(text);
    }
    if (flag(options, '--qr')) drawCode(addresses, context, log);
    if (flag(options, '--open'))
      openInBrowser(addresses[0] ?? '', process.env, (error) =>
        log.warn(`no browser could be opened: ${describeError(error)}`),
      );
  }
}

/** The URL of the program in a copy of this installation, to run in this process instead; null to continue here. */
async function ownCopy({ stateFile, agentHome, relayHome }: Config, context: CommandContext): Promise<string | null> {
  const folder = stateFile === null ? join(agentHome, 'svc-relay') : dirname(stateFile);
  const program = context.program === 'svc-relay' ? 'svc-relay.js' : 'svc.js';
  return copyOfInstallation(context.ownPackage, folder, program, relayHome).catch((error) => {
    printWarning(context, `after an upgrade, this relay has to be restarted at once: ${describeError(error)}`);
    return null;
  });
}

/** Lets the commands of this machine find the relay (contract 11 §1). If that fails, the relay still serves its devices. */
async function announceLock(
  { relay }: NodeRelay,
  args: string[],
  context: CommandContext,
  log: Log,
): Promise<() => void> {
  const { config, listener, version } = relay;
  const { stateFile, agentHome, relayHome } = config;
  const lock = { ...listener, args, pid: process.pid, version, build: context.ownPackage.build ?? null };
  return writeRelayLock({ ...lock, state_file: stateFile, agent_home: agentHome }, relayHome).catch((error) => {
    log.warn(`commands look for the relay on its configured port only: ${describeError(error)}`);
    return () => {};
  });
}

/**
 * Returns how many files this process may open; undefined where the system does not tell.
 * @throws CommandError if the relay needs more.
 */
async function checkDescriptors(): Promise<number | undefined> {
  // Node has raised its own limit to the hard limit.
  const limit = (await createMachine().descriptors(process.pid))?.limit;
  if (limit !== undefined && limit < MIN_DESCRIPTORS) {
    throw new CommandError(`this process may open ${limit} files, and the relay needs ${MIN_DESCRIPTORS}`, RAISE_LIMIT);
  }
  return limit;
}

/** The flags, as the variables that they override. */
function variablesOf(options: Options): Variables {
  const shell = option(options, '--shell', asText);
  if (shell !== undefined && !shell.startsWith('/')) throw new UsageError('--shell must be an absolute path');
  const level = option(options, '--log-level', asText);
  if (level !== undefined && !/^(debug|info|warning|error)$/i.test(level)) {
    throw new UsageError('--log-level must be one of DEBUG, INFO, WARNING, ERROR');
  }
  const port = option(options, '--port', asPort);
  const linkPort = option(options, '--secure-link-port', asPort);
  const link = flag(options, '--secure-link') ? '1' : negated(options, '--secure-link') ? '0' : undefined;
  const insecure = flag(options, '--allow-insecure-api-key') || flag(options, '--allow-insecure-api-bearer');
  return {
    RELAY_HOST: option(options, '--host', asHost),
    RELAY_PORT: port === undefined ? undefined : String(port),
    RELAY_TERMINAL_SHELL: shell,
    RELAY_WEBAPI_URL: option(options, '--webapi-url', asHttpUrl),
    RELAY_LOG_LEVEL: level,
    RELAY_SVC_CONFIG: option(options, '--config', asText),
    RELAY_PAIRING_CODE: option(options, '--pairing-code', asText),
    RELAY_ALLOW_INSECURE_API_BEARER: insecure ? '1' : undefined,
    RELAY_SECURE_LINK_ENABLED: link,
    RELAY_SECURE_LINK_HOST: option(options, '--secure-link-host', asHost),
    RELAY_SECURE_LINK_PORT: linkPort === undefined ? undefined : String(linkPort),
  };
}

/** Flags that the next start repeats. Excludes credentials, and flags for people at a terminal. */
const REPEATED = [
  ...['host', 'port', 'ssl', 'shell', 'webapi-url', 'log-level', 'config', 'allow-insecure-api-key'],
  ...['secure-link', 'secure-link-host', 'secure-link-port'],
];

function argsOf(options: Options): string[] {
  return REPEATED.flatMap((name) => {
    const value = options[name.replace(/-([a-z])/g, (_, letter: string) => letter.toUpperCase())];
    if (value === undefined) return [];
    return typeof value === 'string' ? [`--${name}`, value] : [value ? `--${name}` : `--no-${name}`];
  });
}

const defined = (values: Variables) =>
  Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined));

/** Writes log lines in batches, the last batch when the process exits. */
function batched(writer: Pick<Writer, 'write'>): { write(text: string): void; flush(): void } {
  let waiting: string[] = [];
  const flush = () => {
    if (waiting.length > 0) writer.write(`${waiting.join('\n')}\n`);
    waiting = [];
  };
  process.on('exit', flush);
  return {
    write(text) {
      if (waiting.length === 0) setTimeout(flush, LOG_DELAY);
      waiting.push(text);
    },
    flush,
  };
}

/**
 * Starts the relay. It is loaded only here, so that every other command works if it cannot be loaded.
 * @throws CommandError with one line that says why it cannot start.
 */
async function launch(config: Config, log: Log, options: Omit<NodeRelayOptions, 'config' | 'log'>): Promise<NodeRelay> {
  const [{ CertificateError, startNodeRelay }, { StateInUseError }] = await Promise.all([
    import('./runtime/node/relay.ts'),
    import('../storage/sqlite.ts'),
  ]);
  try {
    return await startNodeRelay({ ...options, config, log });
  } catch (error) {
    if (error instanceof RelayError) throw error;
    if (error instanceof StateInUseError) {
      const pid = config.stateFile === null ? undefined : lockHolder(config.stateFile);
      const { listeningPorts } = await import('../lib/host/node/port-holder.ts');
      const ports = pid === undefined ? [] : await listeningPorts(pid);
      const where = ports.length === 0 ? '' : `, port ${ports.join(' and ')}`;
      const holder = pid === undefined ? 'another relay' : `another relay (process ${pid}${where})`;
      const stop =
        pid === undefined ? 'Stop it first' : `See it with \`ps -f -p ${pid}\` and stop it with \`kill ${pid}\``;
      throw new CommandError(
        `${holder} is running on the same state (${config.stateFile})`,
        `${stop}, or give this one a RELAY_STATE_FILE of its own.`,
      );
    }
    if (error instanceof CertificateError) {
      throw new CommandError(error.message, 'Check RELAY_SSL_CERT and RELAY_SSL_KEY, or serve plain with --no-ssl.');
    }
    // SQLite does not report which file it was.
    const isFull = (error as NodeJS.ErrnoException).code === 'SQLITE_FULL';
    const explained = withNextStep(isFull ? { code: 'ENOSPC', path: config.stateFile } : error);
    if (explained instanceof CommandError) throw explained;
    throw (await startFailure(error, config)) ?? new CommandError(`the relay cannot start: ${describeError(error)}`);
  }
}

async function startFailure(
  error: unknown,
  { host, port, agentHome, stateFile }: Config,
): Promise<CommandError | undefined> {
  const { code, path, syscall } = error as NodeJS.ErrnoException;
  if (code === 'EADDRINUSE') {
    const { address = host } = error as { address?: string };
    return new CommandError(
      `port ${port} of ${urlHost(address)} is in use${await holderOf(address, port)}`,
      'Stop the program that uses it, or choose another port with --port.',
    );
  }
  if (
    ['EACCES', 'EPERM', 'EROFS', 'EEXIST', 'ENOTDIR'].includes(code ?? '') &&
    path !== undefined &&
    syscall !== 'listen'
  ) {
    return new CommandError(
      `${printable(path)} cannot be written: ${code}`,
      `Make ${printable(agentHome)} a folder that this user may write to, or set SVC_HOME to another one.`,
    );
  }
  if (code === 'EACCES' && port < 1024) {
    return new CommandError(`no permission to listen on ${host}:${port}`, 'Choose a port from 1024 up with --port.');
  }
  if (code === 'EADDRNOTAVAIL' || code === 'ENOTFOUND') {
    return new CommandError(`this machine has no address ${host}`, 'Choose one of its own with --host.');
  }
  // SQLite only reports that it cannot open it.
  const denied = stateFile && (await access(stateFile, constants.R_OK | constants.W_OK).catch(errnoOf));
  if (denied) {
    return new CommandError(
      `${printable(stateFile)} cannot be written: ${denied}`,
      'Start the relay as the user that owns it, or set SVC_HOME to another folder.',
    );
  }
  return undefined;
}

/** ` by node svc.js (process 7, user 1000)`, as far as the system reports it (contract 01 §9.1a); else empty. */
async function holderOf(address: string, port: number): Promise<string> {
  const { listenersOn } = await import('../lib/host/node/port-holder.ts');
  const found = (await listenersOn(port)) ?? [];
  const holder =
    found.find((listener) => listener.address === address) ??
    found.find((listener) => isWildcard(listener.address) || isWildcard(address));
  if (!holder) return '';
  const { program = 'a program', pid, uid } = holder;
  return ` by ${printable(program)} (${pid === undefined ? '' : `process ${pid}, `}user ${uid})`;
}

async function announce({ relay, urls }: NodeRelay, context: CommandContext, log: Log): Promise<string[]> {
  const { config, listener } = relay;
  log.info(`svc-relay ${relay.version} listens on ${listener.host}:${listener.port}${listener.tls ? ' with TLS' : ''}`);
  log.info(
    `agent API server: ${withoutSecrets(config.webapiUrl)}; Secure Link: ${config.secureLinkEnabled ? 'enabled' : 'disabled'}`,
  );
  if (!config.profileDiscovery) log.info('profile discovery: off');
  const addresses = await urls();
  // The address for phones comes first (contract 11 §5).
  const [here = '', ...others] = addresses;
  const running = { version: relay.version, urls: [...others, here], stateFile: config.stateFile };
  printRunning(running, ' in another terminal', context);
  line(context.stdout, 'Stop with Ctrl-C.');
  return addresses;
}

/** Lines printed for a started relay. `urls` has at least one; `where` is where to type the next command. */
export function printRunning(
  { version, urls, stateFile }: { version: string; urls: string[]; stateFile: string | null },
  where: ' in another terminal' | '',
  context: CommandContext,
): void {
  const style = createStyle(context.stdout, context.env);
  const rows: [string, string][] = urls.map((url, index) => [
    index === 0 ? 'Address' : '',
    `${url}  (${url.replace(/^http/, 'ws')}/ws)`,
  ]);
  rows.push(['State', stateFile ?? 'in memory only: pairings are lost when the relay stops']);
  line(context.stdout, style.bold(`svc-relay ${version} is running`));
  for (const text of aligned(rows)) line(context.stdout, text);
  sentence(context.stdout, `Next: run ${style.bold('svc pair')}${where} and scan the code with the app.`);
}

/** Draws a QR code of an address, preferably one that other devices can reach. */
function drawCode(addresses: string[], context: CommandContext, log: Log): void {
  const url = addresses[1] ?? addresses[0] ?? '';
  const width = terminalQr(url, { colour: false })?.[0]?.length ?? 0;
  if ((context.stdout.columns ?? width) < width) {
    log.warn(`the terminal is too narrow for a QR code: it needs ${width} columns`);
    return;
  }
  line(context.stdout, `\n${url}`);
  for (const row of terminalQr(url, { colour: !context.env.NO_COLOR }) ?? []) line(context.stdout, row);
}

/** A URL without the parts that may contain secrets. */
function withoutSecrets(text: string): string {
  const url = new URL(text);
  url.username = '';
  url.password = '';
  url.search = '';
  return url.href.replace(/\/$/, '');
}

/** Resolves after an orderly stop on SIGTERM or SIGINT. A second signal or a hanging stop ends the process. */
function stopped(running: NodeRelay, log: Log): Promise<void> {
  return new Promise((resolve, reject) => {
    let stopping = false;
    const onSignal = (signal: NodeJS.Signals) => {
      if (stopping) process.exit(1);
      stopping = true;
      log.info(`${signal}: stopping`);
      setTimeout(() => process.exit(0), STOP_LIMIT).unref();
      running.stop().then(() => {
        log.info('stopped');
        process.off('SIGTERM', onSignal).off('SIGINT', onSignal);
        resolve();
      }, reject);
    };
    process.on('SIGTERM', onSignal).on('SIGINT', onSignal);
  });
}

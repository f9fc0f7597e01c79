import { chmodSync, readFileSync, statSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { createSecureContext } from 'node:tls';
import type { Command } from 'cac';
import { describeError } from '../../lib/errors.ts';
import { makeDirectory } from '../../lib/host/node/files.ts';
import { urlHost } from '../../lib/kit/addresses.ts';
import { createLog, type Log } from '../../lib/log.ts';
import { parseHosts } from '../../lib/reach/broker/hosts.ts';
import { asHost, asPort, asText, flag, type Options, option } from '../options.ts';
import { amount, type CommandContext, CommandError, line, UsageError } from '../output.ts';
import type { NodeBroker } from '../runtime/node/broker.ts';

const DEFAULT_HOST = '127.0.0.1';
const DEFAULT_PORT = 9444;
/** Hosts that only this machine reaches, where a trial needs no TLS. */
const LOOPBACK = ['127.0.0.1', '::1', 'localhost'];
/** Bytes of the largest credentials file. */
const MAX_CREDENTIALS = 4 * 1024 * 1024;

/** `svc reach start`: the broker of Reach (contract 08 §7.1). */
export function define(command: Command): void {
  command
    .option('--credentials <file>', 'digests of the host tokens, as `svc reach token` prints them (required)')
    .option('--state <path>', 'state database, or a folder for it (default reach-state beside the credentials)')
    .option('--listen <address>', `address to listen on (default ${DEFAULT_HOST})`)
    .option('--port <n>', `port to listen on (default ${DEFAULT_PORT})`)
    .option('--tls-cert <file>', 'certificate chain (PEM)')
    .option('--tls-key <file>', 'its private key (PEM)')
    .option('--insecure-dev', 'serve without TLS, on loopback only')
    .option('--client-ip-header <name>', 'header with the address of a client, believed from a proxy on loopback only')
    .option('--log-level <level>', 'DEBUG, INFO, WARNING or ERROR (default INFO)')
    .example((name) => `${name} start --credentials hosts.json --listen 0.0.0.0 --tls-cert cert.pem --tls-key key.pem`)
    .example((name) => `${name} start --credentials hosts.json --insecure-dev   # behind a TLS proxy, or to try it`)
    .example('kill -HUP <pid>   # after a change of the credentials or the certificate')
    .action(run);
}

interface Settings {
  credentials: string;
  state: string;
  host: string;
  port: number;
  tls: { cert: string; key: string } | undefined;
  clientIpHeader: string | undefined;
}

async function run(options: Options, context: CommandContext): Promise<void> {
  const settings = readSettings(options);
  const log = createLog(readLevel(options), (text) => line(context.stderr, text)).named('reach');
  const hosts = readCredentials(settings.credentials, log);
  const tls = readTls(settings.tls);
  const broker = await launch(settings, { hosts, tls, log });
  const { port } = broker.address;
  const url = `${tls ? 'https' : 'http'}://${urlHost(settings.host)}:${port}`;
  // Signals are handled before anybody can know that it runs.
  const end = stopped(broker, context, log, () => {
    // Everything is read before anything is replaced.
    const next = { hosts: readCredentials(settings.credentials, log), tls: readTls(settings.tls) };
    broker.reload(next.hosts, next.tls);
    log.info(`reloaded: ${amount(next.hosts.size, 'host')}`);
  });
  log.info(`listening on ${url} for ${amount(hosts.size, 'host')}`);
  if (!tls) log.warn('serving without TLS: connectors and phones need a TLS proxy in front, on this machine');
  line(context.stdout, `The Reach broker is running on ${url}. Stop with Ctrl-C; reload the credentials with SIGHUP.`);
  await end;
}

function readSettings(options: Options): Settings {
  const credentials = option(options, '--credentials', asText);
  if (credentials === undefined) {
    throw new UsageError('--credentials is required: the file with the digests of the host tokens');
  }
  const host = option(options, '--listen', asHost) ?? DEFAULT_HOST;
  const [cert, key] = [option(options, '--tls-cert', asText), option(options, '--tls-key', asText)];
  if ((cert === undefined) !== (key === undefined)) {
    throw new UsageError('--tls-cert and --tls-key belong together: give both');
  }
  const tls = cert !== undefined && key !== undefined ? { cert, key } : undefined;
  if (!tls && !(flag(options, '--insecure-dev') && LOOPBACK.includes(host))) {
    throw new UsageError(
      LOOPBACK.includes(host)
        ? 'give --tls-cert and --tls-key, or --insecure-dev to serve without TLS on loopback'
        : 'public listeners need TLS: give --tls-cert and --tls-key',
    );
  }
  const header = option(options, '--client-ip-header', asText)?.toLowerCase();
  if (header !== undefined && !/^[a-z0-9-]{1,64}$/.test(header)) {
    throw new UsageError('--client-ip-header must be the name of a header, such as X-Forwarded-For');
  }
  const file = resolve(credentials);
  return {
    credentials: file,
    state: stateFile(option(options, '--state', asText), file),
    host,
    port: option(options, '--port', asPort) ?? DEFAULT_PORT,
    tls,
    clientIpHeader: header,
  };
}

function readLevel(options: Options) {
  const level = option(options, '--log-level', asText)?.toUpperCase() ?? 'INFO';
  if (level === 'DEBUG' || level === 'INFO' || level === 'WARNING' || level === 'ERROR') return level;
  throw new UsageError('--log-level must be one of DEBUG, INFO, WARNING, ERROR');
}

/** The state database: the given path, or a file in it if it is a folder. */
function stateFile(given: string | undefined, credentials: string): string {
  const path = given === undefined ? join(dirname(credentials), 'reach-state') : resolve(given);
  const found = statSync(path, { throwIfNoEntry: false });
  const isFolder = found ? found.isDirectory() : given === undefined || given.endsWith('/');
  return isFolder ? join(path, 'broker.db') : path;
}

/** @throws CommandError for an unreadable or invalid file. */
function readCredentials(path: string, log: Log): Map<string, string[]> {
  let text: string;
  try {
    const { mode, size } = statSync(path);
    if ((mode & 0o077) !== 0) {
      log.warn(`others on this machine can read or change ${path}: run chmod 600 on it`);
    }
    if (size > MAX_CREDENTIALS) throw new Error('it is larger than 4 MiB');
    text = readFileSync(path, 'utf8');
  } catch (error) {
    throw new CommandError(
      `cannot read the credentials file: ${describeError(error)}`,
      "Make one with 'svc reach token --credentials FILE'.",
    );
  }
  const hosts = parseHosts(text);
  if (typeof hosts !== 'string') return hosts;
  throw new CommandError(
    `the credentials file ${path} is invalid: ${hosts}`,
    "Correct it, or add a host with 'svc reach token --credentials FILE'.",
  );
}

function readTls(files: Settings['tls']): { cert: Buffer; key: Buffer } | undefined {
  if (!files) return undefined;
  try {
    const tls = { cert: readFileSync(files.cert), key: readFileSync(files.key) };
    createSecureContext(tls);
    return tls;
  } catch (error) {
    throw new CommandError(
      `the certificate or its key cannot be used: ${describeError(error)}`,
      'Check --tls-cert and --tls-key: PEM files that belong together.',
    );
  }
}

async function launch(
  { state, host, port, clientIpHeader }: Settings,
  deps: { hosts: Map<string, string[]>; tls: ReturnType<typeof readTls>; log: Log },
): Promise<NodeBroker> {
  const [{ startNodeBroker }, { openBrokerStore }, { sqlBackend }, { openStateFile, StateInUseError }] =
    await Promise.all([
      import('../runtime/node/broker.ts'),
      import('../../storage/broker.ts'),
      import('../../storage/sql-backend.ts'),
      import('../../storage/sqlite.ts'),
    ]);
  try {
    await makePrivate(dirname(state), deps.log);
    const store = openBrokerStore(
      sqlBackend(openStateFile(state, (message) => deps.log.warn(message), BROKER_STARTS_EMPTY)),
    );
    return await startNodeBroker({ ...deps, store, host, port, clientIpHeader });
  } catch (error) {
    if (error instanceof StateInUseError) {
      throw new CommandError(
        `another broker is running on the same state (${state})`,
        'Stop it, or give this one --state.',
      );
    }
    const { code, address = host } = error as NodeJS.ErrnoException & { address?: string };
    if (code === 'EADDRINUSE') {
      throw new CommandError(`port ${port} of ${urlHost(address)} is in use`, 'Choose another port with --port.');
    }
    if (code === 'EADDRNOTAVAIL' || code === 'ENOTFOUND') {
      throw new CommandError(`this machine has no address ${host}`, 'Choose one of its own with --listen.');
    }
    throw new CommandError(`the broker cannot start: ${describeError(error)}`, 'Check --state, --listen and --port.');
  }
}

const BROKER_STARTS_EMPTY = 'the broker starts empty: hosts publish their routes again when devices connect';

/** Creates the folder of the state, and removes other users' permissions from one that is ours alone. */
async function makePrivate(folder: string, log: Log): Promise<void> {
  await makeDirectory(folder);
  const { mode, uid } = statSync(folder);
  const isShared = (mode & 0o1000) !== 0 || uid !== process.getuid?.();
  if ((mode & 0o077) === 0) return;
  if (isShared) log.warn(`the state is in a folder of several users (${folder}): its file is private all the same`);
  else chmodSync(folder, 0o700);
}

/** Resolves after an orderly stop. A second signal ends the process at once. */
function stopped(broker: NodeBroker, { stop }: CommandContext, log: Log, reload: () => void): Promise<void> {
  return new Promise((done, fail) => {
    let isStopping = false;
    const quit = () => {
      if (isStopping) process.exit(1);
      isStopping = true;
      broker.stop().then(() => {
        log.info('stopped');
        process.off('SIGTERM', quit).off('SIGINT', quit).off('SIGHUP', onHangUp);
        done();
      }, fail);
    };
    const onHangUp = () => {
      try {
        reload();
      } catch (error) {
        log.error(`nothing was reloaded: ${describeError(error)}`);
      }
    };
    process.on('SIGTERM', quit).on('SIGINT', quit).on('SIGHUP', onHangUp);
    stop?.addEventListener('abort', quit);
    if (stop?.aborted) quit();
  });
}

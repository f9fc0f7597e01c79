import { type Config, changedVariables, readConfig } from '../lib/config.ts';
import { describeError, RelayError } from '../lib/errors.ts';
import { createLog, type Log } from '../lib/log.ts';
import { StateInUseError } from '../storage/node.ts';
import { loadEnvironment } from './environment.ts';
import { flag, negated, type Options } from './options.ts';
import { aligned, type CommandContext, CommandError, createStyle, line, type Writer } from './output.ts';
import { CertificateError, type NodeRelay, startNodeRelay } from './runtime/node/relay.ts';
import { version } from './version.ts';

type Variables = Record<string, string | undefined>;

/** How long an orderly stop may take before the process goes anyway. */
const STOP_LIMIT = 4_500;

const given = (values: Variables) =>
  Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined));

/** Runs the relay until it is told to stop; `flags` are the variables that the command line sets. */
export async function runRelay(flags: Variables, options: Options, context: CommandContext): Promise<void> {
  const { env: environment, places } = loadEnvironment(context.env);
  const env = { ...environment, ...given(flags) };
  const { config, warnings } = readConfig(env, places);
  const log = createLog(config.logLevel, gathered(context.stderr));
  for (const warning of warnings) log.warn(warning);
  // From here on children and libraries see what the relay sees.
  Object.assign(process.env, given(env));

  const noTls = negated(options, '--ssl');
  const configured = config.sslCert !== undefined && config.sslKey !== undefined;
  if ((config.sslCert === undefined) !== (config.sslKey === undefined)) {
    log.warn('RELAY_SSL_CERT and RELAY_SSL_KEY must be set together: serving without TLS');
  } else if (!configured && !noTls) {
    log.warn('serving without TLS: fine on a trusted network or VPN; else set RELAY_SSL_CERT and RELAY_SSL_KEY');
  }
  if (flag(options, '--secure-link')) log.warn('this version has no Secure Link: --secure-link has no effect');
  const changed = changedVariables(env);
  if (changed.length > 0) log.info(`settings from the environment or flags: ${changed.join(', ')}`);

  const running = await launch(config, log, noTls);
  // Signals are heard first: the relay answers already while the addresses are looked up.
  await Promise.all([stopped(running, log), announce(running, context, log)]);
}

/** How long a log line may wait for others: a write for each would be a tenth of what a socket costs. */
const LOG_DELAY = 20;

/** Writes lines together, at the latest when the process exits. */
function gathered(writer: Writer): (text: string) => void {
  let waiting: string[] = [];
  const flush = () => {
    if (waiting.length > 0) writer.write(`${waiting.join('\n')}\n`);
    waiting = [];
  };
  process.on('exit', flush);
  return (text) => {
    if (waiting.length === 0) setTimeout(flush, LOG_DELAY);
    waiting.push(text);
  };
}

/** Starts the relay, or says in one line why it cannot. */
async function launch(config: Config, log: Log, noTls: boolean): Promise<NodeRelay> {
  try {
    return await startNodeRelay({ version: version(), config, log, noTls });
  } catch (error) {
    throw startFailure(error, config);
  }
}

function startFailure(error: unknown, config: Config): Error {
  const { code } = error as NodeJS.ErrnoException;
  const where = `${config.host}:${config.port}`;
  if (error instanceof RelayError) return error;
  if (code === 'EADDRINUSE') {
    return new CommandError(`port ${config.port} is in use`, 'Stop what listens there, or choose another with --port.');
  }
  if (code === 'EACCES' && config.port < 1024) {
    return new CommandError(`no permission to listen on ${where}`, 'Choose a port from 1024 up with --port.');
  }
  if (code === 'EADDRNOTAVAIL' || code === 'ENOTFOUND') {
    return new CommandError(`this machine has no address ${config.host}`, 'Give one of its own with --host.');
  }
  if (error instanceof StateInUseError) {
    const { pid } = error;
    const holder = pid === undefined ? 'another relay' : `another relay (process ${pid})`;
    const stop =
      pid === undefined ? 'Stop it first' : `See it with \`ps -f -p ${pid}\` and stop it with \`kill ${pid}\``;
    return new CommandError(
      `${holder} is running on the same state (${config.stateFile})`,
      `${stop}, or give this one a RELAY_STATE_FILE of its own.`,
    );
  }
  if (error instanceof CertificateError) {
    return new CommandError(error.message, 'Check RELAY_SSL_CERT and RELAY_SSL_KEY, or serve plain with --no-ssl.');
  }
  return new CommandError(`the relay cannot start: ${describeError(error)}`);
}

async function announce({ relay }: NodeRelay, context: CommandContext, log: Log): Promise<void> {
  const { config, listener } = relay;
  const [http, ws] = listener.tls ? ['https', 'wss'] : ['http', 'ws'];
  log.info(`svc-relay ${relay.version} listens on ${listener.host}:${listener.port}${listener.tls ? ' with TLS' : ''}`);
  log.info(`agent API server: ${withoutUserInfo(config.webapiUrl)}; Secure Link: disabled`);
  if (!config.profileDiscovery) log.info('profile discovery: off');
  const lan = await relay.host?.network.lanAddress();
  const open = listener.host === '0.0.0.0' || listener.host === '::';
  const names = open ? ['127.0.0.1', ...(lan ? [lan] : [])] : [listener.host];
  const style = createStyle(context.stdout, context.env);
  const rows: [string, string][] = names.map((name, index) => {
    const host = name.includes(':') ? `[${name}]` : name;
    return [index === 0 ? 'Address' : '', `${http}://${host}:${listener.port}  (${ws}://${host}:${listener.port}/ws)`];
  });
  rows.push(['State', config.stateFile ?? 'in memory only: pairings are lost when the relay stops']);
  line(context.stdout, style.bold(`svc-relay ${relay.version} is running`));
  for (const text of aligned(rows)) line(context.stdout, text);
  line(context.stdout, `Next: run ${style.bold('svc pair')} in another terminal and scan the code with the app.`);
  line(context.stdout, 'Stop with Ctrl-C.');
}

/** A URL as it may be logged. */
function withoutUserInfo(text: string): string {
  const url = new URL(text);
  url.username = '';
  url.password = '';
  url.search = '';
  return url.href.replace(/\/$/, '');
}

/** Resolves after an orderly stop on SIGTERM or SIGINT. A second signal, or a stop that hangs, ends the process. */
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

import type { Command } from 'cac';
import type { Config } from '../lib/config.ts';
import { describeError } from '../lib/errors.ts';
import type { Host } from '../lib/host/index.ts';
import { createNodeUpstream } from '../lib/host/node/upstream.ts';
import { canonicalAddress, isWildcard } from '../lib/kit/addresses.ts';
import { systemClock } from '../lib/kit/clock.ts';
import { decodeEnvFile, setInEnvFile } from '../lib/kit/env-file.ts';
import { asObject } from '../lib/kit/json.ts';
import { createLog } from '../lib/log.ts';
import { rotateIdentity } from '../lib/secure-link/identity.ts';
import type { PreflightCheck, PreflightReport } from '../lib/secure-link/preflight.ts';
import { createSecureLink } from '../lib/secure-link/secure-link.ts';
import { parseHost, readSettings } from '../lib/secure-link/settings.ts';
import { ACTIONS } from './actions.ts';
import { confirm } from './confirm.ts';
import { loadConfig } from './environment.ts';
import { underLock } from './hold-state.ts';
import { keepAlive } from './keep-alive.ts';
import { actionOf, asHost, asPort, checkOwners, flag, type Options, option } from './options.ts';
import {
  aligned,
  type CommandContext,
  CommandError,
  createStyle,
  line,
  printable,
  printJson,
  printWarning,
  sentence,
  UsageError,
  wrapped,
} from './output.ts';
import { addressText, localRelay, requireAnswer } from './relay-client.ts';

/** Milliseconds for the report, which may take ten seconds. */
const REPORT_TIMEOUT = 15_000;
const MAX_ENV_FILE = 1024 * 1024;

const RESTART = "restart the relay with 'svc restart'.";
const MEND = 'Mend what is blocked, or enable it with --force.';

/** `svc relay secure-link [status|enable|disable|rotate]` (contract 08 §1, §5). */
export function define(command: Command): void {
  command
    .option('--host <host>', 'proposed address or DNS name of this machine (default: the present one)')
    .option('--port <port>', 'proposed port (default: the present one)')
    .option('--force', 'enable: although a check is blocked')
    .option('--yes', 'rotate: do not ask')
    .option('--json', 'print one JSON document')
    .example((name) => `${name} secure-link                          # status`)
    .example((name) => `${name} secure-link --host 192.168.1.20 --json`)
    .example((name) => `${name} secure-link enable --host 192.168.1.20`)
    .example((name) => `${name} secure-link disable`)
    .example((name) => `${name} secure-link rotate`)
    .action(run);
}

interface Setting {
  config: Config;
  host: Host;
  proposal: { host?: string; port?: string };
  json: boolean;
}

async function run(word: string | undefined, options: Options, context: CommandContext): Promise<number> {
  const action = actionOf(word, ...ACTIONS['secure-link']);
  checkOwners(options, action, { '--force': ['enable'], '--yes': ['rotate'] });
  const port = option(options, '--port', asPort);
  const proposal = { host: option(options, '--host', asHost), ...(port !== undefined && { port: String(port) }) };
  if ((action === 'disable' || action === 'rotate') && (proposal.host ?? port) !== undefined) {
    throw new UsageError(`--host and --port are of no use with '${action}'`);
  }
  const { config } = loadConfig(context.env);
  const host = await context.createHost(config.agentHome);
  const setting = { config, host, proposal, json: flag(options, '--json') };
  if (action === 'enable') return keepAlive(enable(setting, flag(options, '--force'), context));
  if (action === 'disable') return disable(setting, context);
  if (action === 'rotate') return rotate(setting, flag(options, '--yes'), context);
  const report = await askRelay(setting);
  if (setting.json) printJson(context.stdout, report, 2);
  else printReport(report, context);
  return 0;
}

/** The report of the running relay. */
async function askRelay({ config, proposal }: Setting): Promise<PreflightReport> {
  const query = new URLSearchParams(Object.entries(proposal).filter(([, value]) => value !== undefined));
  const path = `/secure-link/preflight${query.size === 0 ? '' : `?${query}`}`;
  const address = localRelay(config);
  const call = { method: 'GET', path, timeout: REPORT_TIMEOUT } as const;
  const answer = await requireAnswer(address, call, 'It may be older than this command: restart it.');
  const report = asObject(answer.body);
  if (report?.schema_version !== 1 || !Array.isArray(report.checks)) {
    throw new CommandError(`the server on ${addressText(address)} does not answer like a relay of this version`);
  }
  return report as unknown as PreflightReport;
}

/** The same report without a relay, for a machine where it does not run yet. */
function askHere({ config, host, proposal }: Setting): Promise<PreflightReport> {
  const log = createLog('ERROR', () => {});
  const deps = { config, host, upstream: createNodeUpstream(), clock: systemClock, log };
  return createSecureLink(deps).preflight(proposal);
}

async function enable(setting: Setting, isForced: boolean, context: CommandContext): Promise<number> {
  const report = await askRelay(setting).catch(() => askHere(setting));
  if (!report.ready_to_enable && !isForced) {
    if (setting.json) {
      printJson(context.stdout, { ok: false, error: 'a check is blocked', next: MEND, report }, 2);
      return 1;
    }
    for (const text of checkRows(report, context)) line(context.stdout, text);
    throw new CommandError('Secure Link is not enabled: a check is blocked', MEND);
  }
  if (report.url === null) throw new UsageError('--host must be an IP address or a DNS name of this machine');
  const { proposal, config } = setting;
  const variables: Record<string, string> = { RELAY_SECURE_LINK_ENABLED: '1' };
  // Only what was asked for: a configured wildcard keeps meaning every address.
  if (proposal.host !== undefined) variables.RELAY_SECURE_LINK_HOST = parseHost(proposal.host) ?? proposal.host;
  if (proposal.port !== undefined) variables.RELAY_SECURE_LINK_PORT = proposal.port;
  const file = await writeEnvironment(setting.host, variables);
  warnOfProcess(variables, context);
  const needsPairing = report.requires_repair ? ' Then pair every device again: the origin changes.' : '';
  if (setting.json) {
    printJson(context.stdout, { ok: true, enabled: true, file, variables, url: report.url, restart: true }, 2);
    return 0;
  }
  sentence(context.stdout, `Secure Link is enabled in ${file}, at ${report.url}.`);
  sentence(context.stdout, `Next: ${RESTART}${needsPairing || ' Then run: svc pair --png'}`);
  if (
    config.secureLinkCert === undefined &&
    report.checks.some(({ id, status }) => id === 'certificate' && status === 'blocked')
  ) {
    printWarning(context, 'the certificate does not fit: see `svc relay secure-link rotate`');
  }
  return 0;
}

async function disable(setting: Setting, context: CommandContext): Promise<number> {
  const variables = { RELAY_SECURE_LINK_ENABLED: '0' };
  const file = await writeEnvironment(setting.host, variables);
  warnOfProcess(variables, context);
  if (setting.json) printJson(context.stdout, { ok: true, enabled: false, file, variables, restart: true }, 2);
  else {
    sentence(context.stdout, `Secure Link is disabled in ${file}. Its certificate and key are kept.`);
    sentence(context.stdout, `Next: ${RESTART}`);
  }
  return 0;
}

async function rotate(setting: Setting, isSure: boolean, context: CommandContext): Promise<number> {
  const { config, host, json } = setting;
  const settings = readSettings(config);
  if (typeof settings === 'string') throw new CommandError(settings, 'Correct that variable first.');
  if (settings.files) {
    throw new CommandError(
      'RELAY_SECURE_LINK_CERT and RELAY_SECURE_LINK_KEY name files of yours, which this command does not replace',
      'Replace both files yourself, restart the relay, and pair every device again.',
    );
  }
  const question = 'Make a new key and certificate for Secure Link? Every device that uses it has to pair again.';
  if (!isSure && !(await confirm(context, question, 'rotate asks before it acts: confirm with --yes'))) {
    sentence(context.stderr, 'Nothing was changed.');
    return 1;
  }
  const bindHost = (isWildcard(settings.bindHost) && (await servedHost(setting))) || settings.bindHost;
  const made = await rotateIdentity({ bindHost }, host, systemClock.now()).catch((error) => {
    throw new CommandError(
      `the new key and certificate cannot be written: ${describeError(error)}`,
      'Run this as the user that runs the relay.',
    );
  });
  if (json) printJson(context.stdout, { ok: true, host: made.host, pin_sha256: made.pin, restart: true }, 2);
  else {
    sentence(context.stdout, `Secure Link has a new identity for ${made.host}.`);
    line(context.stdout, aligned([['Pin', made.pin]])[0]);
    sentence(context.stdout, `Next: ${RESTART} Then pair every device again, with: svc pair --png`);
  }
  return 0;
}

/**
 * The host that the running relay serves or was started for, perhaps by its flags; undefined for an address that this
 * machine no longer has.
 */
async function servedHost(setting: Setting): Promise<string | undefined> {
  const report = await askRelay(setting).catch(() => undefined);
  const host = parseHost(String(report?.host));
  if (report === undefined || host === null) return undefined;
  return canonicalAddress(host) === null || setting.host.network.addresses().includes(host) ? host : undefined;
}

/** Sets variables in `<agent_home>/.env`, and leaves every other line unchanged. Returns the path. */
async function writeEnvironment({ files, agentHome }: Host, variables: Record<string, string>): Promise<string> {
  const path = `${agentHome}/.env`;
  async function write(): Promise<void> {
    const bytes = await files.read(path, MAX_ENV_FILE + 1);
    if (bytes && bytes.length > MAX_ENV_FILE) throw new Error('the file is larger than 1 MiB');
    const text = bytes ? decodeEnvFile(bytes) : '';
    const mode = (await files.stat(path))?.mode ?? 0o600;
    const target = (await files.realPath(path)) ?? path;
    await files.writeAtomic(target, new TextEncoder().encode(setInEnvFile(text, variables)), mode & 0o777);
  }
  try {
    // Not beside the file, where an uninstallation would leave the lock.
    await underLock(`${agentHome}/svc-relay/env`, write);
    return path;
  } catch (error) {
    if (error instanceof CommandError) throw error;
    throw new CommandError(
      `${path} cannot be changed: ${describeError(error)}`,
      `Set ${Object.keys(variables).join(', ')} yourself, or use the flags of svc relay start.`,
    );
  }
}

/** The file overrides the variables of a process (contract 07 §6.1), but flags override both. */
function warnOfProcess(variables: Record<string, string>, context: CommandContext): void {
  const other = Object.entries(variables).filter(([name, value]) => (context.env[name] ?? value) !== value);
  for (const [name] of other) printWarning(context, `${name} of this shell has another value; the file overrides it`);
}

const MARKS = { ok: 'OK', warning: 'WARN', blocked: 'BLOCKED' } as const;

function checkRows({ checks }: PreflightReport, context: CommandContext): string[] {
  const style = createStyle(context.stdout, context.env);
  const paint = { ok: style.green, warning: style.yellow, blocked: style.red };
  return checks.flatMap(({ label, status, detail }: PreflightCheck) => {
    const mark = `[${MARKS[status] ?? printable(String(status))}]`;
    const [first = '', ...more] = wrapped(context.stdout, `${printable(label)}: ${printable(detail)}`, 10);
    return [
      `${' '.repeat(Math.max(0, 9 - mark.length))}${(paint[status] ?? style.dim)(mark)} ${first.trimStart()}`,
      ...more,
    ];
  });
}

const STATES = {
  enabled: 'enabled',
  ready_to_configure: 'not enabled there; everything is ready',
  needs_attention: 'needs attention',
} as const;

function printReport(report: PreflightReport, context: CommandContext): void {
  const { bold } = createStyle(context.stdout, context.env);
  line(context.stdout, bold(`Secure Link: ${STATES[report.state] ?? printable(String(report.state))}`));
  const rows: [string, string][] = [
    ['Serves', report.current_url === null ? 'nothing now' : printable(report.current_url)],
    ['Examined', report.url === null ? 'no valid address' : printable(report.url)],
  ];
  for (const text of aligned(rows)) line(context.stdout, text);
  line(context.stdout);
  for (const text of checkRows(report, context)) line(context.stdout, text);
  line(context.stdout);
  if (report.requires_repair) sentence(context.stdout, 'That is another origin: every device has to pair again.');
  sentence(context.stdout, `Next: ${nextStep(report)}`);
}

function nextStep({ state, pair_command, host, port }: PreflightReport): string {
  if (state === 'needs_attention') return 'mend what is blocked, and run this again.';
  if (state === 'enabled') return `pair a device with: ${printable(pair_command ?? 'svc pair --png')}`;
  return `enable it with: svc relay secure-link enable --host ${printable(host)} --port ${port}`;
}

import type { Command } from 'cac';
import { variables } from '../lib/config.ts';
import { describeError } from '../lib/errors.ts';
import { listRelayLocks, readRelayLock } from '../lib/host/node/relay-lock.ts';
import { urlHost } from '../lib/kit/addresses.ts';
import { asObject } from '../lib/kit/json.ts';
import { readFreeze } from '../lib/operations/freeze-state.ts';
import { clockAdvice, clockText, readClockProblem } from '../lib/operator/clock-problem.ts';
import { type DiskProblem, readDiskProblem } from '../lib/operator/disk-problem.ts';
import { apiBase, dashboardBase, outcome } from '../lib/operator/doctor/check.ts';
import { goneText, readGoneAddresses } from '../lib/operator/gone-addresses.ts';
import { serviceStatus } from '../lib/operator/service/service.ts';
import { UNIT } from '../lib/operator/service/unit.ts';
import { isOlder, ownVersion } from './builds.ts';
import { devicesOf, duration } from './devices/rows.ts';
import { loadConfig, loadEnvironment, readVariable } from './environment.ts';
import { printFreeze } from './freeze-text.ts';
import { mirrorText } from './mirror.ts';
import { type OperatorRelay, openOperatorRelay, Unreachable } from './operator-relay.ts';
import { flag, isGiven, type Options } from './options.ts';
import {
  type CommandContext,
  columns,
  createStyle,
  line,
  printable,
  printJson,
  type Style,
  sentence,
  UsageError,
  wrapped,
} from './output.ts';
import { buildText } from './own-package.ts';
import { START } from './relay-client.ts';
import { relayProcess } from './relay-process.ts';
import { RELAY_OPTION } from './remote-relay.ts';
import { serviceDeps } from './service.ts';

/** Milliseconds for a first answer. */
const TIMEOUT = 2000;
/** Milliseconds for each further answer of a relay, since it runs: on a busy machine, they take longer. */
const BUSY_TIMEOUT = 15_000;
const LABEL_WIDTH = 11;
const MAX_COMMANDS = 5;

/** A record of `GET /bridge/activity` (contract 03 §6), or of `GET /desktop/activity`. */
interface CommandFacts {
  request_id: string;
  /** Epoch milliseconds. */
  sent_at: number;
  method: string;
  /** For a desktop tool, `/desktop/<tool>`. */
  path: string;
  device_name: string | null;
  decision: string;
  /** The sender (contract 09 §9); null in records of older versions. */
  actor: { kind: string; name: string; prefix?: string; run_id?: string } | null;
}

interface Reachable {
  url: string;
  reachable: boolean;
  /** Why it cannot be reached. */
  error: string | null;
}

/** The JSON document without its `next`. Unknown facts are null. */
type Facts = Awaited<ReturnType<typeof fetchFacts>>['facts'];
type Status = Facts & { next: string };

/** `svc status`: one screen that says whether everything works, and the next step (contract 09 §2). */
export function define(command: Command): void {
  command
    .option('--all', 'every running relay of this user, in any agent home')
    .option(...RELAY_OPTION)
    .option('--json', 'print one JSON document')
    .example((name) => `${name} status`)
    .example((name) => `${name} status --json`)
    .action(run);
}

/** Exits with 1 if no relay is ready. */
async function run(options: Options, context: CommandContext): Promise<number> {
  if (flag(options, '--all')) return listAll(options, context);
  const { facts, refusal, isRemote } = await fetchFacts(options, context);
  const status = { ...facts, next: nextStep(facts, refusal, isRemote) };
  if (flag(options, '--json')) printJson(context.stdout, status, 2);
  else {
    printFreeze(status.frozen, context);
    print(status, context);
  }
  return status.ok ? 0 : 1;
}

/** `svc status --all`: the relays of this user, each by its own lock (contract 11 §1). Exits with 1 if none runs. */
function listAll(options: Options, context: CommandContext): number {
  if (isGiven(options, '--relay')) throw new UsageError('--all and --relay exclude each other');
  const relays = listRelayLocks(readVariable(variables.relayHome, loadEnvironment(context.env)));
  if (flag(options, '--json')) printJson(context.stdout, { ok: relays.length > 0, relays }, 2);
  else if (relays.length === 0) sentence(context.stdout, `No relay of this user is running. ${START}`);
  else {
    const rows = relays.map((relay) => [
      `${urlHost(relay.host)}:${relay.port}${relay.tls ? ', TLS' : ''}`,
      `process ${relay.pid}`,
      printable(buildText(relay.version, relay.build)),
      printable(relay.agent_home),
    ]);
    for (const text of columns([['Address', 'Process', 'Version', 'Agent home'], ...rows])) line(context.stdout, text);
  }
  return relays.length > 0 ? 0 : 1;
}

async function fetchFacts(options: Options, context: CommandContext) {
  const relay = await openOperatorRelay(options, context);
  const isRemote = relay.url !== undefined;
  const environment = loadConfig(context.env);
  const { config } = environment;
  const asked = askAll(relay);
  const local = isRemote ? undefined : await localStatus(environment, context);
  const [health, info, devices, queue, phones, desktops, mirror] = await asked;
  const isRelay = Boolean(asObject(health.body?.readiness));
  const rows = devices.body && devicesOf(devices.body, Date.now() / 1000);
  const states = rows?.map(({ state }) => state);
  const count = (state: string) => states?.filter((other) => other === state).length ?? 0;
  const command = ownVersion(context);
  const relayFacts = {
    running: isRelay,
    ready: asObject(health.body?.readiness)?.ready === true,
    address: relay.name,
    tls: relay.tls,
    /** The build of a relay of this machine; null if it runs from the sources. */
    build: local?.lock?.build ?? null,
    version: isRelay ? printable(String(health.body?.version)) : null,
    uptime_seconds: typeof info.body?.uptime_seconds === 'number' ? info.body.uptime_seconds : null,
    pid: local?.pid ?? null,
    state_file: isRemote ? null : config.stateFile,
    /** Stores that it cannot write, with the reason. */
    failing_stores: failingStores(info.body),
    /** Problem of its machine's clock (contract 11 §5). */
    clock: readClockProblem(info.body),
    /** Addresses that the machine no longer has, and the devices that know no other. */
    gone_addresses: readGoneAddresses(info.body),
    error: isRelay ? null : (health.error ?? 'the answer is not that of a relay'),
  };
  const facts = {
    ok: relayFacts.ready,
    /** The freeze in effect. */
    frozen: readFreeze(info.body?.freeze),
    relay: relayFacts,
    /** This program. */
    command,
    /** True if the relay is older than this program. */
    outdated: isRelay && isOlder(relayFacts, command),
    /** A problem with the disk that holds the state, or null. A remote relay reports its own disk. */
    disk: shownDisk(local ? local.disk : readDiskProblem(info.body)),
    // Agent, dashboard and service belong to this machine, so they are null for a remote relay.
    agent: local?.agent ?? null,
    dashboard: local?.dashboard ?? null,
    devices: states ? { connected: count('connected'), stale: count('stale'), offline: count('offline') } : null,
    /** Devices whose session ends soon (contract 11 §2). */
    ending: (rows ?? [])
      .filter(({ endsSoon }) => endsSoon)
      .map(({ name, prefix, expiresAt }) => ({ name, session: prefix, ends_at: expiresAt ?? 0 })),
    queued: typeof queue.body?.queued === 'number' ? queue.body.queued : null,
    /** The mirror at the edge, in one line; null without one (contract 12 §1). */
    mirror: (mirror.body && mirrorText(mirror.body, isRemote)) ?? null,
    /** The last commands to phones and desktops, newest first. */
    commands: lastCommands(phones.body, desktops.body),
    service: local?.service ?? null,
  };
  return { facts, refusal: devices.next, isRemote };
}

/** Null if the relay reports neither phones nor desktops; one of an older version reports only phones. */
function lastCommands(...answers: (Record<string, unknown> | undefined)[]): CommandFacts[] | null {
  const lists = answers.map((answer) => answer?.activity).filter(Array.isArray);
  if (lists.length === 0) return null;
  const commands = lists.flat().map(commandOf);
  return commands.sort((one, other) => other.sent_at - one.sent_at).slice(0, MAX_COMMANDS);
}

function commandOf(row: unknown): CommandFacts {
  const record = (asObject(row) ?? {}) as Partial<CommandFacts> & { tool?: string };
  const { request_id = '', sent_at = 0, tool, device_name = null, decision = '', actor = null } = record;
  const { method = '', path = '' } = tool === undefined ? record : { method: 'POST', path: `/desktop/${tool}` };
  return { request_id, sent_at, method, path, device_name, decision, actor };
}

/** The stores that a relay cannot write, from the `/relay/info` of its operator. */
function failingStores(info: Record<string, unknown> | undefined): { store: string; error: string }[] {
  const rows = Array.isArray(info?.failing_stores) ? info.failing_stores.map(asObject) : [];
  return rows.map((row) => ({ store: printable(String(row?.store)), error: printable(String(row?.error)) }));
}

interface Asked {
  body?: Record<string, unknown>;
  error?: string;
  next?: string;
}

/** Asks a relay for everything, in the order of the answers. If it does not answer for its health, all have that error. */
async function askAll(relay: OperatorRelay) {
  const health = await ask(relay, '/health', TIMEOUT);
  const more = (path: string) => (health.body ? ask(relay, path, BUSY_TIMEOUT) : health);
  return Promise.all([
    health,
    more('/relay/info'),
    more('/relay/devices'),
    more('/phone/outbound'),
    more(`/bridge/activity?limit=${MAX_COMMANDS}`),
    more(`/desktop/activity?limit=${MAX_COMMANDS}`),
    more('/relay/mirror'),
  ]);
}

/** One call, whose failure is part of the result. */
const ask = (relay: OperatorRelay, path: string, timeout: number): Promise<Asked> =>
  relay.call({ method: 'GET', path, timeout }).then(
    (body) => ({ body }),
    (error) => ({
      error: describeError(error),
      next: error instanceof Unreachable ? undefined : (error as { next?: string }).next,
    }),
  );

/** Everything that is determined without the relay. */
async function localStatus(environment: ReturnType<typeof loadConfig>, context: CommandContext) {
  const { config } = environment;
  const [{ probe }, { findDiskProblem }] = await Promise.all([
    import('../lib/host/node/probe.ts'),
    import('../lib/operator/disk-problem.ts'),
  ]);
  const deps = await serviceDeps(environment, context, config.port);
  const reach = async (url: string, path: string): Promise<Reachable> => {
    const result = await probe('GET', `${url}${path}`, TIMEOUT);
    return {
      url,
      reachable: result.status !== null,
      error: result.status === null ? printable(outcome(result)) : null,
    };
  };
  const [process, disk, agent, dashboard, service] = await Promise.all([
    relayProcess(config).catch(() => null),
    findDiskProblem({ config, host: deps.host }),
    reach(apiBase(undefined, environment.env).url, '/health'),
    reach(dashboardBase(undefined, environment.env).url, '/api/status'),
    serviceStatus(deps).catch(() => null),
  ]);
  return {
    pid: process?.pid ?? null,
    lock: config.stateFile === null ? null : readRelayLock(config.stateFile),
    disk,
    agent,
    dashboard,
    service: service && { installed: service.installed, active: service.active },
  };
}

const shownDisk = (disk: DiskProblem | null): DiskProblem | null =>
  disk && { ...disk, problem: printable(disk.problem), next: printable(disk.next) };

function nextStep(
  { relay, disk, outdated, devices, ending, agent, service }: Facts,
  refusal: string | undefined,
  isRemote: boolean,
): string {
  if (!relay.running && isRemote) return "Check the URL, and that 'wrangler deploy' has published the relay there.";
  if (!relay.running && disk?.status === 'error') return disk.next;
  if (!relay.running && service?.active === 'failed') return `Find out why with: journalctl --user -u ${UNIT} -n 20`;
  if (!relay.running) return START;
  if (!relay.ready) return 'It starts or stops just now. Look again in a few seconds, or with: svc logs -f';
  if (relay.failing_stores.length > 0) {
    const where = relay.state_file === null ? 'its storage' : `the disk of ${printable(relay.state_file)}`;
    return `Look at ${where}: a crash undoes what is not stored. Then type again: svc status`;
  }
  if (disk) return disk.next;
  if (relay.clock) return clockAdvice(relay.clock);
  const [gone] = relay.gone_addresses;
  if (gone) return `Pair ${gone.devices[0]} again with: svc pair. Or give this machine its old address again.`;
  if (outdated && !isRemote) return 'The relay is older than this command. Restart it with: svc restart';
  if (!devices) return refusal ?? 'Find out more with: svc relay doctor';
  if (devices.connected + devices.stale + devices.offline === 0) return 'Pair a phone with: svc pair';
  if (agent && !agent.reachable) return 'Start the agent, or find out more with: svc relay doctor';
  const [first] = ending;
  if (first) return `Give ${first.name} more time with: svc devices extend ${first.session}`;
  return 'Nothing to do. Follow the devices with: svc devices watch';
}

function print(status: Status, context: CommandContext): void {
  const style = createStyle(context.stdout, context.env);
  for (const [label, value] of [...relayRows(status, style), ...otherRows(status, style)]) {
    const [first = '', ...more] = wrapped(context.stdout, value, LABEL_WIDTH + 2);
    line(context.stdout, `  ${style.bold(label)}${' '.repeat(LABEL_WIDTH - label.length)}${first.trimStart()}`);
    for (const text of more) line(context.stdout, text);
  }
  sentence(context.stdout, status.next);
}

type Row = [label: string, value: string];

function* relayRows({ relay, command, outdated, disk }: Status, { green, red, yellow }: Style): Generator<Row> {
  const state = relay.ready ? green('running') : relay.running ? yellow('not ready') : red('not running');
  const facts = [
    state,
    ...(relay.version === null ? [] : [`version ${printable(buildText(relay.version, relay.build))}`]),
    ...(relay.uptime_seconds === null ? [] : [`up ${duration(relay.uptime_seconds)}`]),
    ...(relay.pid === null ? [] : [`process ${relay.pid}`]),
  ];
  const newer = outdated ? yellow(' (newer than the relay)') : '';
  yield ['Relay', facts.join(', ')];
  yield ['Address', `${relay.address}, ${relay.tls ? 'TLS' : 'no TLS'}`];
  yield ['Command', `version ${buildText(command.version, command.build)}${newer}`];
  if (relay.error !== null) yield ['Error', printable(relay.error)];
  if (relay.state_file !== null) yield ['State', printable(relay.state_file)];
  for (const { store, error } of relay.failing_stores) yield ['Storage', red(`cannot store ${store}: ${error}`)];
  if (disk) yield ['Disk', (disk.status === 'error' ? red : yellow)(disk.problem)];
  if (relay.clock) yield ['Clock', yellow(clockText(relay.clock))];
  for (const gone of relay.gone_addresses) yield ['Routes', yellow(printable(goneText(gone)))];
}

function* otherRows(status: Status, style: Style): Generator<Row> {
  const { relay, devices, queued, mirror, commands, agent, dashboard, service } = status;
  const { yellow } = style;
  if (agent) yield ['Agent', reachableText(agent, style)];
  if (dashboard) yield ['Dashboard', reachableText(dashboard, style)];
  if (relay.running) yield ['Devices', devices ? devicesText(devices, style) : yellow('unknown: the relay refused')];
  for (const { name, ends_at } of status.ending) {
    yield ['Ends soon', yellow(`${name}, in ${duration(ends_at - Date.now() / 1000)}`)];
  }
  if (queued !== null)
    yield ['Queue', queued === 0 ? 'empty' : queued === 1 ? '1 message waits' : `${queued} messages wait`];
  if (mirror !== null) yield ['Mirror', mirror];
  const [last] = commands ?? [];
  if (last) yield ['Last call', commandText(last)];
  if (service) yield ['Service', service.installed ? printable(service.active ?? 'installed') : 'not installed'];
}

const reachableText = ({ url, reachable, error }: Reachable, { green, yellow }: Style): string =>
  `${url || 'not a URL'} ${reachable ? green('answers') : yellow(`does not answer: ${error}`)}`;

/** `POST /tap_text by codex (mcp, session 1a2b3c4d), 12 min ago: executed`. */
function commandText({ method, path, actor, sent_at: at, decision }: CommandFacts): string {
  const by = actor ? ` by ${actorText(actor)}` : '';
  return printable(`${method} ${path}${by}, ${duration((Date.now() - at) / 1000)} ago: ${decision}`);
}

function actorText({ kind, name, prefix }: NonNullable<CommandFacts['actor']>): string {
  if (kind === 'operator') return kind;
  const facts = [kind === 'session' ? '' : kind, prefix === undefined ? '' : `session ${prefix}`].filter(Boolean);
  return facts.length === 0 ? name : `${name} (${facts.join(', ')})`;
}

function devicesText({ connected, stale, offline }: NonNullable<Status['devices']>, style: Style): string {
  if (connected + stale + offline === 0) return 'none is paired';
  return [
    `${connected > 0 ? style.green(`${connected} connected`) : '0 connected'}`,
    ...(stale > 0 ? [style.yellow(`${stale} stale`)] : []),
    `${offline} offline`,
  ].join(', ');
}

import type { Config } from '../../config.ts';
import type { Host } from '../../host/index.ts';
import { MIN_DESCRIPTORS } from '../../host/machine.ts';
import type { ProbeResult } from '../../host/probe.ts';
import { isLoopbackName, urlHost } from '../../kit/addresses.ts';
import { asObject } from '../../kit/json.ts';
import { DAY, MiB } from '../../kit/units.ts';
import { UNIT } from '../service/unit.ts';
import { type Check, fail, notKnown, ok, outcome, warn } from './check.ts';
import type { Lifecycle } from './relay.ts';

/** Days before the end of a certificate from which the doctor warns. */
const SOON = 14;
/** Free bytes below which the state cannot be written, and below which it soon may not. */
const NO_SPACE = 16 * MiB;
const LITTLE_SPACE = 256 * MiB;
/** Descriptors for many devices with their terminals. */
const ENOUGH_DESCRIPTORS = 1024;
/** The first version of Node with everything that the relay uses. */
const NODE = '20.19';

export interface MachineDoctor {
  host: Host;
  /** Undefined if the variables are invalid. */
  config: Config | undefined;
  /** Epoch milliseconds. */
  now: number;
  relay: { port: number; tls: boolean };
  /** `GET /relay/info` of the relay on this machine. */
  info: Promise<ProbeResult>;
  devices: Promise<Check>;
  push: Promise<Check>;
  /** Process of the relay; null if this user can see none. */
  process(): Promise<number | null>;
  lifecycle: Promise<Lifecycle>;
  /** Milliseconds. */
  timeout: number;
}

/** Checks of the relay's machine (issue 16), by id. Each may reject or be slow. */
export const machineChecks = (deps: MachineDoctor): [id: string, check: Promise<Check>][] => [
  ['relay-tls', tlsCheck(deps)],
  ['relay-address', addressCheck(deps)],
  ['relay-devices', deps.devices],
  ['relay-push', deps.push],
  ['relay-tmux', tmuxCheck(deps)],
  ['relay-descriptors', descriptorsCheck(deps)],
  ['relay-node', Promise.resolve(nodeCheck(deps.host.machine.runtimeVersion))],
  ['relay-disk', diskCheck(deps)],
  ['relay-service', deps.lifecycle.then(serviceCheck)],
];

const INVALID = 'a variable of the relay is not valid: svc relay start says which';
const date = (time: number): string => new Date(time).toISOString().slice(0, 10);

/** The validity of the certificate that the relay serves, or would serve. */
async function tlsCheck({ config, host, now }: MachineDoctor): Promise<Check> {
  const id = 'relay-tls';
  if (!config) return notKnown(id, INVALID);
  const { sslCert, sslKey } = config;
  if (!sslCert && !sslKey) return ok(id, 'no certificate is configured: plain http, for a network that you trust');
  if (!sslCert || !sslKey) {
    const [given, missing] = sslCert ? ['RELAY_SSL_CERT', 'RELAY_SSL_KEY'] : ['RELAY_SSL_KEY', 'RELAY_SSL_CERT'];
    return warn(id, `${given} is set alone, so there is no TLS`, `Set ${missing} too, and restart the relay.`);
  }
  const [cert, key] = await Promise.all([host.files.readText(sslCert), host.files.readText(sslKey)]);
  if (cert === null || key === null) {
    return fail(id, `${cert === null ? sslCert : sslKey} is missing`, 'Correct RELAY_SSL_CERT and RELAY_SSL_KEY.');
  }
  const facts = host.identities.read({ cert, key });
  const renew = 'Renew the certificate that RELAY_SSL_CERT names, and restart the relay.';
  if (typeof facts === 'string') return fail(id, `${sslCert}: ${facts.replace('-', ' ')}`, renew);
  if (!facts.keyMatches) return fail(id, `${sslKey} is not the key of ${sslCert}`, renew);
  if (now > facts.validTo) return fail(id, `the certificate ended on ${date(facts.validTo)}`, renew);
  if (now < facts.validFrom) {
    return fail(id, `the certificate is not valid before ${date(facts.validFrom)}`, 'Set the clock of this machine.');
  }
  const until = date(facts.validTo);
  if (facts.validTo - now < SOON * DAY) return warn(id, `the certificate ends on ${until}`, renew);
  return ok(id, `the certificate is valid from ${date(facts.validFrom)} until ${until}`);
}

/** Checks that the relay answers on this machine's address in the network. */
async function addressCheck({ config, host, relay, info, timeout }: MachineDoctor): Promise<Check> {
  const id = 'relay-address';
  if (!config) return notKnown(id, INVALID, 'relay-tls');
  if (isLoopbackName(config.host)) {
    return ok(id, `for this machine alone (${config.host}): phones need Secure Link, Reach, a VPN or a proxy`);
  }
  const [address, { status, error }] = await Promise.all([host.network.lanAddress(), info]);
  if (address === null) {
    return warn(
      id,
      'this machine has no address in a network, so that no phone can reach it',
      'Connect it to a network; then look with: svc pair --check',
    );
  }
  const url = `${relay.tls ? 'https' : 'http'}://${urlHost(address)}:${relay.port}`;
  if (status === null) return notKnown(id, `phones would use ${url}, where nothing was tried: ${error}`);
  if (await host.network.canConnect(address, relay.port, timeout)) return ok(id, `phones of this network use ${url}`);
  return warn(
    id,
    `the relay runs, but does not answer on ${url}`,
    'Listen on every address with: svc relay start --host 0.0.0.0 (or RELAY_HOST), and open the port in the firewall.',
  );
}

/** From `GET /relay/devices`. Only a sign of life within the last 45 s makes a device connected (contract 09 §2). */
export function devicesCheck(answer: ProbeResult): Check {
  const id = 'relay-devices';
  const { devices: rows } = asObject(answer.json) ?? {};
  if (!answer.ok || !Array.isArray(rows)) return notKnown(id, `the relay does not say: ${outcome(answer)}`);
  if (rows.length === 0) return ok(id, 'none is paired yet: svc pair');
  const count = { connected: 0, stale: 0, offline: 0 };
  const stale: string[] = [];
  const ending: string[] = [];
  for (const row of rows.map((item) => asObject(item) ?? {})) {
    if (row.ends_soon === true) ending.push(String(row.device_name).slice(0, 40));
    const connections = Array.isArray(row.connections) ? row.connections.map((item) => asObject(item) ?? {}) : [];
    if (connections.length === 0) count.offline++;
    else if (connections.some((connection) => connection.stale === false)) count.connected++;
    else {
      count.stale++;
      stale.push(String(row.device_name).slice(0, 40));
    }
  }
  const summary = `${count.connected} connected, ${count.offline} offline`;
  if (ending.length > 0) {
    const remedy = 'Give it more time with: svc devices extend <name>';
    return warn(id, `${summary}; the session of ${firstOf(ending)} ends soon`, remedy);
  }
  if (count.stale === 0) return ok(id, summary);
  return warn(
    id,
    `${summary}, no sign of life for 45 s from ${firstOf(stale)}`,
    'They connect again by themselves when their network is back. See it with: svc devices watch',
  );
}

const firstOf = (names: readonly string[]): string =>
  `${names.slice(0, 5).join(', ')}${names.length > 5 ? ', ...' : ''}`;

async function tmuxCheck({ config, host }: MachineDoctor): Promise<Check> {
  const id = 'relay-tmux';
  if (config && !config.terminalTmux) return ok(id, 'off by RELAY_TERMINAL_TMUX: shells end with the relay');
  const path = await host.children.find('tmux');
  return path === null
    ? warn(id, 'tmux is not installed: shells end with the relay', 'Install it, such as with: sudo apt install tmux')
    : ok(id, `${path}: shells outlive the relay`);
}

/** The limit of the relay's process, or while none runs, of this one, which a relay started from here inherits. */
async function descriptorsCheck({ host, process }: MachineDoctor): Promise<Check> {
  const id = 'relay-descriptors';
  const pid = await process();
  const found = await host.machine.descriptors(pid ?? host.processes.own);
  if (!found) return notKnown(id, 'this system does not tell');
  const { limit, open } = found;
  const summary =
    pid === null
      ? `a relay started here may open ${limit} files`
      : `the relay may open ${limit} files, and has ${open}`;
  const raise = `Raise the limit: LimitNOFILE= with systemctl --user edit ${UNIT}, or ulimit -n before svc relay start.`;
  if (limit < MIN_DESCRIPTORS) return fail(id, `${summary}: it needs ${MIN_DESCRIPTORS}`, raise);
  if (pid !== null && open > limit * 0.8) return warn(id, `${summary}: it will soon refuse connections`, raise);
  return limit < ENOUGH_DESCRIPTORS ? warn(id, `${summary}: too few for many devices`, raise) : ok(id, summary);
}

export function nodeCheck(version: string): Check {
  const id = 'relay-node';
  const [major = 0, minor = 0] = version.split('.').map(Number);
  const [minMajor = 0, minMinor = 0] = NODE.split('.').map(Number);
  return major > minMajor || (major === minMajor && minor >= minMinor)
    ? ok(id, `Node ${version}; ${NODE} or newer is needed`)
    : fail(id, `Node ${version} is too old`, `Install Node ${NODE} or newer, and restart the relay with it.`);
}

/** Checks that the disk can store the state of a relay (contract 11 §5). Rejects if the disk cannot be examined. */
export async function diskCheck({ config, host }: Pick<MachineDoctor, 'config' | 'host'>): Promise<Check> {
  const id = 'relay-disk';
  if (!config) return notKnown(id, INVALID, 'relay-tls');
  if (config.stateFile === null) return ok(id, 'the state is in memory only: pairings end with the relay');
  const folder = config.stateFile.replace(/\/[^/]*$/, '') || '/';
  const { files, machine } = host;
  const [{ free }, isReadOnly, exists, file] = await Promise.all([
    machine.space(folder),
    machine.isReadOnly(folder),
    files.stat(folder),
    files.stat(config.stateFile),
  ]);
  if (isReadOnly) {
    const repair = 'Find out why with: sudo dmesg | tail. Repair it, mount it for writing, and type: svc restart';
    return fail(id, `the file system of ${folder} is read-only`, repair);
  }
  for (const path of [...(exists ? [folder] : []), ...(file ? [config.stateFile] : [])]) {
    if (await files.isWritable(path)) continue;
    return fail(id, `${path} is not writable`, `Make it writable for this user. See it with: ls -ld ${path}`);
  }
  if (exists && exists.kind !== 'directory')
    return fail(id, `${folder} is not a directory`, `See it with: ls -ld ${folder}`);
  const summary = `${bytesText(free)} free for the state in ${folder}`;
  const clear = `Make room there. See it with: df -h ${exists ? folder : config.agentHome}`;
  if (free < NO_SPACE) return fail(id, summary, clear);
  return free < LITTLE_SPACE ? warn(id, summary, clear) : ok(id, summary);
}

const bytesText = (bytes: number): string =>
  bytes < 1024 * MiB ? `${Math.floor(bytes / MiB)} MB` : `${Math.floor(bytes / MiB / 1024)} GB`;

/** Checks the service that should keep the relay running. */
export function serviceCheck({ service }: Lifecycle): Check {
  const id = 'relay-service';
  const { systemd, installed, active, current, linger } = service;
  if (systemd === 'unknown') return notKnown(id, 'systemd was not asked');
  if (!installed) {
    const advice =
      systemd === 'absent' ? 'this machine has no systemd' : 'keep it running with: svc relay service install';
    return ok(id, `none is installed, so the relay ends with its terminal; ${advice}`);
  }
  if (active === null) return notKnown(id, "installed, but this user's systemd does not answer");
  if (active === 'failed') return fail(id, 'it has failed', `Find out why with: journalctl --user -u ${UNIT} -n 20`);
  if (active !== 'active') return warn(id, `it is ${active}`, `Start it with: systemctl --user start ${UNIT}`);
  if (!current) {
    return warn(id, 'it runs another program or Node than this', 'Bring it up to date with: svc relay service install');
  }
  return linger === false
    ? warn(id, 'it ends when you sign out', 'Keep it running with: loginctl enable-linger')
    : ok(id, 'it runs, and starts by itself');
}

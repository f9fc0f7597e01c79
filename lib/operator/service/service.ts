import { RelayError } from '../../errors.ts';
import type { Host } from '../../host/index.ts';
import { utf8ToBytes } from '../../kit/bytes.ts';
import { createSystemd, type Systemd, type SystemdState } from './systemd.ts';
import { isManagedUnit, UNIT, type UnitParts, unitText } from './unit.ts';

const FILE_LIMIT = 64 * 1024;
const PORT_TIMEOUT = 500;

export interface ServiceParts {
  host: Host;
  /** The user's home. */
  home: string;
  /** What the unit runs; its text is made only where it is needed. */
  unit: UnitParts;
  /** Where the relay will listen. */
  port: number;
}

export interface ServiceStatus {
  schema_version: 1;
  service: typeof UNIT;
  systemd: SystemdState;
  unit_path: string;
  installed: boolean;
  /** Whether the unit file was written by these commands. */
  managed: boolean;
  /** Whether it is what this installation writes. */
  current: boolean;
  /** What the manager says; null when it does not answer. */
  enabled: boolean | null;
  active: string | null;
  exit_status: number | null;
  /** Whether it runs without somebody signed in; null when that is not known. */
  linger: boolean | null;
}

export interface ServiceInstalled {
  ok: true;
  action: 'install';
  /** Whether the unit file is another one now. */
  changed: boolean;
  dry_run: boolean;
  unit_path: string;
  enabled: boolean;
  started: boolean;
  linger: boolean | null;
}

export interface ServiceRemoved {
  ok: true;
  action: 'remove';
  changed: boolean;
  dry_run: boolean;
  unit_path: string;
  systemd: SystemdState;
}

/** What a service is installed with. */
export interface InstallOptions {
  dryRun: boolean;
  /** Also replace a unit that these commands did not write. */
  force: boolean;
  /** Start it now, not only at the next sign-in. */
  start: boolean;
}

/** Where the unit file of this user is (systemd.unit(5)). */
export function unitPath({ host, home }: Pick<ServiceParts, 'host' | 'home'>): string {
  const config = host.env.XDG_CONFIG_HOME;
  return `${config?.startsWith('/') ? config.replace(/\/+$/, '') : `${home}/.config`}/systemd/user/${UNIT}`;
}

/** The unit file and what the manager says of it. Changes nothing. */
export async function serviceStatus(parts: ServiceParts): Promise<ServiceStatus> {
  const systemd = createSystemd(parts.host);
  const path = unitPath(parts);
  const [state, text, linger] = await Promise.all([systemd.state(), readUnit(parts), systemd.lingers()]);
  const unit = state === 'ready' && text !== null ? await systemd.unit() : null;
  return {
    schema_version: 1,
    service: UNIT,
    systemd: state,
    unit_path: path,
    installed: text !== null,
    managed: text !== null && isManagedUnit(text),
    current: text !== null && text === ownText(parts),
    enabled: unit?.enabled ?? null,
    active: unit?.active ?? null,
    exit_status: unit?.exitStatus ?? null,
    linger,
  };
}

/**
 * Writes the unit, enables it, and starts it: again when the unit or what it runs may have changed.
 * @throws RelayError `unavailable` when no manager of this user answers (`extra.systemd`) or it refuses (`extra.call`),
 * `conflict` over a unit of somebody else, or when the port is taken (`extra.port`) and the service could not run.
 * Nothing is written then, but for a call that is refused.
 */
export async function installService(parts: ServiceParts, options: InstallOptions): Promise<ServiceInstalled> {
  const systemd = createSystemd(parts.host);
  await mustAnswer(systemd);
  const path = unitPath(parts);
  const text = unitText(parts.unit);
  const before = await readUnit(parts);
  if (before !== null && !isManagedUnit(before) && !options.force) throw notOurs(path);
  if (options.start) await mustBeFree(parts, systemd);
  const changed = before !== text;
  if (!options.dryRun) {
    if (changed) await parts.host.files.writeAtomic(path, utf8ToBytes(text), 0o644);
    await must(systemd, 'daemon-reload');
    await must(systemd, 'enable', UNIT);
    if (options.start) await start(systemd, changed);
  }
  return {
    ok: true,
    action: 'install',
    changed,
    dry_run: options.dryRun,
    unit_path: path,
    enabled: !options.dryRun,
    started: !options.dryRun && options.start,
    linger: await systemd.lingers(),
  };
}

/** A relay that somebody runs in a terminal holds the port: the service would end at once, again and again. */
async function mustBeFree({ host, port }: ServiceParts, systemd: Systemd): Promise<void> {
  if ((await systemd.unit())?.active === 'active') return;
  if (!(await host.network.canConnect('127.0.0.1', port, PORT_TIMEOUT))) return;
  throw new RelayError('conflict', `something listens on port ${port} already`, { extra: { port } });
}

async function start(systemd: Systemd, changed: boolean): Promise<void> {
  const state = await systemd.unit();
  if (state?.active === 'active' && !changed) return;
  // After too many failed starts the manager refuses until it is told to forget them.
  if (state?.active === 'failed') await systemd.call('reset-failed', UNIT);
  await must(systemd, 'restart', UNIT);
}

/**
 * Stops and disables the service and removes its unit. Without a manager that answers, the file is removed all the same.
 * @throws RelayError `conflict` for a unit of somebody else, `unavailable` when the manager refuses.
 */
export async function removeService(
  parts: ServiceParts,
  { dryRun, force }: Pick<InstallOptions, 'dryRun' | 'force'>,
): Promise<ServiceRemoved> {
  const systemd = createSystemd(parts.host);
  const path = unitPath(parts);
  const [text, state] = await Promise.all([readUnit(parts), systemd.state()]);
  if (text !== null && !isManagedUnit(text) && !force) throw notOurs(path);
  if (text !== null && !dryRun) {
    if (state === 'ready') await must(systemd, 'disable', '--now', UNIT);
    await parts.host.files.remove(path);
    if (state === 'ready') await must(systemd, 'daemon-reload');
  }
  return { ok: true, action: 'remove', changed: text !== null, dry_run: dryRun, unit_path: path, systemd: state };
}

const readUnit = (parts: ServiceParts): Promise<string | null> =>
  parts.host.files.readText(unitPath(parts), FILE_LIMIT);

function ownText({ unit }: ServiceParts): string | null {
  try {
    return unitText(unit);
  } catch {
    return null;
  }
}

async function mustAnswer(systemd: Systemd): Promise<void> {
  const state = await systemd.state();
  if (state === 'ready') return;
  throw new RelayError(
    'unavailable',
    state === 'absent' ? 'this machine has no systemd' : 'the systemd manager of this user does not answer',
    { extra: { systemd: state } },
  );
}

async function must(systemd: Systemd, ...args: string[]): Promise<void> {
  if (await systemd.call(...args)) return;
  const call = `systemctl --user ${args.join(' ')}`;
  throw new RelayError('unavailable', `${call} failed`, { extra: { call } });
}

const notOurs = (path: string) => new RelayError('conflict', `${path} was not written by svc relay service`);

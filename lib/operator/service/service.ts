import { RelayError } from '../../errors.ts';
import type { Host } from '../../host/index.ts';
import { utf8ToBytes } from '../../kit/bytes.ts';
import { createSystemd, type Systemd } from './systemd.ts';
import { isManagedUnit, UNIT, type UnitOptions, unitText } from './unit.ts';

const MAX_FILE = 64 * 1024;
const PORT_TIMEOUT = 500;

export interface ServiceDeps {
  host: Host;
  /** The user's home. */
  home: string;
  /** Program of the unit. */
  unit: UnitOptions;
  /** Port on which the relay will listen. */
  port: number;
}

export type ServiceStatus = Awaited<ReturnType<typeof serviceStatus>>;
export type ServiceInstalled = Awaited<ReturnType<typeof installService>>;
export type ServiceRemoved = Awaited<ReturnType<typeof removeService>>;

export interface InstallOptions {
  dryRun: boolean;
  /** Also replace a unit that these commands did not write. */
  force: boolean;
  /** Start it now rather than at the next login. */
  start: boolean;
}

/** Path of this user's unit file (systemd.unit(5)). */
export function unitPath({ host, home }: Pick<ServiceDeps, 'host' | 'home'>): string {
  const config = host.env.XDG_CONFIG_HOME;
  return `${config?.startsWith('/') ? config.replace(/\/+$/, '') : `${home}/.config`}/systemd/user/${UNIT}`;
}

/** State of the unit file and of the manager. Changes nothing. */
export async function serviceStatus(deps: ServiceDeps) {
  const systemd = createSystemd(deps.host);
  const path = unitPath(deps);
  const [state, text, linger] = await Promise.all([systemd.state(), readUnit(deps), systemd.lingers()]);
  const unit = state === 'ready' && text !== null ? await systemd.unit() : null;
  return {
    schema_version: 1,
    service: UNIT,
    systemd: state,
    unit_path: path,
    installed: text !== null,
    /** Written by these commands. */
    managed: text !== null && isManagedUnit(text),
    /** Equal to what this installation writes. */
    current: text !== null && text === ownText(deps),
    // Null if the manager does not answer.
    enabled: unit?.enabled ?? null,
    active: unit?.active ?? null,
    exit_status: unit?.exitStatus ?? null,
    /** True if it runs while nobody is logged in; null when unknown. */
    linger,
  };
}

/**
 * Writes the unit, enables it and starts it; restarts it if the unit or its program may have changed.
 * @throws RelayError `unavailable` when the user's manager does not answer (`extra.systemd`) or refuses a call
 * (`extra.call`), `conflict` over an unmanaged unit, or if the port is taken (`extra.port`), so that the service could not
 * run. Nothing is written in these cases, unless a call was refused.
 */
export async function installService(deps: ServiceDeps, options: InstallOptions) {
  const systemd = createSystemd(deps.host);
  await requireManager(systemd);
  const path = unitPath(deps);
  const text = unitText(deps.unit);
  const before = await readUnit(deps);
  if (before !== null && !isManagedUnit(before) && !options.force) throw notManaged(path);
  if (options.start) await requireFreePort(deps, systemd);
  const changed = before !== text;
  if (!options.dryRun) {
    if (changed) await deps.host.files.writeAtomic(path, utf8ToBytes(text), 0o644);
    await requireCall(systemd, 'daemon-reload');
    await requireCall(systemd, 'enable', UNIT);
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

/** While a relay in a terminal holds the port, the service would exit again and again. */
async function requireFreePort({ host, port }: ServiceDeps, systemd: Systemd): Promise<void> {
  if ((await systemd.unit())?.active === 'active') return;
  if (!(await host.network.canConnect('127.0.0.1', port, PORT_TIMEOUT))) return;
  throw new RelayError('conflict', `something listens on port ${port} already`, { extra: { port } });
}

/** True if the installed unit runs the relay of this agent home, in any version. */
export async function unitServes(deps: ServiceDeps): Promise<boolean> {
  const [text, own] = await Promise.all([readUnit(deps), ownText(deps)]);
  const home = (unit: string | null) => unit?.split('\n').find((row) => row.startsWith('Environment="SVC_HOME='));
  return text !== null && home(text) !== undefined && home(text) === home(own);
}

/**
 * Starts the installed service.
 * @throws RelayError `unavailable` like `installService`.
 */
export async function startService(deps: ServiceDeps): Promise<void> {
  const systemd = createSystemd(deps.host);
  await requireManager(systemd);
  if ((await systemd.unit())?.active === 'failed') await systemd.call('reset-failed', UNIT);
  await requireCall(systemd, 'start', UNIT);
}

async function start(systemd: Systemd, changed: boolean): Promise<void> {
  const state = await systemd.unit();
  if (state?.active === 'active' && !changed) return;
  // After too many failed starts, the manager refuses further ones until a reset.
  if (state?.active === 'failed') await systemd.call('reset-failed', UNIT);
  await requireCall(systemd, 'restart', UNIT);
}

/**
 * Stops and disables the service and removes its unit, even while the manager does not answer.
 * @throws RelayError `conflict` for an unmanaged unit, `unavailable` when the manager refuses.
 */
export async function removeService(deps: ServiceDeps, { dryRun, force }: Pick<InstallOptions, 'dryRun' | 'force'>) {
  const systemd = createSystemd(deps.host);
  const path = unitPath(deps);
  const [text, state] = await Promise.all([readUnit(deps), systemd.state()]);
  if (text !== null && !isManagedUnit(text) && !force) throw notManaged(path);
  if (text !== null && !dryRun) {
    if (state === 'ready') await requireCall(systemd, 'disable', '--now', UNIT);
    await deps.host.files.remove(path);
    if (state === 'ready') await requireCall(systemd, 'daemon-reload');
  }
  return { ok: true, action: 'remove', changed: text !== null, dry_run: dryRun, unit_path: path, systemd: state };
}

const readUnit = (deps: ServiceDeps): Promise<string | null> => deps.host.files.readText(unitPath(deps), MAX_FILE);

function ownText({ unit }: ServiceDeps): string | null {
  try {
    return unitText(unit);
  } catch {
    return null;
  }
}

/** @throws RelayError `unavailable` (`extra.systemd`) unless the manager of this user answers. */
export async function requireManager(systemd: Systemd): Promise<void> {
  const state = await systemd.state();
  if (state === 'ready') return;
  throw new RelayError(
    'unavailable',
    state === 'absent' ? 'this machine has no systemd' : 'the systemd manager of this user does not answer',
    { extra: { systemd: state } },
  );
}

async function requireCall(systemd: Systemd, ...args: string[]): Promise<void> {
  if (await systemd.call(...args)) return;
  const call = `systemctl --user ${args.join(' ')}`;
  throw new RelayError('unavailable', `${call} failed`, { extra: { call } });
}

const notManaged = (path: string) => new RelayError('conflict', `${path} was not written by svc relay service`);

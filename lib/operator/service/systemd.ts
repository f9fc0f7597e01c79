import type { Host } from '../../host/index.ts';
import { UNIT } from './unit.ts';

/** `absent`: no systemd. `unreachable`: the user's manager does not answer. */
export type SystemdState = 'ready' | 'unreachable' | 'absent';

export interface UnitState {
  enabled: boolean;
  /** `active`, `inactive`, `failed`, `activating`, ... */
  active: string;
  /** Exit status of the relay's last run, or null. */
  exitStatus: number | null;
}

/** The only variables passed to `systemctl`. */
const ENVIRONMENT = [
  'PATH',
  'HOME',
  'USER',
  'LOGNAME',
  'XDG_RUNTIME_DIR',
  'XDG_CONFIG_HOME',
  'DBUS_SESSION_BUS_ADDRESS',
];
const QUERY_TIMEOUT = 2_000;
/** Covers stopping, for which the unit has 10 s. */
const CALL_TIMEOUT = 20_000;

export type Systemd = ReturnType<typeof createSystemd>;

/** The current user's systemd manager. Never asks for root, never throws. */
export function createSystemd(host: Host) {
  const env: Record<string, string> = { LANG: 'C', SYSTEMD_COLORS: '0', SYSTEMD_PAGER: '' };
  for (const name of ENVIRONMENT) {
    const value = host.env[name];
    if (value !== undefined) env[name] = value;
  }

  async function systemctl(args: string[], timeout: number): Promise<{ code: number | null; stdout: string }> {
    const file = await host.children.find('systemctl');
    if (file === null) return { code: null, stdout: '' };
    return host.children.run({ file, args: ['--user', ...args], env, cwd: '/' }, timeout);
  }

  return {
    async state(): Promise<SystemdState> {
      if ((await host.children.find('systemctl')) === null) return 'absent';
      const { code } = await systemctl(['show', '--property=Version'], QUERY_TIMEOUT);
      return code === 0 ? 'ready' : 'unreachable';
    },
    /** State of the unit; null if the manager does not report one. */
    async unit(): Promise<UnitState | null> {
      const { code, stdout } = await systemctl(['show', UNIT, `--property=${PROPERTIES.join(',')}`], QUERY_TIMEOUT);
      return code === 0 ? unitState(stdout) : null;
    },
    /** Runs `systemctl --user`, and returns whether it succeeded. */
    call: async (...args: string[]): Promise<boolean> => (await systemctl(args, CALL_TIMEOUT)).code === 0,
    /** True if the user's services run while nobody is logged in; null when unknown. */
    async lingers(): Promise<boolean | null> {
      const user = host.env.USER || host.env.LOGNAME;
      if (!user || user.includes('/')) return null;
      const facts = await host.files.stat(`/var/lib/systemd/linger/${user}`).catch(() => null);
      return facts !== null;
    },
  };
}

const PROPERTIES = ['UnitFileState', 'ActiveState', 'ExecMainStatus', 'ExecMainExitTimestampMonotonic'];

function unitState(stdout: string): UnitState {
  const values = new Map(
    stdout.split('\n').map((line): [string, string] => {
      const at = line.indexOf('=');
      return [line.slice(0, at), line.slice(at + 1).trim()];
    }),
  );
  const status = Number(values.get('ExecMainStatus'));
  const ended = Number(values.get('ExecMainExitTimestampMonotonic')) > 0;
  return {
    enabled: values.get('UnitFileState') === 'enabled',
    active: values.get('ActiveState') || 'inactive',
    exitStatus: ended && Number.isInteger(status) ? status : null,
  };
}

import { RelayError } from '../../errors.ts';

export const UNIT = 'svc-relay.service';
const MARKER = '# managed-by: svc relay service v1';

export interface UnitOptions {
  /** Absolute path of the Node binary. */
  node: string;
  /** Absolute path of the `svc-relay` program. */
  script: string;
  /** Absolute path of the agent home. */
  agentHome: string;
  /** `PATH` of the relay and its terminals. */
  path?: string;
}

/**
 * The text of the systemd user unit.
 * @throws RelayError `unsupported` if systemd cannot run a binary of that name.
 */
export function unitText({ node, script, agentHome, path }: UnitOptions): string {
  const environment = [`SVC_HOME=${agentHome}`, ...(path ? [`PATH=${path}`] : [])];
  return `${MARKER}
# Written by 'svc relay service install'; 'svc relay service remove' takes it away.
[Unit]
Description=svc-relay, the relay between a phone and the agent of this machine
StartLimitIntervalSec=60
StartLimitBurst=5

[Service]
Type=exec
ExecStart=${[program(node), argument(script), argument('start')].join(' ')}
${environment.map((assignment) => `Environment=${quoted(assignment)}\n`).join('')}Restart=on-failure
RestartSec=2
# Exit 2 is a wrong setting: trying again does not mend it.
RestartPreventExitStatus=2
TimeoutStopSec=10
# The relay ends what it started. Shells kept in tmux are to outlive it, and the default would end them too.
KillMode=process
UMask=0077

[Install]
WantedBy=default.target
`;
}

/** True if these commands wrote a unit file, in any version. */
export const isManagedUnit = (text: string): boolean => /^# managed-by: svc relay service v\d+\r?\n/.test(text);

/** The first word of a command line: systemd neither expands variables nor accepts quotes in it (systemd.service(5)). */
function program(path: string): string {
  if (!path.startsWith('/') || /["'\\]/.test(path) || hasControl(path)) {
    throw new RelayError('unsupported', 'systemd cannot run a Node program whose path has quotes or backslashes');
  }
  return quoted(path);
}

/** Any further word, in which `$` begins a variable and `$$` stands for `$`. */
const argument = (text: string): string => quoted(text).replaceAll('$', '$$$$');

/** One word of a unit file: quotes and C escapes, and `%%` for `%` (systemd.syntax(7), systemd.unit(5)). */
function quoted(text: string): string {
  const escaped = text
    .replaceAll('\\', '\\\\')
    .replaceAll('"', '\\"')
    .replaceAll('%', '%%')
    // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters must be escaped
    .replace(/[\u0000-\u001f\u007f]/g, (character) => `\\x${character.charCodeAt(0).toString(16).padStart(2, '0')}`);
  return `"${escaped}"`;
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is tested for
const hasControl = (text: string): boolean => /[\u0000-\u001f\u007f]/.test(text);
